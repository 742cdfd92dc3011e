//! `svc event` in shell hooks: it leaves stdin alone, keeps events while the server is away, and waits inside a space
//! too.

use crate::support::{Daemon, Receiver, Space, stderr, stdout, success};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The payloads of all events of a daemon, oldest first.
fn payloads(daemon: &Daemon) -> Vec<Value> {
    let mut items = daemon.items("/api/events");
    items.reverse();
    items.into_iter().map(|event| event["data"].clone()).collect()
}

fn numbers(daemon: &Daemon) -> Vec<u64> {
    payloads(daemon).iter().map(|data| data["n"].as_u64().unwrap_or_else(|| panic!("{data}"))).collect()
}

fn payload(n: u64) -> String {
    json!({ "n": n }).to_string()
}

/// The files of kept events in a home directory.
fn kept_files(home: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(home.join(".local/state/svc/events")) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths
}

/// The home directory of the commands of a daemon.
fn home(daemon: &Daemon) -> PathBuf {
    let command = daemon.command(&[]);
    let found = command.get_envs().find(|(name, _)| *name == "HOME").and_then(|(_, value)| value);
    found.expect("the commands have a home").into()
}

#[test]
fn a_hook_inside_while_read_leaves_the_input_of_the_loop_alone() {
    let daemon = Daemon::start();
    let hook = daemon.command(&[]);
    let script = r#"printf 'one\ntwo\nthree\n' | while read line; do "$SVC" event "line.$line" > /dev/null; done"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("SVC", hook.get_program());
    for (name, value) in hook.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    assert!(shell.status().unwrap().success());
    let mut kinds: Vec<_> = daemon.items("/api/events").iter().map(|event| event["type"].clone()).collect();
    kinds.reverse();
    assert_eq!(kinds, ["custom.line.one", "custom.line.two", "custom.line.three"]);
    assert_eq!(payloads(&daemon), [json!({}), json!({}), json!({})]);
}

