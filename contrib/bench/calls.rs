//! Latency and throughput of method calls through HTTP → server → agent → method server, compared with the parts alone.
//!
//! The method server is this program started with `--echo`. The baselines come from the same run: a round trip to the
//! same echo server over its own pipe, and an empty HTTP round trip (`GET /healthz`) to the same daemon.
//!
//! Run with `cargo bench --bench calls`; exits 1 if a requirement is missed.

mod support;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use support::{Connection, Daemon, percentile, requirement};

/// Sequential calls of one caller.
const CALLS: usize = 4000;
const CALLERS: usize = 64;
/// Calls of each of the concurrent callers per round.
const CALLS_EACH: usize = 400;
/// Rounds of concurrent callers; the median counts, because other load on the machine varies.
const ROUNDS: usize = 9;
/// Spaces and the methods each of them publishes.
const SPACES: usize = 10;
const METHODS: usize = 1000;

const CALL: &str = r#"{"jsonrpc":"2.0","method":"echo.0.0","params":{"query":"tea","limit":10},"id":1}"#;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--echo") {
        return echo();
    }
    let daemon = Daemon::start(&[("SVC_LIMITS_SPACES", "1000")]);
    let first = Space::start(&daemon, 0, 1);
    let (mut direct, mut empty, mut whole) = one_by_one(&daemon);
    let (direct, empty, whole) = (median(&mut direct), median(&mut empty), median(&mut whole));
    let added = whole.saturating_sub(direct + empty);
    println!(
        "p50 of one caller: call {whole:?}; echo alone {direct:?}; empty HTTP {empty:?}; on top of both {added:?}"
    );

    let Throughput { calls, pipe, route, ratio } = concurrent_throughput(&daemon);
    println!("{CALLERS} callers: {calls:.0} calls/s; echo alone {pipe:.0}/s; empty HTTP {route:.0}/s");

    let mut batch = batches(&daemon);
    let batch = median(&mut batch).as_secs_f64() / whole.as_secs_f64();

    drop(first);
    let _spaces: Vec<_> = (0..SPACES).map(|space| Space::start(&daemon, space, METHODS)).collect();
    let listing = list(&daemon, SPACES * METHODS);
    let among_many = median(&mut one_by_one(&daemon).2);
    let growth = among_many.as_secs_f64() / whole.as_secs_f64();
    println!("p50 of one caller among {} methods: {among_many:?}", SPACES * METHODS);

    let met = [
        requirement(
            "a call on top of its parts",
            added.as_secs_f64() * 1e6,
            " us",
            added <= Duration::from_micros(250),
            "at most 250 us",
        ),
        requirement("64 callers, of the slower part alone", ratio, "", ratio >= 0.5, "at least 0.5"),
        requirement("a batch of 100, in single calls", batch, "", batch < 20.0, "under 20"),
        requirement(
            "10,000 methods listed",
            listing.as_secs_f64() * 1e3,
            " ms",
            listing < Duration::from_millis(100),
            "under 100 ms",
        ),
        requirement(
            "a call among 10,000 methods, of one among 1",
            growth,
            "",
            growth < 1.5,
            "under 1.5: it does not grow",
        ),
    ];
    if met.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A space whose agent runs the echo server for its methods. Dropping it stops the agent.
struct Space {
    agent: Child,
}

impl Space {
    fn start(daemon: &Daemon, number: usize, methods: usize) -> Self {
        let mut connection = daemon.connect();
        let name = format!("bench-{number}-{methods}");
        let (status, made) = connection.request("POST", "/api/spaces", &json!({ "name": name }).to_string());
        assert_eq!(status, 201, "{made}");
        let made: Value = serde_json::from_str(made).expect("a space is JSON");
        let directory = daemon.directory.path().join(name);
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let file = directory.join("methods.toml");
        std::fs::write(&file, registration(number, methods)).expect("the temporary directory is writable");
        let agent = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["agent", "start", "--listen", "127.0.0.1:0", "--server", &format!("http://{}", daemon.address)])
            .args([Path::new("--data"), &directory.join("data"), Path::new("--methods-file"), &file])
            .env("SVC_AGENT_TOKEN", made["agent_token"].as_str().expect("it has a token"))
            .env("SVC_LOG_LEVEL", "error")
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let last = format!("/api/methods/echo.{number}.{}", methods - 1);
        let deadline = Instant::now() + Duration::from_secs(60);
        while connection.request("GET", &last, "").0 != 200 {
            assert!(Instant::now() < deadline, "{last} is not published");
            thread::sleep(Duration::from_millis(10));
        }
        Self { agent }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.agent.id().to_string()).status();
        let _ = self.agent.wait();
    }
}

fn registration(space: usize, methods: usize) -> String {
    let program = std::env::current_exe().expect("this program has a path");
    let mut text = format!("[server]\ncommand = {:?}\nargs = [\"--echo\"]\n", program.to_string_lossy());
    for method in 0..methods {
        text += &format!(
            "\n[[methods]]\nname = \"echo.{space}.{method}\"\nlocal_name = \"echo\"\ndescription = \"Returns its params\"\n\
             keywords = [\"echo\", \"bench\"]\nparams_schema = {{ type = \"object\", properties = {{ query = {{ type = \
             \"string\" }}, limit = {{ type = \"integer\" }} }}, required = [\"query\"] }}\n"
        );
    }
    text
}

