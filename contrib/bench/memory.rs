//! Resident memory of a server: idle, after a million events, and with 200,000 sinks.
//!
//! Run with `cargo bench --bench memory`; exits 1 if a requirement is missed. A number on the command line replaces the
//! million.

mod support;

use std::{process::ExitCode, thread, time::Duration};
use support::{Daemon, PAYLOAD, requirement};

const EMITTERS: usize = 64;
const EVENTS: usize = 1_000_000;
const SINKS: usize = 200_000;

/// MiB of an idle server.
const IDLE: f64 = 20.0;
/// MiB that the events may add.
const AFTER_EVENTS: f64 = 80.0;
/// MiB of a server with all sinks.
const WITH_SINKS: f64 = 300.0;

fn main() -> ExitCode {
    let events = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(EVENTS);
    let daemon = Daemon::start(&[("SVC_HISTORY_SIZE", "64MiB"), ("SVC_DELIVERY_QUEUE", "1000")]);
    let idle = settled(&daemon);
    let sink = r#"{"name":"s","events":"*","type":"script","owner":"global","script":{"source":"return"}}"#;
    let (status, answer) = (daemon.connect().request("POST", "/api/event-sinks", sink).0, "the sink is made");
    assert_eq!(status, 201, "{answer}");
    let event = format!(r#"{{"type":"load","payload":{PAYLOAD}}}"#);
    repeat(&daemon, events, 202, "/api/events/emit", |_| event.clone());
    let after = settled(&daemon) - idle;
    drop(daemon);
    let daemon = Daemon::start(&[("SVC_LIMITS_SINKS", "1000000")]);
    repeat(&daemon, SINKS, 201, "/api/event-sinks", |n| {
        format!(
            r#"{{"name":"sink {n}","events":"custom.team{}.service{n}.*","type":"webhook","owner":"global","webhook":{{"url":"http://127.0.0.1:9/{n}"}}}}"#,
            n % 100
        )
    });
    let with_sinks = settled(&daemon);
    let met = [
        requirement("an idle server", idle, " MiB", idle <= IDLE, "at most 20"),
        requirement("more after a million events", after, " MiB", after <= AFTER_EVENTS, "at most 80"),
        requirement("a server with 200,000 sinks", with_sinks, " MiB", with_sinks <= WITH_SINKS, "at most 300"),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sends this many requests over [`EMITTERS`] connections.
fn repeat(daemon: &Daemon, count: usize, expected: u16, path: &str, body: impl Fn(usize) -> String + Sync) {
    thread::scope(|scope| {
        for part in 0..EMITTERS {
            let body = &body;
            scope.spawn(move || {
                let mut connection = daemon.connect();
                for n in (part..count).step_by(EMITTERS) {
                    let (status, answer) = connection.request("POST", path, &body(n));
                    assert_eq!(status, expected, "{answer}");
                }
            });
        }
    });
}

/// The memory once the server has nothing to do any more.
fn settled(daemon: &Daemon) -> f64 {
    thread::sleep(Duration::from_secs(3));
    daemon.resident()
}
