//! Health from the check in the space to the event that is told of it.

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

/// In a row; so many that a slow machine does not make a space unhealthy.
const FAILURES: u64 = 3;

/// A checked space with its agent, and what hears of its health.
struct World {
    daemon: Daemon,
    space: Space,
    receiver: Receiver,
}

/// Whether the space is to be well.
#[derive(Clone, Copy, PartialEq)]
enum Be {
    Well,
    Ill,
}

impl World {
    /// `check` gets the interval and the rest; commands run in the space's directory.
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

    /// Waits until the server has counted so many failures in a row.
    fn wait_failures(&self, count: u64) {
        eventually(&format!("{count} failed checks in a row"), || {
            (self.view()["consecutive_failures"].as_u64()? >= count).then_some(())
        });
    }

    /// Waits for the next so many checks.
    fn wait_checks(&self, count: usize) {
        let at = || self.view()["last_check"]["checked_at"].clone();
        let mut seen = BTreeSet::from([at().to_string()]);
        eventually("more checks", || {
            seen.insert(at().to_string());
            (seen.len() > count).then_some(())
        });
    }

    /// Waits until it is told of the `n`th change and checks that this is what is told, to the last field.
    fn told(&self, n: usize, previous: &str, current: &str) {
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

    /// All that was raised of its health so far, oldest first.
    fn raised(&self) -> Vec<String> {
        let events = self.daemon.get("/api/events?pattern=space.*&limit=200").json();
        let types = events["items"].as_array().expect("a list").iter().rev().map(|event| event["type"].clone());
        types.filter_map(|kind| kind.as_str().map(str::to_owned)).filter(|kind| kind.ends_with("healthy")).collect()
    }

    /// From well to ill and back, told thrice in all.
    fn there_and_back(&self, mut be: impl FnMut(Be)) {
        self.told(1, "unknown", "healthy");
        assert_eq!((&self.view()["health"], &self.view()["last_check"]["ok"]), (&json!("healthy"), &json!(true)));
        be(Be::Ill);
        self.told(2, "healthy", "unhealthy");
        // More failures are counted, and are no news.
        self.wait_failures(FAILURES + 2);
        let view = self.view();
        assert_eq!((&view["health"], &view["state"]), (&json!("unhealthy"), &json!("deployed")));
        assert!(view["last_check"]["detail"].is_string(), "{view}");
        be(Be::Well);
        self.told(3, "unhealthy", "healthy");
        assert_eq!(self.view()["consecutive_failures"], 0);
        // Neither are more successes.
        self.wait_checks(2);
        assert_eq!(self.raised(), ["space.healthy", "space.unhealthy", "space.healthy"]);
    }
}

/// A web server that can be ill.
fn patient() -> (Receiver, Arc<AtomicBool>) {
    let ill = Arc::new(AtomicBool::new(false));
    let seen = ill.clone();
    let answer = move |_: &_| Answer::Status(if seen.load(Ordering::SeqCst) { 503 } else { 200 });
    (Receiver::answering(answer), ill)
}

fn port_of(receiver: &Receiver) -> u16 {
    receiver.url("").rsplit(':').next().and_then(|port| port.parse().ok()).expect("a URL with a port")
}

#[test]
fn an_http_check_tells_of_each_change_once() {
    let (patient, ill) = patient();
    let world = World::new(json!({"type": "http", "port": port_of(&patient), "path": "/healthz"}));
    world.there_and_back(|be| ill.store(be == Be::Ill, Ordering::SeqCst));
    assert!(patient.received().iter().all(|request| request.path == "/healthz"));
}

#[test]
fn a_tcp_check_tells_of_each_change_once() {
    // Not one that the system would give to somebody else while nobody listens on it.
    let random = uuid::Uuid::new_v4().into_bytes();
    let first = 10_000 + u16::from_be_bytes([random[0], random[1]]) % 20_000;
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
    let (port, listener) = (first..32_000).find_map(|port| Some((port, listen(port)?))).expect("there is a free port");
    let mut listener = Some(listener);
    let world = World::new(json!({"type": "tcp", "port": port}));
    world.there_and_back(|be| {
        listener = None;
        if be == Be::Well {
            listener = Some(eventually("the port to be free again", || listen(port)));
        }
    });
}

#[test]
fn a_command_check_tells_of_each_change_once() {
    let flag = std::env::temp_dir().join(format!("svc-it-flag-{}", uuid::Uuid::now_v7()));
    let world = World::new(json!({"type": "command", "command": "test", "args": ["!", "-e", flag]}));
    world.there_and_back(|be| mark(&flag, be));
}

/// The file is there while the space is ill.
fn mark(flag: &Path, be: Be) {
    match be {
        Be::Ill => std::fs::write(flag, "").expect("there is room"),
        Be::Well => std::fs::remove_file(flag).expect("it is there"),
    }
}

#[test]
fn a_lua_check_tells_of_each_change_once() {
    let (patient, ill) = patient();
    let source = format!("return http.request{{url = '{}'}}.status == 200, 'it is ill'", patient.url("/"));
    let world = World::new(json!({"type": "lua", "source": source}));
    world.there_and_back(|be| ill.store(be == Be::Ill, Ordering::SeqCst));
}

#[test]
fn a_killed_agent_counts_as_failing_until_it_is_back() {
    let mut world = World::new(json!({"type": "command", "command": "true"}));
    world.told(1, "unknown", "healthy");
    world.space.kill();
    world.told(2, "healthy", "unhealthy");
    world.wait_failures(FAILURES + 1);
    let view = world.view();
    assert_eq!((&view["state"], &view["linked"]), (&json!("deployed"), &json!(false)));
    assert_eq!(view["last_check"]["detail"], "the agent is not connected");
    world.space.start(&world.daemon, &[]);
    world.told(3, "unhealthy", "healthy");
    world.wait_checks(2);
    assert_eq!(world.raised(), ["space.healthy", "space.unhealthy", "space.healthy"]);
}

#[test]
fn a_stopped_space_has_no_health_and_starts_anew() {
    let mut world = World::new(json!({"type": "command", "command": "false"}));
    world.told(1, "unknown", "unhealthy");
    assert!(world.space.terminate().success());
    eventually("the space to be stopped", || (world.view()["state"] == "stopped").then_some(()));
    let view = world.view();
    assert_eq!((&view["health"], &view["consecutive_failures"]), (&json!("unknown"), &json!(0)));
    assert_eq!(view["last_check"], json!(null));
    world.space.start(&world.daemon, &[]);
    world.told(2, "unknown", "unhealthy");
    // Without a check there is no health either, and that is not told.
    let updated = world.daemon.patch(&format!("/api/spaces/{}", world.space.id), &json!({"health_check": null}));
    assert_eq!((updated.status, &updated.json()["health"]), (200, &json!("unknown")));
    assert_eq!(world.raised(), ["space.unhealthy", "space.unhealthy"]);
}
