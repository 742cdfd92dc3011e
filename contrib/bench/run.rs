//! `svc run --json-rpc` with an echo, on one core, from a pipe: each request in its fresh evaluator.
//!
//! Yardsticks, from the same run: the same loop by hand in plain Luau, with one evaluator that all requests share, and
//! with a new Lua state for each. Both are this program again, with `--shared` and `--fresh`; neither has limits, a
//! sandbox or threads.
//!
//! `cargo bench --bench run`; exits 1 if the promise is missed.

#[path = "../../benches/support/mod.rs"]
mod support;

use mlua::{Function, Lua, Table, Value as Lua5};
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
use support::{promise, scratch};

/// Requests that are measured, and those before them that warm up.
const REQUESTS: usize = 50_000;
const WARM_UP: usize = 5_000;

/// What the issue asks for, per second.
const PROMISED: f64 = 5_000.0;

const SETUP: &str = r#"runtime.jsonrpc.method("echo", "handlers.echo")"#;
const HANDLERS: &str = "local M = {}\nfunction M.echo(params) return params end\nreturn M\n";

/// How many requests a second there were, and how much processor time one took.
struct Pace {
    rate: f64,
    cpu: Duration,
}

fn main() -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    if asked("--shared") {
        return by_hand(&one_for_all());
    }
    if asked("--fresh") {
        return by_hand(&|params| one_for_all()(params));
    }
    let directory = scratch();
    fs::create_dir_all(&directory).expect("there is room for two files");
    fs::write(directory.join("setup.lua"), SETUP).expect("it can be written");
    fs::write(directory.join("handlers.lua"), HANDLERS).expect("it can be written");
    let ours = env!("CARGO_BIN_EXE_svc");
    let own = std::env::current_exe().expect("a program has a path");
    let isolated = measured(&directory, Path::new(ours), &["run", "--json-rpc", "--threads", "1", "setup.lua"]);
    let shared = measured(&directory, &own, &["--shared"]);
    let fresh = measured(&directory, &own, &["--fresh"]);
    let _ = fs::remove_dir_all(&directory);
    for (what, pace) in [("fresh evaluator", &isolated), ("one shared evaluator", &shared), ("new Lua state", &fresh)] {
        println!("{what:<22} {:>8.0} requests/s, {:>6.1?} of processor time each", pace.rate, pace.cpu);
    }
    println!("of the rate of one shared evaluator: {:.2}", isolated.rate / shared.rate);
    println!("of the rate of a new Lua state each: {:.2}", isolated.rate / fresh.rate);
    let kept = promise(
        "echo requests on one core, each in its fresh evaluator",
        isolated.rate,
        "/s",
        isolated.rate >= PROMISED,
        "at least 5,000/s",
    );
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sends requests as fast as they are taken, and waits for all answers. The program has one core to itself.
fn measured(directory: &Path, program: &Path, arguments: &[&str]) -> Pace {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: it only makes a system call on memory of its own, which is all that is allowed between fork and exec.
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
                    writeln!(stdin, "{request}").expect("it reads");
                }
                stdin.flush().expect("it reads");
            });
            for _ in 0..count {
                let answer = answers.next().expect("it answers").expect("it writes text");
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
    Pace { rate: REQUESTS as f64 / took.as_secs_f64(), cpu: used / REQUESTS as u32 }
}

/// What a process has used so far.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("Linux tells");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    // SAFETY: it only answers a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}

/// Answers requests one after the other, on the thread that reads them.
fn by_hand(handle: &dyn Fn(&Value) -> Value) -> ExitCode {
    let (input, mut output) = (BufReader::new(io::stdin()), BufWriter::new(io::stdout()));
    let mut input = input;
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|read| read > 0) {
        let request: Value = serde_json::from_str(&line).expect("the driver sends JSON");
        let answer = json!({ "jsonrpc": "2.0", "result": handle(&request["params"]), "id": request["id"] });
        writeln!(output, "{answer}").expect("the driver reads");
        // As ours does: at the latest when there is nothing to read for now.
        if input.buffer().is_empty() {
            output.flush().expect("the driver reads");
        }
        line.clear();
    }
    ExitCode::SUCCESS
}

/// The handler in a Lua state of its own.
fn one_for_all() -> impl Fn(&Value) -> Value {
    let lua = Lua::new();
    let library: Table = lua.load(HANDLERS).eval().expect("it compiles");
    let echo: Function = library.get("echo").expect("it is there");
    move |params| {
        let params = into_lua(&lua, params);
        from_lua(&echo.call(params).expect("it returns"))
    }
}

fn into_lua(lua: &Lua, value: &Value) -> Lua5 {
    match value {
        Value::Number(number) => Lua5::Number(number.as_f64().expect("the driver sends small ones")),
        Value::String(text) => Lua5::String(lua.create_string(text).expect("there is memory")),
        Value::Object(fields) => {
            let table = lua.create_table().expect("there is memory");
            for (name, value) in fields {
                table.raw_set(name.as_str(), into_lua(lua, value)).expect("there is memory");
            }
            Lua5::Table(table)
        }
        _ => Lua5::Nil,
    }
}

fn from_lua(value: &Lua5) -> Value {
    match value {
        Lua5::Integer(number) => json!(number),
        Lua5::Number(number) => json!(number),
        Lua5::String(text) => json!(text.to_string_lossy()),
        Lua5::Table(table) => {
            let fields = table.pairs::<String, Lua5>().map(|pair| {
                let (name, value) = pair.expect("the names are text");
                (name, from_lua(&value))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}
