//! Each field of a registration, from the file to its published value or effect.

use crate::support::{Daemon, Space, registration};
use serde_json::{Value, json};

/// A daemon with two groups and a space with a connected agent.
struct RegistrationTest {
    daemon: Daemon,
    space: Space,
    ops: Value,
    dev: Value,
}

impl RegistrationTest {
    fn new() -> Self {
        let daemon = Daemon::start();
        let group = |name: &str| {
            let made = daemon.post("/api/groups", &json!({ "name": name })).json();
            json!({"id": made["id"], "name": made["name"]})
        };
        let (ops, dev) = (group("ops"), group("dev"));
        daemon.create_sink(&json!({"name": "shape", "events": "*", "type": "json-rpc", "template": "return {}"}));
        let mut space = Space::create(&daemon, "notes");
        space.start(&daemon, &[]);
        Self { daemon, space, ops, dev }
    }

    /// The method published under this name.
    fn published(&self, name: &str) -> Value {
        let reply = self.daemon.get(&format!("/api/methods/{name}"));
        assert_eq!(reply.status, 200, "{name}: {}", reply.text);
        reply.json()
    }

    #[track_caller]
    fn assert_refused(&self, text: &str, part: &str) {
        let output = self.space.try_register(text);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(message.contains(part) && message.lines().count() == 1, "{part}: {message}");
    }
}

#[test]
fn each_field_of_a_method_is_published_as_written() {
    let test = RegistrationTest::new();
    let (ops, dev) = (test.ops.clone(), test.dev.clone());
    let plain = json!({
        "description": "Does it", "keywords": [], "scope": "private", "groups": [], "owner": "admin",
        "mcp_tool": false, "params_schema": null, "result_schema": null, "events": [], "provider_count": 1,
        "available_count": 1,
        "providers": [{"space_id": test.space.id, "space": "notes", "health": "running", "in_flight": 0}],
    });
    let by_id = format!("scope = \"shared\"\ngroups = [{}, \"ops\"]", dev["id"]);
    let schema = r#"{ type = "object", properties = { q = { type = ["string", "null"], minLength = 1 }, n = { type =
        "integer" }, x = { type = "number" }, b = { type = "boolean" }, l = { type = "array", items = {} } } }"#;
    let schema = schema.replace('\n', " ");
    let schema_json = json!({"type": "object", "properties": {
        "q": {"type": ["string", "null"], "minLength": 1}, "n": {"type": "integer"}, "x": {"type": "number"},
        "b": {"type": "boolean"}, "l": {"type": "array", "items": {}},
    }});
    let mut both = vec![ops.clone(), dev];
    both.sort_by_key(|group| group["id"].to_string());
    let params = format!("params_schema = {schema}");
    let result = format!("result_schema = {schema}");
    let cases = [
        ("", json!({})),
        ("keywords = [\"b\", \"a\"]", json!({"keywords": ["b", "a"]})),
        ("scope = \"private\"", json!({})),
        ("scope = \"shared\"", json!({"scope": "shared"})),
        ("scope = \"shared\"\ngroups = [\"ops\"]", json!({"scope": "shared", "groups": [ops]})),
        (&*by_id, json!({"scope": "shared", "groups": both})),
        ("scope = \"shared\"\ngroups = []", json!({"scope": "shared"})),
        ("mcp_tool = true", json!({"mcp_tool": true})),
        ("mcp_tool = false", json!({})),
        (&*params, json!({"params_schema": schema_json})),
        (&*result, json!({"result_schema": schema_json})),
        ("events = [\"custom.b.*\", \"space.created\"]", json!({"events": ["custom.b.*", "space.created"]})),
        ("event_sinks = [\"shape\"]", json!({})),
    ];
    // Names with one dot, with several, and with none.
    let name = |n: usize| ["{{space}}.NUMBER.echo", "xNUMBER.echo", "NUMBER-deep.er.{{space}}.echo"][n % 3];
    let names: Vec<String> = (0..cases.len()).map(|n| name(n).replace("NUMBER", &n.to_string())).collect();
    let mut methods: Vec<_> = names.iter().zip(&cases).map(|(name, (fields, _))| (name.as_str(), *fields)).collect();
    methods.push(("echo", ""));
    test.space.register(&registration("echo.py", "", &methods));
    let list = test.daemon.get("/api/methods").json();
    assert_eq!(list["methods"].as_array().map(Vec::len), Some(methods.len()));
    let cases = cases.iter().map(|(_, changed)| changed.clone()).chain([json!({})]);
    for ((name, fields), changed) in methods.iter().zip(cases) {
        let name = name.replace("{{space}}", "notes");
        let mut expected = plain.clone();
        expected["name"] = json!(name);
        expected.as_object_mut().expect("it is one").extend(changed.as_object().expect("it is one").clone());
        let mut published = test.published(&name);
        if let Some(groups) = published["groups"].as_array_mut() {
            groups.sort_by_key(|group| group["id"].to_string());
        }
        assert_eq!(published, expected, "{fields}");
        // The method server is called by the local name.
        assert_eq!(test.daemon.call(&name, &json!({"n": 1}))["result"], json!({"n": 1}));
    }
    let text = registration("echo.py", "", &[("x.echo", "events = [\"custom.*\"]\nevent_sinks = [\"b\", \"shape\"]")]);
    test.space.register(&text.replace("Does it", "Ünïcode \\\"and\\\" more"));
    assert_eq!(test.published("x.echo")["description"], "Ünïcode \"and\" more");
    let subscription = test.daemon.get("/api/subscriptions").json()["items"][0].clone();
    assert_eq!(
        (&subscription["method"], &subscription["events"], &subscription["event_sinks"]),
        (&json!("x.echo"), &json!("custom.*"), &json!(["b", "shape"]))
    );
}

