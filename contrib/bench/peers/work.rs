//! The works that are compared: durable emits by one client and by many, and webhooks to one sink and to many.

use crate::{counting_receiver::CountingReceiver, server::Server};
use std::{
    fmt,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The payload of every event: JSON of 300 bytes.
pub const PAYLOAD: &str = r#"{"service":"checkout","version":"2026.11.3","commit":"9f1c2ab","environment":"production","duration_ms":48211,"by":"ada","region":"eu-central-1","previous":"2026.11.2","pipeline":"https://ci.example/checkout/48211","notes":"rolled out to all regions after the canary held for thirty minutes in full"}"#;

/// Time of one round of emits.
const TURN: Duration = Duration::from_secs(2);
/// Deliveries in one round of webhooks, about.
const DELIVERIES: usize = 12_000;
/// Clients that emit the events of webhooks.
const EMITTERS: usize = 8;
/// Time without a delivery after which the missing ones count as lost; retries of a peer may come after 5 seconds.
const STALL: Duration = Duration::from_secs(12);

/// What a webhook sends.
#[derive(Clone, Copy, PartialEq)]
pub enum Body {
    Default,
    Template,
}

#[derive(Clone, Copy)]
pub enum Work {
    Emit { emitters: usize },
    Webhook { sinks: usize, body: Body },
}

/// The outcome of one round.
pub struct Measured {
    /// Events or deliveries.
    per_second: f64,
    /// Processor time of the server for one of them.
    cpu_micros: f64,
    /// Deliveries that never came.
    lost: usize,
}

/// The medians of the rounds, the slowest and the fastest of them, and all losses.
pub struct Summary {
    pub per_second: f64,
    slowest: f64,
    fastest: f64,
    cpu_micros: f64,
    pub lost: usize,
}

impl Work {
    pub const ALL: [Self; 7] = [
        Self::Emit { emitters: 64 },
        Self::Emit { emitters: 1 },
        Self::Webhook { sinks: 1, body: Body::Default },
        Self::Webhook { sinks: 1, body: Body::Template },
        Self::Webhook { sinks: 64, body: Body::Default },
        Self::Webhook { sinks: 64, body: Body::Template },
        Self::Webhook { sinks: 1000, body: Body::Default },
    ];

    pub fn name(self) -> String {
        match self {
            Self::Emit { emitters } => format!("emit, {emitters} emitter{}", if emitters == 1 { "" } else { "s" }),
            Self::Webhook { sinks, body } => {
                let body = if body == Body::Default { "default body" } else { "template" };
                format!("webhook, one event to {sinks} sink{}, {body}", if sinks == 1 { "" } else { "s" })
            }
        }
    }

    pub fn is_webhook(self) -> bool {
        matches!(self, Self::Webhook { .. })
    }

    /// Whether a server can do this work: JetStream sends no webhooks, and Outpost has no templates.
    pub fn suits(self, server: &str) -> bool {
        match self {
            Self::Emit { .. } => true,
            Self::Webhook { body, .. } => server != "JetStream" && (body == Body::Default || server != "Outpost"),
        }
    }

    /// Creates the sinks, opens connections and warms up.
    pub fn prepare(self, server: &dyn Server, receiver: &CountingReceiver) {
        match self {
            Self::Emit { .. } => {
                server.create_inactive_sink();
                emit(server, EMITTERS * 10);
            }
            Self::Webhook { sinks, body } => {
                server.create_webhooks(sinks, &receiver.url, body);
                let events = (EMITTERS * 20 / sinks).max(1);
                let count = receiver.count();
                emit(server, events);
                receiver.wait_for(count + events * sinks, STALL);
            }
        }
        thread::sleep(Duration::from_millis(500));
    }

    /// One round. It begins with an idle disk: writes that the server before left behind would delay this one's.
    pub fn run(self, server: &dyn Server, receiver: &CountingReceiver) -> Measured {
        let synced = Command::new("sync").status();
        assert!(synced.is_ok_and(|status| status.success()), "`sync` writes what the servers left behind");
        match self {
            Self::Emit { emitters } => {
                let cpu = server.process().cpu_micros();
                let (count, took) = emit_for(server, emitters, TURN);
                Measured {
                    per_second: count as f64 / took.as_secs_f64(),
                    cpu_micros: (server.process().cpu_micros() - cpu) / count as f64,
                    lost: 0,
                }
            }
            Self::Webhook { sinks, .. } => {
                let events = DELIVERIES.div_ceil(sinks);
                let (count, cpu) = (receiver.count(), server.process().cpu_micros());
                let began = Instant::now();
                emit(server, events);
                let last = receiver.wait_for(count + events * sinks, STALL);
                let arrived = receiver.count() - count;
                // Settlements follow the deliveries.
                thread::sleep(Duration::from_millis(300));
                Measured {
                    per_second: arrived as f64 / last.duration_since(began).as_secs_f64(),
                    cpu_micros: (server.process().cpu_micros() - cpu) / arrived as f64,
                    lost: events * sinks - arrived,
                }
            }
        }
    }
}

impl Summary {
    pub fn of(rounds: &[Measured]) -> Self {
        let sorted = |figure: fn(&Measured) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let (rates, times) = (sorted(|round| round.per_second), sorted(|round| round.cpu_micros));
        let middle = |figures: &[f64]| (figures[(figures.len() - 1) / 2] + figures[figures.len() / 2]) / 2.0;
        Self {
            per_second: middle(&rates),
            slowest: rates[0],
            fastest: rates[rounds.len() - 1],
            cpu_micros: middle(&times),
            lost: rounds.iter().map(|round| round.lost).sum(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_second, slowest, fastest, cpu_micros, lost } = self;
        write!(f, "{per_second:.0}/s ({slowest:.0} to {fastest:.0}), {cpu_micros:.0} us")?;
        if *lost > 0 {
            write!(f, ", {lost} lost")?;
        }
        Ok(())
    }
}

/// Emits a number of events by a few clients at once.
fn emit(server: &dyn Server, events: usize) {
    let left = AtomicUsize::new(events);
    thread::scope(|scope| {
        for _ in 0..EMITTERS.min(events) {
            scope.spawn(|| {
                let mut emitter = server.emitter();
                while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                    emitter.emit();
                }
            });
        }
    });
}

/// Emits for a time by as many clients, each of which waits for a confirmation before its next event; returns the
/// events and the time until the last client stopped.
fn emit_for(server: &dyn Server, emitters: usize, turn: Duration) -> (usize, Duration) {
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..emitters {
            scope.spawn(|| {
                let mut emitter = server.emitter();
                while !stop.load(Relaxed) {
                    emitter.emit();
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        thread::sleep(turn);
        stop.store(true, Relaxed);
    });
    (count.into_inner(), began.elapsed())
}
