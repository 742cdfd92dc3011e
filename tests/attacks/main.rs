//! Attacks of an ordinary member on one daemon: during each the daemon lives, its memory, processor time, threads and
//! disk stay bounded, and another user's requests and deliveries take at most three times as long as without it.
//!
//! A binary of its own, so that no other test runs beside it: latencies are compared. An attack is one entry of
//! [`ATTACKS`]: a function of [`harm`] that does harm until it is told to stop, run by a number of threads.
//! [`innocent`] is the other user, [`usage`] measures the daemon with its worker processes, and [`client`] is the HTTP
//! client of both sides.

mod client;
mod harm;
mod innocent;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests of `it`, which use more of it")]
mod support;
mod usage;

use harm::{ATTACKS, Attack, Stage, Urls};
use innocent::{Innocent, Latencies};
use serde_json::Value;
use std::{
    io::Read as _,
    net::UdpSocket,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};
use support::{Answer, Daemon, Receiver, eventually};
use usage::{ProcessorShare, Usage};

/// The factor by which an attack may slow the innocent user down.
const FACTOR: u32 = 3;
/// Latencies up to this are good whatever they were before. On two cores a debug build has one thread for connections
/// and takes up to 10 ms for the largest request of an attack, and an event is several steps that each may wait for
/// one. With little other load on the machine the worst p99 was 60 ms.
const FLOOR: Duration = Duration::from_millis(75);
/// Measurements during one attack. The first that is within the bounds counts: an attack that harms others harms them
/// at every time. From the second on a control, a daemon that nobody attacks, is measured in turn and counts as well,
/// so that other load on the machine, which makes both slower, fails no test.
const ROUNDS: usize = 4;
/// Steps of an attack before the first measurement.
const FIRST_STEPS: usize = 20;
/// The memory by which one attack may let the daemon grow, and its most memory at any time.
const GROWTH_KIB: u64 = 96 << 10;
const MEMORY_KIB: u64 = 512 << 10;
/// The most memory of all worker processes at any time: two of the attacker, one of the other user, and one that is
/// just being replaced. Each has 64 MiB and room for four runs that use all of their 32 MiB.
const WORKERS_KIB: u64 = (4 * (64 + 4 * 32)) << 10;
/// Tokio has up to 512 threads for blocking work and ends those that were idle for ten seconds.
const THREADS: usize = 600;
const DISK: u64 = 256 << 20;
/// The share of one core that the daemon and its workers may take once an attack is over.
const IDLE_PERCENT: u32 = 15;
/// The time after an attack in which memory, disk and processor time may come down to their bounds.
const SETTLING: Duration = Duration::from_secs(30);

#[test]
fn no_attack_of_a_member_harms_the_daemon_or_another_user() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name_server = silent.local_addr().unwrap().to_string();
    let settings = [
        ("EGRESS_ALLOW_PRIVATE", "true"),
        ("EGRESS_DNS", name_server.as_str()),
        ("HTTP_TRUSTED_PROXIES", "127.0.0.0/8"),
        ("DELIVERY_BACKOFF", "1s"),
        ("SCRIPT_CPU", "200ms"),
        ("HISTORY_SIZE", "4MiB"),
        ("LOG_LEVEL", "error"),
    ];
    let (mut daemon, control) = (Daemon::with(&settings), Daemon::with(&settings));
    let permissions = ["manage_own_event_sinks", "manage_own_scripts", "use_spaces", "use_methods", "use_mcp_server"];
    let attacker = daemon.create_user("attacker", &permissions);
    let mut users =
        [&daemon, &control].map(|daemon| Innocent::start(daemon, &daemon.create_user("innocent", &permissions)));
    // The receivers of the attacker take little of the processor, as its clients do.
    let (hanging, failing) = client::at_low_priority(|| {
        let hanging = Receiver::answering(|_| Answer::Custom(Box::new(|stream| drop(stream.read(&mut [0])))));
        (hanging, Receiver::answering(|_| Answer::Status(500)))
    });
    // Bound and not listening, so that every connection is refused.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let urls = Urls {
        hanging: hanging.url("/"),
        refusing: format!("http://{}/", refusing.local_addr().unwrap()),
        failing: failing.url("/"),
    };
    let only = std::env::var("SVC_ATTACK").ok();

    let mut failures = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| only.as_ref().is_none_or(|only| attack.name.contains(only))) {
        let stage = Stage::new(&daemon, &attacker, &urls);
        let broken = run(attack, &stage, &mut users);
        failures.extend(broken.into_iter().map(|what| format!("{}: {what}", attack.name)));
    }
    assert_eq!(failures, [""; 0], "the bounds are broken");
    daemon.terminate();
    assert!(daemon.ended().success(), "the daemon has lived through all of it");
}