#[test]
fn names_in_event_sinks_that_shape_nothing_are_warned_about() {
    let test = RegistrationTest::new();
    let hook = json!({"name": "hook", "events": "*", "type": "script", "script": {"source": "return"}});
    test.daemon.create_sink(&hook);
    let fields = "events = [\"custom.*\"]\nevent_sinks = [\"shape\", \"shpae\", \"hook\"]";
    let text = registration("echo.py", "", &[("x.echo", fields)]);
    let output = test.space.try_register(&text);
    let expected = "svc: warning: `event_sinks` of `x.echo` names `hook`: that sink has the type script, and only json-rpc \
                    sinks shape events\n\
                    svc: warning: `event_sinks` of `x.echo` names `shpae`: no json-rpc sink has this name\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "registered 1 method: x.echo\n");
    assert!(test.space.log().contains("names `shpae`"), "{}", test.space.log());
    // A registration without the mistake has no warning.
    let output = test.space.try_register(&text.replace(", \"shpae\", \"hook\"", ""));
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()), (Some(0), String::new()));
    let without_events = registration("echo.py", "", &[("x.echo", "event_sinks = [\"shape\"]")]);
    let output = test.space.try_register(&without_events);
    let expected = "svc: warning: `event_sinks` of `x.echo` have no effect without `events`\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn a_filter_that_equals_no_field_is_warned_about() {
    let test = RegistrationTest::new();
    let fields = "events = [\"custom.*\"]\nfilter = \"event.data.id == 9007199254740993\"";
    let output = test.space.try_register(&registration("echo.py", "", &[("x.echo", fields)]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("svc: warning: `filter` of `x.echo`: 9007199254740993 is past 2^53"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "registered 1 method: x.echo\n");
}

#[test]
fn groups_of_a_private_method_are_warned_about() {
    let test = RegistrationTest::new();
    let text = registration("echo.py", "", &[("x.echo", "groups = [\"ops\"]")]);
    let output = test.space.try_register(&text);
    let expected = "svc: warning: `groups` of `x.echo` have no effect: its scope is private\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "registered 1 method: x.echo\n");
    let output = test.space.try_register(&text.replace("groups", "scope = \"shared\"\ngroups"));
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()), (Some(0), String::new()));
}

