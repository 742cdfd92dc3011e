//! Methods, from registration to response, with a real server, a real agent, and method servers in Python and shell.

use crate::support::{Daemon, Space, eventually, registration, stderr, stdout};
use serde_json::{Value, json};
use std::{
    io::Write,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// A daemon and a space with a connected agent.
fn connected_space() -> (Daemon, Space) {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    (daemon, space)
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}

#[test]
fn a_method_server_in_python_is_published_called_and_unregistered() {
    let (daemon, space) = connected_space();
    space.register(&registration("echo.py", "", &[("{{space}}.echo", ""), ("calc.add", ""), ("calc.fail", "")]));
    assert_eq!(daemon.call("notes.echo", &json!({"a": [1.5, null, "ü"]}))["result"], json!({"a": [1.5, null, "ü"]}));
    assert_eq!(daemon.call("calc.add", &json!({"a": 2, "b": 3}))["result"], 5);
    let refused = daemon.call("calc.add", &json!({"a": 2}));
    assert_eq!(refused["error"], json!({"code": -32602, "message": "`a` and `b` must be numbers"}));
    let failed = daemon.call("calc.fail", &json!({"x": 1}));
    assert_eq!(failed["error"], json!({"code": -1234, "message": "as you wish", "data": {"x": 1}}));

    assert!(space.svc(&["methods", "unregister"]).status.success());
    assert_eq!(daemon.get("/api/methods").json(), json!({"methods": []}));
    assert_eq!(code(&daemon.call("calc.add", &json!({}))), -32601);
}

#[test]
fn a_method_server_in_shell_is_called() {
    let (daemon, space) = connected_space();
    space.register(&registration("echo.sh", "", &[("shell.echo", "")]));
    assert_eq!(daemon.call("shell.echo", &json!({"text": "hello"}))["result"], json!({"text": "hello"}));
}

#[test]
fn a_new_registration_replaces_the_old_one_and_a_failed_one_changes_nothing() {
    let (daemon, space) = connected_space();
    space.register(&registration("echo.py", "", &[("one.echo", "")]));
    space.register(&registration("echo.py", "", &[("x.echo", ""), ("x.pid", "")]));
    let process = daemon.call("x.pid", &json!({}))["result"].clone();
    for (text, part) in [
        (registration("echo.py", "", &[("x.echo", "groups = [\"nobody\"]")]), "there is no group named `nobody`"),
        (registration("echo.py", "", &[("x.echo", "params_schema = { type = \"text\" }")]), "methods[0].params_schema"),
        (registration("echo.py", "", &[("svc.echo", "")]), "reserved"),
        (registration("echo.py", "", &[("x.echo", "colour = \"red\"")]), "line 9"),
        (registration("echo.py", "port = 5", &[("x.echo", "")]), "line 4"),
        (registration("echo.py", "", &[]), "at least one"),
        (
            "[server]\ncommand = \"./no-such-program\"\n[[methods]]\nname=\"a\"\nlocal_name=\"a\"\ndescription=\"a\"\n"
                .to_owned(),
            "no-such-program",
        ),
    ] {
        let output = space.try_register(&text);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(stderr(&output).contains(part) && stderr(&output).lines().count() == 1, "{part}: {}", stderr(&output));
    }
    assert_eq!(daemon.call("x.pid", &json!({}))["result"], process, "the old one serves on, in the same process");
    space.register(&registration("echo.py", "", &[("y.pid", "")]));
    assert_ne!(daemon.call("y.pid", &json!({}))["result"], process);
    assert_eq!(code(&daemon.call("x.echo", &json!({}))), -32601);
    let id = process.as_i64().expect("a process id");
    eventually("the old process to be gone", || (!std::path::Path::new(&format!("/proc/{id}")).exists()).then_some(()));
}

#[test]
fn spaces_that_publish_one_name_must_agree_on_it_and_share_its_calls() {
    let (daemon, space) = connected_space();
    let mut other = Space::create(&daemon, "other");
    other.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("x.pid", "")]));
    let refused = other.try_register(&registration("echo.py", "", &[("x.pid", "mcp_tool = true")]));
    assert!(
        stderr(&refused).contains("`x.pid` is published by space `notes` with another mcp_tool"),
        "{}",
        stderr(&refused)
    );
    other.register(&registration("echo.py", "", &[("x.pid", "")]));
    assert_eq!(daemon.get("/api/methods/x.pid").json()["provider_count"], 2);
    // Sequential calls always go to the first provider.
    let first = daemon.call("x.pid", &json!({}))["result"].clone();
    assert_eq!(daemon.call("x.pid", &json!({}))["result"], first);
    space.svc(&["methods", "unregister"]);
    assert_ne!(daemon.call("x.pid", &json!({}))["result"], first);
}

