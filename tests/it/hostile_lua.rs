//! Hostile scripts: each fails its own attempt within its limits, and other sinks are not slowed down.

use crate::support::{Daemon, Receiver};
use serde_json::json;

const LIMITS: &[(&str, &str)] =
    &[("DELIVERY_BACKOFF", ""), ("SCRIPT_CPU", "100ms"), ("SCRIPT_WALL", "60s"), ("SCRIPT_MEMORY", "8MiB")];

/// Scripts, each with a word that its error must contain.
const ATTACKS: &[(&str, &str, &str)] = &[
    ("endless loop", "while true do end", "processor time"),
    ("endless loop in pcall", "while true do pcall(function() while true do end end) end", "processor time"),
    ("endless loop in xpcall's handler", "xpcall(error, function() while true do end end)", "processor time"),
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
