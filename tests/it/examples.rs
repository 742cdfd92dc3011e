//! The example spaces of `contrib/examples`, each started as its README says: the same notebook in three languages.

use crate::support::{Daemon, Space, eventually};
use serde_json::{Value, json};
use std::{path::Path, process::Command};

/// A space with the files of an example, registered by its agent.
fn start_example(daemon: &Daemon, example: &str, methods: &str) -> Space {
    let mut space = Space::create(daemon, &format!("{example}-notebook"));
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/examples").join(example);
    for file in std::fs::read_dir(files).expect("the example is there") {
        let path = file.expect("it can be listed").path();
        std::fs::copy(&path, space.directory().join(path.file_name().expect("it has a name"))).expect("there is room");
    }
    let file = space.directory().join(methods);
    space.start(daemon, &["--methods-file", file.to_str().expect("the path is text")]);
    daemon.wait_method(&format!("{example}-notebook.list"));
    space
}

/// Adds notes, emits a release event, and lists the notes.
#[track_caller]
fn check_notes(daemon: &Daemon, space: &Space, text_of: impl Fn(&Value) -> String) {
    let call = |method: &str, params: Value| daemon.call(&format!("{}.{method}", space.name), &params);
    assert_eq!(call("list", json!({}))["result"], json!([]));
    assert_eq!(call("add", json!({"text": "tea at four"}))["result"], 1);
    assert_eq!(call("add", json!({"text": "a \"quoted\" cake, at five"}))["result"], 2);
    let emitted = space.svc(&["event", "release.cut", r#"{"version": "1.4"}"#]);
    assert!(emitted.status.success(), "{}", String::from_utf8_lossy(&emitted.stderr));
    let listed = eventually("the release to be written down", || {
        let notes = call("list", json!({}))["result"].as_array().expect("a list").clone();
        (notes.len() == 3).then_some(notes)
    });
    let texts: Vec<String> = listed.iter().map(text_of).collect();
    assert_eq!(texts, ["tea at four", "a \"quoted\" cake, at five", "released 1.4"]);
}

fn text(note: &Value) -> String {
    note["text"].as_str().unwrap_or_else(|| panic!("no text in {note}")).to_owned()
}

#[test]
fn the_lua_space_keeps_notes() {
    let daemon = Daemon::start();
    let space = start_example(&daemon, "lua", "methods.lua");
    check_notes(&daemon, &space, text);
    let refused = daemon.call("lua-notebook.add", &json!({"text": ""}))["error"].clone();
    assert_eq!((&refused["code"], &refused["data"]), (&json!(-32602), &json!({"field": "text"})));
    let published = "published lua-notebook.add, ";
    eventually("its output to be logged", || space.log().contains(published).then_some(()));
}

#[test]
fn the_python_space_keeps_notes() {
    let daemon = Daemon::start();
    let space = start_example(&daemon, "python", "methods.py");
    check_notes(&daemon, &space, text);
    let refused = daemon.call("python-notebook.add", &json!({"text": ""}))["error"].clone();
    assert_eq!((&refused["code"], &refused["data"]), (&json!(-32602), &json!({"field": "text"})));
    let published = "published python-notebook.add, ";
    eventually("its output to be logged", || space.log().contains(published).then_some(()));
}

#[test]
fn the_shell_space_keeps_notes_and_its_hook_emits_events() {
    let daemon = Daemon::start();
    let space = start_example(&daemon, "shell", "methods.toml");
    check_notes(&daemon, &space, |note| match note["data"]["version"].as_str() {
        // The shell server stores the event unchanged.
        Some(version) => format!("released {version}"),
        None => text(note),
    });
    let binary = Path::new(env!("CARGO_BIN_EXE_svc")).parent().expect("it is in a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("it is set"));
    let hook = Command::new("sh")
        .args(["release.sh", "1.5"])
        .env("PATH", path)
        .env("SVC_AGENT_URL", &space.url)
        .current_dir(space.directory())
        .status();
    assert!(hook.expect("sh runs").success());
    eventually("the hook's event to be written down", || {
        let notes = daemon.call("shell-notebook.list", &json!({}))["result"].clone();
        (notes[3]["data"]["version"] == "1.5").then_some(())
    });
}