#[test]
fn responses_in_any_order_are_matched_to_their_calls() {
    let (daemon, space) = connected_space();
    // The fixture collects ten calls and answers the last one first.
    space.register(&registration("reverse_order.py 10", "", &[("r.echo", "")]));
    let call = |n: u32| json!({"jsonrpc": "2.0", "method": "r.echo", "params": {"n": n}, "id": n});
    let reply = daemon.post("/api/methods/call", &(0..10).map(call).collect::<Vec<_>>().into()).json();
    let results: Vec<_> =
        reply.as_array().expect("a batch").iter().map(|answer| answer["result"]["n"].clone()).collect();
    assert_eq!(results, (0..10).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn a_slow_call_times_out_and_its_late_response_is_ignored() {
    let (daemon, space) = connected_space();
    // The fixture answers `hold` only after `release`.
    space.register(&registration("holds_calls.py", "timeout = 1", &[("l.hold", ""), ("l.release", "")]));
    let late = daemon.call("l.hold", &json!({}));
    assert_eq!(late["error"], json!({"code": -32001, "message": "`l.hold` did not reply within 1 s"}));
    assert!(daemon.call("l.release", &json!({}))["result"].is_i64(), "the answer is this call's, not the late one's");
    assert_eq!(daemon.get("/api/methods/l.hold").json()["providers"][0]["in_flight"], 0);
}

#[test]
fn duplicate_ids_and_malformed_lines_from_a_method_server_are_ignored() {
    let (daemon, space) = connected_space();
    space.register(&registration("duplicate_ids.py", "", &[("d.echo", "")]));
    for n in 0..20 {
        assert_eq!(daemon.call("d.echo", &json!({"n": n}))["result"], json!({"n": n}));
    }
    space.register(&registration("malformed_lines.py", "", &[("g.echo", "")]));
    for n in 0..3 {
        assert_eq!(daemon.call("g.echo", &json!({"n": n}))["result"], json!({"n": n}));
    }
}

#[test]
fn a_method_server_that_dies_fails_its_calls_stays_listed_and_is_restarted() {
    let (daemon, space) = connected_space();
    space.register(&registration("exits_on_request.py", "", &[("m.exit", ""), ("m.pid", "")]));
    let first = daemon.call("m.pid", &json!({}))["result"].clone();
    let died = daemon.call("m.exit", &json!({"status": 3}));
    assert_eq!(code(&died), -32000, "{died}");
    assert_eq!(
        daemon.get("/api/methods").json()["methods"].as_array().map(Vec::len),
        Some(2),
        "they are listed meanwhile"
    );
    daemon.wait_method("m.pid");
    let second = daemon.call("m.pid", &json!({}))["result"].clone();
    assert!(second.is_i64() && second != first, "{second}");
}

#[test]
fn a_killed_agent_ends_its_method_server_and_calls_fail_until_it_reconnects() {
    let (daemon, mut space) = connected_space();
    let methods = registration("echo.py", "", &[("x.pid", ""), ("x.echo", "")]);
    let file = space.write("methods.toml", &methods);
    space.terminate();
    space.start(&daemon, &["--methods-file", file.to_str().unwrap()]);
    daemon.wait_method("x.echo");
    space.wait_saved();
    let process = daemon.call("x.pid", &json!({}))["result"].as_i64().expect("a process id");
    space.kill();
    eventually("calls to fail", || (daemon.call("x.echo", &json!({}))["error"]["code"] == -32000).then_some(()));
    assert_eq!(daemon.get("/api/methods/x.echo").json()["providers"][0]["health"], "unlinked");
    eventually("the method server to end", || {
        (!std::path::Path::new(&format!("/proc/{process}")).exists()).then_some(())
    });
    // The agent registers its methods again by itself.
    space.start(&daemon, &[]);
    daemon.wait_method("x.echo");
    assert_eq!(daemon.call("x.echo", &json!({"n": 1}))["result"], json!({"n": 1}));
}

#[test]
fn a_server_killed_and_restarted_under_calls_serves_again_by_itself() {
    let (mut daemon, space) = connected_space();
    space.register(&registration("echo.py", "", &[("x.echo", "")]));
    let done = AtomicUsize::new(0);
    let (url, token) = (daemon.url.clone(), daemon.admin_token());
    let mut lives = 0;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let call = json!({"jsonrpc": "2.0", "method": "x.echo", "params": {"n": 7}, "id": 1}).to_string();
                while done.load(Ordering::Relaxed) == 0 {
                    let Ok(answer) = post(&url, &token, &call) else { continue };
                    let answer: Value = serde_json::from_str(&answer).expect("an answer is whole");
                    let right = answer["result"] == json!({"n": 7});
                    // Before the agent reconnects the method is unknown; while it disconnects there is no provider.
                    assert!(right || [-32601, -32000].contains(&code(&answer)), "{answer}");
                }
            });
        }
        for _ in 0..3 {
            daemon.crash_and_restart();
            daemon.wait_method("x.echo");
            assert_eq!(daemon.call("x.echo", &json!({"n": 1}))["result"], json!({"n": 1}));
            lives += 1;
        }
        done.store(1, Ordering::Relaxed);
    });
    assert_eq!(lives, 3);
    assert_eq!(daemon.get("/api/methods/x.echo").json()["providers"][0]["in_flight"], 0);
}