/// Runs one attack, and returns the bounds that it has broken.
fn run(attack: &Attack, stage: &Stage, [innocent, control]: &mut [Innocent; 2]) -> Vec<String> {
    let daemon = stage.daemon;
    let (mut before, memory_before) = (innocent.latencies(|| ()), daemon.memory());
    let mut peak = Usage::of(daemon);
    let share = ProcessorShare::start(daemon);
    let mut broken = Vec::new();
    let (during, rounds, share) = thread::scope(|scope| {
        let start = |_| scope.spawn(|| client::at_low_priority(|| (attack.harm)(stage)));
        let threads: Vec<_> = (0..attack.threads).map(start).collect();
        eventually(attack.name, || {
            assert!(!threads.iter().any(|thread| thread.is_finished()), "{} has failed", attack.name);
            (stage.steps.load(Ordering::SeqCst) >= FIRST_STEPS).then_some(())
        });
        let mut during = innocent.latencies(|| peak = peak.max(Usage::of(daemon)));
        let mut rounds = 1;
        while !during.within(&limits(before)) && rounds < ROUNDS {
            let (measured, unharmed) = innocent.latencies_beside(control, || peak = peak.max(Usage::of(daemon)));
            (during, before) = (measured, before.max(unharmed));
            rounds += 1;
        }
        let share = share.end(daemon);
        stage.stop.store(true, Ordering::SeqCst);
        (during, rounds, share)
    });
    stage.clean_up();
    let ended = Instant::now();
    let idle = settled(IDLE_PERCENT, || ProcessorShare::over(daemon, Duration::from_millis(300)));
    let idle_after = ended.elapsed();
    let memory_limit = MEMORY_KIB.min(memory_before + GROWTH_KIB);
    let (memory, disk) = (settled(memory_limit, || daemon.memory()), settled(DISK, || usage::disk(daemon.directory())));
    let threads = usage::threads(daemon);
    let steps = stage.steps.load(Ordering::SeqCst);
    println!(
        "{}: {steps} steps, {rounds} rounds; before {before}; during {during}; {} to {} MiB, peak {} and {} MiB of workers; \
         daemon {}% and workers {}% of a core, {idle}% after {idle_after:.1?}; {threads} threads, {} MiB on disk",
        attack.name,
        memory_before >> 10,
        memory >> 10,
        peak.daemon_kib >> 10,
        peak.workers_kib >> 10,
        share.daemon,
        share.workers,
        disk >> 20,
    );
    let mut check = |holds: bool, what: String| {
        if !holds {
            broken.push(what);
        }
    };
    check(during.within(&limits(before)), format!("latencies {during}, before {before}"));
    check(memory <= memory_limit, format!("the daemon grew from {memory_before} to {memory} KiB"));
    check(peak.daemon_kib <= MEMORY_KIB, format!("the daemon had {} KiB", peak.daemon_kib));
    check(peak.workers_kib <= WORKERS_KIB, format!("the workers had {} KiB", peak.workers_kib));
    // The attacker has this many workers for scripts and as many for templates, and another user has one.
    let places = std::thread::available_parallelism().map_or(1, |cores| usize::from(cores) / 2).max(1);
    let most = 100 * (2 * places as u32 + 1);
    check(share.workers <= most, format!("the workers took {}% of a core", share.workers));
    check(idle <= IDLE_PERCENT, format!("{idle}% of a core are still used {idle_after:?} after the end"));
    check(threads <= THREADS, format!("{threads} threads"));
    check(disk <= DISK, format!("{disk} bytes on disk"));
    broken
}

/// The most that latencies without an attack may become.
fn limits(before: Latencies) -> Latencies {
    before.map(|latency| FLOOR.max(FACTOR * latency))
}

/// The measure once it is within the limit, or after the time for that.
fn settled<T: PartialOrd>(limit: T, measure: impl Fn() -> T) -> T {
    let deadline = Instant::now() + SETTLING;
    loop {
        let measured = measure();
        if measured <= limit || Instant::now() >= deadline {
            return measured;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The text of a field.
#[track_caller]
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}
