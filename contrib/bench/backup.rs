//! Speed of a backup of 256 MiB of events, idle and under emits, and of its restore, in MB of live data a second.
//! Beside them the same bytes are copied, and copied through zstd, from file to file on the same disk in the same run,
//! and inserted as rows into a database of sled alone. sled writes several times the bytes of the rows, so that its own
//! speed is the bound of a restore.
//!
//! Run with `cargo bench --bench backup`; exits 1 if a requirement is missed.

mod support;

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Write},
    path::Path,
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use support::{Daemon, percentile, requirement, temp_dir};

const BYTES: usize = 256 << 20;
const PAYLOAD: usize = 4000;
const FILLERS: usize = 16;
const EMITTERS: usize = 4;

/// The speed that is asked for, unless the disk is slower.
const TARGET: f64 = 100.0;

fn main() -> ExitCode {
    let daemon = Daemon::start(&[("SVC_HISTORY_SIZE", "4GiB")]);
    fill(&daemon);
    let directory = temp_dir();
    let file = directory.path().join("svc.backup");

    let idle = backup(&daemon, &file);
    let quiet = emits_during(&daemon, || thread::sleep(Duration::from_secs(3)));
    let mut busy = (0.0, 0);
    let loaded = emits_during(&daemon, || busy = backup(&daemon, &file));
    let began = Instant::now();
    let data = directory.path().join("data");
    let restored = Command::new(env!("CARGO_BIN_EXE_svc")).arg("restore").arg(&file).arg("--data").arg(&data).output();
    let restored = restored.expect("the binary runs");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let restore = speed(busy.1, began.elapsed());

    let lines = directory.path().join("lines");
    let input = File::open(&file).expect("the backup is there");
    io::copy(&mut zstd::Decoder::new(input).expect("it is zstd"), &mut File::create(&lines).expect("there is room"))
        .expect("there is room");
    let bytes = lines.metadata().expect("it is there").len();
    let copy =
        copied(&lines, &directory.path().join("copy"), bytes, |input, output| io::copy(input, output).map(|_| ()));
    let compressed = copied(&lines, &directory.path().join("zst"), bytes, |input, output| {
        let mut encoder = zstd::Encoder::new(output, 1)?;
        io::copy(input, &mut encoder)?;
        encoder.finish().map(|_| ())
    });

    let engine = inserted(&lines, &directory.path().join("sled"), bytes);

    println!("MB/s of live data ({} MB):", bytes / 1_000_000);
    println!("  backup, idle              {:.0}", idle.0);
    println!("  backup, under emits       {:.0}", busy.0);
    println!("  restore                   {restore:.0}");
    println!("  baseline: copy and sync  {copy:.0}");
    println!("  baseline: copy, zstd -1  {compressed:.0}");
    println!("  baseline: sled alone     {engine:.0}");
    println!("emits/s with {EMITTERS} emitters: {:.0} alone, {:.0} during a backup", quiet.rate, loaded.rate);
    println!(
        "slowest emit: {:?} alone, {:?} during a backup (p99 {:?}, {:?})",
        quiet.slowest, loaded.slowest, quiet.p99, loaded.p99
    );
    let bound = TARGET.min(copy).min(compressed);
    let met = [
        requirement("backup, idle", idle.0, " MB/s", idle.0 >= bound, "100, or the baseline"),
        requirement("backup, under emits", busy.0, " MB/s", busy.0 >= bound / 2.0, "half of that beside the emits"),
        requirement(
            "restore",
            restore,
            " MB/s",
            restore >= bound.min(engine * 0.8),
            "100, or 0.8 of the baselines' slowest",
        ),
        requirement("slowest emit", loaded.slowest.as_secs_f64(), " s", loaded.slowest.as_millis() < 500, "under 0.5"),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The speed at which sled alone takes the lines as rows in ascending order, until they are on disk.
fn inserted(lines: &Path, database: &Path, bytes: u64) -> f64 {
    let lines = BufReader::new(File::open(lines).expect("it is there"));
    let began = Instant::now();
    let tree = sled::open(database).expect("a new database opens");
    for (number, line) in lines.split(b'\n').enumerate() {
        let line = line.expect("it can be read");
        tree.insert((number as u64).to_be_bytes(), line).expect("there is room");
    }
    tree.flush().expect("there is room");
    File::open(database.join("db")).and_then(|file| file.sync_all()).expect("there is room");
    speed(bytes, began.elapsed())
}

/// Emits until the history has [`BYTES`].
fn fill(daemon: &Daemon) {
    let emitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                let mut connection = daemon.connect();
                loop {
                    let n = emitted.fetch_add(1, Relaxed);
                    if n * PAYLOAD > BYTES {
                        return;
                    }
                    let (status, answer) = connection.request("POST", "/api/events/emit", &event(n));
                    assert_eq!(status, 202, "{answer}");
                }
            });
        }
    });
}

