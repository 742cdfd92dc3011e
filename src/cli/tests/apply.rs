//! `svc sink apply` and `preview`: a directory of files against what the server has.

use super::fake::{FakeApi, error, list, sink};
use serde_json::{Value, json};

/// A directory of sink files.
struct SinkFiles(tempfile::TempDir);

impl SinkFiles {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        Self(directory)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

const SLACK: &str =
    "name = \"slack\"\nevents = \"custom.*\"\ntype = \"webhook\"\n[webhook]\nurl = \"https://x.example\"\n";
const NEW: &str =
    "name = \"new\"\nevents = \"*\"\ntype = \"script\"\nowner = \"global\"\n[script]\nsource = \"return\"\n";

/// A server that has the sink `slack` and takes whatever comes.
fn server_with_slack() -> FakeApi {
    FakeApi::new(|line, _| match line {
        "GET /api/event-sinks?name=slack&owner=me&limit=200" => (200, list(&[sink()])),
        line if line.starts_with("GET /api/event-sinks?") => (200, list(&[])),
        "POST /api/event-sinks" => (201, sink()),
        _ => {
            let mut there = sink();
            there["webhook"]["url"] = "https://x.example/".into();
            (200, there)
        }
    })
}

fn changes(fake: &FakeApi) -> Vec<String> {
    fake.seen().into_iter().map(|seen| seen.line).filter(|line| !line.starts_with("GET")).collect()
}

#[test]
fn applying_a_directory_makes_what_is_missing_and_leaves_what_is_right() {
    let files = SinkFiles::new(&[("a.toml", SLACK), ("b.toml", NEW), ("c.lua", "not ours")]);
    let fake = server_with_slack();
    let ran = fake.run(&["sink", "apply", files.path()]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "unchanged  slack\ncreated    new  [global]\n"), "{}", ran.err);
    assert_eq!(changes(&fake), ["POST /api/event-sinks"]);
}

#[test]
fn applying_a_changed_file_replaces_the_sink_and_names_what_changed() {
    let files = SinkFiles::new(&[("a.toml", &SLACK.replace("custom.*", "custom.a"))]);
    let fake = server_with_slack();
    let dry = fake.run(&["sink", "apply", files.path(), "--dry-run"]);
    assert_eq!((dry.code, dry.out.as_str()), (0, "would update  slack  (events)\n"), "{}", dry.err);
    assert_eq!(changes(&fake), [""; 0]);
    let ran = fake.run(&["sink", "apply", files.path(), "--json"]);
    let expected = json!({ "items": [{
        "name": "slack", "owner": "me", "result": "updated", "id": sink()["id"], "changed": ["events"]
    }], "next": null });
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), expected);
    assert_eq!(changes(&fake), ["PUT /api/event-sinks/01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78"]);
    let body = fake.seen().last().unwrap().json();
    assert_eq!((&body["events"], &body["webhook"]["secret"]), (&json!("custom.a"), &Value::Null));
}

#[test]
fn a_file_that_is_wrong_changes_nothing_at_all() {
    let files = SinkFiles::new(&[("a.toml", NEW), ("b.toml", "nam = \"x\"\n")]);
    let fake = server_with_slack();
    let ran = fake.run(&["sink", "apply", files.path()]);
    assert_eq!((ran.code, fake.seen().len()), (1, 0));
    assert!(ran.err.contains("b.toml") && ran.err.contains("line 1") && ran.err.contains("nam"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn one_sink_that_is_rejected_does_not_stop_the_others() {
    let files = SinkFiles::new(&[("a.toml", NEW), ("b.toml", &NEW.replace("\"new\"", "\"newer\""))]);
    let fake = FakeApi::new(|line, before| match line {
        "POST /api/event-sinks" if before == 0 => (400, error("bad_request", "`events`: no")),
        "POST /api/event-sinks" => (201, sink()),
        _ => (200, list(&[])),
    });
    let ran = fake.run(&["sink", "apply", files.path()]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "created    newer  [global]\n"));
    assert!(ran.err.contains("new: `events`: no") && ran.err.contains("1 of 2"), "{}", ran.err);
}

#[test]
fn a_file_is_previewed_without_being_applied() {
    let files = SinkFiles::new(&[("a.toml", SLACK)]);
    let fake = FakeApi::always(200, json!({ "body": "{\"text\":\"hi\"}", "content_type": "application/json" }));
    let path = format!("{}/a.toml", files.path());
    let ran = fake.run(&["sink", "preview", "--file", &path, "{\"a\":1}"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "{\n  \"text\": \"hi\"\n}\n"), "{}", ran.err);
    let seen = &fake.seen()[0];
    assert_eq!(seen.line, "POST /api/event-sinks/preview");
    assert_eq!((&seen.json()["sink"]["name"], &seen.json()["payload"]), (&json!("slack"), &json!({ "a": 1 })));
}

#[test]
fn every_variable_that_is_not_set_is_named_at_once() {
    let hook = "name = \"a\"\nevents = \"*\"\ntype = \"webhook\"\n[webhook]\nurl = { env = \"URL\" }\n\
                headers = { X-Key = { env = \"KEY\" } }\n";
    let files = SinkFiles::new(&[("a.toml", hook), ("b.toml", &hook.replace("KEY", "OTHER"))]);
    let fake = server_with_slack();
    let ran = fake.run(&["sink", "apply", files.path()]);
    assert_eq!((ran.code, fake.seen().len()), (1, 0));
    let named = |file: &str, name: &str| ran.err.contains(&format!("{file}: `")) && ran.err.contains(name);
    assert!(named("a.toml", "URL") && named("a.toml", "KEY") && named("b.toml", "OTHER"), "{}", ran.err);
}