/// Latencies of the three round trips (echo, empty HTTP, call), alternating so that other load affects them alike.
fn one_by_one(daemon: &Daemon) -> (Vec<Duration>, Vec<Duration>, Vec<Duration>) {
    let mut pipe = Pipe::start();
    let mut connection = daemon.connect();
    let (mut direct, mut empty, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..CALLS + 200 {
        let times = [
            timed(|| pipe.round_trip()),
            timed(|| assert_eq!(connection.request("GET", "/healthz", "").0, 200)),
            timed(|| call(&mut connection)),
        ];
        // The first turns warm up.
        if turn >= 200 {
            direct.push(times[0]);
            empty.push(times[1]);
            whole.push(times[2]);
        }
    }
    (direct, empty, whole)
}

fn call(connection: &mut Connection) {
    let (status, answer) = connection.request("POST", "/api/methods/call", CALL);
    assert!(status == 200 && answer.contains("\"result\""), "{status} {answer}");
}

/// Requests per second of concurrent callers: whole calls, the echo server over its pipe, and an empty HTTP route.
struct Throughput {
    calls: f64,
    pipe: f64,
    route: f64,
    /// `calls` relative to the slower of the two parts.
    ratio: f64,
}

/// The median of several rounds; the parts and the whole alternate within a round.
fn concurrent_throughput(daemon: &Daemon) -> Throughput {
    let round = |_| {
        let pipe = pipe_throughput();
        let route = throughput(daemon, "GET", "/healthz", "");
        let calls = throughput(daemon, "POST", "/api/methods/call", CALL);
        Throughput { calls, pipe, route, ratio: calls / pipe.min(route) }
    };
    let mut rounds: Vec<Throughput> = (0..ROUNDS).map(round).collect();
    rounds.sort_by(|one, two| one.ratio.total_cmp(&two.ratio));
    rounds.swap_remove(ROUNDS / 2)
}

/// Requests per second of concurrent callers to one route.
fn throughput(daemon: &Daemon, method: &str, path: &str, body: &str) -> f64 {
    let start = Barrier::new(CALLERS + 1);
    let took = thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut connection = daemon.connect();
                connection.request(method, path, body);
                start.wait();
                for _ in 0..CALLS_EACH {
                    assert_eq!(connection.request(method, path, body).0, 200);
                }
                start.wait();
            });
        }
        start.wait();
        timed(|| {
            start.wait();
        })
    });
    (CALLERS * CALLS_EACH) as f64 / took.as_secs_f64()
}

/// Requests per second of the echo server over its pipe, with one request in flight per caller.
fn pipe_throughput() -> f64 {
    let mut pipe = Pipe::start();
    pipe.round_trip();
    let took = timed(|| {
        for _ in 0..CALLS_EACH {
            for _ in 0..CALLERS {
                pipe.send();
            }
            pipe.input.flush().expect("the echo server reads");
            for _ in 0..CALLERS {
                pipe.receive();
            }
        }
    });
    (CALLERS * CALLS_EACH) as f64 / took.as_secs_f64()
}

fn batches(daemon: &Daemon) -> Vec<Duration> {
    let batch = format!("[{}]", vec![CALL; 100].join(","));
    let mut connection = daemon.connect();
    let each = |_| {
        timed(|| {
            let (status, answer) = connection.request("POST", "/api/methods/call", &batch);
            assert!(status == 200 && answer.matches("\"result\"").count() == 100, "{status} {answer}");
        })
    };
    (0..200).map(each).collect()
}

fn list(daemon: &Daemon, expected: usize) -> Duration {
    let mut connection = daemon.connect();
    let mut times: Vec<_> = (0..10)
        .map(|_| {
            timed(|| {
                let (status, answer) = connection.request("GET", "/api/methods", "");
                assert!(status == 200 && answer.matches("\"provider_count\"").count() == expected, "{status}");
            })
        })
        .collect();
    median(&mut times)
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    percentile(times, 50)
}

/// The echo server as a child process, over its stdin and stdout.
struct Pipe {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Pipe {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(program)
            .arg("--echo")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let input = BufWriter::new(child.stdin.take().expect("it is piped"));
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, input, output, line: String::new() }
    }

    fn send(&mut self) {
        self.input
            .write_all(CALL.as_bytes())
            .and_then(|()| self.input.write_all(b"\n"))
            .expect("the echo server reads");
    }

    fn receive(&mut self) {
        self.line.clear();
        self.output.read_line(&mut self.line).expect("the echo server answers");
    }

    fn round_trip(&mut self) {
        self.send();
        self.input.flush().expect("the echo server reads");
        self.receive();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A method server that returns the params of every request.
fn echo() -> ExitCode {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let mut input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        let request: Request<'_> = serde_json::from_str(&line).expect("the agent speaks JSON");
        if let Some(id) = request.id {
            let params = request.params.map_or("null", RawValue::get);
            writeln!(output, r#"{{"jsonrpc":"2.0","result":{params},"id":{id}}}"#).expect("the agent reads");
        }
        line.clear();
        // Responses to all buffered requests are written together.
        if input.buffer().is_empty() {
            output.flush().expect("the agent reads");
        }
    }
    ExitCode::SUCCESS
}
