//! The same registration in TOML, Lua and Python publishes the same methods, for every schema builder and every
//! keyword. The TOML has each schema written out and is therefore also the expected output of the builders.

use crate::support::{Daemon, Space};
use serde_json::{Value, json};

/// A schema as a TOML value, a Lua expression and a Python expression.
struct Schema {
    toml: String,
    lua: String,
    python: String,
}

/// A field of a method in the three languages.
struct Field {
    toml: &'static str,
    lua: &'static str,
    python: &'static str,
}

/// Keywords of every builder. The last one is also in `extra`, where it is overridden.
const COMMON: [(&str, &str, &str); 7] = [
    ("", "", ""),
    ("description = \"D\"", "description = \"D\"", "description=\"D\""),
    ("default = \"x\"", "default = \"x\"", "default=\"x\""),
    ("default = false", "default = false", "default=False"),
    ("enum = [\"a\", 1, true]", "enum = { \"a\", 1, true }", "enum=[\"a\", 1, True]"),
    (
        "title = \"T\", readOnly = true",
        "extra = { title = \"T\", readOnly = true }",
        "extra={\"title\": \"T\", \"readOnly\": True}",
    ),
    (
        "description = \"D\", title = \"T\"",
        "description = \"D\", extra = { description = \"lost\", title = \"T\", type = \"lost\" }",
        "description=\"D\", extra={\"description\": \"lost\", \"title\": \"T\", \"type\": \"lost\"}",
    ),
];

/// Builders that take only keywords, with their specific keywords.
const KEYWORD_ONLY: [(&str, &[(&str, &str)]); 5] = [
    (
        "string",
        &[
            ("format = \"date-time\"", "format = \"date-time\""),
            ("minLength = 1", "min_length = 1"),
            ("maxLength = 9", "max_length = 9"),
            ("pattern = \"^a.*$\"", "pattern = \"^a.*$\""),
            (
                "format = \"f\", minLength = 0, maxLength = 2, pattern = \"p\"",
                "format = \"f\", min_length = 0, max_length = 2, pattern = \"p\"",
            ),
        ],
    ),
    (
        "integer",
        &[
            ("minimum = -5", "minimum = -5"),
            ("maximum = 5", "maximum = 5"),
            ("minimum = 0, maximum = 0", "minimum = 0, maximum = 0"),
        ],
    ),
    (
        "number",
        &[
            ("minimum = -0.5", "minimum = -0.5"),
            ("maximum = 1.25", "maximum = 1.25"),
            ("minimum = 1, maximum = 2", "minimum = 1, maximum = 2"),
        ],
    ),
    ("boolean", &[]),
    ("null", &[]),
];