#[test]
fn stdin_is_the_payload_only_if_it_is_asked_for() {
    let daemon = Daemon::start();
    for (arguments, data) in [
        (&["event", "x", "-"][..], json!({"n": 1})),
        (&["event", "x", "--stdin"], json!({"n": 1})),
        (&["event", "x"], json!({})),
    ] {
        let mut child = daemon.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // A command that does not read may be gone already.
        let _ = child.stdin.take().unwrap().write_all(br#"{"n": 1}"#);
        success(&child.wait_with_output().unwrap());
        assert_eq!(payloads(&daemon).last(), Some(&data), "{arguments:?}");
    }
    let both = daemon.svc(&["event", "x", "{}", "--stdin"]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
}

#[test]
fn events_are_kept_while_the_server_is_away_and_sent_in_order_by_the_next_event() {
    let mut daemon = Daemon::start();
    daemon.kill();
    for n in 0..3 {
        let output = daemon.svc(&["event", "n", &payload(n), "--spool"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains("custom.n  kept: cannot reach"), "{}", stdout(&output));
    }
    let files = kept_files(&home(&daemon));
    assert_eq!(files.len(), 3);
    for file in &files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    let without = daemon.svc(&["event", "n", &payload(9)]);
    assert_eq!(without.status.code(), Some(3), "an event that is not to be kept is refused");
    daemon.restart();
    let next = success(&daemon.svc(&["event", "n", &payload(3)]));
    assert!(next.contains("no sink matches"), "{next}");
    assert_eq!(numbers(&daemon), [0, 1, 2, 3]);
    assert!(kept_files(&home(&daemon)).is_empty());
}

#[test]
fn an_event_does_not_overtake_those_that_another_command_is_sending() {
    let mut daemon = Daemon::start();
    daemon.kill();
    success(&daemon.svc(&["event", "n", &payload(0), "--spool"]));
    daemon.restart();
    let mut files = std::fs::read_dir(home(&daemon).join(".local/state/svc/events")).unwrap().map(|file| file.unwrap());
    let lock = files.find(|file| file.file_name().to_str().unwrap().starts_with("send-")).unwrap();
    let lock = std::fs::File::open(lock.path()).unwrap();
    lock.lock().unwrap();
    let refused = daemon.svc(&["event", "n", &payload(1)]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(stderr(&refused), "svc: another command is sending the events before this one: try again later\n");
    drop(lock);
    success(&daemon.svc(&["event", "n", &payload(1)]));
    assert_eq!(numbers(&daemon), [0, 1]);
}

#[test]
fn flush_sends_what_is_kept_and_says_so() {
    let mut daemon = Daemon::start();
    let flush = |daemon: &Daemon| daemon.svc(&["event", "flush", "--json"]);
    let view = |sent: u64, kept: u64| json!({"sent": sent, "refused": 0, "kept": kept, "elsewhere": 0});
    assert_eq!(serde_json::from_str::<Value>(&success(&flush(&daemon))).unwrap(), view(0, 0));
    daemon.kill();
    let kept = success(&daemon.svc(&["event", "n", &payload(0), "--spool", "--json"]));
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&kept["event_type"], &kept["kept"]), (&json!("custom.n"), &json!(true)));
    let away = flush(&daemon);
    assert_eq!(away.status.code(), Some(3), "{}", stderr(&away));
    assert_eq!(serde_json::from_str::<Value>(&stdout(&away)).unwrap(), view(0, 1));
    daemon.restart();
    assert_eq!(serde_json::from_str::<Value>(&success(&flush(&daemon))).unwrap(), view(1, 0));
    assert_eq!(daemon.event(&kept["event_id"])["data"], json!({"n": 0}));
}

#[test]
fn the_setting_of_the_client_keeps_events_as_the_flag_does() {
    let mut daemon = Daemon::start();
    let directory = home(&daemon).join(".config/svc");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("client.toml"), "[event]\nspool = true\n").unwrap();
    daemon.kill();
    assert_eq!(daemon.svc(&["event", "n", &payload(0)]).status.code(), Some(0));
    assert_eq!(daemon.svc(&["event", "n", "--wait"]).status.code(), Some(3), "a wait needs the server");
    daemon.restart();
    success(&daemon.svc(&["event", "n", &payload(1)]));
    assert_eq!(numbers(&daemon), [0, 1]);
}

#[test]
fn events_of_another_user_are_not_raised_with_this_users_token() {
    let mut daemon = Daemon::start();
    let ada = daemon.create_user("ada", &["use_spaces"]);
    daemon.kill();
    success(&daemon.svc(&["event", "n", &payload(0), "--spool", "--token", &ada]));
    daemon.restart();
    let flushed: Value = serde_json::from_str(&success(&daemon.svc(&["event", "flush", "--json"]))).unwrap();
    assert_eq!((&flushed["sent"], &flushed["elsewhere"]), (&json!(0), &json!(1)));
    success(&daemon.svc(&["event", "flush", "--token", &ada]));
    assert_eq!(daemon.items("/api/events")[0]["actor"]["username"], "ada");
}

#[test]
fn an_event_that_the_server_refuses_for_good_does_not_hold_up_those_behind_it() {
    let mut daemon = Daemon::start();
    daemon.kill();
    let large = json!({"n": 0, "text": "x".repeat(300 << 10)}).to_string();
    let path = home(&daemon).join("large.json");
    std::fs::write(&path, large).unwrap();
    success(&daemon.svc(&["event", "n", &format!("@{}", path.display()), "--spool"]));
    success(&daemon.svc(&["event", "n", &payload(1), "--spool"]));
    daemon.restart();
    let output = daemon.svc(&["event", "flush"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), "sent 1, refused 1, kept 0\n"));
    assert!(stderr(&output).contains(".refused: `payload` has"), "{}", stderr(&output));
    assert_eq!(numbers(&daemon), [1]);
}

