//! Data directories of older formats. `fixtures/format-1.tar.gz` was written by a server of format 1, and
//! `fixtures/format-1.json` holds that server's own answers about it.

use crate::support::{Daemon, eventually, files};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The fixture was written long ago, and is compared whole.
const KEEP: [(&str, &str); 3] =
    [("HISTORY_KEEP", "36500d"), ("HISTORY_AUDIT", "36500d"), ("DELIVERY_BACKOFF", "1h,1h")];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(name)
}

fn unpack(data: &Path) {
    std::fs::create_dir_all(data).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(fixture("format-1.tar.gz")).args(["--strip-components", "1", "-C"]).arg(data);
    assert!(tar.status().unwrap().success());
}

fn answers_of_format_1() -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture("format-1.json")).unwrap()).unwrap()
}

/// True if `new` says everything that `old` says. Fields that the old server did not know, and attempts since, may be
/// added.
fn includes(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| includes(new, old)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| includes(new, old))
        }
        (new, old) => new == old,
    }
}

fn assert_nothing_is_missing(daemon: &Daemon) {
    let old = answers_of_format_1();
    for kind in ["events", "event-sinks", "users", "groups", "roles", "spaces", "scripts"] {
        let new = daemon.get(&format!("/api/{kind}?limit=100")).json();
        assert!(includes(&new, &old[kind]), "{kind}: {new:#}\n{:#}", old[kind]);
        assert_eq!(new["items"].as_array().unwrap().len(), old[kind]["items"].as_array().unwrap().len(), "{kind}");
    }
    let sinks = &old["event-sinks"]["items"];
    let dead = sinks.as_array().unwrap().iter().find(|sink| sink["name"] == "dead").unwrap();
    let letters = daemon.get(&format!("/api/event-sinks/{}/dead-letters", dead["id"].as_str().unwrap())).json();
    assert!(includes(&letters, &old["dead-letters"]), "{letters:#}");
}

#[test]
fn a_directory_of_format_1_is_rewritten_at_start_with_everything_in_it_and_the_old_database_is_kept() {
    let mut daemon = Daemon::on(unpack, &KEEP);
    assert_nothing_is_missing(&daemon);
    assert!(daemon.directory().join("sled.format-1/db").exists());
    assert!(!daemon.directory().join("mark").exists());

    // An emit is still recognised as a repetition by its id, and new events come after the old ones.
    let text = "y".repeat(9000);
    let repeated =
        json!({"id": "11111111-2222-4333-8444-555555555555", "type": "order.paid", "payload": {"text": text}});
    assert_eq!(daemon.post("/api/events/emit", &repeated).status, 202);
    let events = daemon.get("/api/events?limit=100").json();
    let old = answers_of_format_1();
    assert_eq!(events["items"].as_array().unwrap().len(), old["events"]["items"].as_array().unwrap().len());
    assert_eq!(daemon.post("/api/events/emit", &json!({"type": "order.new", "payload": {}})).status, 202);
    assert_eq!(daemon.get("/api/events?limit=1").json()["items"][0]["type"], "custom.order.new");

    // The second start finds the current format and rewrites nothing.
    daemon.terminate();
    assert!(daemon.ended().success());
    daemon.restart();
    let log = daemon.log();
    assert_eq!(log.matches("is rewritten in format 5").count(), 1, "{log}");
    assert!(!daemon.directory().join("sled.format-1.2").exists());
}

#[test]
fn with_no_migrate_a_directory_of_format_1_is_refused_with_both_formats_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    unpack(&data);
    let before = files(&data);
    let run = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["server", "--no-migrate", "--listen", "127.0.0.1:0", "--data"])
        .arg(&data)
        .output()
        .unwrap();
    let error = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{error}");
    assert!(error.contains("format 1") && error.contains("format 5") && error.contains("--no-migrate"), "{error}");
    assert_eq!(files(&data), before);
}

/// Runs a command that must succeed.
fn svc(arguments: &[&str], data: &Path) {
    let run = Command::new(env!("CARGO_BIN_EXE_svc")).args(arguments).arg("--data").arg(data).output().unwrap();
    assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn a_directory_of_format_1_that_is_damaged_can_be_salvaged_into_the_current_format() {
    let scratch = tempfile::tempdir().unwrap();
    let (data, saved) = (scratch.path().join("data"), scratch.path().join("saved"));
    let saved = saved.to_str().unwrap();
    unpack(&data);
    let before = files(&data);
    svc(&["store", "verify"], &data);
    svc(&["store", "salvage", saved], &data);
    assert_eq!(files(&data), before);
    let daemon = Daemon::on(|restored| svc(&["restore", saved], restored), &KEEP);
    assert_nothing_is_missing(&daemon);
    drop(daemon);

    let mut database = before[&data.join("sled/db")].clone();
    database[400..416].fill(0xff);
    std::fs::write(data.join("sled/db"), database).unwrap();
    let start = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["server", "--listen", "127.0.0.1:0", "--data"])
        .arg(&data)
        .output()
        .unwrap();
    let error = String::from_utf8(start.stderr).unwrap();
    assert!(start.status.code() == Some(1) && error.contains("svc store salvage"), "{error}");
    svc(&["store", "salvage", saved, "--force"], &data);
    let daemon = Daemon::on(|restored| svc(&["restore", saved], restored), &KEEP);
    assert_eq!(daemon.send("GET", "/readyz", None, None).status, 200);
}

#[test]
fn a_migration_that_is_killed_at_any_moment_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..10_u64 {
        let data = directory.path().join(format!("data{round}"));
        unpack(&data);
        let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["server", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .envs(KEEP.map(|(name, value)| (format!("SVC_{name}"), value)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Kills as soon as the round's step of the rewrite shows on disk.
        let step = match round % 5 {
            0 => "lock",
            1 => "sled.new",
            2 => "sled.new/db",
            3 => "sled.new/format",
            _ => "sled.format-1",
        };
        eventually("the rewrite to get this far, or to end", || {
            (data.join(step).exists() || data.join("sled.format-1").exists()).then_some(())
        });
        std::thread::sleep(Duration::from_micros(round * 300));
        child.kill().unwrap();
        child.wait().unwrap();
        let daemon = Daemon::on(|copy| std::fs::rename(&data, copy).unwrap(), &KEEP);
        assert_nothing_is_missing(&daemon);
    }
}
