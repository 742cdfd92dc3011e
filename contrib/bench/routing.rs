//! Time to match an event against 100 sinks, against 100,000 sinks of 10,000 owners, and by a linear scan of the
//! 100,000. All three find the same sinks and alternate in one run, so that the ratios are comparable.
//!
//! Run with `cargo bench --bench routing`; exits 1 if a required ratio is missed.

mod median;

use median::median;
use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};
use svc::{
    model::{event::EventType, id::UserId, owner::Owner, pattern::Patterns},
    routing::matcher::Trie,
};

const ROUNDS: usize = 21;

/// A sink reduced to what matching needs.
struct Listener {
    patterns: Patterns,
    owner: Owner,
    id: u32,
}

fn main() -> ExitCode {
    let users: Vec<UserId> = (0..10_000).map(|_| UserId::new()).collect();
    let few = listeners(&users[..10], 100);
    let many = listeners(&users, 100_000);
    let (small, large) = (trie(&few), trie(&many));
    let kind: EventType = "custom.app3.deploy.done".parse().expect("a valid type");
    let user = users[0];

    let found = large.matches(kind.segments(), user);
    assert_eq!(found.len(), 4, "three sinks of the user and one global sink match");
    assert_eq!(found, small.matches(kind.segments(), user));
    assert_eq!(found, scan(&many, kind.as_str(), user));

    let (mut few_times, mut many_times, mut scan_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        few_times.push(time(20_000, || small.matches(black_box(&kind).segments(), black_box(user)).len()));
        many_times.push(time(20_000, || large.matches(black_box(&kind).segments(), black_box(user)).len()));
        scan_times.push(time(5, || scan(black_box(&many), black_box(&kind).as_str(), black_box(user)).len()));
    }
    let (few, many, scan) = (median(few_times), median(many_times), median(scan_times));
    let growth = many.as_secs_f64() / few.as_secs_f64();
    let gain = scan.as_secs_f64() / many.as_secs_f64();
    println!("match against     100 sinks: {few:?}");
    println!("match against 100,000 sinks: {many:?}   {growth:.2} times as much (at most 2)");
    println!("scan over     100,000 sinks: {scan:?}   {gain:.0} times as much (at least 1,000)");
    if growth <= 2.0 && gain >= 1000.0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Ten sinks for each user, with the same patterns for every user, and one global sink; ids count up.
fn listeners(users: &[UserId], count: usize) -> Vec<Listener> {
    (0..count)
        .map(|n| {
            let patterns = match n % 10 {
                0 => "custom.app3.*".to_owned(),
                1 => "*".to_owned(),
                2 => "custom.app3.deploy.done, space.*".to_owned(),
                k => format!("custom.app{k}.x{}.*", n % 97),
            };
            let global = n == 3;
            Listener {
                patterns: if global { "custom.*".to_owned() } else { patterns }.parse().expect("a valid pattern"),
                owner: if global { Owner::Global } else { Owner::User(users[n / 10 % users.len()]) },
                id: n as u32,
            }
        })
        .collect()
}

fn trie(listeners: &[Listener]) -> Trie<u32> {
    let mut trie = Trie::new();
    for listener in listeners {
        trie.insert(&listener.patterns, listener.owner, &listener.id);
    }
    trie
}

/// The baseline: a linear scan that compares owners first, which is cheaper than patterns.
fn scan(listeners: &[Listener], kind: &str, user: UserId) -> Vec<u32> {
    let receives = |listener: &&Listener| listener.owner.receives_events_of(user) && listener.patterns.matches(kind);
    listeners.iter().filter(receives).map(|listener| listener.id).collect()
}

fn time(times: u32, mut work: impl FnMut() -> usize) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        black_box(work());
    }
    start.elapsed() / times
}
