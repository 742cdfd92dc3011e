//! `process`, child processes of a space's program: `run{cmd, args, stdin, cwd, env, timeout}` waits for the process
//! and returns `{code, signal, stdout, stderr}`; `spawn{cmd, args, cwd, env, output}` starts one that outlives the run,
//! and returns its process id. Also `os.getenv(name)`.
//!
//! A process that `run` waits for is killed with its whole process group when the wait ends: by a timeout, a limit of
//! the run, or the end of the host.

use super::{
    arguments::{bounded_bytes, seconds, text},
    function_builder::FunctionBuilder,
    library_error::LibraryError,
    run_context::{program_context, resolve_path},
};
use crate::{
    model::units::Span,
    platform::process_group::{OnParentDeath, ProcessGroup, spawn_detached},
};
use mlua::{Lua, LuaString, Table, Value};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        process::ExitStatusExt as _,
    },
    path::PathBuf,
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStdin, Command},
};

/// The most bytes read of each output stream.
const MAX_OUTPUT: usize = 16 << 20;

/// The longest argument or variable, in bytes.
const MAX_ARGUMENT: usize = 128 << 10;

/// The most arguments.
const MAX_ARGUMENTS: usize = 10_000;

/// The process to start, as a program describes it.
struct ProcessSpec {
    cmd: OsString,
    args: Vec<OsString>,
    stdin: Option<Vec<u8>>,
    cwd: PathBuf,
    env: BTreeMap<OsString, OsString>,
    timeout: Option<Duration>,
    output: Option<PathBuf>,
}

/// The end of a process that was waited for.
struct FinishedProcess {
    status: std::process::ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

pub(super) fn library(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let run = builder.async_function("process.run", |lua, spec: Table| async move {
        let spec = read_spec(&lua, &spec, &["cmd", "args", "stdin", "cwd", "env", "timeout"])?;
        let (name, timeout) = (spec.cmd.to_string_lossy().into_owned(), spec.timeout);
        let ended = match timeout {
            None => run_to_end(spec).await,
            Some(timeout) => match tokio::time::timeout(timeout, run_to_end(spec)).await {
                Ok(ended) => ended,
                Err(_) => Err(LibraryError::Message(format!("`{name}` took longer than {}", Span(timeout)))),
            },
        }?;
        let table = lua.create_table()?;
        table.raw_set("code", ended.status.code())?;
        table.raw_set("signal", ended.status.signal())?;
        table.raw_set("stdout", lua.create_string(ended.stdout)?)?;
        table.raw_set("stderr", lua.create_string(ended.stderr)?)?;
        Ok(table)
    })?;
    library.raw_set("run", run)?;
    let spawn = builder.async_function("process.spawn", |lua, spec: Table| async move {
        let spec = read_spec(&lua, &spec, &["cmd", "args", "cwd", "env", "output"])?;
        let output = || match &spec.output {
            None => Ok(Stdio::null()),
            Some(path) => {
                let file = OpenOptions::new().append(true).create(true).open(path);
                file.map(Stdio::from).map_err(|error| LibraryError::Message(format!("{}: {error}", path.display())))
            }
        };
        let mut command = command(&spec);
        command.stdin(Stdio::null()).stdout(output()?).stderr(output()?);
        check_directory(&spec)?;
        spawn_detached(command).map_err(|error| not_started(&spec, &error))
    })?;
    library.raw_set("spawn", spawn)?;
    Ok(library)
}

/// `os.getenv(name)`.
pub(super) fn os(builder: &FunctionBuilder<'_>) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let getenv = builder.function("os.getenv", |lua, name: LuaString| {
        let context = program_context(lua)?;
        let value = context.environment.get(OsStr::from_bytes(&name.as_bytes()));
        Ok(value.map(|value| lua.create_string(value.clone().into_vec())).transpose()?)
    })?;
    library.raw_set("getenv", getenv)?;
    Ok(library)
}

/// Runs a process and waits for its end.
async fn run_to_end(mut spec: ProcessSpec) -> Result<FinishedProcess, LibraryError> {
    let mut command = command(&spec);
    let stdin = if spec.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    check_directory(&spec)?;
    let started = ProcessGroup::spawn(command, OnParentDeath::Kill).await;
    let mut process = started.map_err(|error| not_started(&spec, &error))?;
    let (stdin, stdout, stderr) = (process.take_stdin(), process.take_stdout(), process.take_stderr());
    let (_, stdout, stderr, status) = tokio::join!(
        write_stdin(stdin, spec.stdin.take().unwrap_or_default()),
        read_output(stdout.expect("it was asked for")),
        read_output(stderr.expect("it was asked for")),
        process.exited(),
    );
    let failed = |error: io::Error| LibraryError::Message(format!("`{}`: {error}", spec.cmd.display()));
    let ended = FinishedProcess {
        status: status.map_err(failed)?,
        stdout: stdout.map_err(failed)?,
        stderr: stderr.map_err(failed)?,
    };
    process.release();
    Ok(ended)
}

