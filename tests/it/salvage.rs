//! Small stores with one damaged byte: the server refuses each, and the salvage accounts for every record.

use crate::support::{Daemon, Receiver, files, in_parallel, stderr, stdout, success};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Places of each store at which a byte is flipped.
const PLACES: usize = 10;
const THREADS: usize = 3;

fn svc(arguments: &[&str], data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_svc")).args(arguments).arg("--data").arg(data).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// Makes three stores of one segment: that of a server that was stopped, the same restored from a backup, and
/// compacted.
fn make_stores(directory: &Path) {
    let receiver = Receiver::start();
    let mut daemon = Daemon::start();
    for name in ["one", "two"] {
        daemon.create_sink(&json!({
            "name": name, "events": "custom.*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
        }));
        daemon.create_user(name, &["use_methods"]);
    }
    for n in 0..40 {
        let event = daemon.emit("small", &json!({"n": n, "text": format!("{n:05}").repeat(40)}));
        daemon.delivery(&event["event_id"], "delivered");
    }
    let backup = directory.join("svc.backup");
    let backup = backup.to_str().unwrap();
    success(&daemon.svc(&["backup", backup]));
    daemon.terminate();
    assert!(daemon.ended().success());
    success(&Command::new("cp").arg("-r").arg(daemon.directory()).arg(directory.join("stopped")).output().unwrap());
    for name in ["restored", "compacted"] {
        success(&svc(&["restore", backup], &directory.join(name)));
    }
    success(&svc(&["store", "compact"], &directory.join("compacted")));
}

#[test]
fn a_small_store_with_a_flipped_byte_is_refused_and_its_salvage_accounts_for_every_record() {
    let directory = tempfile::tempdir().unwrap();
    make_stores(directory.path());
    for name in ["stopped", "restored", "compacted"] {
        let whole = directory.path().join(name);
        let sound = json_of(&svc(&["store", "verify", "--json"], &whole));
        assert_eq!((&sound["sound"], &sound["loss"], &sound["lost_rows"]), (&json!(true), &json!("none"), &json!(0)));
        let log = fs::read(whole.join("sled/db")).unwrap();
        let used = log.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        assert!(used < 512 * 1024, "{name}: {used} bytes are one segment");
        let unknown = AtomicUsize::new(0);
        in_parallel(THREADS, PLACES, |tenth| {
            let at = used * tenth / PLACES;
            let mut damaged = log.clone();
            damaged[at] ^= 0x10;
            let what = format!("{name}, byte {at} of {used}");
            let loss = check_damaged(&whole, &damaged, sound["rows"].as_u64().unwrap(), &what);
            unknown.fetch_add(usize::from(loss == "unknown"), Ordering::Relaxed);
        });
        // The last write alone has the number of records, and one place at most is in it.
        assert!(unknown.into_inner() <= 1, "{name}: nobody knows how many records are lost");
    }
}

/// Checks a copy of a store whose log has these bytes, and returns how exactly its loss is known. `rows` is the number
/// of its records before the damage.
fn check_damaged(whole: &Path, log: &[u8], rows: u64, what: &str) -> String {
    let fill = |data: &Path| {
        success(&Command::new("cp").arg("-r").args([whole, data]).output().unwrap());
        fs::write(data.join("sled/db"), log).unwrap();
    };
    let Err(refusal) = Daemon::try_on(fill, &[], files) else { panic!("{what}: the server started") };
    assert_eq!(refusal.status.code(), Some(1), "{what}: {}", refusal.log);
    assert!(refusal.log.contains("svc store salvage"), "{what}: {}", refusal.log);
    let data = &refusal.data;
    let told = svc(&["store", "verify", "--json"], data);
    assert_eq!((told.status.code(), &json_of(&told)["sound"]), (Some(1), &json!(false)), "{what}");

    let saved = tempfile::tempdir().unwrap();
    let file = saved.path().join("saved.backup");
    let file = file.to_str().unwrap();
    let report = svc(&["store", "salvage", file, "--json"], data);
    assert!(report.status.success(), "{what}: {}", stderr(&report));
    let report = json_of(&report);
    let (store, end) = (&report["store"], &report["end"]);
    let (loss, lost) = (store["loss"].as_str().unwrap(), store["lost_rows"].as_u64());
    let accounted = lost.map(|lost| store["rows"].as_u64().unwrap() + lost);
    let (words, is_right) = match loss {
        "none" => ("0 lost".to_owned(), lost == Some(0) && accounted == Some(rows)),
        "exact" => (format!("{} lost", lost.unwrap()), accounted == Some(rows)),
        "at_least" => (format!("at least {} lost", lost.unwrap()), accounted >= Some(rows)),
        "unknown" => ("an unknown number lost".to_owned(), lost.is_none()),
        other => panic!("{what}: {other}"),
    };
    assert!(is_right, "{what}: {rows} records before, and {report}");
    assert_eq!(lost.is_none(), end["lost_unknown"] == true, "{what}: {report}");
    let text = success(&svc(&["store", "salvage", file, "--force"], data));
    let line = format!("{} records kept, {words};", end["rows"]);
    assert!(text.contains(&line), "{what}: {text} and {report}");
    assert!(files(data) == refusal.before, "{what}: a file was changed");
    let told =
        json_of(&Command::new(env!("CARGO_BIN_EXE_svc")).args(["backup", "verify", file, "--json"]).output().unwrap());
    assert_eq!(told["end"]["lost_unknown"], end["lost_unknown"], "{what}");
    loss.to_owned()
}
