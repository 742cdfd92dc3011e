//! A webhook delivery on an idle daemon, and what an idle daemon holds.
//!
//! The time counted is from the emit's answer to the arrival of the request at a receiver in this process: the
//! daemon's own share plus one trip over loopback. The yardstick is a request to `/healthz`, which is two such
//! trips and no work.
//!
//! `cargo bench --bench delivery`; exits 1 if a promise is missed.

mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, percentile, promise};

const EVENTS: usize = 1000;
const SINKS: usize = 10_000;

fn main() -> ExitCode {
    let daemon = Daemon::start(&[]);
    // Long enough for start-up work to be over and its memory given back.
    thread::sleep(Duration::from_secs(3));
    let idle = daemon.resident();
    let (mut delays, mut trips) = latencies(&daemon);
    let (p50, p99) = (percentile(&mut delays, 50), percentile(&mut delays, 99));
    let trip = percentile(&mut trips, 50);
    println!("emit's answer to request: p50 {p50:?}, p99 {p99:?}; an empty HTTP round trip: p50 {trip:?}");
    drop(daemon);

    let daemon = Daemon::start(&[]);
    create_sinks(&daemon);
    thread::sleep(Duration::from_secs(3));
    let full = daemon.resident();
    let kept = [
        promise(
            "p99 from answer to request",
            p99.as_secs_f64() * 1e3,
            " ms",
            p99 <= Duration::from_millis(1),
            "at most 1 ms",
        ),
        promise("idle daemon", idle, " MiB", idle < 30.0, "under 30 MiB"),
        promise("with 10,000 sinks", full, " MiB", full < 120.0, "under 120 MiB"),
    ];
    if kept.iter().all(|kept| *kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn latencies(daemon: &Daemon) -> (Vec<Duration>, Vec<Duration>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let (arrived, arrivals) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let arrived = arrived.clone();
            thread::spawn(move || receive(stream, &arrived));
        }
    });
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
        let arrival: Instant = arrivals.recv_timeout(Duration::from_secs(10)).expect("it is delivered");
        // A request that left before the answer came took no time after it.
        delays.push(arrival.saturating_duration_since(answered));
        let asked = Instant::now();
        connection.request("GET", "/healthz", "");
        trips.push(asked.elapsed());
    }
    (delays, trips)
}

fn receive(stream: TcpStream, arrived: &mpsc::Sender<Instant>) {
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0;
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let now = Instant::now();
        while line.trim_end() != "" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            }
            line.clear();
            reader.read_line(&mut line).expect("the daemon sends a whole head");
        }
        reader.read_exact(&mut vec![0; length]).expect("the daemon sends a whole body");
        arrived.send(now).expect("the benchmark listens");
        writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the daemon reads");
    }
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
