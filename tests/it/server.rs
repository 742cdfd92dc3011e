//! Starting and stopping the server.

use crate::support::{Answer, Daemon, Receiver, eventually};
use serde_json::json;
use std::{
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::mpsc,
    time::{Duration, Instant},
};

#[test]
fn a_start_without_settings_serves_and_writes_the_first_users_secrets_to_private_files() {
    let daemon = Daemon::start();
    assert!(daemon.url.starts_with("http://127."));
    assert_eq!(daemon.send("GET", "/healthz", None, None).status, 200);
    assert_eq!(daemon.send("GET", "/readyz", None, None).status, 200);
    for name in ["admin.token", "admin.password"] {
        let file = daemon.directory().join(name);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        let secret = std::fs::read_to_string(file).unwrap();
        assert!(!daemon.log().contains(secret.trim()), "{name} is in the log");
    }
    let me = daemon.get("/api/whoami").json();
    assert_eq!((&me["name"], &me["via"]), (&json!("admin"), &json!("token")));
}

#[test]
fn the_password_of_the_admin_starts_a_session() {
    let daemon = Daemon::start();
    let password = std::fs::read_to_string(daemon.directory().join("admin.password")).unwrap();
    let body = json!({"name": "admin", "password": password.trim()}).to_string();
    assert_eq!(daemon.send("POST", "/api/auth/login", None, Some(body.into())).status, 200);
}

#[test]
fn a_restart_keeps_the_first_users_token() {
    let mut daemon = Daemon::start();
    let token = daemon.admin_token();
    daemon.crash_and_restart();
    assert_eq!(daemon.admin_token(), token);
    assert_eq!(daemon.get("/api/whoami").status, 200);
}

#[test]
fn sigterm_finishes_the_delivery_in_flight_and_exits_with_zero() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let receiver = Receiver::answering(move |_| {
        wait.lock().unwrap().recv().unwrap();
        Answer::Status(200)
    });
    let mut daemon = Daemon::start();
    daemon.create_sink(&json!({
        "name": "slow", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    let emitted = daemon.emit("x", &json!({}));
    receiver.wait_for(1);
    let asked = Instant::now();
    daemon.terminate();
    // The server must refuse new connections while it waits for the delivery.
    eventually("the daemon to stop listening", || {
        std::net::TcpStream::connect(daemon.url.trim_start_matches("http://")).err()
    });
    go.send(()).unwrap();
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(asked.elapsed() < Duration::from_secs(10));
    daemon.restart();
    let delivery = daemon.delivery(&emitted["event_id"], "delivered");
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(receiver.received().len(), 1, "it was not delivered again");
}

#[test]
fn a_delivery_that_does_not_end_does_not_hold_up_the_exit() {
    let receiver = Receiver::answering(|_| Answer::Custom(Box::new(|_| std::thread::sleep(Duration::from_secs(60)))));
    let mut daemon = Daemon::with(&[("WEBHOOK_TIMEOUT", "60s"), ("LIMITS_DRAIN", "2s")]);
    daemon.create_sink(&json!({
        "name": "stuck", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    daemon.emit("x", &json!({}));
    receiver.wait_for(1);
    let asked = Instant::now();
    daemon.terminate();
    assert_eq!(daemon.ended().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?}", asked.elapsed());
}

#[test]
fn a_second_server_on_the_same_data_fails_at_once_and_says_why() {
    let daemon = Daemon::start();
    let second = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["server", "--listen", "127.0.0.1:0", "--data"])
        .arg(daemon.directory())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(error.contains("in use by another svc server") && error.contains("--data"), "{error}");
    assert_eq!(daemon.get("/api/whoami").status, 200, "the first server continues");
}

#[test]
fn an_unknown_config_key_fails_with_its_name_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("svc.toml");
    std::fs::write(&file, "zone = \"a\"\n\n[webhook]\ntimeuot = \"1s\"\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_svc")).args(["server", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("timeuot") && error.contains("line 4"), "{error}");
}

#[test]
fn the_json_log_has_one_object_per_line() {
    let daemon = Daemon::with(&[("LOG_FORMAT", "json"), ("LOG_LEVEL", "debug")]);
    let log = daemon.log();
    assert!(!log.is_empty(), "the start is logged");
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}