fn command(spec: &ProcessSpec) -> Command {
    // The shell's rule: a name with a slash is a path from the working directory, any other is looked up in PATH.
    let mut command = match spec.cmd.as_bytes().contains(&b'/') {
        true => Command::new(spec.cwd.join(&spec.cmd)),
        false => Command::new(&spec.cmd),
    };
    command.args(&spec.args).current_dir(&spec.cwd).env_clear().envs(&spec.env);
    command
}

fn check_directory(spec: &ProcessSpec) -> Result<(), LibraryError> {
    if !spec.cwd.is_dir() {
        return Err(LibraryError::Message(format!("there is no directory {}", spec.cwd.display())));
    }
    Ok(())
}

fn not_started(spec: &ProcessSpec, error: &io::Error) -> LibraryError {
    LibraryError::Message(format!("cannot start `{}`: {error}", spec.cmd.display()))
}

/// Writes the process's stdin. A process that does not read all of it is not an error.
async fn write_stdin(stdin: Option<ChildStdin>, text: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&text).await;
    }
}

/// Reads a stream to its end. More than [`MAX_OUTPUT`] bytes are an error.
async fn read_output(stream: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    stream.take(MAX_OUTPUT as u64 + 1).read_to_end(&mut output).await?;
    if output.len() > MAX_OUTPUT {
        return Err(io::Error::other(format!("it printed more than {MAX_OUTPUT} bytes")));
    }
    Ok(output)
}

/// Reads the table that describes a process. An unknown field is an error.
fn read_spec(lua: &Lua, table: &Table, known: &[&str]) -> Result<ProcessSpec, LibraryError> {
    let context = program_context(lua)?;
    let mut spec = ProcessSpec {
        cmd: OsString::new(),
        args: Vec::new(),
        stdin: None,
        cwd: context.directory.clone(),
        env: context.environment.clone(),
        timeout: None,
        output: None,
    };
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair?;
        let name = match &name {
            Value::String(name) => name.to_string_lossy(),
            _ => return Err(LibraryError::Message("it takes a table of names, such as { cmd = \"ls\" }".to_owned())),
        };
        if !known.contains(&name.as_str()) {
            return Err(LibraryError::Message(format!("`{name}` means nothing here: it takes {}", known.join(", "))));
        }
        let wrong = |kind: &str| LibraryError::Message(format!("`{name}` must be {kind}"));
        match (name.as_str(), value) {
            ("cmd", Value::String(cmd)) => spec.cmd = argument(&cmd, "cmd")?,
            ("args", Value::Table(args)) => {
                for arg in args.sequence_values::<LuaString>() {
                    spec.args.push(argument(&arg?, "argument")?);
                    if spec.args.len() > MAX_ARGUMENTS {
                        return Err(LibraryError::Message(format!("at most {MAX_ARGUMENTS} arguments")));
                    }
                }
            }
            ("stdin", Value::String(stdin)) => spec.stdin = Some(stdin.as_bytes().to_vec()),
            ("cwd", Value::String(cwd)) => spec.cwd = resolve_path(lua, &cwd)?,
            ("output", Value::String(path)) => spec.output = Some(resolve_path(lua, &path)?),
            ("env", Value::Table(env)) => {
                for pair in env.pairs::<LuaString, LuaString>() {
                    let (name, value) = pair?;
                    spec.env.insert(variable(&name)?, argument(&value, "variable")?);
                }
            }
            ("timeout", Value::Integer(span)) => spec.timeout = Some(seconds(span as f64, "`timeout`")?),
            ("timeout", Value::Number(span)) => spec.timeout = Some(seconds(span, "`timeout`")?),
            ("cmd" | "stdin" | "cwd" | "output", _) => return Err(wrong("a string")),
            ("args", _) => return Err(wrong("a list of strings")),
            ("env", _) => return Err(wrong("a table of strings")),
            _ => return Err(wrong("a number of seconds")),
        }
    }
    if spec.cmd.is_empty() {
        return Err(LibraryError::Message("`cmd` is missing".to_owned()));
    }
    Ok(spec)
}

fn argument(argument: &LuaString, what: &str) -> Result<OsString, LibraryError> {
    let argument = argument.as_bytes();
    if argument.contains(&0) {
        return Err(LibraryError::Message(format!("the {what} has a zero byte in it")));
    }
    Ok(OsStr::from_bytes(bounded_bytes(&argument, what, MAX_ARGUMENT)?).to_owned())
}

fn variable(name: &LuaString) -> Result<OsString, LibraryError> {
    let bytes = name.as_bytes();
    let name = text(&bytes, "variable", MAX_ARGUMENT)?;
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(LibraryError::Message(format!("`{name}` is no name of a variable")));
    }
    Ok(name.into())
}