/// An event of text that compresses about as well as logs do.
fn event(n: usize) -> String {
    let mut text = String::with_capacity(PAYLOAD + 100);
    let mut state = n as u64 + 1;
    while text.len() < PAYLOAD {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let word = ["deploy", "region", "canary", "checkout", "rollout", "latency"][(state >> 60) as usize % 6];
        text.push_str(&format!("{word}={:08x} ", state >> 32));
    }
    format!(r#"{{"type":"bench.event","payload":{{"n":{n},"text":"{text}"}}}}"#)
}

/// Makes a backup, and returns its speed and the bytes of live data in it.
fn backup(daemon: &Daemon, file: &Path) -> (f64, u64) {
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["backup", "--force", "--json", "--server", &format!("http://{}", daemon.address)])
        .args(["--token", &daemon.token])
        .arg(file)
        .output()
        .expect("the binary runs");
    let elapsed = began.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let bytes = report["bytes"].as_u64().expect("it counts bytes");
    (speed(bytes, elapsed), bytes)
}

struct EmitTimes {
    rate: f64,
    p99: Duration,
    slowest: Duration,
}

/// Emits from [`EMITTERS`] connections while `work` runs.
fn emits_during(daemon: &Daemon, work: impl FnOnce()) -> EmitTimes {
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let mut times = thread::scope(|scope| {
        let emitters: Vec<_> = (0..EMITTERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = daemon.connect();
                    let mut times = Vec::new();
                    while !stop.load(Relaxed) {
                        let began = Instant::now();
                        let body = r#"{"type":"bench.load","payload":{"n":1}}"#;
                        assert_eq!(connection.request("POST", "/api/events/emit", body).0, 202);
                        times.push(began.elapsed());
                    }
                    times
                })
            })
            .collect();
        work();
        stop.store(true, Relaxed);
        emitters.into_iter().flat_map(|emitter| emitter.join().expect("it emits")).collect::<Vec<_>>()
    });
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    let (p99, slowest) = (percentile(&mut times, 99), percentile(&mut times, 100));
    EmitTimes { rate, p99, slowest }
}

/// The speed of copying a file by `copy`, with the sync at its end.
fn copied(
    from: &Path,
    to: &Path,
    bytes: u64,
    copy: impl FnOnce(&mut BufReader<File>, &mut BufWriter<File>) -> io::Result<()>,
) -> f64 {
    let began = Instant::now();
    let mut input = BufReader::with_capacity(1 << 20, File::open(from).expect("it is there"));
    let mut output = BufWriter::with_capacity(1 << 20, File::create(to).expect("there is room"));
    copy(&mut input, &mut output).expect("there is room");
    output.flush().expect("there is room");
    output.get_ref().sync_all().expect("the disk takes it");
    speed(bytes, began.elapsed())
}

fn speed(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 / 1e6 / elapsed.as_secs_f64()
}