fn post(url: &str, token: &str, body: &str) -> Result<String, isahc::Error> {
    use isahc::{ReadResponseExt, RequestExt, config::Configurable};
    let request = isahc::Request::post(format!("{url}/api/methods/call"))
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .timeout(Duration::from_secs(30));
    Ok(request.body(body.to_owned()).expect("the request is well-formed").send()?.text()?)
}

#[test]
fn a_serial_server_gets_one_call_at_a_time() {
    let (daemon, space) = connected_space();
    // The fixture reports whether it received another call while it worked.
    space.register(&registration("serial.py", "mode = \"serial\"", &[("s.work", "")]));
    let call = |n: u32| json!({"jsonrpc": "2.0", "method": "s.work", "params": {}, "id": n});
    let reply = daemon.post("/api/methods/call", &(0..8).map(call).collect::<Vec<_>>().into()).json();
    let ids: Vec<_> = reply.as_array().expect("a batch").iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, (0..8).map(Value::from).collect::<Vec<_>>());
    for answer in reply.as_array().expect("a batch") {
        assert_eq!(answer["result"]["hurried"], false, "{reply}");
    }
}

#[test]
fn a_caller_that_disconnects_releases_its_slot() {
    let (daemon, space) = connected_space();
    space.register(&registration("holds_calls.py", "timeout = 600", &[("l.hold", ""), ("l.release", "")]));
    let in_flight = || daemon.get("/api/methods/l.hold").json()["providers"][0]["in_flight"].clone();
    let call = r#"{"jsonrpc":"2.0","method":"l.hold","params":{},"id":1}"#;
    let mut stream = std::net::TcpStream::connect(daemon.url.trim_start_matches("http://")).expect("it listens");
    let head = format!(
        "POST /api/methods/call HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{call}",
        daemon.admin_token(),
        call.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    eventually("the call to be out", || (in_flight() == 1).then_some(()));
    drop(stream);
    eventually("the call to be withdrawn", || (in_flight() == 0).then_some(()));
}

#[test]
fn a_methods_file_that_fails_at_start_is_logged_and_the_agent_continues() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    let file = space.write("bad.toml", "[server]\ncommand = \"x\"\nmod = 1\n");
    space.start(&daemon, &["--methods-file", file.to_str().unwrap()]);
    eventually("the failure to be logged", || space.log().contains("line 3").then_some(()));
    space.register(&registration("echo.py", "", &[("x.echo", "")]));
    assert_eq!(daemon.call("x.echo", &json!([1]))["result"], json!([1]));
}

