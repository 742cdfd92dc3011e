//! Power cuts: the writes of a server are recorded, cut off at many points, and a server starts on each directory that the
//! disk could have kept. Every emit that was answered before the cut must be there, in order.

mod disk;

use crate::support::{Daemon, Random, in_parallel};
use disk::{Change, Unsynced};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt as _,
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

/// What a server wrote, and what it had answered.
struct Recording {
    /// The server's directory, as the changes name it.
    directory: PathBuf,
    /// Each with the length of the log up to its end.
    changes: Vec<(usize, Change)>,
    /// The places of the writes to sled's file among the changes.
    writes_of_sled: Vec<usize>,
    answered: Vec<AnsweredEmit>,
}

/// An emit that was answered: the length of the log at that moment, and what was emitted.
struct AnsweredEmit {
    log_length: usize,
    id: String,
    payload: Value,
}

#[test]
fn an_answered_emit_survives_a_power_cut_at_any_moment_of_start_and_load() {
    let recording = record();
    in_parallel(PARALLEL, CUTS, |cut| check_cut(cut, &recording));
}

fn record() -> Recording {
    let files = tempfile::tempdir().unwrap();
    let (log, end) = (files.path().join("changes"), files.path().join("end"));
    let mut daemon = Daemon::recorded(&compile_recorder(files.path()), &log, &end);
    let directory = daemon.directory().to_owned();
    let mut answered = Vec::new();
    // The later starts find what the killed process had not synced, and are recorded too.
    for run in 0..RUNS {
        if run > 0 {
            daemon.restart();
        }
        let (server, done) = (&daemon, AtomicUsize::new(0));
        thread::scope(|scope| {
            let emits: Vec<_> = (0..EMITTERS)
                .map(|n| {
                    let (log, end, done) = (&log, &end, &done);
                    scope.spawn(move || {
                        emit_until_killed(server, log, run * EMITTERS + n, || {
                            if done.fetch_add(1, Ordering::Relaxed) + 1 == EMITTERS {
                                std::fs::write(end, "").unwrap();
                            }
                        })
                    })
                })
                .collect();
            emits.into_iter().for_each(|emit| answered.extend(emit.join().unwrap()));
        });
        assert_eq!(daemon.ended().signal(), Some(libc::SIGKILL));
        std::fs::remove_file(&end).unwrap();
    }
    let changes = disk::read_log(&std::fs::read(&log).unwrap());
    let writes_of_sled = writes_to(&changes, "db");
    assert!(answered.len() >= RUNS * EMITTERS * EVENTS);
    assert!(changes.len() > 500 && writes_of_sled.len() > 5, "{} changes, {writes_of_sled:?}", changes.len());
    Recording { directory, changes, writes_of_sled, answered }
}

/// Emits until no answer comes. `are_emitted` is called after [`EVENTS`] of them.
fn emit_until_killed(daemon: &Daemon, log: &Path, emitter: usize, are_emitted: impl Fn()) -> Vec<AnsweredEmit> {
    let mut answered = Vec::new();
    let mut random = Random::new(emitter as u64 + 1);
    loop {
        let n = answered.len();
        if n == EVENTS {
            are_emitted();
        }
        // Some values are kept in pieces, and none can be compressed: sled is handed them in several writes.
        let text: String = random.bytes(n % 7 * 3000).into_iter().map(|byte| char::from(b'#' + byte % 57)).collect();
        let payload = json!({"emitter": emitter, "n": n, "text": text});
        let event = json!({"type": "load", "payload": payload}).to_string();
        let token = daemon.admin_token();
        let sent = daemon.try_send("POST", "/api/events/emit", Some(&token), Some(event.into_bytes()));
        let Ok(reply) = sent else { return answered };
        assert_eq!(reply.status, 202, "{}", reply.text);
        let id = reply.json()["event_id"].as_str().unwrap().to_owned();
        answered.push(AnsweredEmit { log_length: std::fs::metadata(log).unwrap().len() as usize, id, payload });
    }
}

/// The places of the writes to files of this name.
fn writes_to(changes: &[(usize, Change)], name: &str) -> Vec<usize> {
    let opened = changes.iter().filter_map(|(_, change)| match change {
        Change::Open { file, path } if path.ends_with(name) => Some(*file),
        _ => None,
    });
    let files: BTreeSet<u64> = opened.collect();
    let is_write = |change: &Change| matches!(change, Change::Write { file, .. } if files.contains(file));
    (0..changes.len()).filter(|place| is_write(&changes[*place].1)).collect()
}

fn check_cut(cut: usize, recording: &Recording) {
    let Recording { directory, changes, writes_of_sled, answered } = recording;
    let mut random = Random::new(cut as u64 + 1);
    // A third of the cuts falls into the first changes, which are those of the first start. Another third falls behind a write of
    // sled: the later starts hand it what the journal holds, which takes several segments of its file.
    let until = match cut % 3 {
        0 => random.index(200),
        1 => writes_of_sled[random.index(writes_of_sled.len())],
        _ => random.index(changes.len()),
    };
    let until = until.min(changes.len() - 1);
    let unsynced = [Unsynced::Torn, Unsynced::Dropped, Unsynced::Torn, Unsynced::Kept][cut / 3 % 4];
    let what = format!("cut {cut} after change {until}, unsynced writes {unsynced:?}");
    let before: Vec<Change> = changes[..=until].iter().map(|(_, change)| change.clone()).collect();
    let expected: Vec<_> = answered.iter().filter(|emit| emit.log_length <= changes[until].0).collect();
    let started = Daemon::try_on(|data| disk::cut(&before, unsynced, &mut random, directory, data), &[], |_| ());
    let daemon = started.unwrap_or_else(|refusal| panic!("{what}: the daemon did not start:\n{}", refusal.log));
    for emit in &expected {
        let found = daemon.get(&format!("/api/events/{}", emit.id));
        assert_eq!(found.status, 200, "{what}: event {} of {} is lost", emit.id, expected.len());
        assert_eq!(found.json()["data"], emit.payload, "{what}");
    }
    // The events of one emitter come in the order in which they were answered.
    let mut last = BTreeMap::<u64, u64>::new();
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
