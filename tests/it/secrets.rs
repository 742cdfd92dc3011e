//! Secrets of webhooks: their encryption in the database and the key file, their rotation, and values read at delivery.

use crate::support::{Answer, Daemon, Received, Receiver, eventually, files, success};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, thread, time::Duration};

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

/// Returns true if this secret made one of the signatures of a request.
pub fn is_signed_with(request: &Received, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    let head = format!("{}.{}.", request.header("webhook-id"), request.header("webhook-timestamp"));
    mac.update(head.as_bytes());
    mac.update(&request.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    request.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

fn secret_of(daemon: &Daemon, id: &str) -> String {
    let shown = daemon.get(&format!("/api/event-sinks/{id}")).json();
    shown["webhook"]["secret"].as_str().unwrap().to_owned()
}

fn plain_webhook(receiver: &Receiver) -> Value {
    json!({"name": "hook", "events": "*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")}})
}

/// Emits an event and returns its request.
fn delivered(daemon: &Daemon, receiver: &Receiver) -> Received {
    let count = receiver.received().len() + 1;
    let event = daemon.emit("x", &json!({}));
    daemon.delivery(&event["event_id"], "delivered");
    receiver.wait_for(count).pop().unwrap()
}

#[test]
fn a_rotated_secret_signs_beside_the_new_one_until_its_grace_is_over() {
    let (daemon, receiver) = (Daemon::start(), Receiver::start());
    let id = daemon.create_sink(&plain_webhook(&receiver));
    let path = format!("/api/event-sinks/{id}");
    let old = secret_of(&daemon, &id);
    let told = success(&daemon.svc(&["sink", "rotate-secret", "hook", "--grace", "1h"]));
    let new = secret_of(&daemon, &id);
    assert!(new != old && told.contains(&new) && told.contains("until 2"), "{told}");
    let both = delivered(&daemon, &receiver);
    assert!(is_signed_with(&both, &old) && is_signed_with(&both, &new), "{:?}", both.headers);
    assert_eq!(both.header("webhook-signature").split(' ').count(), 2);
    assert!(both.header("x-service-signature-previous").starts_with("sha256="));
    assert!(daemon.get(&path).json()["previous_secret_until"].is_string());

    let changed = daemon.patch(&path, &json!({"description": "changed"}));
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert!(is_signed_with(&delivered(&daemon, &receiver), &old), "a change of another field keeps the grace");

    let rotated = daemon.post(&format!("{path}/rotate-secret"), &json!({"grace": "300ms"})).json();
    let newest = rotated["webhook"]["secret"].as_str().unwrap().to_owned();
    eventually("the grace to be over", || {
        daemon.get(&path).json().get("previous_secret_until").is_none().then_some(())
    });
    let after = delivered(&daemon, &receiver);
    assert!(is_signed_with(&after, &newest) && !is_signed_with(&after, &new) && !is_signed_with(&after, &old));
    assert_eq!(after.header("webhook-signature").split(' ').count(), 1);
    assert!(!after.headers.contains_key("x-service-signature-previous"));
    let actions = daemon.get("/api/audit?action=sink.rotate_secret").json()["items"].as_array().unwrap().len();
    assert_eq!(actions, 2);
    let long = daemon.post(&format!("{path}/rotate-secret"), &json!({"grace": "31d"}));
    assert_eq!((long.status, long.message().contains("`grace`")), (400, true), "{}", long.text);
    let script = daemon.create_sink(&json!({"name": "s", "events": "*", "type": "script", "script": {"source": ""}}));
    assert_eq!(daemon.post(&format!("/api/event-sinks/{script}/rotate-secret"), &json!({})).status, 409);
}