#[test]
fn the_command_line_lists_shows_and_calls_methods() {
    let (daemon, space) = connected_space();
    let described = "params_schema = { type = \"object\" }\nkeywords = [\"sum\"]";
    space.register(&registration("echo.py", "", &[("calc.add", described), ("calc.echo", "")]));
    let list = stdout(&daemon.svc(&["method", "list"]));
    assert!(list.contains("calc.add") && list.contains("calc.echo") && list.contains("1 of 1"), "{list}");
    let found = stdout(&daemon.svc(&["method", "list", "--find", "sum", "--json"]));
    let found: Value = serde_json::from_str(&found).expect("it is JSON");
    assert_eq!(found["methods"].as_array().map(Vec::len), Some(1));
    let shown = stdout(&daemon.svc(&["method", "list", "calc.add"]));
    assert!(shown.contains("owner") && shown.contains("private") && shown.contains("\"type\": \"object\""), "{shown}");

    let call = |arguments: &[&str]| daemon.svc(&[&["method", "call"], arguments].concat());
    let output = call(&["calc.add", r#"{"a": 1, "b": 2}"#]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "3\n"));
    let output = call(&["calc.add", "--batch", r#"[{"a":1,"b":2},{"a":1},{"a":3,"b":4}]"#]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), "3\n7\n"));
    assert!(stderr(&output).contains("call 2: `a` and `b` must be numbers (-32602)"), "{}", stderr(&output));
    let output = call(&["calc.echo", "--json", r#"{"a": 1.0}"#]);
    assert_eq!(stdout(&output), "{\"jsonrpc\":\"2.0\",\"result\":{\"a\":1.0},\"id\":1}\n");
    let output = call(&["calc.none"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "svc: no method is named `calc.none`: `svc method list` lists those you can call\n");
    let output = call(&["calc.echo", "--notify", "{}"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
    assert_eq!(call(&["calc.add", "nonsense"]).status.code(), Some(2));
    let mut piped = daemon.command(&["method", "call", "calc.echo"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
    child.stdin.take().expect("it is piped").write_all(b"{\"from\": \"stdin\"}").expect("it reads");
    assert_eq!(stdout(&child.wait_with_output().expect("it ends")), "{\"from\":\"stdin\"}\n");
}

#[test]
fn a_script_sink_calls_methods_as_its_owner() {
    let (daemon, space) = connected_space();
    space.register(&registration("echo.py", "", &[("calc.add", "")]));
    let source = "print(svc.call('calc.add', {a = event.data.a, b = 1}))
        local ok, why = pcall(svc.call, 'calc.none', {}) print(ok, why)
        ok, why = pcall(svc.call, 'calc.add', {}) print(ok, why)";
    daemon.create_sink(&json!({"name": "s", "events": "custom.x", "type": "script", "script": {"source": source}}));
    let event = daemon.emit("x", &json!({"a": 41}));
    let delivery = daemon.delivery(&event["event_id"], "delivered");
    let log = delivery["attempts"][0]["log"].to_string();
    assert!(log.contains("42") && log.contains("no method named `calc.none`") && log.contains("-32602"), "{log}");
}

#[test]
fn calls_of_a_slow_method_do_not_hold_up_others_in_concurrent_mode() {
    let (daemon, space) = connected_space();
    space.register(&registration("holds_calls.py", "timeout = 600", &[("l.hold", ""), ("l.release", "")]));
    let (url, token) = (daemon.url.clone(), daemon.admin_token());
    let slow = thread::spawn(move || {
        let call = json!({"jsonrpc": "2.0", "method": "l.hold", "params": {"n": 1}, "id": 1}).to_string();
        post(&url, &token, &call).expect("it is answered in the end")
    });
    eventually("the slow call to be out", || {
        (daemon.get("/api/methods/l.hold").json()["providers"][0]["in_flight"] == 1).then_some(())
    });
    assert!(daemon.call("l.release", &json!({}))["result"].is_i64());
    let slow: Value = serde_json::from_str(&slow.join().expect("it does not panic")).expect("it is JSON");
    assert_eq!(slow["result"], "late");
}
