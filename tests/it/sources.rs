//! Sources across processes: the command line, restarts, and floods.

use crate::support::{Daemon, Receiver, stderr, stdout, success};
use aws_lc_rs::hmac;
use isahc::{ReadResponseExt, Request, RequestExt};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
    time::{Duration, Instant},
};

const SECRET: &str = "It's a Secret to Everybody";

/// Requests of one flood.
const REQUESTS: usize = 10_000;

/// Sends a request to a source and returns the status and the body.
fn hook(daemon: &Daemon, slug: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut request = Request::post(format!("{}/in/{slug}", daemon.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.body(body.to_owned()).unwrap().send().unwrap();
    let text = response.text().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn github(daemon: &Daemon, secret: &str, delivery: &str, body: &str) -> (u16, Value) {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body.as_bytes());
    let signature = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let headers = [("X-Hub-Signature-256", format!("sha256={signature}")), ("X-GitHub-Delivery", delivery.to_owned())];
    hook(daemon, "github", &headers.each_ref().map(|(name, value)| (*name, value.as_str())), body)
}

fn create(daemon: &Daemon, spec: &Value) -> String {
    let made = daemon.post("/api/sources", spec);
    assert_eq!(made.status, 201, "{}", made.text);
    made.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn the_secret_of_a_global_source_may_be_a_systemd_credential_that_is_read_for_every_request() {
    let credentials = tempfile::tempdir().unwrap();
    let file = credentials.path().join("github");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let mut daemon = Daemon::start();
    daemon.set_variable("CREDENTIALS_DIRECTORY", credentials.path().to_str().unwrap());
    daemon.crash_and_restart();
    let verify = json!({"type": "github", "secret": {"credential": "github"}});
    let id = create(&daemon, &json!({"slug": "github", "owner": "global", "verify": verify}));
    assert_eq!(github(&daemon, SECRET, "1", "{}").0, 202);
    assert_eq!(daemon.get(&format!("/api/sources/{id}")).json()["verify"]["secret"], json!({"credential": "github"}));
    std::fs::write(&file, "another secret").unwrap();
    assert_eq!(github(&daemon, SECRET, "2", "{}").0, 401);
    assert_eq!(github(&daemon, "another secret", "3", "{}").0, 202);
    std::fs::write(&file, "short").unwrap();
    assert_eq!(github(&daemon, "short", "4", "{}").0, 503, "a secret that is too short verifies nothing");
    std::fs::remove_file(&file).unwrap();
    let (status, answer) = github(&daemon, SECRET, "5", "{}");
    assert_eq!(status, 503);
    assert!(!answer.to_string().contains("credential"), "a sender learns nothing of the server's places: {answer}");
}

#[test]
fn a_request_at_a_source_is_delivered_to_a_sink_and_survives_kill_9() {
    let mut daemon = Daemon::start();
    let spec = json!({"slug": "github", "verify": {"type": "github", "secret": SECRET},
        "transform": "if request.json.bad then error('bad') end return { type = 'push', payload = request.json }"});
    create(&daemon, &spec);
    let (status, taken) = github(&daemon, SECRET, "1", r#"{"n": 1}"#);
    assert_eq!(status, 202, "{taken}");
    let (status, kept) = github(&daemon, SECRET, "2", r#"{"n": 2, "bad": true}"#);
    assert!(status == 202 && kept["dead_letter"].is_string(), "{kept}");
    daemon.crash_and_restart();
    assert_eq!(daemon.event(&taken["events"][0])["data"], json!({"n": 1}));
    let listed = daemon.get("/api/sources").json();
    assert_eq!(listed["items"][0]["dead_letters"], 1, "{listed}");
    assert!(!listed.to_string().contains(SECRET));
    let receiver = Receiver::start();
    daemon.create_sink(&json!({"name": "all", "events": "custom.push", "type": "webhook", "owner": "global",
        "webhook": {"url": receiver.url("/")}}));
    let (status, again) = github(&daemon, SECRET, "1", r#"{"n": 1}"#);
    assert_eq!((status, &again), (202, &taken), "the delivery is known after the restart");
    let (status, _) = github(&daemon, SECRET, "3", r#"{"n": 3}"#);
    assert_eq!(status, 202, "the secret was decrypted");
    assert_eq!(receiver.wait_for(1)[0].json()["data"], json!({"n": 3}));
}

#[test]
fn the_secret_of_a_source_is_on_disk_only_encrypted() {
    let mut daemon = Daemon::start();
    let secret = "a-secret-that-must-not-be-found";
    create(&daemon, &json!({"slug": "github", "verify": {"type": "github", "secret": secret}}));
    daemon.terminate();
    daemon.ended();
    for (path, bytes) in crate::support::files(daemon.directory()) {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{}", path.display());
    }
}

#[test]
fn sources_are_managed_from_the_command_line() {
    let daemon = Daemon::start();
    let directory = tempfile::tempdir().unwrap();
    let lua = directory.path().join("github.lua");
    std::fs::write(&lua, "if request.json.bad then error('bad') end return { type = 'push', payload = request.json }")
        .unwrap();
    let made = success(&daemon.svc(&[
        "source",
        "create",
        "--slug",
        "github",
        "--verify",
        "github",
        "--transform",
        lua.to_str().unwrap(),
    ]));
    assert!(made.starts_with("created source github"), "{made}");
    let secret = made.lines().find_map(|line| line.strip_prefix("secret ")).unwrap().split(' ').next().unwrap();
    assert_eq!(github(&daemon, secret, "1", r#"{"n": 1}"#).0, 202);
    assert_eq!(github(&daemon, "another secret", "2", "{}").0, 401);
    assert_eq!(github(&daemon, secret, "3", r#"{"bad": true}"#).0, 202);
    let listed = success(&daemon.svc(&["source", "list"]));
    assert!(listed.contains("github") && !listed.contains(secret), "{listed}");
    let shown = success(&daemon.svc(&["source", "show", "github"]));
    assert!(shown.contains("/in/github") && shown.contains("1 accepted, 1 refused, 1 failed"), "{shown}");
    assert!(shown.contains("not verified: the signature is wrong") && !shown.contains(secret), "{shown}");
    let tested = success(&daemon.svc(&["source", "test", "github", r#"{"n": 2}"#, "--header", "X-GitHub-Event: push"]));
    assert_eq!(tested, "custom.push  {\"n\":2}\n");
    let failed = daemon.svc(&["source", "test", "github", r#"{"bad": true}"#]);
    assert!(
        failed.status.code() == Some(1) && stdout(&failed).contains("failed: transform:1: bad"),
        "{}",
        stdout(&failed)
    );
    let letters = success(&daemon.svc(&["source", "dead-letters", "github"]));
    assert!(letters.contains("transform:1: bad"), "{letters}");
    let still = daemon.svc(&["source", "redeliver", "github"]);
    assert!(still.status.code() == Some(1) && stdout(&still).contains("redelivered 0; 1 remain"), "{}", stderr(&still));

    let file = directory.path().join("github.toml");
    let toml = "slug = \"github\"\ntransform = \"return { type = 'push', payload = request.json }\"\n[verify]\ntype = \"github\"\n";
    std::fs::write(&file, format!("{toml}secret = {{ env = \"HOOK_SECRET\" }}\n")).unwrap();
    let apply = |more: &[&str]| {
        let mut command = daemon.command(&[&["source", "apply", file.to_str().unwrap()][..], more].concat());
        command.env("HOOK_SECRET", "the-second-secret").stdin(Stdio::null()).output().unwrap()
    };
    let unset = daemon.svc(&["source", "apply", file.to_str().unwrap()]);
    assert!(unset.status.code() == Some(1) && stderr(&unset).contains("HOOK_SECRET"), "{}", stderr(&unset));
    assert!(success(&apply(&["--dry-run"])).contains("would update"), "nothing is changed yet");
    assert_eq!(github(&daemon, "the-second-secret", "4", "{}").0, 401);
    let applied = success(&apply(&[]));
    assert!(applied.starts_with("updated") && applied.contains("verify.secret, transform"), "{applied}");
    assert!(success(&apply(&[])).starts_with("unchanged"));
    assert_eq!(github(&daemon, "the-second-secret", "5", "{}").0, 202);
    assert_eq!(github(&daemon, secret, "6", "{}").0, 202, "the first secret is valid for the overlap");
    assert_eq!(success(&daemon.svc(&["source", "redeliver", "github"])), "redelivered 1; 0 remain\n");

    assert_eq!(success(&daemon.svc(&["source", "delete", "github"])), "deleted source github\n");
    assert_eq!(github(&daemon, secret, "7", "{}").0, 404);
    let mut piped =
        daemon.command(&["source", "create", "--slug", "github", "--verify", "github", "--secret-stdin", "--json"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from standard input\n").unwrap();
    let made: Value = serde_json::from_str(&success(&child.wait_with_output().unwrap())).unwrap();
    assert_eq!((&made["slug"], &made["verify"]["secret"]), (&json!("github"), &json!("****")));
    assert_eq!(github(&daemon, "from standard input", "8", "{}").0, 202);
    let none = daemon.svc(&["source", "create", "--slug", "open", "--verify", "none"]);
    assert!(none.status.code() == Some(1) && stderr(&none).contains("insecure"), "{}", stderr(&none));
}

/// Sends this many requests over one connection, and returns the statuses other than `expected`.
fn flood(address: &str, path: &str, count: usize, expected: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 2\r\n\r\n{{}}");
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut other = Vec::new();
    for chunk in 0..count.div_ceil(20) {
        let sent = 20.min(count - chunk * 20);
        stream.write_all(request.repeat(sent).as_bytes()).unwrap();
        for _ in 0..sent {
            let (mut status, mut length) = (String::new(), 0);
            reader.read_line(&mut status).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim_end().is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            if !status.contains(expected) {
                other.push(status);
            }
        }
    }
    other
}

/// Sends [`REQUESTS`] requests that are answered with 404, and emits events meanwhile. Returns the processor time of the
/// daemon, and the time of the slowest event.
fn flood_while_emitting(daemon: &Daemon, path: &str) -> (Duration, Duration) {
    const CONNECTIONS: usize = 20;
    let address = daemon.url.trim_start_matches("http://");
    let before = daemon.processor_time();
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let floods: Vec<_> =
            (0..CONNECTIONS).map(|_| scope.spawn(|| flood(address, path, REQUESTS / CONNECTIONS, " 404 "))).collect();
        while floods.iter().any(|flood| !flood.is_finished()) {
            let began = Instant::now();
            daemon.emit("meanwhile", &json!({}));
            longest = longest.max(began.elapsed());
        }
        for flood in floods {
            assert_eq!(flood.join().unwrap(), [""; 0]);
        }
    });
    (daemon.processor_time() - before, longest)
}

#[test]
fn ten_thousand_requests_at_an_inactive_source_cost_nothing_that_stays() {
    let daemon = Daemon::start();
    let spec = json!({"slug": "off", "active": false, "transform": "return { type = 'never' }",
        "verify": {"type": "none", "insecure": true}});
    let id = create(&daemon, &spec);
    let workers = daemon.workers().len();
    // Requests at no source at all are the yardstick. They make the buffers and threads that stay.
    let (yardstick, longest_before) = flood_while_emitting(&daemon, "/in/none");
    let (memory, log, audit) = (daemon.memory(), daemon.log().len(), daemon.items("/api/audit").len());
    let (took, longest) = flood_while_emitting(&daemon, "/in/off");
    println!(
        "{REQUESTS} requests took {took:?} and {yardstick:?} of the processor; an event meanwhile {longest:?} and \
         {longest_before:?}"
    );
    assert!(took < yardstick * 3, "{took:?} of the processor, and {yardstick:?} at no source");
    assert!(
        longest < Duration::from_secs(5).max(longest_before * 3),
        "{longest:?}, and {longest_before:?} at no source"
    );
    assert!(daemon.memory() < memory + (32 << 10), "{} KiB after {memory}", daemon.memory());
    assert_eq!(daemon.workers().len(), workers, "no Lua ran");
    assert_eq!(daemon.log().len(), log, "no request is logged");
    assert_eq!(daemon.items("/api/audit").len(), audit);
    let source = daemon.get(&format!("/api/sources/{id}")).json();
    assert_eq!((&source["activity"]["refused"], &source["dead_letters"]), (&json!(0), &json!(0)));
    assert!(daemon.items("/api/events").iter().all(|event| event["type"] == "custom.meanwhile"));
}
