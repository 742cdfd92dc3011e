//! The innocent user: emits events, reads, and waits for the deliveries, whose bodies a template of the user renders.

use crate::{
    client::Client,
    support::{Answer, Daemon, Receiver, TEST_TIMEOUT},
};
use serde_json::json;
use std::{
    fmt,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Events of one measurement.
const PROBES: usize = 100;
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(5);

pub struct Innocent {
    client: Client,
    /// The moments at which deliveries arrive.
    arrivals: mpsc::Receiver<Instant>,
    _receiver: Receiver,
}

/// Latencies at the 99th percentile.
#[derive(Clone, Copy)]
pub struct Latencies {
    /// An emit and a read, one after the other.
    requests: Duration,
    /// From the emit to the arrival at the receiver.
    delivery: Duration,
}

impl Innocent {
    pub fn start(daemon: &Daemon, token: &str) -> Self {
        let (sender, arrivals) = mpsc::channel();
        let receiver = Receiver::answering(move |_| {
            let _ = sender.send(Instant::now());
            Answer::Status(200)
        });
        let mut client = Client::new(&daemon.url, token);
        let sink = json!({
            "name": "innocent", "events": "custom.calm", "type": "webhook", "owner": "me",
            "webhook": {"url": receiver.url("/"), "template": "return { n = event.data.n }"},
        });
        let made = client.send("POST", "/api/event-sinks", &sink.to_string());
        assert_eq!(made.status, 201, "{}", made.body);
        let mut innocent = Self { client, arrivals, _receiver: receiver };
        innocent.probe();
        innocent
    }

    /// Measures, and calls `each` after every tenth event.
    pub fn latencies(&mut self, each: impl FnMut()) -> Latencies {
        let [measured] = measure([self], each);
        measured
    }

    /// Measures this user and another in turn.
    pub fn latencies_beside(&mut self, other: &mut Self, each: impl FnMut()) -> (Latencies, Latencies) {
        measure([self, other], each).into()
    }

    /// The latencies of one event.
    fn probe(&mut self) -> Latencies {
        let started = Instant::now();
        let emitted = self.client.send("POST", "/api/events/emit", r#"{"type":"calm","payload":{"n":1}}"#);
        assert_eq!(emitted.status, 202, "{}", emitted.body);
        assert_eq!(self.client.send("GET", "/api/whoami", "").status, 200);
        let requests = started.elapsed();
        let arrival = self.arrivals.recv_timeout(TEST_TIMEOUT).expect("the event is delivered");
        Latencies { requests, delivery: arrival.saturating_duration_since(started) }
    }
}

impl Latencies {
    pub fn map(self, change: impl Fn(Duration) -> Duration) -> Self {
        Self { requests: change(self.requests), delivery: change(self.delivery) }
    }

    pub fn within(&self, limits: &Self) -> bool {
        self.requests <= limits.requests && self.delivery <= limits.delivery
    }

    /// The larger of each latency.
    pub fn max(self, other: Self) -> Self {
        Self { requests: self.requests.max(other.requests), delivery: self.delivery.max(other.delivery) }
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p99 {:.1?} of requests and {:.1?} of deliveries", self.requests, self.delivery)
    }
}

fn measure<const N: usize>(mut users: [&mut Innocent; N], mut each: impl FnMut()) -> [Latencies; N] {
    // The daemon may have closed a connection that was idle since the last measurement.
    users.iter_mut().for_each(|user| user.client.close());
    let mut measured = [(); N].map(|()| (Vec::new(), Vec::new()));
    for n in 0..PROBES {
        for (user, (requests, deliveries)) in users.iter_mut().zip(&mut measured) {
            thread::sleep(PAUSE);
            let one = user.probe();
            requests.push(one.requests);
            deliveries.push(one.delivery);
        }
        if n % 10 == 9 {
            each();
        }
    }
    measured.map(|(requests, deliveries)| Latencies { requests: p99(requests), delivery: p99(deliveries) })
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[(times.len() * 99).div_ceil(100) - 1]
}
