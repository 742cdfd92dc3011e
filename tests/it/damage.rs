//! Damaged copies of a data directory: a server either has the original content or refuses to start, in one line that
//! says what to do, and leaves every byte as it was.

use crate::support::{Daemon, Random, Receiver, Refusal, eventually, files, in_parallel, stderr};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};
use tempfile::TempDir;

/// Copies of the directory of a server that was killed, and of one that was stopped.
const COPIES: usize = 104;
/// Of every so many copies the readable rest is saved.
const SALVAGED: usize = 6;
const THREADS: usize = 3;

const EVENTS: usize = 350;

/// Nothing is delivered, removed or compacted while the content is compared.
const SETTINGS: [(&str, &str); 3] = [("DELIVERY_BACKOFF", ""), ("HISTORY_KEEP", "36500d"), ("HISTORY_AUDIT", "36500d")];

const SEGMENT: u64 = 512 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Stopped,
}

#[test]
fn a_damaged_copy_has_the_original_content_or_is_refused_in_one_line_without_a_change() {
    for end in [End::Killed, End::Stopped] {
        let (directory, original) = original(end);
        let data = directory.path().join("data");
        let (served, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        in_parallel(THREADS, COPIES, |number| {
            let mut what = String::new();
            let started = Daemon::try_on(
                |copied| {
                    copy(&data, copied);
                    what = damage(&copied.join("sled"), &mut Random::new(number as u64 * 2 + end as u64 + 1));
                },
                &SETTINGS,
                files,
            );
            match started {
                Ok(daemon) => {
                    served.fetch_add(1, Ordering::Relaxed);
                    compare(&content(&daemon), &original, &format!("{end:?} {number}: {what}"));
                }
                Err(refusal) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    let what = format!("{end:?} {number}: {what}");
                    check_refusal(&refusal, &what);
                    if number % SALVAGED == 0 && refusal.log.contains("store salvage") {
                        check_salvage(&refusal, &original, &what);
                    }
                }
            }
        });
        let (served, refused) = (served.into_inner(), refused.into_inner());
        assert_eq!(served + refused, COPIES);
        assert!(served > 5 && refused > 30, "{end:?}: {served} copies were served and {refused} refused");
    }
}

fn compare(found: &Value, original: &Value, what: &str) {
    for (name, original) in original.as_object().unwrap() {
        let found = &found[name];
        let differs = |(found, original): &(&Value, &Value)| found != original;
        let pairs = found.as_array().into_iter().flatten().zip(original.as_array().into_iter().flatten());
        assert!(found == original, "{what}: other {name} are served: {:?}", pairs.clone().find(differs));
    }
}

fn check_refusal(refusal: &Refusal<BTreeMap<PathBuf, Vec<u8>>>, what: &str) {
    assert_eq!(refusal.status.code(), Some(1), "{what}: {}", refusal.log);
    assert_eq!(refusal.log.trim_end().lines().count(), 1, "{what}: {}", refusal.log);
    assert!(refusal.log.contains("/sled"), "{what}: {}", refusal.log);
    assert!(refusal.log.contains("restore"), "{what}: {}", refusal.log);
    let changed: Vec<_> =
        refusal.after.iter().filter(|(path, bytes)| refusal.before.get(*path) != Some(bytes)).collect();
    assert!(
        refusal.before.len() == refusal.after.len() && changed.is_empty(),
        "{what}: the refused start changed a file"
    );
}

/// Saves what is readable, restores it, and starts a server with it.
fn check_salvage(refusal: &Refusal<BTreeMap<PathBuf, Vec<u8>>>, original: &Value, what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("saved.backup");
    let svc = |arguments: &[&str], file: &Path, data: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        let output = command.args(arguments).arg(file).arg("--data").arg(data).output().unwrap();
        assert!(output.status.success(), "{what}: {arguments:?}: {}", stderr(&output));
    };
    svc(&["store", "salvage"], &archive, &refusal.data);
    assert!(files(&refusal.data) == refusal.before, "{what}: salvage changed a file");
    let fill = |data: &Path| {
        svc(&["restore"], &archive, data);
        fs::copy(refusal.data.join("admin.token"), data.join("admin.token")).unwrap();
    };
    let daemon = Daemon::on(fill, &SETTINGS);
    // The token itself may have been in the damaged part.
    if daemon.get("/api/events").status == 200 {
        let ids = |events: &[Value]| events.iter().map(|event| event["id"].to_string()).collect::<BTreeSet<_>>();
        let (saved, all_ids) = (ids(&daemon.items("/api/events")), ids(original["events"].as_array().unwrap()));
        assert!(saved.iter().all(|id| all_ids.contains(id)), "{what}: an event was made up");
        assert!(
            what.contains("cut at") || saved.len() * 2 > all_ids.len(),
            "{what}: only {} events are saved",
            saved.len()
        );
    }
}