/// Builders with positional arguments: TOML, Lua, Python.
const POSITIONAL: [(&str, &str, &str); 15] = [
    (
        "{ type = \"array\", items = { type = \"string\", minLength = 1 } }",
        "s.array(s.string { min_length = 1 })",
        "s.array(s.string(min_length=1))",
    ),
    (
        "{ type = \"array\", items = { type = \"null\" }, minItems = 1 }",
        "s.array(s.null(), { min_items = 1 })",
        "s.array(s.null(), min_items=1)",
    ),
    (
        "{ type = \"array\", items = { type = \"null\" }, maxItems = 3 }",
        "s.array(s.null(), { max_items = 3 })",
        "s.array(items=s.null(), max_items=3)",
    ),
    ("{ type = \"array\", items = { type = \"array\", items = {} } }", "s.array(s.array({}))", "s.array(s.array({}))"),
    ("{ type = \"object\", properties = {}, additionalProperties = false }", "s.object()", "s.object()"),
    (
        "{ type = \"object\", properties = { b = { type = \"string\" }, a = { type = \"integer\" } }, required = [\"a\", \"b\"], additionalProperties = false }",
        "s.object { b = s.string(), a = s.integer {} }",
        "s.object(b=s.string(), a=s.integer())",
    ),
    (
        "{ type = \"object\", properties = { a = { type = \"null\" } }, required = [\"a\"], additionalProperties = true }",
        "s.object { a = s.null(), additional_properties = true }",
        "s.object(a=s.null(), additional_properties=True)",
    ),
    (
        "{ type = \"object\", properties = {}, additionalProperties = { type = \"number\" } }",
        "s.object { additional_properties = s.number() }",
        "s.object(additional_properties=s.number())",
    ),
    (
        "{ type = \"object\", properties = {}, additionalProperties = true }",
        "s.object { extra = { additionalProperties = true } }",
        "s.object(extra={\"additionalProperties\": True})",
    ),
    (
        "{ type = \"object\", properties = {}, additionalProperties = false }",
        "s.object { additional_properties = false, extra = { additionalProperties = true } }",
        "s.object(additional_properties=False, extra={\"additionalProperties\": True})",
    ),
    (
        "{ type = \"object\", properties = { q = { type = \"string\" }, n = { type = \"integer\", default = 10 }, f = { type = \"boolean\", default = false }, o = { type = \"null\" } }, required = [\"q\"], additionalProperties = false }",
        "s.object { q = s.string(), n = s.optional(s.integer(), 10), f = s.optional(s.boolean(), false), o = s.optional(s.null()) }",
        "s.object(q=s.string(), n=s.optional(s.integer(), 10), f=s.optional(s.boolean(), default=False), o=s.optional(s.null()))",
    ),
    (
        "{ type = \"object\", properties = { a = { type = \"string\", default = \"new\" }, b = { type = \"string\", default = \"old\" } }, additionalProperties = false }",
        "s.object { a = s.optional(s.string { default = \"old\" }, \"new\"), b = s.optional(s.string { default = \"old\" }) }",
        "s.object(a=s.optional(s.string(default=\"old\"), \"new\"), b=s.optional(s.string(default=\"old\")))",
    ),
    (
        "{ type = \"object\", properties = { raw = { type = [\"string\", \"null\"] }, deep = { type = \"object\", properties = { x = { type = \"array\", items = { type = \"number\" } } }, required = [\"x\"], additionalProperties = false } }, required = [\"deep\", \"raw\"], additionalProperties = false }",
        "s.object { raw = { type = { \"string\", \"null\" } }, deep = s.object { x = s.array(s.number()) } }",
        "s.object(raw={\"type\": [\"string\", \"null\"]}, deep=s.object(x=s.array(s.number())))",
    ),
    (
        "{ type = \"object\", properties = { description = { type = \"string\" }, enum = { type = \"null\" }, default = { type = \"null\" }, extra = { type = \"null\" } }, required = [\"description\", \"enum\", \"extra\"], additionalProperties = false }",
        "s.object { description = s.string(), enum = s.null(), default = s.optional(s.null()), extra = s.null() }",
        "s.object(description=s.string(), enum=s.null(), default=s.optional(s.null()), extra=s.null())",
    ),
    (
        "{ anyOf = [{ type = \"string\" }, { type = \"object\", properties = { \"two words\" = { const = 1 } } }] }",
        "{ anyOf = { s.string(), { type = \"object\", properties = { [\"two words\"] = { const = 1 } } } } }",
        "{\"anyOf\": [s.string(), {\"type\": \"object\", \"properties\": {\"two words\": {\"const\": 1}}}]}",
    ),
];