#[test]
fn missing_and_invalid_fields_of_a_method_are_refused_with_their_line() {
    let test = RegistrationTest::new();
    let good = registration("echo.py", "", &[("x.echo", "")]);
    for (from, to, part) in [
        ("name = \"x.echo\"", "", "line 5"),
        ("local_name = \"echo\"", "", "local_name"),
        ("description = \"Does it\"", "", "description"),
        (
            "description = \"Does it\"",
            "description = 5",
            "line 8: `methods[0].description`: expected a string, found the integer 5",
        ),
        ("description = \"Does it\"", "description = \"x\"\nscope = \"public\"", "line 9"),
        ("description = \"Does it\"", "description = \"x\"\nmcp_tool = \"yes\"", "line 9"),
        ("description = \"Does it\"", "description = \"x\"\nkeywords = \"a\"", "line 9"),
        ("description = \"Does it\"", "description = \"x\"\nevents = [\"a.*.b\"]", "line 9"),
        ("description = \"Does it\"", "description = \"x\"\nparams_schema = { type = \"date\" }", "line 9"),
        ("description = \"Does it\"", "description = \"x\"\nresult_schema = { minLength = -1 }", "line 9"),
        ("name = \"x.echo\"", "name = \"x echo\"", "line 6"),
        ("name = \"x.echo\"", "name = \"rpc.echo\"", "line 6"),
        ("name = \"x.echo\"", "name = \"user.echo\"", "line 6"),
        ("name = \"x.echo\"", "name = \"space.echo\"", "line 6"),
    ] {
        assert!(good.contains(from), "{good}");
        test.assert_refused(&good.replacen(from, to, 1), part);
    }
    let nobody = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77";
    for group in ["nobody", nobody] {
        let fields = format!("scope = \"shared\"\ngroups = [\"ops\", \"{group}\"]");
        test.assert_refused(&registration("echo.py", "", &[("x.echo", &fields)]), group);
    }
    assert_eq!(test.daemon.get("/api/methods").json()["methods"], json!([]));
}

#[test]
fn each_field_of_a_server_takes_effect() {
    let test = RegistrationTest::new();
    let (daemon, space) = (&test.daemon, &test.space);
    // `command` with and without `args`.
    space.register(&registration("echo.py --one two", "", &[("x.arguments", "")]));
    assert_eq!(daemon.call("x.arguments", &json!({}))["result"], json!(["--one", "two"]));
    let script = space.write("serve.sh", &format!("#!/bin/sh\nexec python3 {}/echo.py \"$@\"\n", fixtures()));
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let bare = "[server]\ncommand = \"./serve.sh\"\n[[methods]]\nname = \"x.arguments\"\nlocal_name = \"arguments\"\n\
                description = \"Tells\"\n";
    space.register(bare);
    assert_eq!(daemon.call("x.arguments", &json!({}))["result"], json!([]));
    space.register(&bare.replace("[server]\n", "[server]\ntype = \"stdio\"\nargs = []\nmode = \"concurrent\"\n"));
    assert_eq!(daemon.call("x.arguments", &json!({}))["result"], json!([]));
    // `mode`: concurrent by default, so that calls reach the process before others are answered.
    space.register(&registration("reverse_order.py 2", "", &[("r.echo", "")]));
    let call = |n: u32| json!({"jsonrpc": "2.0", "method": "r.echo", "params": {"n": n}, "id": n});
    let answers = daemon.post("/api/methods/call", &json!([call(0), call(1)])).json();
    assert_eq!((&answers[0]["result"]["n"], &answers[1]["result"]["n"]), (&json!(0), &json!(1)));
    // `timeout`, in both modes.
    for mode in ["concurrent", "serial"] {
        let server = format!("mode = \"{mode}\"\ntimeout = 1");
        space.register(&registration("holds_calls.py", &server, &[("l.hold", "")]));
        assert_eq!(daemon.call("l.hold", &json!({}))["error"]["code"], -32001, "{mode}");
    }
    for (from, to) in [
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\ntype = \"http\""),
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\nmode = \"parallel\""),
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\ntimeout = 0"),
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\ntimeout = -1"),
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\ntimeout = 1.5"),
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\nargs = \"a\""),
        ("command = \"./serve.sh\"", "command = \"./serve.sh\"\nargs = [1]"),
    ] {
        test.assert_refused(&bare.replace(from, to), "line 3");
    }
    test.assert_refused(&bare.replace("command = \"./serve.sh\"\n", ""), "command");
    test.assert_refused(&bare.replace("./serve.sh", ""), "line 2");
}

fn fixtures() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/methods")
}
