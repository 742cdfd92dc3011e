//! `/mcp` with the official clients in Python and TypeScript, in the newest version of the protocol and in older ones,
//! and with the conformance suite.

use crate::support::{
    Daemon, Receiver, Space,
    clients::{Client, Kind, installed},
    eventually, registration,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Time in which a notification would have arrived, even on a busy machine.
const WAIT_FOR_NO_NOTIFICATION: Duration = Duration::from_secs(3);

/// Time within which a notification must arrive.
const NOTIFICATION_LIMIT: Duration = Duration::from_secs(30);

const USER: &[&str] = &["use_methods", "use_mcp_server", "use_spaces"];

/// A connected space of the administrator.
fn space(daemon: &Daemon, name: &str) -> Space {
    let mut space = Space::create(daemon, name);
    space.start(daemon, &[]);
    space
}

/// Number of unanswered calls at the first provider of a method.
fn in_flight(daemon: &Daemon, name: &str) -> u64 {
    daemon.get(&format!("/api/methods/{name}")).json()["providers"][0]["in_flight"].as_u64().expect("it is counted")
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}

#[test]
fn every_official_client_lists_and_calls_tools() {
    let daemon = Daemon::start();
    let space = space(&daemon, "notes");
    let schemas = "keywords = [\"again\"]\nparams_schema = { type = \"object\", properties = { n = { type = \
                   \"integer\" } } }\nresult_schema = { type = \"object\", required = [\"n\"] }";
    let tool = |fields: &str| format!("mcp_tool = true\n{fields}");
    let (echo, other) = (tool(schemas), tool("result_schema = { type = \"array\" }"));
    let methods =
        [("{{space}}.echo", &*echo), ("fail", &tool("")), ("{{space}}.arguments", &other), ("{{space}}.pid", "")];
    space.register(&registration("echo.py one", "", &methods));
    for kind in Kind::ALL {
        let client = Client::connect(kind, &daemon.url, &daemon.admin_token());
        let newest = matches!(kind, Kind::Python | Kind::TypeScript);
        assert_eq!(client.version, if newest { "2026-07-28" } else { "2025-11-25" }, "{kind:?}");
        let tools = client.tools();
        let tools: BTreeMap<_, _> =
            tools["tools"].as_array().unwrap().iter().map(|tool| (tool["name"].as_str().unwrap(), tool)).collect();
        assert_eq!(tools.keys().collect::<Vec<_>>(), [&"fail", &"notes_arguments", &"notes_echo"], "{kind:?}");
        let echo = tools["notes_echo"];
        assert_eq!(echo["inputSchema"]["properties"], json!({"n": {"type": "integer"}}), "{kind:?}");
        assert_eq!(echo["outputSchema"]["required"], json!(["n"]), "{kind:?}");
        assert_eq!(echo["_meta"]["keywords"], json!(["again"]), "{kind:?}");

        let echoed = client.call("notes_echo", &json!({"n": 7})).expect("it is answered");
        assert_eq!((text(&echoed), &echoed["structuredContent"]), ("{\"n\": 7}", &json!({"n": 7})), "{kind:?}");
        // The client checks the result against the schema; the server does not.
        let broken = client.call("notes_echo", &json!({"m": 7})).expect_err("the schema says otherwise");
        assert!(broken["message"].as_str().unwrap().contains('n'), "{kind:?}: {broken}");
        let listed = client.call("notes_arguments", &json!({})).expect("it is answered");
        assert_eq!(text(&listed), "[\"one\"]", "{kind:?}");
        let failed = client.call("fail", &json!({"why": 1})).expect("a tool error is an answer");
        assert_eq!((&failed["isError"], text(&failed)), (&json!(true), "as you wish"), "{kind:?}");
        for absent in ["notes_pid", "nothing"] {
            let error = client.call(absent, &json!({})).expect_err("there is no such tool");
            assert_eq!(error["code"], -32602, "{kind:?}: {error}");
        }
        client.close();
    }
}

#[test]
fn two_users_see_different_tools_and_are_notified_of_changes_in_their_own() {
    let daemon = Daemon::start();
    let uma = daemon.create_user("uma", USER);
    let shared = "mcp_tool = true\nscope = \"shared\"";
    let admins = space(&daemon, "notes");
    admins.register(&registration("echo.py", "", &[("a.echo", shared), ("b.echo", "mcp_tool = true")]));
    let mut umas = Space::create_with(&daemon, &uma, json!({"name": "own"}));
    umas.start(&daemon, &[]);
    umas.register(&registration("echo.py", "", &[("c.echo", "mcp_tool = true")]));
    let connect = |token: &str| Kind::ALL.map(|kind| Client::connect(kind, &daemon.url, token));
    let (of_admin, of_uma) = (connect(&daemon.admin_token()), connect(&uma));
    for client in of_admin.iter().chain(&of_uma) {
        client.listen();
    }
    eventually("everybody to listen", || (daemon.metric("svc_mcp_streams") == 8.0).then_some(()));
    for (client, other) in of_admin.iter().zip(&of_uma) {
        assert_eq!(client.list().0, ["a_echo", "b_echo"], "{:?}", client.kind);
        assert_eq!(other.list().0, ["c_echo", "user_admin_a_echo"], "{:?}", other.kind);
        assert!(client.call("a_echo", &json!({})).is_ok());
        assert!(other.call("user_admin_a_echo", &json!({})).is_ok());
        assert!(other.call("a_echo", &json!({})).is_err(), "it is another's");
        assert!(client.call("c_echo", &json!({})).is_err(), "it is another's");
    }
    // Other users are not notified of changes to uma's own tools.
    umas.register(&registration("echo.py", "", &[("c.echo", "mcp_tool = true"), ("d.echo", "mcp_tool = true")]));
    for client in &of_uma {
        assert!(client.is_notified(NOTIFICATION_LIMIT), "{:?}", client.kind);
        assert_eq!(client.list().0, ["c_echo", "d_echo", "user_admin_a_echo"]);
    }
    for client in &of_admin {
        assert!(
            !client.is_notified(WAIT_FOR_NO_NOTIFICATION),
            "{:?} was notified of a tool that it does not see",
            client.kind
        );
    }
    // Everybody is notified of changes to shared tools.
    admins.register(&registration("echo.py", "", &[("e.echo", shared)]));
    for client in of_admin.iter().chain(&of_uma) {
        assert!(client.is_notified(NOTIFICATION_LIMIT), "{:?}", client.kind);
    }
    for client in &of_uma {
        assert_eq!(client.list().0, ["c_echo", "d_echo", "user_admin_e_echo"]);
    }
}

#[test]
fn a_slow_or_dying_provider_fails_its_own_call_and_the_session_continues() {
    let daemon = Daemon::start();
    let mut slow = Space::create(&daemon, "slow");
    let quick = space(&daemon, "quick");
    quick.register(&registration("echo.py", "", &[("q.echo", "mcp_tool = true")]));
    for kind in Kind::ALL {
        slow.start(&daemon, &[]);
        slow.register(&registration("holds_calls.py", "timeout = 1", &[("l.hold", "mcp_tool = true")]));
        daemon.wait_method("l.hold");
        let client = Client::connect(kind, &daemon.url, &daemon.admin_token());
        let held = client.begin_call("l_hold", &json!({}));
        let echoed = client.call("q_echo", &json!({"n": 1})).expect("others are answered meanwhile");
        assert_eq!(text(&echoed), "{\"n\": 1}");
        let late = client.answer(held).expect("it is an answer");
        assert_eq!((&late["isError"], text(&late)), (&json!(true), "`l.hold` did not reply within 1 s"), "{kind:?}");
        // The agent is killed during the call.
        slow.register(&registration("holds_calls.py", "", &[("l.hold", "mcp_tool = true")]));
        daemon.wait_method("l.hold");
        let held = client.begin_call("l_hold", &json!({}));
        eventually("the call to be out", || (in_flight(&daemon, "l.hold") == 1).then_some(()));
        slow.kill();
        let dead = client.answer(held).expect("it is an answer");
        assert_eq!(dead["isError"], true, "{kind:?}: {dead}");
        assert!(text(&dead).contains("`l.hold` is not available"), "{kind:?}: {dead}");
        assert_eq!(client.list().0, ["l_hold", "q_echo"], "its tool is still listed, as are others'");
        assert!(client.call("q_echo", &json!({})).is_ok(), "{kind:?}");
    }
}

#[test]
fn a_call_that_its_client_cancels_is_released() {
    let daemon = Daemon::start();
    let space = space(&daemon, "late");
    space.register(&registration("holds_calls.py", "", &[("l.hold", "mcp_tool = true"), ("l.pid", "mcp_tool = true")]));
    for kind in Kind::ALL {
        let client = Client::connect(kind, &daemon.url, &daemon.admin_token());
        let held = client.begin_call("l_hold", &json!({}));
        eventually("the call to be out", || (in_flight(&daemon, "l.hold") == 1).then_some(()));
        client.cancel(held);
        eventually("the call to be released", || (in_flight(&daemon, "l.hold") == 0).then_some(()));
        client.answer(held).expect_err("it was taken back");
        assert!(client.call("l_pid", &json!({})).is_ok(), "{kind:?}: the session continues");
    }
}

#[test]
fn a_stored_tool_runs_as_its_caller_and_its_events_reach_the_callers_sinks() {
    let daemon = Daemon::with(&[("EGRESS_ALLOW_PRIVATE", "true")]);
    let uma = daemon.create_user("uma", &["use_mcp_server", "use_spaces", "manage_own_event_sinks"]);
    let receiver = Receiver::start();
    let hook = |name: &str, owner: &str| {
        let webhook = json!({"url": receiver.url(&format!("/{name}"))});
        json!({"name": name, "owner": owner, "events": "custom.note.*", "type": "webhook", "webhook": webhook})
    };
    daemon.create_sink(&hook("all", "global"));
    daemon.create_sink(&hook("admins", "me"));
    let source = daemon.directory().join("note.add.lua");
    let lua = "svc.event.emit('note.added', {text = params.text})\nreturn {added = params.text}";
    std::fs::write(&source, lua).expect("there is room");
    let schema = daemon.directory().join("schema.json");
    let text_only = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    std::fs::write(&schema, text_only.to_string()).expect("there is room");
    let paths = [&source, &schema].map(|path| path.to_str().expect("the path is text"));
    let words = ["script", "apply", paths[0], "--kind", "tool", "--global", "--params-schema", paths[1]];
    let applied = daemon.svc(&words);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    for kind in Kind::ALL {
        let client = Client::connect(kind, &daemon.url, &uma);
        assert_eq!(client.list().0, ["note_add"], "{kind:?}");
        let added = client.call("note_add", &json!({"text": format!("{kind:?}")})).expect("it is answered");
        assert_eq!(text(&added), format!("{{\"added\":\"{kind:?}\"}}"));
        let refused = client.call("note_add", &json!({"text": 1})).expect("a tool error is an answer");
        assert_eq!(refused["isError"], true, "{kind:?}: {refused}");
    }
    let received_events = receiver.wait_for(Kind::ALL.len());
    let texts = received_events.iter().map(|received| received.json()["data"]["text"].as_str().map(str::to_owned));
    assert_eq!(texts.collect::<Vec<_>>(), Kind::ALL.map(|kind| Some(format!("{kind:?}"))));
    assert!(received_events.iter().all(|received| received.path == "/all"), "the event is uma's");
}

#[test]
fn a_long_list_of_tools_is_paged() {
    let daemon = Daemon::start();
    let space = space(&daemon, "many");
    let names: Vec<_> = (0..450).map(|n| format!("n{n:03}.echo")).collect();
    let methods: Vec<_> = names.iter().map(|name| (name.as_str(), "mcp_tool = true")).collect();
    space.register(&registration("echo.py", "", &methods));
    let expected: Vec<_> = names.iter().map(|name| name.replace('.', "_")).collect();
    for kind in Kind::ALL {
        let client = Client::connect(kind, &daemon.url, &daemon.admin_token());
        let (names, pages) = client.list();
        assert!(names == expected, "{kind:?}: {} tools", names.len());
        // The newest client follows the pages by itself.
        assert_eq!(pages, if kind == Kind::TypeScript { 1 } else { 3 }, "{kind:?}");
    }
}

/// `tests/fixtures/mcp/scenarios.toml` has the expected result of each scenario.
#[test]
fn the_conformance_suite_passes_every_scenario_that_applies() {
    let scenarios = include_str!("../fixtures/mcp/scenarios.toml");
    let scenarios: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(scenarios).expect("it is TOML");
    let suite = |arguments: &[&str]| {
        let clients = installed();
        let program = clients.directory.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let output = Command::new(&clients.node).arg(program).args(arguments).output().expect("the suite runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), said)
    };
    let (_, listed) = suite(&["list", "--server"]);
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    let mut known: Vec<_> = scenarios.values().flat_map(|table| table.keys().map(String::as_str)).collect();
    let mut names: Vec<_> = names.collect();
    known.sort_unstable();
    names.sort_unstable();
    assert_eq!(names, known, "every scenario is looked at: {listed}");

    let daemon = Daemon::start();
    let space = space(&daemon, "suite");
    let schema = "mcp_tool = true\n[methods.params_schema]\n\"$schema\" = \"https://json-schema.org/draft/2020-12/schema\"\n\
                  type = \"object\"\nadditionalProperties = false\n[methods.params_schema.\"$defs\".address]\n\
                  type = \"object\"\nproperties = { street = { type = \"string\" }, city = { type = \"string\" } }\n\
                  [methods.params_schema.properties]\nname = { type = \"string\" }\n\
                  address = { \"$ref\" = \"#/$defs/address\" }";
    let methods = [
        ("test_simple_text", "mcp_tool = true"),
        ("test_error_handling", "mcp_tool = true"),
        ("json_schema_2020_12_tool", schema),
    ];
    space.register(&registration("conformance.py", "", &methods));
    let proxy = Proxy::start(&daemon);
    for scenario in scenarios["applies"].keys() {
        let (passed, said) = suite(&["server", "--url", &proxy.url, "--scenario", scenario]);
        assert!(passed && said.contains(", 0 failed, 0 warnings"), "{scenario}: {said}");
        assert!(!said.contains("Passed: 0/0"), "{scenario} has nothing to say: {said}");
    }
}

/// A proxy that adds the administrator's token to the requests of the suite.
struct Proxy {
    child: Child,
    url: String,
}

impl Proxy {
    fn start(daemon: &Daemon) -> Self {
        let clients = installed();
        let mut child = Command::new(&clients.node)
            .arg(clients.directory.join("proxy.mjs"))
            .args([&daemon.url, &daemon.admin_token()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the proxy starts");
        let port = BufReader::new(child.stdout.take().expect("it is piped")).lines().next();
        let port = port.expect("the proxy prints its port").expect("output is text");
        Self { child, url: format!("http://localhost:{port}/mcp") }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
