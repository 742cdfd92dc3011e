//! Webhook deliveries per second and the processor time of one, with the default body and with a Lua template, for one
//! sink up to ten thousand; and the bytes that the daemon writes to disk for each.
//!
//! The time runs from the first emit until the last webhook request has arrived at a receiver in this process. The
//! baseline is a bare hyper client that posts the same body to the same receiver over as many connections as there are
//! sinks, without queue, order or disk. Rounds of deliveries to ten and to ten thousand sinks then compare the cost of
//! the two: the speed of a machine changes, and with it that of measurements minutes apart.
//!
//! Run with `cargo bench --bench throughput`; exits 1 if a requirement is missed.

mod counting_receiver;
mod median;
mod support;

use bytes::Bytes;
use counting_receiver::CountingReceiver;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use median::median;
use std::{
    net::SocketAddr,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, PAYLOAD, requirement};

const EMITTERS: usize = 8;
/// The longest wait for deliveries.
const LONGEST: Duration = Duration::from_secs(300);
/// Deliveries of each measurement. The daemon hands its database the writes of many events at once; all measurements
/// include several of these checkpoints.
const DELIVERIES: usize = 100_000;
/// Posts of the baseline.
const POSTS: usize = 20_000;
const SINKS: [usize; 5] = [1, FEW, 64, 1000, MANY];
const FEW: usize = 10;
const MANY: usize = 10_000;
/// Microseconds of processor time that a delivery with the default body may take, to 64 sinks or more.
const CPU: f64 = 120.0;
/// Processor time of a delivery to one of many sinks, in that of one to few.
const SPREAD: f64 = 1.2;
/// Rounds that compare the two.
const ROUNDS: usize = 5;
/// Bytes that a delivered event may write: three times its payload, and this.
const DISK: u64 = 300;

const TEMPLATE: &str =
    r#","template":"return { text = event.data.service .. ' ' .. event.data.version, by = event.data.by }""#;

/// One measurement.
struct Throughput {
    per_second: f64,
    cpu_micros: f64,
    /// Bytes written to disk for each event.
    written: u64,
}

