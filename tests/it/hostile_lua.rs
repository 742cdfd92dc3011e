//! Hostile scripts: each fails its own attempt within its limits, and other sinks are not slowed down.

use crate::support::{Daemon, Receiver, ended, eventually};
use serde_json::json;

const LIMITS: &[(&str, &str)] =
    &[("DELIVERY_BACKOFF", ""), ("SCRIPT_CPU", "100ms"), ("SCRIPT_WALL", "60s"), ("SCRIPT_MEMORY", "8MiB")];

/// Scripts, each with a word that its error must contain.
const ATTACKS: &[(&str, &str, &str)] = &[
    ("endless loop", "while true do end", "processor time"),
    ("endless loop in pcall", "while true do pcall(function() while true do end end) end", "processor time"),
    ("endless loop in xpcall's handler", "xpcall(error, function() while true do end end)", "processor time"),
    (
        "hoard of verdicts",
        "local t = {} for i = 1, 250000 do t[i] = svc.skip(('x'):rep(4096) .. i) end",
        "at most 100 verdicts",
    ),
    ("memory bomb", "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end", "memory"),
    ("giant string", "local s = ('x'):rep(1e9) return s", "memory"),
    ("doubling string", "local s = 'x' while true do s = s .. s end", "memory"),
    (
        "pattern backtracking",
        "local s = ('a'):rep(30) return s:find(('a?'):rep(30) .. ('a'):rep(30) .. 'b')",
        "processor time",
    ),
    ("deep recursion", "local function f() return 1 + f() end return f()", "overflow"),
    ("io", "return io.open('/etc/passwd')", "nil"),
    ("os", "return os.execute('true')", "nil"),
    ("debug", "return debug.getregistry()", "nil"),
    ("bytecode", "return loadstring('\\27Lua')()", "nil"),
    ("poisoned string library", "string.format = nil", "readonly"),
    ("poisoned globals", "_G.string = nil", "readonly"),
];