/// The other fields of a method.
const FIELDS: [Field; 12] = [
    Field { toml: "", lua: "", python: "" },
    Field { toml: "keywords = [\"b\", \"a\"]", lua: "keywords = { \"b\", \"a\" }", python: "keywords=[\"b\", \"a\"]" },
    Field { toml: "keywords = []", lua: "keywords = {}", python: "keywords=[]" },
    Field { toml: "scope = \"private\"", lua: "scope = \"private\"", python: "scope=\"private\"" },
    Field { toml: "scope = \"shared\"", lua: "scope = \"shared\"", python: "scope=\"shared\"" },
    Field {
        toml: "scope = \"shared\"\ngroups = [\"ops\"]",
        lua: "scope = \"shared\", groups = { \"ops\" }",
        python: "scope=\"shared\", groups=[\"ops\"]",
    },
    Field { toml: "mcp_tool = true", lua: "mcp_tool = true", python: "mcp_tool=True" },
    Field { toml: "mcp_tool = false", lua: "mcp_tool = false", python: "mcp_tool=False" },
    Field {
        toml: "events = [\"custom.b.*\", \"space.created\"]",
        lua: "events = { \"custom.b.*\", \"space.created\" }",
        python: "events=[\"custom.b.*\", \"space.created\"]",
    },
    Field {
        toml: "events = [\"*\"]\nevent_sinks = [\"shape\", \"other\"]",
        lua: "events = { \"*\" }, event_sinks = { \"shape\", \"other\" }",
        python: "events=[\"*\"], event_sinks=[\"shape\", \"other\"]",
    },
    Field { toml: "params_schema = { type = \"null\" }", lua: "params = s.null()", python: "params=s.null()" },
    Field {
        toml: "result_schema = { type = \"null\" }",
        lua: "result = { type = \"null\" }",
        python: "result={\"type\": \"null\"}",
    },
];