#[test]
fn kill_9_during_a_rotation_leaves_the_old_secret_or_the_new_one() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::start();
    let id = daemon.create_sink(&plain_webhook(&receiver));
    for round in 0..20_u64 {
        let old = secret_of(&daemon, &id);
        let (url, token) = (daemon.url.clone(), daemon.admin_token());
        let path = format!("{url}/api/event-sinks/{id}/rotate-secret");
        let rotation = thread::spawn(move || {
            let request = isahc::Request::post(path)
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .body("{}")
                .unwrap();
            isahc::send(request).ok().and_then(|mut answer| isahc::ReadResponseExt::text(&mut answer).ok())
        });
        thread::sleep(Duration::from_micros(round * 997 % 9_000));
        daemon.kill();
        let answer = rotation.join().unwrap().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        daemon.restart();
        let shown = daemon.get(&format!("/api/event-sinks/{id}")).json();
        let now = shown["webhook"]["secret"].as_str().unwrap();
        if let Some(answer) = answer {
            assert_eq!(answer["webhook"]["secret"], now, "an answer was given, so the new secret is there");
        }
        let request = delivered(&daemon, &receiver);
        assert!(is_signed_with(&request, now) && is_signed_with(&request, &old), "round {round}");
    }
}

#[test]
fn an_ed25519_signature_verifies_with_the_public_key() {
    let (daemon, receiver) = (Daemon::start(), Receiver::start());
    let mut sink = plain_webhook(&receiver);
    let without = daemon.create_sink(&sink);
    assert_eq!(daemon.get(&format!("/api/event-sinks/{without}/public-key")).status, 404);
    assert_eq!(daemon.delete(&format!("/api/event-sinks/{without}")).status, 204);
    sink["webhook"]["ed25519"] = json!(true);
    let id = daemon.create_sink(&sink);
    let keys = || daemon.get(&format!("/api/event-sinks/{id}/public-key")).json();
    let signatures = |request: &Received, key: &Value| {
        let key = STANDARD.decode(key.as_str().unwrap().strip_prefix("whpk_").unwrap()).unwrap();
        let head = format!("{}.{}.", request.header("webhook-id"), request.header("webhook-timestamp"));
        let message = [head.as_bytes(), &request.body].concat();
        let given = request.header("webhook-signature").split(' ').filter_map(|one| one.strip_prefix("v1a,"));
        let given = given.map(|encoded| STANDARD.decode(encoded).unwrap());
        let public = UnparsedPublicKey::new(&ED25519, key);
        given.filter(|signature| public.verify(&message, signature).is_ok()).count()
    };
    let first = keys()["public_key"].clone();
    let request = delivered(&daemon, &receiver);
    assert_eq!(signatures(&request, &first), 1);
    assert!(is_signed_with(&request, &secret_of(&daemon, &id)), "the shared secret signs as well");
    assert_eq!(daemon.post(&format!("/api/event-sinks/{id}/rotate-secret"), &json!({})).status, 200);
    let rotated = keys();
    assert_eq!(rotated["previous"]["public_key"], first);
    let request = delivered(&daemon, &receiver);
    assert_eq!((signatures(&request, &first), signatures(&request, &rotated["public_key"])), (1, 1));
    assert!(!daemon.get(&format!("/api/event-sinks/{id}")).text.contains("whsk_"));
}

#[test]
fn a_global_sink_reads_values_at_delivery_and_a_users_own_must_not() {
    let receiver = Receiver::start();
    let mut daemon = Daemon::start();
    let token = daemon.directory().join("token");
    fs::write(&token, "first\n").unwrap();
    let mut sink = plain_webhook(&receiver);
    sink["webhook"]["headers"] = json!({
        "Authorization": {"file": token, "prefix": "Bearer "}, "X-Env": {"env": "SVC_LOG_LEVEL"}, "X-Plain": "1"
    });
    let own = daemon.create_user("own", &["manage_own_event_sinks"]);
    for owner in ["me", "global"] {
        sink["owner"] = json!(owner);
        let refused = daemon.send("POST", "/api/event-sinks", Some(&own), Some(sink.to_string().into_bytes()));
        let expected = if owner == "me" { (400, "only a global sink") } else { (403, "manage_global_event_sinks") };
        assert_eq!(refused.status, expected.0, "{}", refused.text);
        assert!(refused.message().contains(expected.1), "{}", refused.text);
    }
    daemon.set("LOG_LEVEL", "info");
    daemon.crash_and_restart();
    let id = daemon.create_sink(&sink);
    let request = delivered(&daemon, &receiver);
    let header = |request: &Received, name: &str| request.header(name).to_owned();
    assert_eq!(header(&request, "authorization"), "Bearer first");
    assert_eq!((header(&request, "x-env"), header(&request, "x-plain")), ("info".to_owned(), "1".to_owned()));
    fs::write(&token, "second").unwrap();
    assert_eq!(header(&delivered(&daemon, &receiver), "authorization"), "Bearer second");
    let shown = daemon.get(&format!("/api/event-sinks/{id}")).json();
    assert_eq!(shown["webhook"]["headers"]["Authorization"], json!({"file": token, "prefix": "Bearer "}));
    let taken = daemon.patch(&format!("/api/event-sinks/{id}"), &json!({"owner": "me"}));
    assert_eq!((taken.status, taken.message().contains("only a global sink")), (400, true), "{}", taken.text);

    fs::remove_file(&token).unwrap();
    let event = daemon.emit("x", &json!({}));
    let error = eventually("an attempt", || {
        daemon.event(&event["event_id"])["deliveries"][0]["attempts"][0]["error"].as_str().map(str::to_owned)
    });
    assert!(error.starts_with("`webhook.headers.Authorization`: the file ") && !error.contains("second"), "{error}");
}