fn main() -> ExitCode {
    let receiver = CountingReceiver::start();
    let mut met = Vec::new();
    // Numbers on the command line measure with as many sinks only.
    let chosen: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let is_chosen = |sinks: &usize| chosen.is_empty() || chosen.contains(sinks);
    for sinks in SINKS.into_iter().filter(is_chosen) {
        let floor = bare_posts(&receiver, sinks.min(64));
        for (body, template) in [("default body", ""), ("Lua template", TEMPLATE)] {
            let measured = measure(&receiver, sinks, template);
            println!(
                "{sinks:>6} sinks, {body}: {:>6.0} deliveries/s, {:>4.0} us of processor time each, {} bytes written per event; bare posts \
                 {floor:.0}/s, ratio {:.2}",
                measured.per_second,
                measured.cpu_micros,
                measured.written,
                measured.per_second / floor
            );
            if template.is_empty() {
                let what = format!("processor time of a delivery to one of {sinks} sinks");
                match sinks {
                    FEW => {}
                    64.. => met.push(requirement(
                        &what,
                        measured.cpu_micros,
                        " us",
                        measured.cpu_micros <= CPU,
                        "at most 120 us",
                    )),
                    _ => {
                        let most = 3 * PAYLOAD.len() as u64 + DISK;
                        let bound = format!("at most {most}");
                        met.push(requirement(
                            "bytes written to disk for an event with one sink",
                            measured.written as f64,
                            "",
                            measured.written <= most,
                            &bound,
                        ));
                    }
                }
            }
        }
    }
    if [FEW, MANY].iter().all(is_chosen) {
        met.push(spread(&receiver));
    }
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Compares a delivery to one of many sinks with one to few, in rounds of both.
fn spread(receiver: &CountingReceiver) -> bool {
    let cost = |sinks| measure(receiver, sinks, "").cpu_micros;
    let rounds = (1..=ROUNDS).map(|round| {
        let (few, many) = (cost(FEW), cost(MANY));
        println!(
            "round {round}: {few:.0} us for a delivery to one of {FEW} sinks, {many:.0} us of {MANY}: {:.2}",
            many / few
        );
        many / few
    });
    let ratio = median(rounds.collect());
    let what = format!("processor time of a delivery to one of {MANY} sinks, median of {ROUNDS} rounds");
    requirement(&what, ratio, &format!(" times that of one to {FEW}"), ratio <= SPREAD, "at most 1.2 times")
}

fn measure(receiver: &CountingReceiver, sinks: usize, template: &str) -> Throughput {
    let daemon = Daemon::start(&[("SVC_DELIVERY_QUEUE", "100000"), ("SVC_LIMITS_SINKS", "100000")]);
    create_sinks(&daemon, sinks, &receiver.url, template);
    let events = DELIVERIES / sinks;
    // Connections, worker processes and pools are there before the measurement.
    emit(&daemon, (EMITTERS * 20 / sinks).max(1));
    wait_until_delivered(&daemon, sinks);
    thread::sleep(Duration::from_millis(500));
    let (count, cpu, written) = (receiver.count(), daemon.cpu_micros(), daemon.written());
    let began = Instant::now();
    emit(&daemon, events);
    receiver.wait_for(count + events * sinks, LONGEST);
    let took = began.elapsed();
    assert!(receiver.count() >= count + events * sinks, "all events are delivered");
    // The disk follows the deliveries.
    thread::sleep(Duration::from_millis(1500));
    let deliveries = (events * sinks) as f64;
    Throughput {
        per_second: deliveries / took.as_secs_f64(),
        cpu_micros: (daemon.cpu_micros() - cpu) / deliveries,
        written: (daemon.written() - written) / events as u64,
    }
}

fn emit(daemon: &Daemon, events: usize) {
    let event = format!(r#"{{"type":"load","payload":{PAYLOAD}}}"#);
    thread::scope(|scope| {
        for emitter in 0..EMITTERS.min(events) {
            let (count, event) = (events / EMITTERS + usize::from(emitter < events % EMITTERS), &event);
            scope.spawn(move || {
                let mut connection = daemon.connect();
                for _ in 0..count {
                    let (status, answer) = connection.request("POST", "/api/events/emit", event);
                    assert_eq!(status, 202, "{answer}");
                }
            });
        }
    });
}

fn create_sinks(daemon: &Daemon, sinks: usize, url: &str, template: &str) {
    thread::scope(|scope| {
        for part in 0..16 {
            scope.spawn(move || {
                let mut connection = daemon.connect();
                for n in (part..sinks).step_by(16) {
                    let sink = format!(
                        r#"{{"name":"sink {n}","events":"custom.load","type":"webhook","owner":"global","webhook":{{"url":"{url}"{template}}}}}"#
                    );
                    let (status, answer) = connection.request("POST", "/api/event-sinks", &sink);
                    assert_eq!(status, 201, "{answer}");
                }
            });
        }
    });
}

/// Posts per second of bare hyper connections.
fn bare_posts(receiver: &CountingReceiver, connections: usize) -> f64 {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    let address = receiver.url.trim_start_matches("http://").trim_end_matches('/');
    let address: SocketAddr = address.parse().expect("the URL has an address");
    tokio.block_on(async {
        let began = Instant::now();
        let senders = (0..connections).map(|_| {
            tokio::spawn(async move {
                let stream = tokio::net::TcpStream::connect(address).await.expect("the receiver listens");
                stream.set_nodelay(true).expect("the socket accepts the option");
                let opened = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
                let (mut requests, connection) = opened.expect("a connection opens");
                tokio::spawn(connection);
                for _ in 0..POSTS / connections {
                    let request =
                        http::Request::post("/").header("host", "svc").header("content-type", "application/json");
                    let request = request.body(Full::new(Bytes::from_static(PAYLOAD.as_bytes()))).expect("a request");
                    let response = requests.send_request(request).await.expect("the receiver answers");
                    response.into_body().collect().await.expect("the answer has a body");
                }
            })
        });
        futures_util::future::join_all(senders).await;
        POSTS as f64 / began.elapsed().as_secs_f64()
    })
}

/// Waits until the daemon's queues are empty.
fn wait_until_delivered(daemon: &Daemon, sinks: usize) {
    let began = Instant::now();
    while daemon.metric("svc_queue_depth") > 0.0 {
        assert!(began.elapsed() < LONGEST, "the events to {sinks} sinks are delivered");
        thread::sleep(Duration::from_millis(10));
    }
}
