//! Power cuts: the writes of a server are recorded, cut off at many points, and a server starts on each directory that the
//! disk could have kept. Every emit that was answered before the cut must be there, in order.

mod disk;

use crate::support::{Daemon, Random};
use disk::{Change, Unsynced};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

const CUTS: usize = 150;
/// Servers that start at the same time.
const PARALLEL: usize = 4;
const EMITTERS: usize = 3;
const EVENTS: usize = 40;
const RUNS: usize = 3;

/// An emit that was answered: the length of the log at that moment, and what was emitted.
struct AnsweredEmit {
    log_length: usize,
    id: String,
    payload: Value,
}

#[test]
fn an_answered_emit_survives_a_power_cut_at_any_moment_of_start_and_load() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("changes");
    let mut daemon = Daemon::recorded(&compile_recorder(directory.path()), &log);
    let recorded = daemon.directory().to_owned();
    let mut answered = Vec::new();
    // The kills make the later starts read the log, which is recorded too.
    for run in 0..RUNS {
        if run > 0 {
            daemon.crash_and_restart();
        }
        let daemon = &daemon;
        thread::scope(|scope| {
            let emits: Vec<_> = (0..EMITTERS)
                .map(|n| {
                    let log = &log;
                    scope.spawn(move || emit(daemon, log, run * EMITTERS + n))
                })
                .collect();
            emits.into_iter().for_each(|emit| answered.extend(emit.join().unwrap()));
        });
    }
    daemon.kill();
    let changes = disk::read_log(&std::fs::read(&log).unwrap());
    assert!(answered.len() == RUNS * EMITTERS * EVENTS && changes.len() > 500, "{} changes", changes.len());

    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let cut = next.fetch_add(1, Ordering::Relaxed);
                    if cut >= CUTS {
                        return;
                    }
                    check_cut(cut, &changes, &answered, &recorded);
                }
            });
        }
    });
}

fn emit(daemon: &Daemon, log: &Path, emitter: usize) -> Vec<AnsweredEmit> {
    let emits = (0..EVENTS).map(|n| {
        // Some values are kept in pieces.
        let payload = json!({"emitter": emitter, "n": n, "text": "x".repeat((n % 7) * 1500)});
        let id = daemon.emit("load", &payload)["event_id"].as_str().unwrap().to_owned();
        AnsweredEmit { log_length: std::fs::metadata(log).unwrap().len() as usize, id, payload }
    });
    emits.collect()
}

fn check_cut(cut: usize, changes: &[(usize, Change)], answered: &[AnsweredEmit], recorded: &Path) {
    let mut random = Random::new(cut as u64 + 1);
    let mut below = |end: usize| random.below(end as u64) as usize;
    // Half of the cuts fall into the first changes, which are those of the first start.
    let until = if cut.is_multiple_of(2) { below(200) } else { below(changes.len()) }.min(changes.len() - 1);
    let unsynced = [Unsynced::Torn, Unsynced::Dropped, Unsynced::Torn, Unsynced::Kept][cut / 2 % 4];
    let before: Vec<Change> = changes[..=until].iter().map(|(_, change)| change.clone()).collect();
    let expected: Vec<_> = answered.iter().filter(|emit| emit.log_length <= changes[until].0).collect();
    let daemon = Daemon::on(|data| disk::cut(&before, unsynced, &mut random, recorded, data), &[]);
    let what = format!("cut {cut} after change {until}, unsynced writes {unsynced:?}");
    for emit in &expected {
        let found = daemon.get(&format!("/api/events/{}", emit.id));
        assert_eq!(found.status, 200, "{what}: event {} of {} is lost", emit.id, expected.len());
        assert_eq!(found.json()["data"], emit.payload, "{what}");
    }
    // The events of one emitter come in the order in which they were answered.
    let mut last = std::collections::BTreeMap::<u64, u64>::new();
    for event in daemon.items("/api/events") {
        let number = |key: &str| event["data"][key].as_u64().unwrap();
        let newer = last.insert(number("emitter"), number("n"));
        assert!(newer.is_none_or(|newer| number("n") < newer), "{what}: {event}");
    }
    assert_eq!(daemon.post("/api/events/emit", &json!({"type": "after", "payload": {}})).status, 202, "{what}");
}

fn compile_recorder(directory: &Path) -> PathBuf {
    let library = directory.join("record_writes.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/power_cut/record_writes.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().expect("a C compiler is there, as the build needs one").success());
    library
}
