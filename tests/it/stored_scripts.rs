//! Stored scripts with the real daemon, agents and command line: sinks that name them, libraries that they require, and
//! the messages to agents.

use crate::support::{Daemon, LinkedAgent, Space, eventually, success};
use serde_json::{Value, json};
use std::{fs, path::PathBuf, time::Instant};
use svc::model::agent_protocol::ToAgent;

fn store(daemon: &Daemon, script: &Value) -> String {
    let made = daemon.post("/api/scripts", script);
    assert_eq!(made.status, 201, "{}", made.text);
    made.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_sink_runs_a_stored_script_with_libraries_and_a_change_takes_effect_with_the_next_event() {
    let mut daemon = Daemon::start();
    let library = |name: &str, owner: &str, content: &str| json!({"name": name, "kind": "library", "owner": owner, "content": content});
    store(&daemon, &library("acme.word", "global", "return { of = function() return 'global' end }"));
    store(
        &daemon,
        &library(
            "acme.loud",
            "global",
            "local word = require 'acme.word'\nreturn function() return word.of():upper() end",
        ),
    );
    let content = "print(require('acme.loud')())";
    let script = store(&daemon, &json!({"name": "shout", "owner": "global", "content": content}));
    let sink = json!({"name": "s", "events": "custom.*", "type": "script", "script": {"script_id": script}});
    daemon.create_sink(&sink);
    let said = |daemon: &Daemon| {
        let emitted = daemon.emit("x", &json!({}));
        daemon.delivery(&emitted["event_id"], "delivered")["attempts"][0]["log"][0].clone()
    };
    assert_eq!(said(&daemon), "GLOBAL");
    // The sink's owner now has a library of that name; the global script that requires it gets the owner's one.
    let own = store(&daemon, &library("acme.word", "me", "return { of = function() return 'own' end }"));
    assert_eq!(said(&daemon), "OWN");
    let path = format!("/api/scripts/{own}");
    assert_eq!(daemon.patch(&path, &json!({"content": "return { of = function() return 'newer' end }"})).status, 200);
    assert_eq!(said(&daemon), "NEWER");
    daemon.crash_and_restart();
    assert_eq!(said(&daemon), "NEWER");
    assert_eq!(daemon.patch(&path, &json!({"active": false})).status, 200);
    assert_eq!(said(&daemon), "GLOBAL");
}

#[test]
fn an_error_in_a_library_names_the_library_and_its_line() {
    let daemon = Daemon::with(&[("SVC_DELIVERY_BACKOFF", "")]);
    store(&daemon, &json!({"name": "acme.bad", "kind": "library", "content": "local x = 1\nerror('broken')"}));
    let script = store(&daemon, &json!({"name": "s", "content": "require 'acme.bad'"}));
    daemon.create_sink(&json!({"name": "s", "events": "*", "type": "script", "script": {"script_id": script}}));
    let emitted = daemon.emit("x", &json!({}));
    let delivery = daemon.delivery(&emitted["event_id"], "dead");
    let error = delivery["attempts"][0]["error"].as_str().unwrap();
    assert!(error.contains("acme.bad:2: broken"), "{error}");
}

#[test]
fn scripts_are_kept_in_files_and_run_from_the_command_line() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let apply = |path: &PathBuf, flags: &[&str]| {
        let words: Vec<&str> = ["script", "apply", path.to_str().unwrap()].iter().chain(flags).copied().collect();
        daemon.svc(&words)
    };
    let sum = file("acme.sum.lua", "return function(a, b) return a + b end");
    assert!(success(&apply(&sum, &["--kind", "library", "--global"])).starts_with("created script acme.sum"));
    assert!(success(&apply(&sum, &["--global"])).starts_with("unchanged script acme.sum"));
    let schema = file("add.json", r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#);
    let tool = file("add.lua", "print('adding')\nreturn { sum = require('acme.sum')(params.a, 1) }");
    let flags = ["--kind", "tool", "--params-schema", schema.to_str().unwrap(), "--description", "Adds one"];
    assert!(success(&apply(&tool, &flags)).starts_with("created script add"));
    let ran = daemon.svc(&["script", "run", "add", r#"{"a": 2}"#]);
    assert_eq!((success(&ran).as_str(), String::from_utf8_lossy(&ran.stderr).as_ref()), ("{\"sum\":3}\n", "adding\n"));
    let wrong = daemon.svc(&["script", "run", "add", r#"{"a": "two"}"#]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`params`: at `/a`"), "{wrong:?}");

    let broken = apply(&file("broken.lua", "return 1\nreturn {"), &[]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&broken.stderr).contains("line 2"), "{broken:?}");

    let shout = file("shout.lua", "print(event.type, event.data.version)");
    assert!(success(&apply(&shout, &[])).starts_with("created script shout"));
    let tried = success(&daemon.svc(&["script", "run", "shout", r#"{"version": "1.2"}"#, "--event", "deploy.done"]));
    assert!(tried.starts_with("delivered"), "{tried}");
    let sink =
        file("sink.toml", "name = \"s\"\nevents = \"custom.*\"\ntype = \"script\"\n[script]\nstored = \"shout\"\n");
    let applied = daemon.svc(&["sink", "apply", sink.to_str().unwrap()]);
    assert!(success(&applied).starts_with("created"), "{applied:?}");
    let again = daemon.svc(&["sink", "apply", sink.to_str().unwrap()]);
    assert!(success(&again).starts_with("unchanged"), "{again:?}");
    assert!(success(&daemon.svc(&["sink", "show", "s"])).contains("shout"));
    let emitted = daemon.emit("deploy.done", &json!({"version": "1.3"}));
    let delivered = daemon.delivery(&emitted["event_id"], "delivered");
    assert_eq!(delivered["attempts"][0]["log"], json!(["custom.deploy.done\t1.3"]));
    let refused = daemon.svc(&["script", "delete", "shout"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the sink `s`"), "{refused:?}");
    let listed = success(&daemon.svc(&["script", "list"]));
    assert_eq!(listed.lines().count(), 4, "{listed}");
}

#[test]
fn a_real_agent_accepts_libraries_and_stays_connected() {
    let daemon = Daemon::start();
    let script = store(&daemon, &json!({"name": "set-up", "owner": "global", "content": "print('hi')"}));
    let fields = json!({"name": "box", "startup_script_id": script});
    let mut space = Space::create_with(&daemon, &daemon.admin_token(), fields);
    space.start(&daemon, &[]);
    store(&daemon, &json!({"name": "acme.text", "kind": "library", "content": "return {}"}));
    assert_eq!(space.view(&daemon)["linked"], true);
    space.terminate();
    eventually("the space to stop", || (space.view(&daemon)["state"] == "stopped").then_some(()));
}

/// The paths of the libraries in the next message, which must be a message about libraries.
fn libraries(agent: &mut LinkedAgent) -> Vec<String> {
    match agent.next() {
        ToAgent::Libraries(libraries) => libraries.iter().map(svc::model::library::Library::path).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_gets_its_startup_script_and_every_library_and_their_changes() {
    let daemon = Daemon::start();
    let script = store(&daemon, &json!({"name": "set-up", "content": "print('hi')"}));
    let made = daemon.post("/api/spaces", &json!({"name": "box", "startup_script_id": script})).json();
    let token = made["agent_token"].as_str().unwrap();
    let library =
        |name: &str, owner: &str| json!({"name": name, "kind": "library", "owner": owner, "content": "return 1"});
    store(&daemon, &library("acme.text", "global"));
    let (mut agent, welcome) = LinkedAgent::new(&daemon, token);
    let startup = welcome.startup_script.unwrap();
    assert_eq!((startup.name.as_str(), startup.source.as_str()), ("set-up", "print('hi')"));
    assert_eq!(libraries(&mut agent), ["acme/text.lua"]);

    // Changes within 200 ms are sent in one message; changes of other owners are not sent.
    let ada = daemon.create_user("ada", &["manage_own_scripts", "use_spaces"]);
    let store_adas = |name: &str| {
        let foreign = library(name, "me").to_string().into_bytes();
        assert_eq!(daemon.send("POST", "/api/scripts", Some(&ada), Some(foreign)).status, 201);
    };
    store_adas("adas");
    let began = Instant::now();
    for n in 0..100 {
        store(&daemon, &library(&format!("own{n}"), "me"));
    }
    let (mut messages, mut last) = (0, Vec::new());
    while last.len() < 101 {
        last = libraries(&mut agent);
        messages += 1;
    }
    let most = began.elapsed().as_millis() / 200;
    assert!(messages <= most, "{messages} messages for 100 changes, and not {most}");
    assert!(!last.contains(&"adas.lua".to_owned()));

    // A change of another kind of script is not sent: the next message is about the following library.
    let path = format!("/api/scripts/{script}");
    assert_eq!(daemon.patch(&path, &json!({"content": "print('ho')", "active": false})).status, 200);
    let text = daemon.get("/api/scripts?name=acme.text").json()["items"][0]["id"].as_str().unwrap().to_owned();
    let text = format!("/api/scripts/{text}");
    let (mut adas_agent, _) =
        LinkedAgent::new(&daemon, &Space::create_with(&daemon, &ada, json!({"name": "adas"})).token);
    assert_eq!(libraries(&mut adas_agent).len(), 2);
    assert_eq!(daemon.patch(&text, &json!({"description": "words"})).status, 200);
    // Another agent is sent a change that was made later.
    store_adas("later");
    assert_eq!(libraries(&mut adas_agent).len(), 3);
    assert_eq!(daemon.patch(&text, &json!({"active": false})).status, 200);
    assert_eq!(libraries(&mut agent).len(), 100);

    // An inactive startup script is not sent.
    let (mut again, welcome) = LinkedAgent::new(&daemon, token);
    assert_eq!(welcome.startup_script, None);
    assert_eq!(libraries(&mut again).len(), 100);
    assert!(daemon.log().contains("`set-up` is not active"), "{}", daemon.log());
}
