//! Latency of a webhook delivery on an idle daemon, and the memory of an idle daemon.
//!
//! The latency runs from the response to an emit until the webhook request arrives at a receiver in this process: the
//! daemon's own time plus one trip over loopback. It is compared with a request to `/healthz`, which is two such trips
//! and no work.
//!
//! Run with `cargo bench --bench delivery`; exits 1 if a requirement is missed.

mod support;

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, Receiver, percentile, requirement};

const EVENTS: usize = 1000;
const SINKS: usize = 10_000;

fn main() -> ExitCode {
    let daemon = Daemon::start(&[]);
    // Enough time to finish start-up work and to release its memory.
    thread::sleep(Duration::from_secs(3));
    let idle = daemon.resident();
    let (mut delays, mut trips) = latencies(&daemon);
    let (p50, p99) = (percentile(&mut delays, 50), percentile(&mut delays, 99));
    let trip = percentile(&mut trips, 50);
    println!("emit response to webhook request: p50 {p50:?}, p99 {p99:?}; an empty HTTP round trip: p50 {trip:?}");
    drop(daemon);

    let daemon = Daemon::start(&[]);
    create_sinks(&daemon);
    thread::sleep(Duration::from_secs(3));
    let full = daemon.resident();
    let met = [
        requirement(
            "p99 from emit response to webhook request",
            p99.as_secs_f64() * 1e3,
            " ms",
            p99 <= Duration::from_millis(1),
            "at most 1 ms",
        ),
        requirement("idle daemon", idle, " MiB", idle < 30.0, "under 30 MiB"),
        requirement("with 10,000 sinks", full, " MiB", full < 120.0, "under 120 MiB"),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The latencies of deliveries and, measured in between, of empty round trips.
fn latencies(daemon: &Daemon) -> (Vec<Duration>, Vec<Duration>) {
    let receiver = Receiver::start();
    let url = &receiver.url;
    let mut connection = daemon.connect();
    let sink = format!(
        r#"{{"name":"s","events":"*","type":"webhook","owner":"global","webhook":{{"url":"{url}","template":"return {{ text = event.data.n }}"}}}}"#
    );
    let (status, answer) = connection.request("POST", "/api/event-sinks", &sink);
    assert_eq!(status, 201, "{answer}");
    let (mut delays, mut trips) = (Vec::new(), Vec::new());
    for n in 0..EVENTS {
        let (status, _) =
            connection.request("POST", "/api/events/emit", &format!(r#"{{"type":"x","payload":{{"n":{n}}}}}"#));
        let answered = Instant::now();
        assert_eq!(status, 202);
        let arrival = receiver.arrival();
        // The webhook request may arrive before the emit's response.
        delays.push(arrival.saturating_duration_since(answered));
        let sent = Instant::now();
        connection.request("GET", "/healthz", "");
        trips.push(sent.elapsed());
    }
    (delays, trips)
}

fn create_sinks(daemon: &Daemon) {
    let mut connection = daemon.connect();
    for n in 0..SINKS {
        let sink = format!(
            r#"{{"name":"sink {n}","events":"custom.app{n}.*, space.*","type":"webhook","owner":"global","webhook":{{"url":"https://hooks.example/{n}","template":"return {{ text = event.type .. ' of app {n}', data = event.data }}"}}}}"#
        );
        let (status, answer) = connection.request("POST", "/api/event-sinks", &sink);
        assert_eq!(status, 201, "{answer}");
    }
}
