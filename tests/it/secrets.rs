//! Encryption of webhook secrets and headers in the database, and the key file.

use crate::support::{Daemon, Receiver, eventually, files, success};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

const SECRET: &str = "secret-4711-of-ada";
const HEADER: &str = "Bearer header-4712-of-ada";

fn webhook(url: &str) -> Value {
    json!({"name": "hook", "events": "*", "type": "webhook", "owner": "global",
        "webhook": {"url": url, "secret": SECRET, "headers": {"Authorization": HEADER}}})
}

#[track_caller]
fn assert_hidden(what: &str, bytes: &[u8]) {
    for secret in [SECRET, HEADER] {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{what} contains {secret}");
    }
}

/// Asserts that no file of a data directory contains a secret.
#[track_caller]
fn assert_files_hide_secrets(data: &Path) {
    for (path, content) in files(data) {
        assert_hidden(&path.display().to_string(), &content);
    }
}

#[test]
fn secrets_and_headers_are_encrypted_in_the_database_and_appear_in_no_log_audit_or_history() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::with(&[("LOG_LEVEL", "trace")]);
    let id = daemon.create_sink(&webhook(&receiver.url("/")));
    let key = daemon.directory().join("secrets.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let first = daemon.emit("x", &json!({}));
    daemon.delivery(&first["event_id"], "delivered");
    let changed = daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"description": "changed"}));
    assert_eq!(changed.status, 200, "{}", changed.text);
    daemon.crash_and_restart();
    let second = daemon.emit("x", &json!({}));
    daemon.delivery(&second["event_id"], "delivered");
    let requests = receiver.wait_for(2);
    for request in &requests {
        assert_eq!(request.headers["authorization"], HEADER);
    }
    assert_files_hide_secrets(daemon.directory());
    assert_hidden("the log", daemon.log().as_bytes());
    for path in ["/api/audit", "/api/events", "/api/event-sinks", "/metrics"] {
        assert_hidden(path, daemon.get(path).text.as_bytes());
    }
    let shown = daemon.get(&format!("/api/event-sinks/{id}")).json();
    assert_eq!(shown["webhook"]["secret"], SECRET);
    assert_eq!(shown["webhook"]["headers"]["Authorization"], HEADER);
}

#[test]
fn without_its_key_a_webhook_fails_with_the_way_out_and_the_server_runs() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::with(&[("DELIVERY_BACKOFF", "")]);
    let id = daemon.create_sink(&webhook(&receiver.url("/")));
    let key = daemon.directory().join("secrets.key");
    let original = fs::read_to_string(&key).unwrap();
    daemon.kill();
    fs::remove_file(&key).unwrap();
    daemon.restart();
    assert!(daemon.log().contains("the secrets of 1 webhooks cannot be decrypted"), "{}", daemon.log());
    let lost = daemon.emit("x", &json!({}));
    let dead = daemon.delivery(&lost["event_id"], "dead");
    let reason = dead["attempts"][0]["error"].as_str().unwrap();
    assert!(
        reason.contains("the secret of the webhook is lost") && reason.contains("secrets.key: add the line"),
        "{reason}"
    );
    let path = format!("/api/event-sinks/{id}");
    let refused = daemon.patch(&path, &json!({"description": "x"}));
    assert!(
        refused.status == 400 && refused.message().starts_with("`webhook.secret`: give a new one"),
        "{}",
        refused.text
    );
    assert_eq!(daemon.get(&path).json()["webhook"]["secret"], "whsec_****");

    // The line of the old file is added to the new one. A kill might repeat the attempt, and it would succeed then.
    daemon.terminate();
    daemon.ended();
    fs::write(&key, format!("{}{original}", fs::read_to_string(&key).unwrap())).unwrap();
    daemon.restart();
    assert_eq!(daemon.get(&path).json()["webhook"]["secret"], SECRET);
    assert!(daemon.log().contains("the secrets of 1 webhooks are encrypted with the current key now"));
    let redelivered = daemon.post(&format!("{path}/redeliver"), &json!({}));
    assert_eq!(redelivered.json()["redelivered"], 1, "{}", redelivered.text);
    assert_eq!(receiver.wait_for(1)[0].headers["authorization"], HEADER);

    // The old key is not needed any more: the start has encrypted everything with the first one.
    daemon.kill();
    let both = fs::read_to_string(&key).unwrap();
    fs::write(&key, both.lines().next().unwrap()).unwrap();
    daemon.restart();
    assert_eq!(daemon.get(&path).json()["webhook"]["secret"], SECRET);
}

