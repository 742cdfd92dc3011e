//! `process`: other programs of the space. `run{cmd, args, stdin, cwd, env, timeout}` waits for one and gives
//! `{code, signal, stdout, stderr}`; `spawn{cmd, args, cwd, env, output}` starts one that goes on by itself, and gives
//! its number.
//!
//! What is waited for is ended with all of its group when the wait is: a timeout, a limit of the run, or our own end.

use super::{Maker, Raise, fs::located, seconds, space::surroundings, text};
use crate::platform::process_group::{OnParentDeath, ProcessGroup};
use mlua::{Lua, LuaString, Table, Value};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStdin, Command},
};

/// The most that is kept of each stream.
const MAX_OUTPUT: usize = 16 << 20;

/// The most bytes of a word, of which there may be [`MAX_WORDS`].
const MAX_WORD: usize = 128 << 10;
const MAX_WORDS: usize = 10_000;

/// What to start.
struct Order {
    cmd: OsString,
    args: Vec<OsString>,
    stdin: Option<Vec<u8>>,
    cwd: PathBuf,
    env: BTreeMap<OsString, OsString>,
    timeout: Option<Duration>,
    output: Option<PathBuf>,
}

/// What came of it.
struct Ended {
    status: std::process::ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

pub(super) fn module(maker: &Maker<'_>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let run = maker.waiting("process.run", |lua, order: Table| async move {
        let order = ordered(&lua, &order, &["cmd", "args", "stdin", "cwd", "env", "timeout"])?;
        let (name, timeout) = (order.cmd.to_string_lossy().into_owned(), order.timeout);
        let ended = match timeout {
            None => waited_for(order).await,
            Some(timeout) => match tokio::time::timeout(timeout, waited_for(order)).await {
                Ok(ended) => ended,
                Err(_) => {
                    Err(Raise::Message(format!("`{name}` took longer than {}", crate::platform::config::Span(timeout))))
                }
            },
        }?;
        let table = lua.create_table()?;
        table.raw_set("code", ended.status.code())?;
        table.raw_set("signal", ended.status.signal())?;
        table.raw_set("stdout", lua.create_string(ended.stdout)?)?;
        table.raw_set("stderr", lua.create_string(ended.stderr)?)?;
        Ok(table)
    })?;
    module.raw_set("run", run)?;
    let spawn = maker.waiting("process.spawn", |lua, order: Table| async move {
        let order = ordered(&lua, &order, &["cmd", "args", "cwd", "env", "output"])?;
        let output = || match &order.output {
            None => Ok(Stdio::null()),
            Some(path) => {
                let file = OpenOptions::new().append(true).create(true).open(path);
                file.map(Stdio::from).map_err(|error| Raise::Message(format!("{}: {error}", path.display())))
            }
        };
        let mut command = command(&order);
        command.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
        // SAFETY: it only makes a system call, which is all that is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        // Once dropped, it is still waited for, so that it does not stay behind as a zombie.
        check_directory(&order)?;
        let child = command.spawn().map_err(|error| not_started(&order, &error))?;
        Ok(child.id())
    })?;
    module.raw_set("spawn", spawn)?;
    Ok(module)
}

/// Runs it to its end.
async fn waited_for(mut order: Order) -> Result<Ended, Raise> {
    let mut command = command(&order);
    let stdin = if order.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    check_directory(&order)?;
    let started = ProcessGroup::spawn(command, OnParentDeath::Kill).await;
    let mut process = started.map_err(|error| not_started(&order, &error))?;
    let (stdin, stdout, stderr) = (process.take_stdin(), process.take_stdout(), process.take_stderr());
    let (_, stdout, stderr, status) = tokio::join!(
        fed(stdin, order.stdin.take().unwrap_or_default()),
        collected(stdout.expect("it was asked for")),
        collected(stderr.expect("it was asked for")),
        process.exited(),
    );
    let failed = |error: io::Error| Raise::Message(format!("`{}`: {error}", order.cmd.display()));
    let ended =
        Ended { status: status.map_err(failed)?, stdout: stdout.map_err(failed)?, stderr: stderr.map_err(failed)? };
    process.release();
    Ok(ended)
}

