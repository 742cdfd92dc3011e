//! `svc script`: files against what the server has, and what a run says.

use super::fake::{FakeApi, list};
use serde_json::{Value, json};

const ID: &str = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a80";

fn script(kind: &str, content: &str) -> Value {
    json!({
        "id": ID, "name": "shout", "kind": kind, "language": "lua", "owner": "me", "description": "Shouts", "active": true,
        "size": content.len(), "content": content, "params_schema": null,
        "created_at": "2026-01-31T12:00:00.000000Z", "updated_at": "2026-01-31T12:00:00.000000Z",
    })
}

/// A server that has one script of this kind, which a run answers for as told.
fn server(kind: &'static str, ran: Value) -> FakeApi {
    FakeApi::new(move |line, _| match line {
        "GET /api/scripts?name=shout&owner=me&limit=200" => (200, list(&[script(kind, "print(1)")])),
        line if line.starts_with("GET /api/scripts?") => (200, list(&[])),
        "POST /api/scripts" => (201, script(kind, "print(1)")),
        line if line.ends_with("/run") => (200, ran.clone()),
        _ => (200, script(kind, "print(1)")),
    })
}

#[test]
fn applying_a_file_stores_what_is_new_changes_what_differs_and_leaves_the_rest() {
    for (name, text, flags, said, sent) in [
        ("shout.lua", "print(1)", &[][..], "unchanged", None),
        ("shout.lua", "print(2)", &[], "updated", Some(format!("PATCH /api/scripts/{ID}"))),
        ("shout.lua", "print(1)", &["--inactive"], "updated", Some(format!("PATCH /api/scripts/{ID}"))),
        ("shout.lua", "print(1)", &["--global"], "created", Some("POST /api/scripts".to_owned())),
        ("other.lua", "print(1)", &[], "created", Some("POST /api/scripts".to_owned())),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let fake = server("script", json!(null));
        let words: Vec<&str> = ["script", "apply", path.to_str().unwrap()].iter().chain(flags).copied().collect();
        let ran = fake.run(&words);
        assert_eq!((ran.code, ran.out), (0, format!("{said} script shout  {ID}\n")), "{name}: {}", ran.err);
        let changes = fake.seen().into_iter().map(|seen| seen.line).find(|line| !line.starts_with("GET"));
        assert_eq!(changes, sent, "{name} {flags:?}");
    }
}

#[test]
fn a_tools_result_goes_to_stdout_and_what_it_printed_to_stderr() {
    let done = json!({"outcome": "done", "result": {"sum": 3}, "log": ["adding"], "cpu_ms": 0.2});
    let fake = server("tool", done.clone());
    let ran = fake.run(&["script", "run", "shout", "{\"a\": 1}"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "{\"sum\":3}\n", "adding\n"));
    assert_eq!(fake.seen().last().unwrap().json(), json!({"params": {"a": 1}}));
    let ran = fake.run_piped(&["script", "run", "shout", "--json"], "{\"a\": 2}");
    assert_eq!((ran.code, serde_json::from_str::<Value>(&ran.out).unwrap()), (0, done));
    assert_eq!(fake.seen().last().unwrap().json(), json!({"params": {"a": 2}}));
    assert_eq!(fake.run(&["script", "run", "shout", "--event", "x"]).code, 2);
    assert_eq!(fake.run(&["script", "run", "shout", "[1]"]).code, 2);

    let nothing = server("tool", json!({"outcome": "done", "result": null, "log": [], "cpu_ms": 0.2}));
    assert_eq!(nothing.run(&["script", "run", "shout"]).out, "null\n");
    let failed = json!({"outcome": "failed", "error": {"message": "shout:1: no"}, "log": [], "cpu_ms": 0.2});
    let ran = server("tool", failed).run(&["script", "run", "shout"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", "svc: `shout` failed: shout:1: no\n"));
}

#[test]
fn a_script_is_tried_on_a_sample_event() {
    let fake = server("script", json!({"outcome": "skipped", "log": ["skipped: no"], "cpu_ms": 0.24}));
    let ran = fake.run(&["script", "run", "shout", "{\"v\": 1}", "--event", "deploy.done"]);
    let said = (0, "skipped  0.2 ms of processor time\n", "skipped: no\n");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), said);
    assert_eq!(fake.seen().last().unwrap().json(), json!({"type": "deploy.done", "payload": {"v": 1}}));
}

#[test]
fn a_script_is_shown_with_its_source() {
    let ran = server("script", json!(null)).run(&["script", "show", "shout"]);
    assert!(ran.code == 0 && ran.out.contains("Shouts") && ran.out.ends_with("content:\n  print(1)\n"), "{}", ran.out);
    let listed = FakeApi::always(200, list(&[script("library", "")])).run(&["script", "list", "--kind", "library"]);
    assert!(listed.code == 0 && listed.out.contains("shout") && listed.out.contains("library"), "{}", listed.out);
    assert_eq!(server("script", json!(null)).run(&["script", "show", "none"]).code, 1);
}

#[test]
fn a_sink_or_a_space_names_a_stored_script_by_name() {
    let fake = server("script", json!(null));
    fake.run(&["sink", "create", "--name", "s", "--events", "*", "--stored", "shout"]);
    let sent = fake.seen().pop().unwrap().json();
    assert_eq!((&sent["type"], &sent["script"]), (&json!("script"), &json!({"script_id": ID})));
    fake.run(&["space", "create", "web", "--startup-script", "shout"]);
    assert_eq!(fake.seen().pop().unwrap().json()["startup_script_id"], ID);
    // A global record cannot name a script of one user.
    let ran = fake.run(&["sink", "create", "--name", "s", "--events", "*", "--stored", "shout", "--global"]);
    assert!(ran.code == 1 && ran.err.contains("no script is named `shout`"), "{}", ran.err);
    assert_eq!(fake.run(&["template", "create", "t", "--startup-script", "shout"]).code, 1);
}
