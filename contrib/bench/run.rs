//! Throughput of `svc run --json-rpc` with an echo handler, on one core, over a pipe; each request has a fresh
//! evaluator.
//!
//! The baselines come from the same run: a hand-written loop in plain Luau with one Lua state for all requests, and one
//! with a new Lua state for each. Both are this program, started with `--shared` and `--fresh`; neither has limits, a
//! sandbox or threads.
//!
//! Run with `cargo bench --bench run`; exits 1 if the requirement is missed.

mod support;

use mlua::{Function, Lua, Table, Value as LuaValue};
use serde_json::{Map, Value, json};
use std::{
    fs,
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};
use support::{requirement, temp_dir};

/// Measured requests, and the warm-up requests before them.
const REQUESTS: usize = 50_000;
const WARM_UP: usize = 5_000;

/// Requests per second.
const REQUIRED: f64 = 5_000.0;

const SETUP: &str = r#"runtime.jsonrpc.method("echo", "handlers.echo")"#;
const HANDLERS: &str = "local M = {}\nfunction M.echo(params) return params end\nreturn M\n";

/// The result of one measurement.
struct Measurement {
    /// Requests per second.
    rate: f64,
    /// Processor time per request.
    cpu: Duration,
}

fn main() -> ExitCode {
    let has_flag = |flag: &str| std::env::args().any(|argument| argument == flag);
    if has_flag("--shared") {
        return serve(&echo_handler());
    }
    if has_flag("--fresh") {
        return serve(&|params| echo_handler()(params));
    }
    let directory = temp_dir();
    let directory = directory.path();
    fs::write(directory.join("setup.lua"), SETUP).expect("the temporary directory is writable");
    fs::write(directory.join("handlers.lua"), HANDLERS).expect("the temporary directory is writable");
    let svc = env!("CARGO_BIN_EXE_svc");
    let own = std::env::current_exe().expect("a program has a path");
    let isolated = measure(directory, Path::new(svc), &["run", "--json-rpc", "--threads", "1", "setup.lua"]);
    let shared = measure(directory, &own, &["--shared"]);
    let fresh = measure(directory, &own, &["--fresh"]);
    for (what, measurement) in
        [("fresh evaluator", &isolated), ("one shared evaluator", &shared), ("new Lua state", &fresh)]
    {
        println!("{what:<22} {:>8.0} requests/s, {:>6.1?} of processor time each", measurement.rate, measurement.cpu);
    }
    println!("of the rate of one shared evaluator: {:.2}", isolated.rate / shared.rate);
    println!("of the rate of a new Lua state each: {:.2}", isolated.rate / fresh.rate);
    let met = requirement(
        "echo requests on one core, each in its fresh evaluator",
        isolated.rate,
        "/s",
        isolated.rate >= REQUIRED,
        "at least 5,000/s",
    );
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sends requests to a program that is pinned to one core, as fast as it reads them, and waits for all responses.
fn measure(directory: &Path, program: &Path, arguments: &[&str]) -> Measurement {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: the closure only makes a system call on its own memory, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let mut cores: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut cores);
            match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cores) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    let mut child = command.spawn().expect("it starts");
    let mut stdin = BufWriter::new(child.stdin.take().expect("it is piped"));
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut exchange = |count: usize| {
        thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..count {
                    let request = json!({
                        "jsonrpc": "2.0", "method": "echo", "params": { "query": "tea", "limit": 10 }, "id": id
                    });
                    writeln!(stdin, "{request}").expect("the program reads");
                }
                stdin.flush().expect("the program reads");
            });
            for _ in 0..count {
                let answer = answers.next().expect("the program answers").expect("responses are text");
                assert!(answer.contains("\"tea\""), "{answer}");
            }
        });
    };
    exchange(WARM_UP);
    let (begun, before) = (Instant::now(), processor_time(child.id()));
    exchange(REQUESTS);
    let (took, used) = (begun.elapsed(), processor_time(child.id()) - before);
    drop(stdin);
    let _ = child.wait();
    Measurement { rate: REQUESTS as f64 / took.as_secs_f64(), cpu: used / REQUESTS as u32 }
}

/// Processor time that a process has used so far.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, fields) = stat.rsplit_once(')').expect("Linux reports it");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    // SAFETY: `sysconf` has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}

/// Answers requests one after another on the thread that reads them.
fn serve(handle: &dyn Fn(&Value) -> Value) -> ExitCode {
    let (input, mut output) = (BufReader::new(io::stdin()), BufWriter::new(io::stdout()));
    let mut input = input;
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        let request: Value = serde_json::from_str(&line).expect("the benchmark sends JSON");
        let answer = json!({ "jsonrpc": "2.0", "result": handle(&request["params"]), "id": request["id"] });
        writeln!(output, "{answer}").expect("the benchmark reads");
        // Flushes when no input is buffered, as `svc run` does.
        if input.buffer().is_empty() {
            output.flush().expect("the benchmark reads");
        }
        line.clear();
    }
    ExitCode::SUCCESS
}

/// The echo handler in a new Lua state.
fn echo_handler() -> impl Fn(&Value) -> Value {
    let lua = Lua::new();
    let library: Table = lua.load(HANDLERS).eval().expect("the library compiles");
    let echo: Function = library.get("echo").expect("the library has it");
    move |params| {
        let params = into_lua(&lua, params);
        from_lua(&echo.call(params).expect("the handler returns"))
    }
}

fn into_lua(lua: &Lua, value: &Value) -> LuaValue {
    match value {
        Value::Number(number) => LuaValue::Number(number.as_f64().expect("the benchmark sends small numbers")),
        Value::String(text) => LuaValue::String(lua.create_string(text).expect("there is memory")),
        Value::Object(fields) => {
            let table = lua.create_table().expect("there is memory");
            for (name, value) in fields {
                table.raw_set(name.as_str(), into_lua(lua, value)).expect("there is memory");
            }
            LuaValue::Table(table)
        }
        _ => LuaValue::Nil,
    }
}

fn from_lua(value: &LuaValue) -> Value {
    match value {
        LuaValue::Integer(number) => json!(number),
        LuaValue::Number(number) => json!(number),
        LuaValue::String(text) => json!(text.to_string_lossy()),
        LuaValue::Table(table) => {
            let fields = table.pairs::<String, LuaValue>().map(|pair| {
                let (name, value) = pair.expect("the names are text");
                (name, from_lua(&value))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}