/// Makes a data directory under load, with kills in between, and returns it with its content.
fn original(end: End) -> (TempDir, Value) {
    let receiver = Receiver::start();
    let mut daemon = Daemon::with(&SETTINGS);
    daemon.create_sink(&json!({
        "name": "web", "events": "custom.web", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    daemon.create_sink(&json!({
        "name": "script", "events": "custom.*", "type": "script", "owner": "global",
        "script": {"source": r#"
            local event = require "svc.event"
            if event.type() == "custom.values" then
              local all = {}
              for n = 0, 29 do all[#all + 1] = n .. "=" .. tostring(kv.get("k" .. n)) end
              print(table.concat(all, " "))
              return
            end
            local n = event.get_int("n", 0)
            kv.set("k" .. n % 30, n)
            if n % 9 == 4 then return svc.dead("every ninth") end
        "#},
    }));
    for n in 0..EVENTS {
        let length = if n % 10 == 3 { 20_000 } else { n * 37 % 3000 };
        let kind = if n % 4 == 0 { "web" } else { "load" };
        daemon.emit(kind, &json!({"n": n, "text": format!("{n:05}").repeat(length / 5)}));
        if n % 70 == 0 {
            daemon.create_user(&format!("user{n}"), &["use_methods"]);
        }
        if n % 120 == 119 {
            daemon.crash_and_restart();
        }
    }
    // On disk, not only in memory.
    eventually("all deliveries to end", || daemon.items("/api/events?state=queued").is_empty().then_some(()));
    match end {
        End::Killed => daemon.kill(),
        End::Stopped => {
            daemon.terminate();
            assert!(daemon.ended().success());
        }
    }
    let directory = tempfile::tempdir().unwrap();
    copy(daemon.directory(), &directory.path().join("data"));
    // The content is that of a copy, because a start leaves its own traces.
    let content = content(&Daemon::on(|data| copy(daemon.directory(), data), &SETTINGS));
    assert_eq!(content["events"].as_array().unwrap().len(), EVENTS, "all events are in the history");
    (directory, content)
}

/// Everything that the server tells of its data.
fn content(daemon: &Daemon) -> Value {
    let sinks = daemon.items("/api/event-sinks");
    let dead: Vec<_> = sinks
        .iter()
        .map(|sink| daemon.items(&format!("/api/event-sinks/{}/dead-letters", sink["id"].as_str().unwrap())))
        .collect();
    let events =
        daemon.items("/api/events").into_iter().filter(|event| event["type"] != "custom.values").collect::<Vec<_>>();
    let details: Vec<_> = events.iter().step_by(17).map(|event| daemon.event(&event["id"])).collect();
    let audit = daemon.items("/api/audit");
    let users = daemon.items("/api/users");
    let asked = daemon.emit("values", &json!({}));
    let values = daemon.delivery(&asked["event_id"], "delivered")["attempts"][0]["log"].clone();
    json!({
        "sinks": sinks, "dead": dead, "events": events, "details": details, "audit": audit, "users": users, "values": values,
    })
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// Damages the database in one place and says how.
fn damage(database: &Path, random: &mut Random) -> String {
    let log = File::options().read(true).write(true).open(database.join("db")).unwrap();
    let length = log.metadata().unwrap().len();
    let block = [512, 4096][random.below(2) as usize];
    let at = random.below(length);
    let aligned = at / block * block;
    let count = block.min(length - aligned) as usize;
    match random.below(12) {
        kind @ 0..=2 => {
            // Every third one near the header of a segment.
            let at = if kind == 0 { (at / SEGMENT * SEGMENT + random.below(60)).min(length - 1) } else { at };
            flip(&log, at, random);
            format!("a bit of byte {at} is flipped")
        }
        3 => {
            log.write_all_at(&vec![0; count], aligned).unwrap();
            format!("{count} bytes at {aligned} are zero")
        }
        4 => {
            log.write_all_at(&vec![0; count], at / SEGMENT * SEGMENT).unwrap();
            format!("the first {count} bytes of the segment at {at} are zero")
        }
        5..=6 => {
            log.write_all_at(&random.bytes(count), aligned).unwrap();
            format!("{count} bytes at {aligned} are random")
        }
        7..=8 => {
            log.set_len(at).unwrap();
            format!("the log is cut at {at} of {length}")
        }
        9 => {
            let other = random.below(length) / block * block;
            let (mut one, mut two) = (vec![0; count], vec![0; count]);
            log.read_exact_at(&mut one, aligned).unwrap();
            let read = log.read_at(&mut two, other).unwrap();
            log.write_all_at(&two[..read], aligned).unwrap();
            log.write_all_at(&one[..read], other).unwrap();
            format!("{read} bytes at {aligned} and {other} are swapped")
        }
        _ => {
            let others = files(database).into_iter().filter(|(path, bytes)| !path.ends_with("db") && !bytes.is_empty());
            let others: Vec<PathBuf> = others.map(|(path, _)| path).collect();
            let path = &others[random.index(others.len())];
            let name = path.file_name().unwrap().display();
            let length = fs::metadata(path).unwrap().len();
            match random.below(3) {
                0 => {
                    fs::remove_file(path).unwrap();
                    format!("{name} is removed")
                }
                1 => {
                    let at = random.below(length);
                    File::options().write(true).open(path).unwrap().set_len(at).unwrap();
                    format!("{name} is cut at {at}")
                }
                _ => {
                    let at = random.below(length);
                    flip(&File::options().read(true).write(true).open(path).unwrap(), at, random);
                    format!("a bit of byte {at} of {name} is flipped")
                }
            }
        }
    }
}

fn flip(file: &File, at: u64, random: &mut Random) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << random.below(8))], at).unwrap();
}