#[test]
fn every_attack_fails_its_own_attempt_and_does_not_slow_another_sink() {
    let daemon = Daemon::with(LIMITS);
    let receiver = Receiver::start();
    daemon.create_sink(&json!({
        "name": "bystander", "events": "custom.calm", "type": "webhook", "owner": "global",
        "webhook": {"url": receiver.url("/"), "template": "return { text = string.format('%s', event.data.n) }"},
    }));
    let attacks: Vec<_> = ATTACKS
        .iter()
        .enumerate()
        .map(|(n, (name, source, _))| {
            daemon.create_sink(&json!({
                "name": format!("attack {n}"), "description": name, "events": format!("custom.attack{n}"),
                "type": "script", "owner": "me", "script": {"source": source},
            }));
            daemon.emit(&format!("attack{n}"), &json!({}))["event_id"].clone()
        })
        .collect();
    for n in 0..20 {
        daemon.emit("calm", &json!({"n": n}));
    }
    let texts: Vec<_> =
        receiver.wait_for(20).iter().map(|request| request.json()["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    for (event, (name, _, word)) in attacks.iter().zip(ATTACKS) {
        let delivery = daemon.delivery(event, "dead");
        let attempt = &delivery["attempts"][0];
        let error = attempt["error"].as_str().unwrap();
        assert!(error.contains(word), "{name}: {error}");
        assert!(attempt["duration_ms"].as_f64().unwrap() < 30_000.0, "{name}: {attempt}");
    }
    daemon.emit("calm", &json!({"n": 20}));
    assert_eq!(receiver.wait_for(21)[20].json()["text"], "20", "the poisoned globals stayed in their run");
}

#[test]
fn no_state_passes_from_one_run_to_the_next() {
    let daemon = Daemon::with(LIMITS);
    daemon.create_sink(&json!({
        "name": "s", "events": "*", "type": "script", "owner": "global",
        "script": {"source": "print(tostring(leftover)) leftover = 'mine'"},
    }));
    for _ in 0..3 {
        let emitted = daemon.emit("x", &json!({}));
        let delivery = daemon.delivery(&emitted["event_id"], "delivered");
        assert_eq!(delivery["attempts"][0]["log"], json!(["nil"]));
    }
}

/// A script that burns processor time where no interrupt comes: each addition reads a number of 29 MB.
fn endless_sum() -> String {
    format!("local a, x = ('1'):rep(29e6){}", " x = a + a".repeat(2000))
}

#[test]
fn a_script_that_cannot_be_interrupted_is_killed_and_after_three_times_quarantined_until_it_is_changed() {
    let daemon = Daemon::with(&[
        ("DELIVERY_BACKOFF", "1ms,1ms,1ms"),
        ("SCRIPT_CPU", "100ms"),
        ("SCRIPT_WALL", "60s"),
        ("EGRESS_ALLOW_PRIVATE", "true"),
    ]);
    let sink = daemon.create_sink(&json!({
        "name": "sum", "events": "custom.sum", "type": "script", "owner": "me", "script": {"source": endless_sum()},
    }));
    let emitted = daemon.emit("sum", &json!({}));
    let delivery = daemon.delivery(&emitted["event_id"], "dead");
    let attempts = delivery["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 4, "{delivery}");
    for attempt in &attempts[..3] {
        assert_eq!(attempt["error"], "it took more than 100ms of processor time, and its process was killed");
    }
    let error = attempts[3]["error"].as_str().unwrap();
    assert!(error.starts_with("it is quarantined until ") && error.contains("3 times in a row"), "{error}");

    let path = format!("/api/event-sinks/{sink}");
    let shown = daemon.get(&path).json();
    assert_eq!((&shown["quarantine"]["count"], &shown["active"]), (&json!(3), &json!(true)), "{shown}");
    assert!(shown["quarantine"]["reason"].as_str().unwrap().contains("processor time"), "{shown}");
    let told = crate::support::success(&daemon.svc(&["sink", "show", "sum"]));
    assert!(told.contains("quarantine") && told.contains("3 times in a row"), "{told}");
    let listed = crate::support::success(&daemon.svc(&["sink", "list"]));
    assert!(listed.contains("quarantined"), "{listed}");
    assert_eq!(daemon.metric("svc_lua_quarantined"), 1.0);
    for change in [json!({"active": false}), json!({"active": true, "description": "slow"})] {
        let changed = daemon.patch(&path, &change);
        assert_eq!(changed.status, 200, "its other fields can be changed: {}", changed.text);
    }

    assert_eq!(daemon.patch(&path, &json!({"script": {"source": "print('mended')"}})).status, 200);
    let emitted = daemon.emit("sum", &json!({}));
    assert_eq!(daemon.delivery(&emitted["event_id"], "delivered")["attempts"][0]["log"], json!(["mended"]));
    assert_eq!(daemon.get(&path).json().get("quarantine"), None);
}

#[test]
fn scripts_of_two_users_that_wait_do_not_delay_the_template_of_a_third() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let daemon = Daemon::with(&[("EGRESS_ALLOW_PRIVATE", "true"), ("SCRIPT_WALL", "60s"), ("DELIVERY_BACKOFF", "")]);
    let receiver = Receiver::start();
    let source = format!("http.request{{url = 'http://{}', timeout = 60}}", silent.local_addr().unwrap());
    for name in ["ada", "bob"] {
        let token = daemon.create_user(name, &["manage_own_event_sinks", "use_spaces"]);
        for n in 0..4 {
            let sink =
                json!({"name": format!("idle{n}"), "events": "*", "type": "script", "script": {"source": source}});
            let body = Some(serde_json::to_vec(&sink).unwrap());
            let made = daemon.send("POST", "/api/event-sinks", Some(&token), body);
            assert_eq!(made.status, 201, "{}", made.message());
        }
        let event = Some(serde_json::to_vec(&json!({"type": "wait", "payload": {}})).unwrap());
        let emitted = daemon.send("POST", "/api/events/emit", Some(&token), event);
        assert!(emitted.status < 300, "{}", emitted.message());
    }
    // Every one of these scripts waits now.
    let mut connections = Vec::new();
    while connections.len() < 8 {
        connections.push(silent.accept().unwrap().0);
    }
    daemon.create_sink(&json!({
        "name": "third", "events": "custom.third", "type": "webhook", "owner": "global",
        "webhook": {"url": receiver.url("/"), "template": "return { n = event.data.n }"},
    }));
    let began = std::time::Instant::now();
    daemon.emit("third", &json!({"n": 1}));
    assert_eq!(receiver.wait_for(1)[0].json()["n"], 1);
    // The scripts wait for a minute; the template waited for none of them.
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn workers_yield_the_processor_to_the_daemon_and_are_no_more_than_the_setting_allows() {
    let daemon = Daemon::with(&[("SCRIPT_WORKERS", "4"), ("SCRIPT_WALL", "60s"), ("EGRESS_ALLOW_PRIVATE", "true")]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("http.request{{url = 'http://{}', timeout = 60}}", silent.local_addr().unwrap());
    let waits = json!({
        "name": "waits", "events": "custom.wait", "type": "script", "script": {"source": source},
    });
    for n in 0..6 {
        let user = daemon.create_user(&format!("u{n}"), &["manage_own_event_sinks", "use_spaces"]);
        let made = daemon.send("POST", "/api/event-sinks", Some(&user), Some(waits.to_string().into_bytes()));
        assert_eq!(made.status, 201, "{}", made.text);
        let event = json!({"type": "wait", "payload": {}}).to_string().into_bytes();
        assert_eq!(daemon.send("POST", "/api/events/emit", Some(&user), Some(event)).status, 202);
    }
    let niceness = |pid: u64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse::<i64>().ok()
    };
    let own = niceness(daemon.process_id()).expect("the daemon runs");
    // Three places are for scripts; the fourth is left to templates.
    let workers = eventually("the workers", || Some(daemon.workers()).filter(|workers| workers.len() >= 3));
    assert!(workers.len() <= 4, "{workers:?}");
    let expected = (own + 5).min(19);
    assert!(workers.iter().all(|pid| niceness(*pid).is_none_or(|nice| nice == expected)), "{workers:?}");
}

#[test]
fn workers_end_with_the_daemon_and_a_killed_worker_costs_no_attempt() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut daemon = Daemon::with(&[("SCRIPT_WALL", "60s"), ("DELIVERY_BACKOFF", "")]);
    let source = format!("http.request{{url = 'http://{}', timeout = 60}}", silent.local_addr().unwrap());
    daemon.create_sink(&json!({
        "name": "waits", "events": "custom.wait", "type": "script", "owner": "global", "script": {"source": source},
    }));
    let emitted = daemon.emit("wait", &json!({}));
    let first = silent.accept().unwrap();
    // One worker has compiled the script when it was saved, and one runs it.
    let workers = daemon.workers();
    assert!(!workers.is_empty());
    for worker in &workers {
        assert!(std::process::Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap().success());
    }
    // The run is repeated in another worker, and the event still has no attempt.
    let second = silent.accept().unwrap();
    drop(first);
    assert_eq!(daemon.event(&emitted["event_id"])["deliveries"][0]["attempts"], json!([]));
    let workers = daemon.workers();
    assert!(!workers.is_empty());
    daemon.kill();
    for worker in workers {
        eventually("the worker to end", || ended(worker).then_some(()));
    }
    drop(second);
}