#[test]
fn a_damaged_or_open_key_file_refuses_the_start_and_stays_as_it_is() {
    let mut daemon = Daemon::start();
    daemon.create_sink(&webhook("https://hooks.example"));
    daemon.kill();
    let key = daemon.directory().join("secrets.key");
    let original = fs::read(&key).unwrap();
    fs::write(&key, "no key\n").unwrap();
    let start = || {
        let mut svc = std::process::Command::new(env!("CARGO_BIN_EXE_svc"));
        let svc = svc.args(["server", "--listen", "127.0.0.1:0", "--data"]).arg(daemon.directory());
        let output = svc.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        crate::support::stderr(&output).lines().last().unwrap_or_default().to_owned()
    };
    let said = start();
    assert!(said.contains("line 1 of the key file") && said.contains("put the original file back"), "{said}");
    assert_eq!(fs::read(&key).unwrap(), b"no key\n");
    fs::write(&key, original).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    // A file of the data directory is made private at start; one elsewhere is not the server's to change.
    let elsewhere = daemon.directory().with_file_name("elsewhere.key");
    fs::copy(&key, &elsewhere).unwrap();
    let mut svc = std::process::Command::new(env!("CARGO_BIN_EXE_svc"));
    svc.args(["server", "--listen", "127.0.0.1:0", "--data"]).arg(daemon.directory());
    let output = svc.env("SVC_SECRETS_KEY_FILE", &elsewhere).output().unwrap();
    let said = crate::support::stderr(&output);
    assert!(said.contains("is accessible to other users (mode 644)") && said.contains("chmod 600"), "{said}");
}

#[test]
fn a_backup_restores_webhooks_unless_the_key_is_kept_elsewhere() {
    let receiver = Receiver::start();
    let directory = tempfile::tempdir().unwrap();
    for kept_elsewhere in [false, true] {
        let key = directory.path().join("kept.key");
        let key_setting = [("SECRETS_KEY_FILE", key.to_str().unwrap())];
        let settings = if kept_elsewhere { &key_setting[..] } else { &[] };
        let daemon = Daemon::with(settings);
        let id = daemon.create_sink(&webhook(&receiver.url("/")));
        let archive = directory.path().join(format!("{kept_elsewhere}.backup"));
        success(&daemon.svc(&["backup", archive.to_str().unwrap()]));
        assert_eq!(daemon.directory().join("secrets.key").exists(), !kept_elsewhere);
        let restore = |data: &Path| {
            success(&daemon.svc(&["restore", archive.to_str().unwrap(), "--data", data.to_str().unwrap()]));
            assert_eq!(data.join("secrets.key").exists(), !kept_elsewhere);
        };
        let restored = Daemon::on(restore, settings);
        let shown = restored.get(&format!("/api/event-sinks/{id}")).json();
        assert_eq!(shown["webhook"]["secret"], SECRET, "{kept_elsewhere}");
        assert_files_hide_secrets(restored.directory());
        if kept_elsewhere {
            let without = Daemon::on(restore, &[]);
            let shown = without.get(&format!("/api/event-sinks/{id}")).json();
            assert_eq!(shown["webhook"]["secret"], "whsec_****");
            eventually("the loss to be logged", || without.log().contains("cannot be decrypted").then_some(()));
        }
    }
}
