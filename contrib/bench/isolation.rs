//! Latency of deliveries to a healthy sink beside thousands of sinks whose receivers hang or refuse connections.
//!
//! The latency runs from sending an emit until the webhook request arrives at a receiver in this process. It is
//! measured with the hostile sinks idle, and again while they have events to deliver: for a sink of the same owner and
//! for one of another. The hostile sinks retry by the default schedule. Each measurement has five parts, of whose
//! percentiles the median counts: a disk that stalls for a moment, in either phase, decides nothing.
//!
//! Run with `cargo bench --bench isolation`; exits 1 if a requirement is missed.

mod median;
mod support;

use median::median;
use std::{
    net::TcpListener,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};
use support::{Connection, Daemon, Receiver, percentile, requirement};

/// Hanging sinks, and as many that are refused.
const HOSTILE: usize = 5000;
/// Hostile sinks of each kind that receive the same events: as many as one user may have.
const GROUP: usize = 200;
/// Events that each hostile sink has to deliver. They last for longer than the measurement.
const HOSTILE_EVENTS: usize = 10;
/// Parts of one measurement, and the events of each.
const PARTS: usize = 5;
const EVENTS: usize = 200;
/// The pause between two events of a healthy sink.
const PAUSE: Duration = Duration::from_millis(10);
const MOST: f64 = 3.0;

/// The latencies of one phase: medians of its parts.
struct Latencies {
    p50: Duration,
    p99: Duration,
}

fn main() -> ExitCode {
    let daemon = Daemon::start(&[("SVC_EGRESS_ALLOW_PRIVATE", "true")]);
    let (same, other) = (Receiver::start(), Receiver::start());
    let hanging = hanging_receiver();
    // Bound and not listening, so that every connection is refused.
    let refusing = refusing_url();
    let mut connection = daemon.connect();
    create_sink(&mut connection, "same", "global", "custom.same", &same.url);
    create_sink(&mut connection, "other", "me", "custom.other", &other.url);
    let started = Instant::now();
    create_hostile_sinks(&daemon, &hanging, &refusing.1);
    println!("created {} sinks in {:?}", 2 * HOSTILE, started.elapsed());
    let idle = [measure(&daemon, "same", &same), measure(&daemon, "other", &other)];
    report("idle, same owner", &idle[0]);
    report("idle, other owner", &idle[1]);
    let before = daemon.resident();

    let mut connection = daemon.connect();
    for n in 0..HOSTILE_EVENTS * HOSTILE / GROUP {
        let event = format!(r#"{{"type":"hostile{}","payload":{{}}}}"#, n % (HOSTILE / GROUP));
        let (status, answer) = connection.request("POST", "/api/events/emit", &event);
        assert_eq!(status, 202, "{answer}");
    }
    thread::sleep(Duration::from_secs(5));
    let beside = [measure(&daemon, "same", &same), measure(&daemon, "other", &other)];
    report("beside hostile sinks, same owner", &beside[0]);
    report("beside hostile sinks, other owner", &beside[1]);
    let failed = daemon.metric("svc_delivery_attempts_failed_total");
    println!(
        "failed attempts meanwhile: {failed}; memory {before:.0} MiB before and {:.0} MiB after",
        daemon.resident()
    );

    let met = [("same owner", 0), ("other owner", 1)].map(|(whose, n)| {
        let ratio = beside[n].p99.as_secs_f64() / idle[n].p99.as_secs_f64();
        requirement(
            &format!("p99 beside {HOSTILE} hanging and {HOSTILE} refusing sinks, {whose}"),
            ratio,
            " times that of an idle server",
            ratio <= MOST,
            "at most 3 times",
        )
    });
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(phase: &str, latencies: &Latencies) {
    println!("{phase}: p50 {:?}, p99 {:?}", latencies.p50, latencies.p99);
}

fn measure(daemon: &Daemon, kind: &str, receiver: &Receiver) -> Latencies {
    let event = format!(r#"{{"type":"{kind}","payload":{{}}}}"#);
    let mut connection = daemon.connect();
    let mut delay = || {
        let sent = Instant::now();
        let (status, answer) = connection.request("POST", "/api/events/emit", &event);
        assert_eq!(status, 202, "{answer}");
        let delay = receiver.arrival() - sent;
        thread::sleep(PAUSE);
        delay
    };
    let mut parts: Vec<Vec<Duration>> = (0..PARTS).map(|_| (0..EVENTS).map(|_| delay()).collect()).collect();
    let mut median_of = |percent| median(parts.iter_mut().map(|part| percentile(part, percent)).collect());
    Latencies { p50: median_of(50), p99: median_of(99) }
}

/// Returns the URL of a receiver that accepts connections and never responds.
fn hanging_receiver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}/", listener.local_addr().expect("the listener is bound"));
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            held.push(stream);
            // Streams that the daemon has given up are closed by then.
            if held.len() > 4000 {
                held.drain(..1000);
            }
        }
    });
    url
}

/// Returns a socket that refuses connections, and the URL that leads to it.
fn refusing_url() -> (tokio::net::TcpSocket, String) {
    let socket = tokio::net::TcpSocket::new_v4().expect("there is a free descriptor");
    socket.bind("127.0.0.1:0".parse().expect("it is an address")).expect("there is a free port");
    let url = format!("http://{}/", socket.local_addr().expect("the socket is bound"));
    (socket, url)
}

fn create_sink(connection: &mut Connection, name: &str, owner: &str, events: &str, url: &str) {
    let sink = format!(
        r#"{{"name":"{name}","events":"{events}","type":"webhook","owner":"{owner}","webhook":{{"url":"{url}"}}}}"#
    );
    let (status, answer) = connection.request("POST", "/api/event-sinks", &sink);
    assert_eq!(status, 201, "{answer}");
}

/// Creates the hostile sinks over several connections, so that the disk's syncs are shared.
fn create_hostile_sinks(daemon: &Daemon, hanging: &str, refusing: &str) {
    thread::scope(|scope| {
        for part in 0..16 {
            scope.spawn(move || {
                let mut connection = daemon.connect();
                for n in (part..HOSTILE).step_by(16) {
                    let events = format!("custom.hostile{}", n / GROUP);
                    create_sink(&mut connection, &format!("hanging {n}"), "global", &events, hanging);
                    create_sink(&mut connection, &format!("refusing {n}"), "global", &events, refusing);
                }
            });
        }
    });
}
