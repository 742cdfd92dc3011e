//! The same work on `svc` and on its peers, side by side: knot (webhooks, events in memory) and NATS JetStream (durable
//! publishing).
//!
//! A peer takes part if its variable names its binary: `SVC_PEER_KNOT`, `SVC_PEER_NATS`; `SVC_PEER_SVC` replaces the `svc`
//! that cargo built. For each work all servers start on loopback with empty temporary directories, and the rounds alternate
//! between them, so that a disturbance of the machine meets all alike. The result is the median of the rounds, with the
//! processor time that the server and its child processes took for each event or delivery.
//!
//! Run with `cargo bench --bench peers`; a number sets the rounds, a word selects the works whose name contains it. Exits
//! 1 if a requirement is missed for a peer that ran.

#[path = "../counting_receiver.rs"]
mod counting_receiver;
mod http_client;
mod knot;
mod nats;
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

type Start = fn(&Path) -> Box<dyn Server>;

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

/// `svc`, and the peers whose variable is set; a line for each that is not goes to `skipped`.
fn programs(skipped: &mut Vec<String>) -> Vec<Program> {
    let own = binary("SVC_PEER_SVC").unwrap_or_else(|| env!("CARGO_BIN_EXE_svc").into());
    let mut programs =
        vec![Program { name: "svc", binary: own, start: |binary| Box::new(svc_server::Svc::start(binary)) }];
    let peers: [(_, _, Start); 2] = [
        ("knot", "SVC_PEER_KNOT", |binary| Box::new(knot::Knot::start(binary))),
        ("JetStream", "SVC_PEER_NATS", |binary| Box::new(nats::JetStream::start(binary))),
    ];
    for (name, variable, start) in peers {
        match binary(variable) {
            Some(binary) => programs.push(Program { name, binary, start }),
            None => skipped.push(format!("skipped {name}: set {variable} to the path of its binary")),
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
        let server = (program.start)(&program.binary);
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

/// Prints one line of the table for each peer, and adds a line for each requirement to `requirements`; returns whether all
/// are met.
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
        if peer.name == "knot" && work.is_webhook() {
            require(ratio >= OVER_KNOT, format!("{ratio:.2} times knot (at least {OVER_KNOT})"));
        }
    }
    if own.summary.lost > 0 {
        require(false, format!("svc lost {} deliveries", own.summary.lost));
    }
    all_met
}
