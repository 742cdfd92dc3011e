//! Counters and histograms of the daemon: atomics, printed as Prometheus text.
//!
//! Counters start anew with each process. `matched` starts at the number of deliveries found in the queues, so that at
//! any quiet moment `matched = delivered + skipped + dropped + dead + discarded + queued`.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of the latency buckets, in seconds.
const BOUNDS: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

/// A count that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

/// Durations in buckets.
#[derive(Default)]
pub struct Histogram {
    /// One more than there are bounds: the last bucket is for durations above all of them.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// All metrics of a daemon.
#[derive(Default)]
pub struct Metrics {
    pub events_accepted: Counter,
    pub events_repeated: Counter,
    pub matched: Counter,
    pub filtered: Counter,
    pub filter_errors: Counter,
    pub delivered: Counter,
    pub skipped: Counter,
    pub dropped: Counter,
    pub dead: Counter,
    pub discarded: Counter,
    pub attempts_failed: Counter,
    pub flush_groups: Counter,
    pub flush_jobs: Counter,
    pub source_accepted: Counter,
    pub source_refused: Counter,
    pub source_failed: Counter,
    pub http_requests: Counter,
    pub http_failures: Counter,
    pub calls_answered: Counter,
    pub calls_failed: Counter,
    pub lua_workers_lost: Counter,
    pub attempt_time: Histogram,
    pub call_time: Histogram,
    pub flush_time: Histogram,
    pub lua_time: Histogram,
}

/// The depth of one sink's queue, for [`Metrics::render`].
pub struct Depth {
    pub sink: String,
    pub name: String,
    pub queued: usize,
}

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let bucket = BOUNDS.partition_point(|bound| *bound < took.as_secs_f64());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

impl Metrics {
    /// Counts a group of writes that the store has made durable.
    pub fn flushed(&self, jobs: usize, took: Duration) {
        self.flush_groups.increment();
        self.flush_jobs.add(jobs);
        self.flush_time.observe(took);
    }

    /// The Prometheus text, with a line for each sink's queue.
    pub fn render(&self, depths: impl IntoIterator<Item = Depth>) -> String {
        let mut out = String::with_capacity(8 << 10);
        for (name, help, counter) in [
            ("events_accepted_total", "Events stored.", &self.events_accepted),
            ("events_repeated_total", "Emits that repeated an id already stored.", &self.events_repeated),
            (
                "deliveries_matched_total",
                "Event and sink pairs the router made, redeliveries and deliveries queued at start included.",
                &self.matched,
            ),
            ("filter_refusals_total", "Event and sink pairs that a filter refused.", &self.filtered),
            ("filter_errors_total", "Runs of filters that failed and counted as a match.", &self.filter_errors),
            ("deliveries_delivered_total", "Deliveries a sink acknowledged.", &self.delivered),
            ("deliveries_skipped_total", "Deliveries a script declined with svc.skip.", &self.skipped),
            ("deliveries_dropped_total", "Deliveries lost to a full queue.", &self.dropped),
            ("deliveries_dead_total", "Deliveries given up after the last attempt.", &self.dead),
            ("deliveries_discarded_total", "Deliveries thrown away with their sink.", &self.discarded),
            (
                "delivery_attempts_failed_total",
                "Failed attempts, counting each attempt of a delivery.",
                &self.attempts_failed,
            ),
            ("store_flushes_total", "Groups of writes made durable.", &self.flush_groups),
            ("store_writes_total", "Writes in those groups.", &self.flush_jobs),
            ("calls_answered_total", "Method calls that got a result or the method's own error.", &self.calls_answered),
            (
                "calls_failed_total",
                "Method calls without an answer: unavailable, timed out, or over a limit.",
                &self.calls_failed,
            ),
            (
                "lua_workers_lost_total",
                "Worker processes for Lua that were killed for a limit, crashed, or were killed from outside.",
                &self.lua_workers_lost,
            ),
            ("source_accepted_total", "Requests at sources whose events are stored.", &self.source_accepted),
            (
                "source_refused_total",
                "Requests at active sources that were not verified, over a limit, or no JSON.",
                &self.source_refused,
            ),
            ("source_failed_total", "Requests at sources that were kept as dead letters.", &self.source_failed),
            ("http_requests_total", "HTTP requests answered.", &self.http_requests),
            ("http_failures_total", "HTTP requests answered with a 5xx status.", &self.http_failures),
        ] {
            head(&mut out, name, help, "counter");
            let _ = writeln!(out, "svc_{name} {}", counter.get());
        }
        for (name, help, histogram) in [
            ("delivery_attempt_seconds", "Time of a delivery attempt.", &self.attempt_time),
            ("call_seconds", "Time of a method call, from the choice of its provider to the answer.", &self.call_time),
            ("store_flush_seconds", "Time from the first write of a group until it is on disk.", &self.flush_time),
            ("lua_cpu_seconds", "Processor time of a script or template run.", &self.lua_time),
        ] {
            head(&mut out, name, help, "histogram");
            let mut total = 0;
            for (bound, bucket) in BOUNDS.iter().zip(&histogram.buckets) {
                total += bucket.load(Relaxed);
                let _ = writeln!(out, "svc_{name}_bucket{{le=\"{bound}\"}} {total}");
            }
            total += histogram.buckets[BOUNDS.len()].load(Relaxed);
            let _ = writeln!(out, "svc_{name}_bucket{{le=\"+Inf\"}} {total}");
            let _ = writeln!(out, "svc_{name}_sum {}", histogram.nanos.load(Relaxed) as f64 / 1e9);
            let _ = writeln!(out, "svc_{name}_count {total}");
        }
        head(&mut out, "queue_depth", "Undelivered events of a sink.", "gauge");
        for Depth { sink, name, queued } in depths {
            let _ = writeln!(out, "svc_queue_depth{{sink=\"{sink}\",name=\"{}\"}} {queued}", escape(&name));
        }
        out
    }
}

/// Adds a gauge to the text: a line for each value of its label, or one line without a label if that has no name.
pub fn gauge<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    label: &str,
    values: impl IntoIterator<Item = (&'a str, usize)>,
) {
    head(out, name, help, "gauge");
    for (value, count) in values {
        let _ = match label {
            "" => writeln!(out, "svc_{name} {count}"),
            label => writeln!(out, "svc_{name}{{{label}=\"{}\"}} {count}", escape(value)),
        };
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP svc_{name} {help}\n# TYPE svc_{name} {kind}");
}

/// Escapes the value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_end_in_the_count() {
        let metrics = Metrics::default();
        metrics.attempt_time.observe(Duration::from_micros(50));
        metrics.attempt_time.observe(Duration::from_secs(60));
        let text = metrics.render([]);
        assert!(text.contains("svc_delivery_attempt_seconds_bucket{le=\"0.0001\"} 1\n"), "{text}");
        assert!(text.contains("svc_delivery_attempt_seconds_bucket{le=\"10\"} 1\n"));
        assert!(text.contains("svc_delivery_attempt_seconds_bucket{le=\"+Inf\"} 2\n"));
        assert!(text.contains("svc_delivery_attempt_seconds_count 2\n"));
    }

    #[test]
    fn a_sink_name_cannot_break_out_of_its_label() {
        let depth = Depth { sink: "1".into(), name: "a\"} 9\n".into(), queued: 3 };
        let text = Metrics::default().render([depth]);
        assert!(text.ends_with("svc_queue_depth{sink=\"1\",name=\"a\\\"} 9\\n\"} 3\n"), "{text}");
    }
}
