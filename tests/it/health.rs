//! Health checks, from the check in the space to the event about it.

use crate::support::{Answer, Daemon, Receiver, Space, eventually};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Failures in a row; so many that a slow machine does not make a space unhealthy.
const FAILURES: u64 = 3;

/// A space with a health check and an agent, and a receiver of its health events.
struct CheckedSpace {
    daemon: Daemon,
    space: Space,
    receiver: Receiver,
}

/// The result that the check shall have.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Healthy,
    Unhealthy,
}

impl CheckedSpace {
    /// Completes `check` with interval and threshold; commands run in the directory of the space.
    fn new(mut check: Value) -> Self {
        let daemon = Daemon::start();
        let receiver = Receiver::start();
        daemon.create_sink(&json!({
            "name": "hook", "events": "space.healthy, space.unhealthy", "type": "webhook", "owner": "global",
            "webhook": {"url": receiver.url("/")},
        }));
        (check["interval"], check["failures"]) = (json!("300ms"), json!(FAILURES));
        let fields = json!({"name": "web", "health_check": check});
        let mut space = Space::create_with(&daemon, &daemon.admin_token(), fields);
        assert_eq!(space.view(&daemon)["health"], "unknown");
        space.start(&daemon, &[]);
        Self { daemon, space, receiver }
    }

    fn view(&self) -> Value {
        self.space.view(&self.daemon)
    }

    /// Waits until the server has counted this many failures in a row.
    fn wait_failures(&self, count: u64) {
        eventually(&format!("{count} failed checks in a row"), || {
            (self.view()["consecutive_failures"].as_u64()? >= count).then_some(())
        });
    }

    /// Waits for this many further checks.
    fn wait_checks(&self, count: usize) {
        let at = || self.view()["last_check"]["checked_at"].clone();
        let mut seen = BTreeSet::from([at().to_string()]);
        eventually("more checks", || {
            seen.insert(at().to_string());
            (seen.len() > count).then_some(())
        });
    }

    /// Waits for the `n`th health event and checks all its fields.
    fn expect_change(&self, n: usize, previous: &str, current: &str) {
        let event = self.receiver.wait_for(n)[n - 1].json();
        assert_eq!(event["event_type"], format!("space.{current}"));
        let mut expected = json!({
            "space_name": "web", "space_id": self.space.id, "previous": previous, "current": current,
            "checked_at": event["data"]["checked_at"],
        });
        if current == "unhealthy" {
            expected["consecutive_failures"] = FAILURES.into();
        }
        assert_eq!(event["data"], expected);
        assert!(event["data"]["checked_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{event}");
    }

    /// The health events so far, oldest first.
    fn health_events(&self) -> Vec<String> {
        let events = self.daemon.get("/api/events?pattern=space.*&limit=200").json();
        let types = events["items"].as_array().expect("a list").iter().rev().map(|event| event["type"].clone());
        types.filter_map(|kind| kind.as_str().map(str::to_owned)).filter(|kind| kind.ends_with("healthy")).collect()
    }

    /// Goes from healthy to unhealthy and back: three events in all.
    fn become_unhealthy_and_recover(&self, mut make: impl FnMut(Wanted)) {
        self.expect_change(1, "unknown", "healthy");
        assert_eq!((&self.view()["health"], &self.view()["last_check"]["ok"]), (&json!("healthy"), &json!(true)));
        make(Wanted::Unhealthy);
        self.expect_change(2, "healthy", "unhealthy");
        // Further failures are counted and cause no event.
        self.wait_failures(FAILURES + 2);
        let view = self.view();
        assert_eq!((&view["health"], &view["state"]), (&json!("unhealthy"), &json!("deployed")));
        assert!(view["last_check"]["detail"].is_string(), "{view}");
        make(Wanted::Healthy);
        self.expect_change(3, "unhealthy", "healthy");
        assert_eq!(self.view()["consecutive_failures"], 0);
        // Further successes cause no event either.
        self.wait_checks(2);
        assert_eq!(self.health_events(), ["space.healthy", "space.unhealthy", "space.healthy"]);
    }
}

/// A web server that can be made unhealthy.
fn web_server() -> (Receiver, Arc<AtomicBool>) {
    let ill = Arc::new(AtomicBool::new(false));
    let seen = ill.clone();
    let answer = move |_: &_| Answer::Status(if seen.load(Ordering::SeqCst) { 503 } else { 200 });
    (Receiver::answering(answer), ill)
}

fn port_of(receiver: &Receiver) -> u16 {
    receiver.url("").rsplit(':').next().and_then(|port| port.parse().ok()).expect("a URL with a port")
}

#[test]
fn an_http_check_emits_one_event_per_change() {
    let (web_server, ill) = web_server();
    let space = CheckedSpace::new(json!({"type": "http", "port": port_of(&web_server), "path": "/healthz"}));
    space.become_unhealthy_and_recover(|wanted| ill.store(wanted == Wanted::Unhealthy, Ordering::SeqCst));
    assert!(web_server.received().iter().all(|request| request.path == "/healthz"));
}

#[test]
fn a_tcp_check_emits_one_event_per_change() {
    // A port that the system does not assign to another process while nobody listens on it.
    let random = uuid::Uuid::new_v4().into_bytes();
    let first = 10_000 + u16::from_be_bytes([random[0], random[1]]) % 20_000;
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
    let (port, listener) = (first..32_000).find_map(|port| Some((port, listen(port)?))).expect("there is a free port");
    let mut listener = Some(listener);
    let space = CheckedSpace::new(json!({"type": "tcp", "port": port}));
    space.become_unhealthy_and_recover(|wanted| {
        listener = None;
        if wanted == Wanted::Healthy {
            listener = Some(eventually("the port to be free again", || listen(port)));
        }
    });
}

#[test]
fn a_command_check_emits_one_event_per_change() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("unhealthy");
    let space = CheckedSpace::new(json!({"type": "command", "command": "test", "args": ["!", "-e", flag]}));
    space.become_unhealthy_and_recover(|wanted| mark(&flag, wanted));
}