#[test]
fn concurrent_hooks_lose_nothing_and_double_nothing() {
    let mut daemon = Daemon::start();
    let run_all = |daemon: &Daemon, range: std::ops::Range<u64>| {
        let children: Vec<_> = range
            .map(|n| {
                let mut command = daemon.command(&["event", "n", &payload(n), "--spool"]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
            })
            .collect();
        for mut child in children {
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
    };
    daemon.kill();
    run_all(&daemon, 0..20);
    assert_eq!(kept_files(&home(&daemon)).len(), 20);
    daemon.restart();
    run_all(&daemon, 20..40);
    success(&daemon.svc(&["event", "flush"]));
    let mut found = numbers(&daemon);
    found.sort_unstable();
    assert_eq!(found, (0..40).collect::<Vec<_>>());
}

#[test]
fn an_event_raised_in_a_space_can_be_waited_for() {
    let daemon = Daemon::start();
    let receiver = Receiver::start();
    let webhook = json!({"name": "good", "events": "custom.deploy.*", "type": "webhook", "owner": "global",
        "webhook": {"url": receiver.url("/")}});
    daemon.create_sink(&webhook);
    let mut space = Space::create(&daemon, "web");
    space.start(&daemon, &[]);
    space.wait_linked(&daemon);
    let output = success(&space.svc(&["event", "deploy.done", r#"{"v": 1}"#, "--wait"]));
    assert!(output.lines().any(|line| line.starts_with("delivered") && line.contains("good")), "{output}");
    assert_eq!(receiver.received()[0].json()["data"], json!({"v": 1}));
    let json: Value = serde_json::from_str(&success(&space.svc(&["event", "other", "--wait", "--json"]))).unwrap();
    assert_eq!((&json["type"], &json["deliveries"]), (&json!("custom.other"), &json!([])));
}

#[test]
fn a_wait_in_a_space_ends_when_no_server_takes_the_event_in_time() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "web");
    space.start(&daemon, &[]);
    space.wait_linked(&daemon);
    daemon.kill();
    let output = space.svc(&["event", "n", "--wait", "--timeout", "1s"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("svc agent status"), "{}", stderr(&output));
    daemon.restart();
    crate::support::eventually("the event to arrive", || {
        daemon.items("/api/events").iter().any(|event| event["type"] == "custom.n").then_some(())
    });
}

#[test]
fn an_event_is_kept_while_the_agent_of_the_space_is_away_and_sent_when_it_is_back() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "web");
    space.start(&daemon, &[]);
    space.kill();
    let kept = space.svc(&["event", "n", &payload(0), "--spool"]);
    assert!(success(&kept).contains("kept: cannot reach the agent"), "{}", stdout(&kept));
    assert_eq!(kept_files(space.directory()).len(), 1);
    // The same agent at the same address.
    let first = space.agent_command(&daemon.url, &[]);
    let address = space.url.trim_start_matches("http://").to_owned();
    let mut again = Command::new(first.get_program());
    again.args(first.get_args().map(|word| if word == "127.0.0.1:0" { address.as_ref() } else { word }));
    again.envs(first.get_envs().filter_map(|(name, value)| Some((name, value?))));
    space.launch_as({
        again.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        again
    });
    success(&space.svc(&["event", "n", &payload(1)]));
    assert!(kept_files(space.directory()).is_empty());
    let arrived = || {
        let events = daemon.items("/api/events");
        let numbers = events.iter().rev().filter(|event| event["type"] == "custom.n");
        numbers.map(|event| event["data"]["n"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    crate::support::eventually("both events to arrive", || (arrived().len() == 2).then_some(()));
    assert_eq!(arrived(), [0, 1]);
}

/// The arguments and environment of an event for a server at this address, with a home of its own.
fn hook(home: &std::path::Path, url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(arguments).env_clear().env("HOME", home).env("SVC_SERVER", url).env("SVC_TOKEN", "svc_test");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn an_event_is_on_disk_before_it_is_sent_and_a_silent_server_does_not_hold_up_the_hook() {
    let home = tempfile::tempdir().unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let hook = |n: u64| hook(home.path(), &url, &["event", "n", &payload(n), "--spool"]).spawn().unwrap();
    // Accepted connections are read and never answered.
    let mut connections = Vec::new();
    let mut wait_for_request = || {
        let (mut connection, _) = server.accept().unwrap();
        let mut request = [0; 16];
        std::io::Read::read_exact(&mut connection, &mut request).unwrap();
        connections.push(connection);
    };
    let mut killed = hook(0);
    wait_for_request();
    assert_eq!(kept_files(home.path()).len(), 1, "the event is kept before it is sent");
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(kept_files(home.path()).len(), 1);
    let began = std::time::Instant::now();
    let second = hook(1);
    wait_for_request();
    let output = second.wait_with_output().unwrap();
    assert!(success(&output).contains("  kept: no answer came"), "{}", stdout(&output));
    assert!(began.elapsed() < std::time::Duration::from_secs(40), "{:?}", began.elapsed());
    let kept = kept_files(home.path());
    let numbers = kept.iter().map(|file| {
        let event: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        event["payload"]["n"].as_u64().unwrap()
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn an_event_that_is_sent_leaves_no_file_and_neither_does_one_that_is_refused() {
    let daemon = Daemon::start();
    success(&daemon.svc(&["event", "n", &payload(0), "--spool"]));
    let path = home(&daemon).join("large.json");
    std::fs::write(&path, json!({"text": "x".repeat(300 << 10)}).to_string()).unwrap();
    let refused = daemon.svc(&["event", "n", &format!("@{}", path.display()), "--spool"]);
    assert_eq!((refused.status.code(), stdout(&refused)), (Some(1), String::new()));
    assert!(stderr(&refused).contains("`payload` has"), "{}", stderr(&refused));
    let unknown = daemon.svc(&["event", "n", "--spool", "--token", "svc_wrong"]);
    assert_eq!(unknown.status.code(), Some(4), "{}", stderr(&unknown));
    let left: Vec<_> = std::fs::read_dir(home(&daemon).join(".local/state/svc/events")).unwrap().collect();
    let left = left.iter().map(|entry| entry.as_ref().unwrap().file_name());
    assert_eq!(left.filter(|name| !name.to_string_lossy().ends_with(".lock")).count(), 0);
    assert_eq!(numbers(&daemon), [0]);
}

#[test]
fn a_spool_that_cannot_be_written_does_not_stop_an_event_that_the_server_takes() {
    let daemon = Daemon::start();
    let directory = home(&daemon).join(".local/state/svc/events");
    std::fs::create_dir_all(&directory).unwrap();
    // The bound is on the bytes of all files: one large file of another receiver stands for many.
    let full = std::fs::File::create(directory.join("0000000000000001-aa.json")).unwrap();
    full.set_len(64 << 20).unwrap();
    success(&daemon.svc(&["event", "n", &payload(0), "--spool"]));
    assert_eq!(numbers(&daemon), [0]);
}

#[test]
fn an_answer_that_is_not_of_svc_keeps_the_event() {
    let page = "<html>log in to the network\u{1b}[2J</html>";
    for answer in [
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}", page.len()),
        "HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nproxy".to_owned(),
    ] {
        let home = tempfile::tempdir().unwrap();
        let sent = answer.clone();
        let portal = Receiver::answering(move |_| crate::support::Answer::Raw(sent.clone()));
        let output = hook(home.path(), &portal.url(""), &["event", "n", "--spool"]).output().unwrap();
        assert!(success(&output).contains("  kept: "), "{answer}: {}", stdout(&output));
        assert_eq!(kept_files(home.path()).len(), 1, "{answer}");
        let plain = hook(home.path(), &portal.url(""), &["event", "n", "--json"]).output().unwrap();
        assert_ne!(plain.status.code(), Some(0), "{answer}");
    }
}