fn command(order: &Order) -> Command {
    // As a shell has it: with a slash it is a path from where it runs, without it is looked for.
    let mut command = match order.cmd.as_bytes().contains(&b'/') {
        true => Command::new(order.cwd.join(&order.cmd)),
        false => Command::new(&order.cmd),
    };
    command.args(&order.args).current_dir(&order.cwd).env_clear().envs(&order.env);
    command
}

fn check_directory(order: &Order) -> Result<(), Raise> {
    if !order.cwd.is_dir() {
        return Err(Raise::Message(format!("there is no directory {}", order.cwd.display())));
    }
    Ok(())
}

fn not_started(order: &Order, error: &io::Error) -> Raise {
    Raise::Message(format!("cannot start `{}`: {error}", order.cmd.display()))
}

/// Writes all of it. Whoever does not want to read on has its reasons.
async fn fed(stdin: Option<ChildStdin>, text: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&text).await;
    }
}

/// Reads to the end, of which more than [`MAX_OUTPUT`] is too much.
async fn collected(stream: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    stream.take(MAX_OUTPUT as u64 + 1).read_to_end(&mut output).await?;
    if output.len() > MAX_OUTPUT {
        return Err(io::Error::other(format!("it printed more than {MAX_OUTPUT} bytes")));
    }
    Ok(output)
}

/// Reads what a program wants started. A field that means nothing is said to.
fn ordered(lua: &Lua, table: &Table, known: &[&str]) -> Result<Order, Raise> {
    let around = surroundings(lua)?;
    let mut order = Order {
        cmd: OsString::new(),
        args: Vec::new(),
        stdin: None,
        cwd: around.directory.clone(),
        env: around.environment.clone(),
        timeout: None,
        output: None,
    };
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        let name = match &name {
            Value::String(name) => name.to_string_lossy(),
            _ => return Err(Raise::Message("it takes a table of names, such as { cmd = \"ls\" }".to_owned())),
        };
        if !known.contains(&name.as_str()) {
            return Err(Raise::Message(format!("`{name}` means nothing here: it takes {}", known.join(", "))));
        }
        let wrong = |kind: &str| Raise::Message(format!("`{name}` must be {kind}"));
        match (name.as_str(), value) {
            ("cmd", Value::String(cmd)) => order.cmd = word(&cmd, "cmd")?,
            ("args", Value::Table(args)) => {
                for arg in args.sequence_values::<LuaString>() {
                    order.args.push(word(&arg?, "argument")?);
                    if order.args.len() > MAX_WORDS {
                        return Err(Raise::Message(format!("at most {MAX_WORDS} arguments")));
                    }
                }
            }
            ("stdin", Value::String(stdin)) => order.stdin = Some(stdin.as_bytes().to_vec()),
            ("cwd", Value::String(cwd)) => order.cwd = located(lua, &cwd)?,
            ("output", Value::String(path)) => order.output = Some(located(lua, &path)?),
            ("env", Value::Table(env)) => {
                for pair in env.pairs::<LuaString, LuaString>() {
                    let (name, value) = pair?;
                    order.env.insert(variable(&name)?, word(&value, "variable")?);
                }
            }
            ("timeout", Value::Integer(span)) => order.timeout = Some(seconds(span as f64, "`timeout`")?),
            ("timeout", Value::Number(span)) => order.timeout = Some(seconds(span, "`timeout`")?),
            ("cmd" | "stdin" | "cwd" | "output", _) => return Err(wrong("a string")),
            ("args", _) => return Err(wrong("a list of strings")),
            ("env", _) => return Err(wrong("a table of strings")),
            _ => return Err(wrong("a number of seconds")),
        }
    }
    if order.cmd.is_empty() {
        return Err(Raise::Message("`cmd` is missing".to_owned()));
    }
    Ok(order)
}

fn word(word: &LuaString, what: &str) -> Result<OsString, Raise> {
    let word = word.as_bytes();
    if word.contains(&0) {
        return Err(Raise::Message(format!("the {what} has a zero byte in it")));
    }
    Ok(OsStr::from_bytes(super::sized(&word, what, MAX_WORD)?).to_owned())
}

fn variable(name: &LuaString) -> Result<OsString, Raise> {
    let bytes = name.as_bytes();
    let name = text(&bytes, "variable", MAX_WORD)?;
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(Raise::Message(format!("`{name}` is no name of a variable")));
    }
    Ok(name.into())
}
