//! Events per second that a webhook takes whose receiver answers after 50 ms, one by one and in batches of a hundred.
//!
//! The events wait in the queue of an inactive sink, so that every batch is full. The time runs from its activation
//! until the last event has arrived.
//!
//! Run with `cargo bench --bench batch`; exits 1 if the requirement is missed.

mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, PAYLOAD, requirement};

/// The time that the receiver takes for each request.
const ANSWER_AFTER: Duration = Duration::from_millis(50);
/// Events of the measurement one by one, and of the one in batches.
const SINGLE: usize = 60;
const BATCHED: usize = 6000;
/// Events per second in batches, in those one by one.
const RATIO: f64 = 50.0;

fn main() -> ExitCode {
    let single = measure(SINGLE, "");
    println!("one by one: {single:.1} events/s");
    let batched = measure(BATCHED, r#","batch":{"max":100}"#);
    println!("in batches of 100: {batched:.1} events/s");
    let ratio = batched / single;
    let what = "events a second in batches of 100 to a receiver that answers after 50 ms";
    if requirement(what, ratio, " times those one by one", ratio >= RATIO, "at least 50 times") {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Events per second that arrive at a webhook with these options.
fn measure(events: usize, options: &str) -> f64 {
    let daemon = Daemon::start(&[("SVC_DELIVERY_QUEUE", "100000")]);
    let (url, arrived) = receive();
    let mut connection = daemon.connect();
    let sink = format!(
        r#"{{"name":"slow","events":"custom.load","type":"webhook","owner":"global","active":false,"webhook":{{"url":"{url}"{options}}}}}"#
    );
    let (status, answer) = connection.request("POST", "/api/event-sinks", &sink);
    assert_eq!(status, 201, "{answer}");
    let sink: serde_json::Value = serde_json::from_str(answer).expect("the answer is JSON");
    let path = format!("/api/event-sinks/{}", sink["id"].as_str().expect("a sink has an id"));
    let event = format!(r#"{{"type":"load","payload":{PAYLOAD}}}"#);
    for _ in 0..events {
        let (status, answer) = connection.request("POST", "/api/events/emit", &event);
        assert_eq!(status, 202, "{answer}");
    }
    let began = Instant::now();
    let (status, answer) = connection.request("PATCH", &path, r#"{"active":true}"#);
    assert_eq!(status, 200, "{answer}");
    while arrived.load(Relaxed) < events {
        assert!(began.elapsed() < Duration::from_secs(60), "all events are delivered");
        thread::sleep(Duration::from_millis(1));
    }
    events as f64 / began.elapsed().as_secs_f64()
}

/// A receiver that answers each request after [`ANSWER_AFTER`]; returns its URL and the number of events that it has
/// answered.
fn receive() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}/", listener.local_addr().expect("the listener is bound"));
    let arrived = Arc::<AtomicUsize>::default();
    let counted = arrived.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counted = counted.clone();
            thread::spawn(move || answer(stream, &counted));
        }
    });
    (url, arrived)
}

fn answer(stream: TcpStream, arrived: &AtomicUsize) {
    stream.set_nodelay(true).expect("the socket accepts the option");
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let (mut length, mut events) = (0, 1);
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        while line.trim_end() != "" {
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            }
            if let Some(value) = lower.strip_prefix("x-service-batch:") {
                events = value.trim().parse().expect("a batch has a number of events");
            }
            line.clear();
            reader.read_line(&mut line).expect("the daemon sends a whole head");
        }
        reader.read_exact(&mut vec![0; length]).expect("the daemon sends a whole body");
        thread::sleep(ANSWER_AFTER);
        writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the daemon reads");
        arrived.fetch_add(events, Relaxed);
    }
}