#[test]
fn a_url_is_read_at_delivery_and_shown_nowhere() {
    let (first, second) = (Receiver::start(), Receiver::start());
    let echoing = Receiver::answering(|request| {
        let text = format!("cannot POST {}", request.path);
        Answer::Raw(format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
    });
    let daemon = Daemon::with(&[("DELIVERY_BACKOFF", ""), ("LOG_LEVEL", "trace")]);
    let kept = tempfile::tempdir().unwrap();
    let file = kept.path().join("url");
    let write = |url: String| fs::write(&file, url).unwrap();
    let mut sink = plain_webhook(&first);
    sink["webhook"]["url"] = json!({"file": file});
    let own = daemon.create_user("own", &["manage_own_event_sinks"]);
    for (owner, status, reason) in
        [("me", 400, "`webhook.url`: only a global sink"), ("global", 403, "manage_global_event_sinks")]
    {
        sink["owner"] = json!(owner);
        let refused = daemon.send("POST", "/api/event-sinks", Some(&own), Some(sink.to_string().into_bytes()));
        assert_eq!(refused.status, status, "{}", refused.text);
        assert!(refused.message().contains(reason), "{}", refused.text);
    }
    let id = daemon.create_sink(&sink);
    write(first.url("/hooks/T0K3N") + "\n");
    assert_eq!(delivered(&daemon, &first).path, "/hooks/T0K3N");
    write(second.url("/hooks/T0K3N"));
    assert_eq!(delivered(&daemon, &second).path, "/hooks/T0K3N", "a file that was replaced takes effect");

    let failed = || {
        let event = daemon.emit("x", &json!({}));
        daemon.delivery(&event["event_id"], "dead")["attempts"][0].clone()
    };
    write(echoing.url("/hooks/T0K3N"));
    let echoed = failed();
    assert_eq!((&echoed["error"], &echoed["response"]), (&json!("HTTP 404"), &json!(null)));
    write("http://169.254.169.254/hooks/T0K3N".to_owned());
    let denied = "the host of the URL read for `webhook.url` is at an address that is not allowed: cloud metadata addresses are never allowed";
    assert_eq!(failed()["error"], denied);
    write("hooks/T0K3N".to_owned());
    assert_eq!(
        failed()["error"],
        "`webhook.url`: the value read is no http: or https: URL without a user name and password"
    );
    fs::remove_file(&file).unwrap();
    let error = failed()["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("`webhook.url`: the file ") && error.contains("cannot be read"), "{error}");

    let path = format!("/api/event-sinks/{id}");
    assert_eq!(daemon.get(&path).json()["webhook"]["url"], json!({"file": file}));
    let shown = success(&daemon.svc(&["sink", "show", "hook"]));
    assert!(shown.contains(&format!("(from the file {} on the server)", file.display())), "{shown}");
    for text in ["/api/audit", "/api/events", "/api/event-sinks", &path].map(|path| daemon.get(path).text) {
        assert!(!text.contains("T0K3N"), "{text}");
    }
    assert!(!daemon.log().contains("T0K3N"));
    for (path, content) in files(daemon.directory()) {
        let found = content.windows(5).any(|window| window == b"T0K3N");
        assert!(!found, "{}", path.display());
    }
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