/// Joins the non-empty keywords with commas.
fn listed(keywords: &[&str]) -> String {
    keywords.iter().filter(|keyword| !keyword.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

fn schemas() -> Vec<Schema> {
    let mut schemas = Vec::new();
    for (builder, own) in KEYWORD_ONLY {
        let own = own.iter().map(|(toml, given)| (*toml, *given, given.replace(" = ", "=")));
        let common = COMMON.map(|(toml, lua, python)| (toml, lua, python.to_owned()));
        for (toml, lua, python) in common.into_iter().chain(own) {
            schemas.push(Schema {
                toml: format!("{{ {} }}", listed(&[&format!("type = \"{builder}\""), toml])),
                lua: format!("s.{builder} {{ {lua} }}"),
                python: format!("s.{builder}({python})"),
            });
        }
    }
    for (toml, lua, python) in COMMON {
        let (array, object) = ("type = \"array\", items = { type = \"null\" }", "type = \"object\"");
        let rest = "properties = { a = { type = \"null\" } }, required = [\"a\"], additionalProperties = false";
        schemas.push(Schema {
            toml: format!("{{ {} }}", listed(&[array, toml])),
            lua: format!("s.array(s.null(), {{ {lua} }})"),
            python: format!("s.array({})", listed(&["s.null()", python])),
        });
        schemas.push(Schema {
            toml: format!("{{ {} }}", listed(&[object, rest, toml])),
            lua: format!("s.object {{ {} }}", listed(&["a = s.null()", lua])),
            python: format!("s.object({})", listed(&["a=s.null()", python])),
        });
        let (lua, python) = (lua.replace(", type = \"lost\"", ""), python.replace(", \"type\": \"lost\"", ""));
        let lua_default = lua.strip_prefix("default = ").map(|default| format!("s.optional(s.null(), {default})"));
        schemas.push(Schema {
            toml: format!(
                "{{ {object}, properties = {{ a = {{ {} }} }}, additionalProperties = false }}",
                listed(&["type = \"null\"", toml])
            ),
            lua: format!(
                "s.object {{ a = {} }}",
                lua_default.unwrap_or_else(|| format!("s.optional(s.null(), nil, {{ {lua} }})"))
            ),
            python: format!("s.object(a=s.optional({}))", listed(&["s.null()", &python])),
        });
    }
    let shaped =
        POSITIONAL.map(|(toml, lua, python)| Schema { toml: toml.into(), lua: lua.into(), python: python.into() });
    schemas.extend(shaped);
    schemas
}

/// The whole registration in each language: its file name and its text.
fn registrations() -> [(&'static str, String); 3] {
    let mut toml =
        "[server]\ntype = \"stdio\"\ncommand = \"sh\"\nargs = [\"-c\", \"while read -r line; do :; done\"]\n\
                    timeout = 5\nmode = \"serial\"\n"
            .to_owned();
    let mut lua = "local methods = require \"svc.methods\"\nlocal s = require \"svc.methods.schema\"\n\
                   local server = methods.Server(\"sh\", { type = \"stdio\", args = { \"-c\", \"while read -r line; do :; done\" }, \
                   timeout = 5, mode = \"serial\" })\n"
        .to_owned();
    let mut python = "from svc.methods import Server, schema as s\n\
                      server = Server(\"sh\", type=\"stdio\", args=[\"-c\", \"while read -r line; do :; done\"], timeout=5, \
                      mode=\"serial\")\n"
        .to_owned();
    let mut add = |name: String, fields: (&str, &str, &str)| {
        let named = |equals: &str| {
            format!(
                "name{equals}\"{{{{space}}}}.{name}\", local_name{equals}\"{name}\", description{equals}\"It is {name}\""
            )
        };
        toml += &format!("[[methods]]\n{}\n{}\n", named(" = ").replace(", ", "\n"), fields.0);
        lua += &format!("server:method {{ {} }}\n", listed(&[&named(" = "), fields.1]));
        python += &format!("server.method({})\n", listed(&[&named("="), fields.2]));
    };
    for (index, Field { toml, lua, python }) in FIELDS.iter().enumerate() {
        add(format!("field{index:03}"), (toml, lua, python));
    }
    for (index, Schema { toml, lua, python }) in schemas().iter().enumerate() {
        let toml = format!("params_schema = {toml}\nresult_schema = {toml}");
        let lua = format!("params = {lua}, result = {lua}");
        let python = format!("params={python}, result={python}");
        add(format!("schema{index:03}"), (&toml, &lua, &python));
    }
    lua += "server:register()\n";
    python += "server.register()\n";
    [("methods.toml", toml), ("methods.py", python), ("methods.lua", lua)]
}

/// All visible properties of a registration.
fn published(daemon: &Daemon) -> (Vec<Value>, Vec<Value>) {
    let methods = daemon.get("/api/methods").json()["methods"].as_array().expect("a list").clone();
    let names = methods.iter().map(|method| method["name"].as_str().expect("a name").to_owned());
    let details = names.map(|name| daemon.get(&format!("/api/methods/{name}")).json()).collect();
    let subscriptions = daemon.get("/api/subscriptions").json()["items"].as_array().expect("a list").clone();
    let seen = |one: &Value| json!([one["method"], one["events"], one["event_sinks"]]);
    let mut subscriptions: Vec<Value> = subscriptions.iter().map(seen).collect();
    subscriptions.sort_by_key(Value::to_string);
    (details, subscriptions)
}

#[test]
fn toml_lua_and_python_publish_the_same() {
    let daemon = Daemon::start();
    assert_eq!(daemon.post("/api/groups", &json!({ "name": "ops" })).status, 201);
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let [(_, toml), scripts @ ..] = registrations();
    space.register(&toml);
    let (methods, subscriptions) = published(&daemon);
    assert_eq!(methods.len(), FIELDS.len() + schemas().len());
    assert_eq!(subscriptions.len(), 2);
    for (name, text) in scripts {
        assert!(space.svc(&["methods", "unregister"]).status.success());
        let path = space.write(name, &text);
        let output = space.svc(&["methods", "register", path.to_str().expect("it is text")]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let (scripted, subscribed) = published(&daemon);
        assert_eq!(scripted.len(), methods.len(), "{name}");
        for (written, built) in methods.iter().zip(&scripted) {
            let line = text
                .lines()
                .find(|line| line.contains(&format!("It is {}\"", &written["name"].as_str().expect("a name")[6..])));
            assert_eq!(built, written, "{name}: {line:?}");
        }
        assert_eq!(subscribed, subscriptions, "{name}");
    }
}