/// The file exists while the space is unhealthy.
fn mark(flag: &Path, wanted: Wanted) {
    match wanted {
        Wanted::Unhealthy => std::fs::write(flag, "").expect("the directory is writable"),
        Wanted::Healthy => std::fs::remove_file(flag).expect("the file exists"),
    }
}

#[test]
fn a_lua_check_emits_one_event_per_change() {
    let (web_server, ill) = web_server();
    let source = format!("return http.request{{url = '{}'}}.status == 200, 'it is ill'", web_server.url("/"));
    let space = CheckedSpace::new(json!({"type": "lua", "source": source}));
    space.become_unhealthy_and_recover(|wanted| ill.store(wanted == Wanted::Unhealthy, Ordering::SeqCst));
}

#[test]
fn a_killed_agent_counts_as_failing_until_it_is_back() {
    let mut space = CheckedSpace::new(json!({"type": "command", "command": "true"}));
    space.expect_change(1, "unknown", "healthy");
    space.space.kill();
    space.expect_change(2, "healthy", "unhealthy");
    space.wait_failures(FAILURES + 1);
    let view = space.view();
    assert_eq!((&view["state"], &view["linked"]), (&json!("deployed"), &json!(false)));
    assert_eq!(view["last_check"]["detail"], "the agent is not connected");
    space.space.start(&space.daemon, &[]);
    space.expect_change(3, "unhealthy", "healthy");
    space.wait_checks(2);
    assert_eq!(space.health_events(), ["space.healthy", "space.unhealthy", "space.healthy"]);
}

#[test]
fn a_stopped_space_has_no_health_until_it_starts_again() {
    let mut space = CheckedSpace::new(json!({"type": "command", "command": "false"}));
    space.expect_change(1, "unknown", "unhealthy");
    assert!(space.space.terminate().success());
    eventually("the space to be stopped", || (space.view()["state"] == "stopped").then_some(()));
    let view = space.view();
    assert_eq!((&view["health"], &view["consecutive_failures"]), (&json!("unknown"), &json!(0)));
    assert_eq!(view["last_check"], json!(null));
    space.space.start(&space.daemon, &[]);
    space.expect_change(2, "unknown", "unhealthy");
    // Removing the check removes the health state, without an event.
    let updated = space.daemon.patch(&format!("/api/spaces/{}", space.space.id), &json!({"health_check": null}));
    assert_eq!((updated.status, &updated.json()["health"]), (200, &json!("unknown")));
    assert_eq!(space.health_events(), ["space.unhealthy", "space.unhealthy"]);
}
