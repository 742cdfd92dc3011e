//! The command line against a running daemon: its output and exit codes.

use crate::support::{Daemon, Receiver, Space, registration, stderr, stdout, success};
use serde_json::{Value, json};
use std::{
    io::Write,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

fn webhook(name: &str, url: &str) -> Value {
    json!({"name": name, "events": "custom.deploy.*", "type": "webhook", "owner": "global", "webhook": {"url": url}})
}

#[test]
fn an_event_from_the_command_line_is_delivered_and_waited_for() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    daemon.create_sink(&webhook("good", &receiver.url("/")));
    let output = success(&daemon.svc(&["event", "deploy.done", r#"{"version": "1.2"}"#, "--wait"]));
    assert!(output.contains("custom.deploy.done"), "{output}");
    assert!(output.lines().any(|line| line.starts_with("delivered") && line.contains("good")), "{output}");
    assert_eq!(receiver.received()[0].json()["data"], json!({"version": "1.2"}));
}

#[test]
fn waiting_for_a_sink_that_gives_up_exits_with_one() {
    let daemon = Daemon::start();
    let receiver = Receiver::answering(|_| crate::support::Answer::Status(500));
    daemon.create_sink(&webhook("bad", &receiver.url("/")));
    let output = daemon.svc(&["event", "deploy.done", "--wait"]);
    assert_eq!(output.status.code(), Some(1));
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.lines().any(|line| line.starts_with("dead") && line.contains("bad")), "{output}");
}

#[test]
fn explain_sends_nothing() {
    let daemon = Daemon::start();
    daemon.create_sink(&webhook("matching", "http://127.0.0.1:9/"));
    let output = success(&daemon.svc(&["event", "deploy.done", "--explain"]));
    assert!(output.contains("would go to 1 of 1 sinks"), "{output}");
    let output = success(&daemon.svc(&["event", "other", "--explain"]));
    assert!(output.contains("would go to 0 of 1 sinks"), "{output}");
    assert_eq!(daemon.get("/api/events").json()["items"], json!([]));
}

#[test]
fn exit_codes_tell_failure_usage_unreachable_and_refused_apart() {
    let daemon = Daemon::start();
    let code = |arguments: &[&str]| daemon.svc(arguments).status.code();
    assert_eq!(code(&["whoami"]), Some(0));
    assert_eq!(code(&["sink", "show", "nothing"]), Some(1));
    assert_eq!(code(&["event", "bad type"]), Some(2));
    assert_eq!(code(&["event", "x", "{not json"]), Some(2));
    assert_eq!(code(&["frobnicate"]), Some(2));
    assert_eq!(code(&["whoami", "--server", "http://127.0.0.1:9"]), Some(3));
    assert_eq!(code(&["whoami", "--token", "svc_wrong"]), Some(4));
}

#[test]
fn an_error_is_one_line_on_standard_error_and_nothing_on_standard_output() {
    let daemon = Daemon::start();
    let output = daemon.svc(&["sink", "show", "nothing"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(error.contains("nothing"), "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn applying_a_directory_creates_updates_and_then_changes_nothing() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let directory = daemon.directory().join("sinks");
    std::fs::create_dir(&directory).unwrap();
    let toml = |events: &str| {
        format!(
            "name = \"ops\"\nevents = \"{events}\"\ntype = \"webhook\"\nowner = \"global\"\n\
             [webhook]\nurl = {{ env = \"OPS_URL\" }}\ntemplate_file = \"ops.lua\"\n"
        )
    };
    std::fs::write(directory.join("ops.toml"), toml("custom.a")).unwrap();
    std::fs::write(directory.join("ops.lua"), "return { text = event.type }").unwrap();
    let apply = |flags: &[&str]| {
        let path = directory.to_str().unwrap();
        let mut command = daemon.command(&[&["sink", "apply", path], flags].concat());
        command.env("OPS_URL", receiver.url("/ops")).output().unwrap()
    };
    assert!(success(&apply(&["--dry-run"])).contains("would create"));
    assert_eq!(daemon.get("/api/event-sinks").json()["items"], json!([]));
    assert!(success(&apply(&[])).contains("created"));
    let secret = daemon.get("/api/event-sinks").json()["items"][0]["id"].clone();
    let secret = daemon.get(&format!("/api/event-sinks/{}", secret.as_str().unwrap())).json()["webhook"].clone();
    assert!(success(&apply(&[])).contains("unchanged"));
    std::fs::write(directory.join("ops.toml"), toml("custom.b")).unwrap();
    let output = success(&apply(&[]));
    assert!(output.contains("updated") && output.contains("events"), "{output}");
    let sinks = daemon.get("/api/event-sinks").json();
    assert_eq!((sinks["items"].as_array().unwrap().len(), &sinks["items"][0]["events"]), (1, &json!("custom.b")));
    let kept = daemon.get(&format!("/api/event-sinks/{}", sinks["items"][0]["id"].as_str().unwrap())).json();
    assert_eq!(kept["webhook"]["secret"], secret["secret"], "the generated secret is kept");
    let unset = daemon.svc(&["sink", "apply", directory.to_str().unwrap()]);
    assert_eq!(unset.status.code(), Some(1));
    assert!(String::from_utf8(unset.stderr).unwrap().contains("OPS_URL"));
}

#[test]
fn a_sink_is_managed_from_the_command_line() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let template = daemon.directory().join("t.lua");
    std::fs::write(&template, "return { n = event.data.n }").unwrap();
    let svc = |arguments: &[&str]| success(&daemon.svc(arguments));
    svc(&[
        "sink",
        "create",
        "--name",
        "s",
        "--events",
        "*",
        "--url",
        &receiver.url("/"),
        "--global",
        "--template",
        template.to_str().unwrap(),
    ]);
    assert!(svc(&["sink", "list"]).contains("global"));
    assert!(svc(&["sink", "preview", "s", r#"{"n": 7}"#]).contains("\"n\""));
    assert!(svc(&["sink", "test", "s", r#"{"n": 8}"#]).contains("delivered"));
    assert_eq!(receiver.received()[0].json(), json!({"n": 8}));
    let recorded = daemon.emit("recorded", &json!({"n": 9}))["event_id"].as_str().unwrap().to_owned();
    receiver.wait_for(2);
    assert!(svc(&["sink", "preview", "s", "--event", &recorded]).contains('9'));
    assert!(svc(&["sink", "test", "s", "--event", &recorded]).contains("delivered"));
    assert_eq!(receiver.received()[2].json(), json!({"n": 9}));
    let both = daemon.svc(&["sink", "test", "s", "--event", &recorded, "--type", "x"]);
    assert!(stderr(&both).contains("give either `event_id`"), "{}", stderr(&both));
    let shown: Value = serde_json::from_str(&svc(&["sink", "show", "s", "--json"])).unwrap();
    assert_eq!(shown["name"], "s");
    svc(&["sink", "delete", "s"]);
    assert_eq!(daemon.get("/api/event-sinks").json()["items"], json!([]));
}

#[test]
fn dead_letters_are_listed_and_sent_again() {
    let daemon = Daemon::start();
    let receiver = Receiver::answering(|_| crate::support::Answer::Status(500));
    daemon.create_sink(&webhook("s", &receiver.url("/")));
    let emitted = daemon.emit("deploy.x", &json!({}));
    daemon.delivery(&emitted["event_id"], "dead");
    let listed = success(&daemon.svc(&["sink", "dead-letters", "s"]));
    assert!(listed.contains(emitted["event_id"].as_str().unwrap()), "{listed}");
    let other = daemon.svc(&["sink", "redeliver", "s", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"]);
    assert_eq!((other.status.code(), stdout(&other)), (Some(1), String::new()), "it is no dead letter");
    assert!(stderr(&other).contains("`svc sink dead-letters s` lists them"), "{}", stderr(&other));
    success(&daemon.svc(&["sink", "redeliver", "s"]));
    receiver.wait_for(4);
}

#[test]
fn a_login_keeps_a_token_that_later_commands_use() {
    let daemon = Daemon::start();
    let password = std::fs::read(daemon.directory().join("admin.password")).unwrap();
    let home = daemon.directory().join("home");
    std::fs::create_dir(&home).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).env_clear().env("HOME", &home).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let login = ["login", "--server", &daemon.url, "--name", "admin", "--password-stdin"];
    let mut child = command(&login).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&password).unwrap();
    success(&child.wait_with_output().unwrap());
    let me = success(&command(&["whoami"]).stdin(Stdio::null()).output().unwrap());
    assert!(me.contains("admin") && me.contains(&daemon.url), "{me}");
}

#[test]
fn output_cut_off_by_its_reader_is_no_error() {
    let daemon = Daemon::start();
    for _ in 0..50 {
        daemon.emit("x", &json!({}));
    }
    let mut child = daemon.command(&["event", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
}

/// Runs the commands of spaces and methods in an order in which each finds the objects it needs.
#[test]
fn every_command_of_spaces_and_methods_prints_json() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let template = space.write("db.toml", "name = \"db\"\n[[ports]]\nname = \"db\"\nport = 5432\n");
    let methods = registration("echo.py", "", &[("x.echo", "events = [\"custom.*\"]\nmcp_tool = true"), ("x.add", "")]);
    let methods = space.write("methods.toml", &methods);
    let (template, methods) = (template.to_str().unwrap(), methods.to_str().unwrap());
    let read = |output: Output, words: &[&str]| -> Value {
        let text = success(&output);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    };
    for (words, pointer, expected) in [
        (&["methods", "register", methods][..], "/methods/1/name", json!("x.add")),
        (&["agent", "status"], "/registration/methods/0/local_name", json!("echo")),
        (&["methods", "unregister", "add"], "/removed/0/name", json!("x.add")),
    ] {
        let answer = read(space.svc(&[words, &["--json"]].concat()), words);
        assert_eq!(answer.pointer(pointer), Some(&expected), "{words:?}: {answer}");
    }
    for (words, pointer, expected) in [
        (&["method", "list"][..], "/methods/0/name", json!("x.echo")),
        (&["method", "list", "x.echo"], "/providers/0/space", json!("notes")),
        (&["method", "call", "x.echo", "[1]"], "/result", json!([1])),
        (&["method", "call", "x.echo", "--batch", "[[1],[2]]"], "/1/result", json!([2])),
        (&["mcp", "tools"], "/tools/0/name", json!("x_echo")),
        (&["mcp", "tools", "x_echo"], "/_meta/method", json!("x.echo")),
        (&["mcp", "config", "zed", "--new-token", "zed"], "/clients/0/client", json!("zed")),
        (&["subscription", "list"], "/items/0/method", json!("x.echo")),
        (&["template", "create", "web", "--port", "web=80"], "/ports/0/port", json!(80)),
        (&["template", "apply", template], "/name", json!("db")),
        (&["template", "apply", template], "/name", json!("db")),
        (&["template", "show", "db"], "/ports/0/name", json!("db")),
        (&["template", "list"], "/items/1/name", json!("db")),
        (&["space", "create", "box", "--driver", "process", "--template", "db"], "/agent_token", json!(null)),
        (&["space", "update", "box", "--host", "box.example"], "/urls/0", json!("http://box.example:5432")),
        (&["space", "start", "box"], "/launched", json!(true)),
        (&["space", "show", "box"], "/name", json!("box")),
        (&["space", "list"], "/items/1/name", json!("box")),
        (&["space", "stop", "box"], "/launched", json!(false)),
        (&["space", "token", "notes"], "/name", json!("notes")),
    ] {
        let answer = read(daemon.svc(&[words, &["--json"]].concat()), words);
        assert_eq!(answer.pointer(pointer), Some(&expected), "{words:?}: {answer}");
    }
    for (kind, name) in [("space", "box"), ("space", "notes"), ("template", "db"), ("template", "web")] {
        let id = read(daemon.svc(&[kind, "show", name, "--json"]), &[kind, name])["id"].clone();
        assert_eq!(read(daemon.svc(&[kind, "delete", name, "--json"]), &[kind, name]), json!({"deleted": id}));
    }
    for path in ["/api/spaces", "/api/templates"] {
        assert_eq!(daemon.get(path).json()["items"], json!([]), "{path}");
    }
}

#[test]
fn a_mistyped_variable_of_the_environment_is_warned_about_by_every_command() {
    let mut daemon = Daemon::start();
    let output = daemon.command(&["whoami"]).env("SVC_TOKN", "x").output().unwrap();
    let warning = "svc: warning: the environment variable SVC_TOKN has no meaning: did you mean SVC_TOKEN?\n";
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), warning));
    daemon.kill();
    daemon.set("DELIVRY_QUEUE", "5");
    daemon.restart();
    let warning = "the environment variable SVC_DELIVRY_QUEUE has no meaning: did you mean SVC_DELIVERY_QUEUE?";
    assert_eq!(daemon.log().matches(warning).count(), 1, "{}", daemon.log());
}

#[test]
fn a_stream_that_ends_before_its_first_event_is_opened_again_after_longer_and_longer_pauses() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&opened);
    let server = Receiver::answering(move |_| {
        times.lock().unwrap().push(Instant::now());
        crate::support::Answer::Raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: beat\n\n".to_owned())
    });
    let mut tail = Command::new(env!("CARGO_BIN_EXE_svc"));
    tail.args(["event", "tail", "--server", &server.url("")]).env_clear();
    let mut tail = tail.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    server.wait_for(5);
    tail.kill().unwrap();
    tail.wait().unwrap();
    let opened = opened.lock().unwrap();
    let pause = opened[4].duration_since(opened[3]);
    assert!(pause >= Duration::from_millis(1000), "{pause:?}");
}

#[test]
fn sinks_and_sources_are_activated_and_deactivated_by_name() {
    let daemon = Daemon::start();
    for name in ["one", "two"] {
        daemon.create_sink(&webhook(name, "http://127.0.0.1:9/"));
        success(&daemon.svc(&["source", "create", "--slug", name, "--verify", "none", "--insecure"]));
    }
    for (kind, path) in [("sink", "/api/event-sinks"), ("source", "/api/sources")] {
        let active = || daemon.items(path).iter().map(|item| item["active"].clone()).collect::<Vec<_>>();
        let output = success(&daemon.svc(&[kind, "deactivate", "one", "two"]));
        assert!(output.contains(&format!("deactivated {kind} one  ")), "{output}");
        assert_eq!((output.lines().count(), active()), (2, vec![json!(false); 2]));
        let output = success(&daemon.svc(&[kind, "activate", "one", "--json"]));
        let output: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(output["items"][0]["active"], json!(true), "{output}");
        let unknown = daemon.svc(&[kind, "activate", "two", "three"]);
        assert_eq!(unknown.status.code(), Some(1), "{}", stderr(&unknown));
        assert_eq!(active().iter().filter(|active| **active == json!(true)).count(), 1, "all or none");
    }
    let none = daemon.svc(&["sink", "activate"]);
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));
}
