//! Processor time of rendering a template for a 500-byte event in a worker process, in a pooled Lua state and in a new
//! one, and what the way to the worker and back adds to it in both processes. The baseline is a message of the same
//! size to a thread and back over the same kind of socket. Renders and the baseline alternate in rounds, and the
//! figures are medians.
//!
//! A template that names one field of a large event is measured beside one that takes all of it.
//!
//! Run with `cargo bench --bench render`; exits 1 if a render in a pooled state, a named field or the way exceeds its
//! budget.

mod median;
mod worker_support;

use median::median;
use serde_json::value::RawValue;
use std::{process::ExitCode, sync::Arc, time::Instant};
use svc::{
    model::{body_template::BodyTemplate, event::Event, owner::Owner},
    platform::metrics::Metrics,
    scripting::{
        lua::EventInput,
        workers::{LuaWorkers, ProgramText},
    },
};
use worker_support::{Echo, cpu_micros, event, workers};

/// Microseconds of processor time that a render in a pooled state may take.
const BUDGET: f64 = 40.0;

/// Microseconds of processor time that the way to the worker and back may take.
const WAY_BUDGET: f64 = 25.0;

/// Rounds, and the renders and messages of each.
const ROUNDS: usize = 11;
const RENDERS: usize = 2_000;

/// The objects in a large event, each of which takes about a hundred bytes, and its renders.
const COMMITS: usize = 600;
const LARGE_RENDERS: usize = 1_000;

/// Processor time that a named field of a large event may take, of what the whole event takes.
const FIELD_SHARE: f64 = 0.25;

const TEMPLATE: &str = r#"
return {
    text = ("%s deployed %s to %s"):format(actor.username, event.data.version, space.name),
    channel = custom.CHANNEL,
    commits = event.data.commits,
    took = event.data.seconds / 60,
}
"#;

fn main() -> ExitCode {
    let directory = tempfile::tempdir().expect("the temporary directory is writable");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let event = Arc::new(event());
    let rounds = tokio.block_on(async {
        let metrics = Arc::<Metrics>::default();
        let workers = workers(directory.path(), &metrics);
        let program = template(TEMPLATE);
        let mut echo = Echo::start();
        let mut rounds = Vec::new();
        // One more, which is not counted.
        for _ in 0..=ROUNDS {
            let (lua, cpu, began) = (lua_micros(&metrics), cpu_micros(), Instant::now());
            for _ in 0..RENDERS {
                render(&workers, &program, &event).await;
            }
            let (cpu, wall) = (cpu_micros() - cpu, began.elapsed());
            let lua = lua_micros(&metrics) - lua;
            let per_render = |micros: f64| micros / RENDERS as f64;
            rounds.push(RenderRound {
                pooled: per_render(lua),
                wall: per_render(wall.as_secs_f64() * 1e6),
                way: per_render(cpu - lua),
                baseline: echo.micros(RENDERS).await,
            });
        }
        workers.shut_down();
        rounds.split_off(1)
    });
    let median = |of: fn(&RenderRound) -> f64| median(rounds.iter().map(of).collect());
    let (pooled, wall) = (median(|round| round.pooled), median(|round| round.wall));
    let (way, baseline) = (median(|round| round.way), median(|round| round.baseline));
    let ratio = median(|round| round.way / round.baseline);
    let fresh = tokio.block_on(async {
        let metrics = Arc::<Metrics>::default();
        let workers = workers(&directory.path().join("fresh"), &metrics);
        // A program that never ran has no pooled state.
        let programs: Vec<_> = (0..2_000).map(|n| template(&format!("-- {n}\n{TEMPLATE}"))).collect();
        for program in &programs {
            render(&workers, program, &event).await;
        }
        workers.shut_down();
        lua_micros(&metrics) / 2_000.0
    });
    let [field, whole] = ["return { v = event.data.version }", "local data = event.data return { v = data.version }"]
        .map(|source| tokio.block_on(large_event_micros(&directory.path().join(source.len().to_string()), source)));
    println!("event               {} bytes", serde_json::to_vec(&*event).expect("an event is JSON").len());
    println!(
        "pooled state        {pooled:.1} us of processor time per render ({wall:.1} us until the caller has the result)"
    );
    println!("fresh state         {fresh:.1} us of processor time per render, {:.1} times as much", fresh / pooled);
    println!(
        "large event         {field:.1} us of processor time for one field, {whole:.1} us for all; share {:.2}",
        field / whole
    );
    println!("way to the worker   {way:.1} us of processor time per render, in both processes");
    println!("baseline           {baseline:.1} us for a message and its echo; the way takes {ratio:.2} of it");
    let mut code = ExitCode::SUCCESS;
    if pooled > BUDGET {
        println!("a render is over the budget of {BUDGET} us");
        code = ExitCode::FAILURE;
    }
    if field > whole * FIELD_SHARE {
        println!("a named field is over {FIELD_SHARE} of the whole event");
        code = ExitCode::FAILURE;
    }
    if way > WAY_BUDGET {
        println!("the way is over the budget of {WAY_BUDGET} us");
        code = ExitCode::FAILURE;
    }
    code
}

/// Microseconds of one render in a round, and of the baseline.
struct RenderRound {
    /// Processor time of the run.
    pooled: f64,
    wall: f64,
    /// Processor time of the way to the worker and back.
    way: f64,
    baseline: f64,
}

/// Processor time of a template for a large event in its worker, in microseconds.
async fn large_event_micros(directory: &std::path::Path, source: &str) -> f64 {
    let commit = r#"{"id":"4f1c9b07","by":"ada","message":"mend what the last change broke","files":["a.rs","b.rs"]}"#;
    let data = format!(r#"{{"commits":[{}],"version":"1.42.0"}}"#, vec![commit; COMMITS].join(","));
    let data = RawValue::from_string(data).expect("JSON");
    let event = Arc::new(Event { data, ..event() });
    let metrics = Arc::<Metrics>::default();
    let (workers, program) = (workers(directory, &metrics), template(source));
    for _ in 0..LARGE_RENDERS {
        render(&workers, &program, &event).await;
    }
    workers.shut_down();
    lua_micros(&metrics) / LARGE_RENDERS as f64
}

async fn render(workers: &LuaWorkers, program: &ProgramText, event: &Arc<Event>) {
    let input = EventInput { sequence: 1, ..EventInput::sample(event.clone()) };
    workers.render(program, Owner::Global, input).await.expect("the template renders");
}

fn template(source: &str) -> ProgramText {
    ProgramText::template(&BodyTemplate::Lua(source.to_owned()))
}

/// Total processor time of all Lua runs so far, from the metric that the daemon exports.
fn lua_micros(metrics: &Metrics) -> f64 {
    let text = metrics.render([]);
    let sum = text.lines().find_map(|line| line.strip_prefix("svc_lua_cpu_seconds_sum "));
    sum.and_then(|sum| sum.parse::<f64>().ok()).expect("the metric is there") * 1e6
}
