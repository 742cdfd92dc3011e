//! Processor time of a filter on a 500-byte event, in the server and in the worker process together: a filter of the
//! kind that the server answers itself, and one that Lua answers; one of them, then ten of one owner, which go to the
//! worker in one message. Events come one after the other, so that no message to the worker is shared between two of
//! them, and then 16 at a time. The baseline is a message of the event's size to a thread and back, which alternates
//! with the filters in rounds; the figures are medians.
//!
//! Run with `cargo bench --bench filter`; exits 1 if a filter exceeds its budget.

mod median;
mod worker_support;

use futures_util::future::join_all;
use median::median;
use std::{process::ExitCode, sync::Arc};
use svc::{
    delivery::filters::EventFilters,
    model::{event::Event, id::SinkId, owner::Owner},
    routing::route::RouteFilters as _,
};
use worker_support::{Echo, cpu_micros, event, workers};

/// Microseconds of processor time that a filter may take, in all processes.
const BUDGET: f64 = 25.0;

/// Rounds of which the median counts, the events of each, and the warm-up before them.
const ROUNDS: usize = 7;
const EVENTS: usize = 4_000;
const WARM_UP: usize = 2_000;

fn main() -> ExitCode {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let event = Arc::new(event());
    println!("event       {} bytes", serde_json::to_vec(&*event).expect("an event is JSON").len());
    println!("promise     a filter takes at most {BUDGET} us of processor time, in the server and the worker together");
    let mut kept = true;
    tokio.block_on(async {
        let workers = workers(directory.path(), &Arc::default());
        let mut echo = Echo::start();
        for (kind, text) in [("plain", "space.name == 'web'"), ("Lua", "space.name:sub(1, 1) == 'x'")] {
            for (count, at_once) in [(1, 1), (1, 16), (10, 1), (10, 16)] {
                let filters = EventFilters::new(workers.clone(), Arc::default());
                let sinks: Vec<_> = (0..count).map(|number| sink(&filters, number, text)).collect();
                run(&filters, &sinks, &event, WARM_UP, at_once).await;
                let (mut rounds, mut echoes) = (Vec::new(), Vec::new());
                for _ in 0..ROUNDS {
                    let before = cpu_micros();
                    run(&filters, &sinks, &event, EVENTS, at_once).await;
                    let each = (cpu_micros() - before) / (EVENTS * count) as f64;
                    rounds.push(each);
                    echoes.push(each / echo.micros(EVENTS).await);
                }
                let (each, echoes) = (median(rounds), median(echoes));
                let verdict = if each <= BUDGET { "kept" } else { "BROKEN" };
                kept &= each <= BUDGET;
                println!(
                    "{kind:<5} {count:>2} filters, {at_once:>2} events at once   {each:>5.1} us for each filter, {echoes:>4.2} of the baseline   {verdict}"
                );
            }
        }
        workers.shut_down();
    });
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(filters: &EventFilters, sinks: &[SinkId], event: &Arc<Event>, events: usize, at_once: usize) {
    for _ in 0..events / at_once {
        let runs = (0..at_once).map(|_| filters.refused(event, sinks.to_vec()));
        for refused in join_all(runs).await {
            assert_eq!(refused.len(), sinks.len());
        }
    }
}

/// A sink with a filter that refuses the event. No two have the same text.
fn sink(filters: &EventFilters, number: usize, condition: &str) -> SinkId {
    let text = format!("event.data.ok and event.data.seconds > {} and {condition}", 100 + number);
    let sink = SinkId::new();
    filters.set(sink, Owner::Global, Some(&text.parse().expect("a filter")));
    sink
}
