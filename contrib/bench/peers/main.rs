//! The same work on `svc` and on its peers, side by side: knot (webhooks, events in memory), NATS JetStream (durable
//! publishing) and Outpost (webhooks, durable publishing).
//!
//! A peer takes part if its variable names its binary: `SVC_PEER_KNOT`, `SVC_PEER_NATS`, `SVC_PEER_OUTPOST`;
//! `SVC_PEER_SVC` replaces the `svc` that cargo built. Outpost also needs Redis, RabbitMQ and PostgreSQL, which are
//! started from `PATH`. A peer that cannot start is skipped by name. For each work all servers start on loopback with
//! empty temporary directories, and the rounds alternate between them, so that a disturbance of the machine meets all
//! alike. The result is the median of the rounds, with the processor time that the server and its child processes took
//! for each event or delivery; for Outpost that is its own process, without the services beside it.
//!
//! Run with `cargo bench --bench peers`; a number sets the rounds, a word selects the works whose name contains it.
//! Exits 1 if a requirement is missed for a peer that ran.

mod backing_services;
#[path = "../counting_receiver.rs"]
mod counting_receiver;
mod http_client;
mod knot;
mod nats;
mod outpost;
mod server;
mod svc_server;
mod work;

use counting_receiver::CountingReceiver;
use server::Server;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use work::{Summary, Work};

const ROUNDS: usize = 5;
/// Deliveries per second of svc, in those of knot.
const OVER_KNOT: f64 = 2.0;
/// Deliveries per second of svc, in those of Outpost.
const OVER_OUTPOST: f64 = 10.0;

type Start = fn(&Path, Work) -> Box<dyn Server>;

/// A kind of server, and the binary to start.
struct Program {
    name: &'static str,
    binary: PathBuf,
    start: Start,
}

/// The result of one server at one work.
struct Row {
    name: &'static str,
    summary: Summary,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS).max(1);
    let words: Vec<&String> = arguments.iter().filter(|argument| argument.parse::<usize>().is_err()).collect();
    let mut skipped = Vec::new();
    let programs = programs(&mut skipped);
    println!(
        "medians of {rounds} rounds (slowest to fastest); us is processor time of the server for each event or delivery"
    );
    for program in &programs {
        println!("{}: {}", program.name, server::version(&program.binary));
    }
    println!("\n| work | svc | peer | ratio |\n|---|---|---|---|");
    let receiver = CountingReceiver::start();
    let mut met = true;
    let mut requirements = Vec::new();
    for work in Work::ALL {
        let name = work.name();
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let rows = measure(work, &programs, rounds, &receiver);
        met &= report(work, &rows, &mut requirements);
    }
    println!();
    for line in requirements.iter().chain(&skipped) {
        println!("{line}");
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `svc`, and the peers that can start; a line for each that cannot goes to `skipped`.
fn programs(skipped: &mut Vec<String>) -> Vec<Program> {
    let own = binary("SVC_PEER_SVC").unwrap_or_else(|| env!("CARGO_BIN_EXE_svc").into());
    let mut programs =
        vec![Program { name: "svc", binary: own, start: |binary, _| Box::new(svc_server::Svc::start(binary)) }];
    let peers: [(_, _, Start); 3] = [
        ("knot", "SVC_PEER_KNOT", |binary, _| Box::new(knot::Knot::start(binary))),
        ("JetStream", "SVC_PEER_NATS", |binary, _| Box::new(nats::JetStream::start(binary))),
        ("Outpost", "SVC_PEER_OUTPOST", |binary, work| Box::new(outpost::Outpost::start(binary, work))),
    ];
    for (name, variable, start) in peers {
        let mut found = binary(variable).ok_or_else(|| format!("set {variable} to the path of its binary"));
        if name == "Outpost" {
            found = found.and_then(|binary| outpost::check(&binary).map(|()| binary));
        }
        match found {
            Ok(binary) => programs.push(Program { name, binary, start }),
            Err(reason) => skipped.push(format!("skipped {name}: {reason}")),
        }
    }
    programs
}

/// The path in a variable, independent of the directory that a server starts in; a name alone is looked up in `PATH`.
fn binary(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    Some(path.canonicalize().unwrap_or(path))
}

/// Runs the rounds of one work, one server after the other in each.
fn measure(work: Work, programs: &[Program], rounds: usize, receiver: &CountingReceiver) -> Vec<Row> {
    let programs: Vec<&Program> = programs.iter().filter(|program| work.suits(program.name)).collect();
    if programs.len() < 2 {
        // Nothing to compare with.
        return Vec::new();
    }
    let start = |program: &&Program| {
        let server = (program.start)(&program.binary, work);
        work.prepare(&*server, receiver);
        (server, Vec::with_capacity(rounds))
    };
    let mut servers: Vec<_> = programs.iter().map(start).collect();
    for _ in 0..rounds {
        for (server, measured) in &mut servers {
            measured.push(work.run(&**server, receiver));
        }
    }
    let summaries = servers.iter().map(|(_, measured)| Summary::of(measured));
    programs.iter().zip(summaries).map(|(program, summary)| Row { name: program.name, summary }).collect()
}

/// Prints one line of the table for each peer, and adds a line for each requirement to `requirements`; returns whether
/// all are met.
fn report(work: Work, rows: &[Row], requirements: &mut Vec<String>) -> bool {
    let Some((own, peers)) = rows.split_first() else { return true };
    let mut all_met = true;
    let mut require = |met: bool, what: String| {
        requirements.push(format!("{} {}: {what}", if met { "met   " } else { "MISSED" }, work.name()));
        all_met &= met;
    };
    for peer in peers {
        let ratio = own.summary.per_second / peer.summary.per_second;
        println!("| {} | {} | {} {} | {ratio:.2} |", work.name(), own.summary, peer.name, peer.summary);
        let required = match peer.name {
            "knot" => OVER_KNOT,
            "Outpost" => OVER_OUTPOST,
            _ => continue,
        };
        if work.is_webhook() {
            require(ratio >= required, format!("{ratio:.2} times {} (at least {required})", peer.name));
        }
    }
    if own.summary.lost > 0 {
        require(false, format!("svc lost {} deliveries", own.summary.lost));
    }
    all_met
}
