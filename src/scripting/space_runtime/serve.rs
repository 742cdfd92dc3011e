//! A method server whose handlers are Lua: JSON-RPC 2.0, a line a message, in on one end and out at the other.
//!
//! A message's way: read ([`lines`]) → its requests are handled at the same time, each in an evaluator of its own →
//! written, in the order in which they are done. A batch is answered as one. Only so many are under way; while it is
//! too many, nothing is read, and whoever writes to us waits.

use super::{LoadError, LoadedProgram};
use crate::{
    model::jsonrpc::{ErrorObject, MAX_BATCH, Request, RpcBody, RpcResponse, code},
    platform::lines::{Line, LineSplitter},
    scripting::lua::{MethodHandler, ScriptError},
};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    sync::Arc,
    thread,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Requests under way, those that wait for their turn or to be written included.
const UNDER_WAY: usize = 1024;

/// The longest line that is read, in bytes: as long as an agent sends.
const MAX_LINE: usize = 16 << 20;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Lines that were read and not looked at yet.
const READ_AHEAD: usize = 64;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    LoadedProgram(#[from] LoadError),
    /// The set-up script failed.
    #[error("{0}")]
    SetUp(ScriptError),
    #[error("{0} names no methods: it should call runtime.jsonrpc.method(local_name, \"library.function\")")]
    NoMethods(String),
    #[error("cannot read requests: {0}")]
    Input(io::Error),
    #[error("cannot write answers: {0}")]
    Output(io::Error),
}

/// A line of input.
enum Incoming {
    Whole(Vec<u8>),
    TooLong,
}

/// An answer on its way out, and the places it keeps until it is written.
struct Done {
    line: Vec<u8>,
    _places: OwnedSemaphorePermit,
}

/// Runs the set-up script, which has `arguments`, and then answers what comes in until its end, or until `closing`. What
/// is under way then is answered still.
///
/// # Errors
///
/// Fails if the set-up script does, or names no methods, or if reading or writing does.
pub async fn serve(
    stage: Arc<LoadedProgram>,
    name: &str,
    arguments: Vec<String>,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    closing: CancellationToken,
) -> Result<(), ServeError> {
    let launched = stage.run_once(arguments).await;
    launched.result.map_err(ServeError::SetUp)?;
    if launched.handlers.is_empty() {
        return Err(ServeError::NoMethods(name.to_owned()));
    }
    let server = Arc::new(Server { stage, handlers: launched.handlers });
    let mut lines = lines(input);
    let (done, mut written) = writer(output);
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = closing.cancelled() => None,
            // Nobody reads the answers any more.
            ended = &mut written => return ended.unwrap_or(Ok(())).map_err(ServeError::Output),
        };
        let message = match line {
            None => break,
            Some(Err(error)) => return Err(ServeError::Input(error)),
            Some(Ok(Incoming::TooLong)) => {
                Err(ErrorObject::new(code::INVALID_REQUEST, format!("a line has at most {MAX_LINE} bytes")))
            }
            Some(Ok(Incoming::Whole(line))) if line.trim_ascii().is_empty() => continue,
            Some(Ok(Incoming::Whole(line))) => RpcBody::read(&line, MAX_BATCH),
        };
        let many = match &message {
            Ok(RpcBody::Batch(requests)) => requests.len(),
            _ => 1,
        };
        let many = u32::try_from(many).expect("a batch is bounded");
        let _places = places.clone().acquire_many_owned(many).await.expect("the semaphore is never closed");
        let (server, done) = (server.clone(), done.clone());
        tokio::spawn(async move {
            if let Some(line) = server.answer(message).await {
                let _ = done.send(Done { line, _places });
            }
        });
    }
    // Each task that is under way holds one end.
    drop(done);
    let ended = written.await.unwrap_or(Ok(()));
    server.stage.shut_down();
    ended.map_err(ServeError::Output)
}

/// What answers requests.
struct Server {
    stage: Arc<LoadedProgram>,
    handlers: BTreeMap<String, MethodHandler>,
}

impl Server {
    /// The line that answers a message, if one does.
    async fn answer(&self, message: Result<RpcBody, ErrorObject>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match message {
            Err(fault) => RpcResponse::from(fault).write(&crate::model::jsonrpc::Id::null(), &mut out),
            Ok(RpcBody::Single(request)) => out = self.respond(request).await?,
            Ok(RpcBody::Batch(requests)) => {
                let answers = join_all(requests.into_iter().map(|request| self.respond(request))).await;
                let answers: Vec<_> = answers.into_iter().flatten().collect();
                if answers.is_empty() {
                    return None;
                }
                out.push(b'[');
                out.extend(answers.join(&b','));
                out.push(b']');
            }
        }
        out.push(b'\n');
        Some(out)
    }

    /// The answer to one request; a notification gets none.
    async fn respond(&self, request: Result<Request, crate::model::jsonrpc::InvalidRequest>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let request = match request {
            Ok(request) => request,
            Err(refusal) => {
                RpcResponse::from(refusal.error).write(&refusal.id, &mut out);
                return Some(out);
            }
        };
        let outcome = self.outcome(&request.method, request.params).await;
        match request.id {
            Some(id) => outcome.write(&id, &mut out),
            None => {
                if let RpcResponse::Error(_) = outcome {
                    log(&format!("the notification `{}` failed: {outcome}", request.method));
                }
                return None;
            }
        }
        Some(out)
    }

    async fn outcome(&self, method: &str, params: Option<Box<RawValue>>) -> RpcResponse {
        let Some(handler) = self.handlers.get(method) else {
            return ErrorObject::new(code::METHOD_NOT_FOUND, format!("no method named `{method}`")).into();
        };
        match self.stage.handle(handler, params).await {
            Ok(result) => RpcResponse::Result(result),
            Err(error) => RpcResponse::Error(told(error)),
        }
    }
}

/// The error object for what went wrong.
fn told(error: ScriptError) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Object {
        code: i64,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    }
    let object = match error {
        ScriptError::RaisedWith { code, message, data } => {
            Object { code: code.unwrap_or_else(|| code::INTERNAL.into()), message, data }
        }
        // They fit into a line, and not into a request.
        ScriptError::Data(error) => Object {
            code: code::INVALID_PARAMS.into(),
            message: format!("the params cannot be read: {error}"),
            data: None,
        },
        other => Object { code: code::INTERNAL.into(), message: other.to_string(), data: None },
    };
    serde_json::value::to_raw_value(&object).expect("numbers, text and JSON are JSON")
}

/// Stdout is taken.
fn log(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Reads lines on a thread of its own, until the end or an error.
fn lines(input: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Incoming>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    // Without a thread there is no input, which then ends at once.
    if let Err(error) = thread::Builder::new().name("stdin".to_owned()).spawn(move || read_lines(input, &sender)) {
        log(&format!("cannot start a thread to read with: {error}"));
    }
    receiver
}

fn read_lines(mut input: impl Read, sender: &mpsc::Sender<io::Result<Incoming>>) {
    // A line is counted with its line end.
    let mut splitter = LineSplitter::new(MAX_LINE - 1);
    let mut chunk = vec![0; CHUNK];
    let mut lines = Vec::new();
    loop {
        let read = input.read(&mut chunk);
        match &read {
            Ok(0) => splitter.finish(|line| lines.push(Incoming::from(line))),
            Ok(count) => splitter.push(&chunk[..*count], |line| lines.push(Incoming::from(line))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {}
        }
        for line in lines.drain(..) {
            if sender.blocking_send(Ok(line)).is_err() {
                return;
            }
        }
        match read {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                let _ = sender.blocking_send(Err(error));
                return;
            }
        }
    }
}

impl From<Line<'_>> for Incoming {
    fn from(line: Line<'_>) -> Self {
        match line {
            Line::Whole(line) => Self::Whole(line.to_vec()),
            Line::TooLong { .. } => Self::TooLong,
        }
    }
}

/// Writes answers on a thread of its own, several at a time if several are done, and tells how that ended.
fn writer(mut output: impl Write + Send + 'static) -> (mpsc::UnboundedSender<Done>, oneshot::Receiver<io::Result<()>>) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<Done>();
    let (tell, told) = oneshot::channel();
    let write = move || {
        let mut run = || {
            let mut out = Vec::new();
            let mut finished = Vec::new();
            while let Some(done) = receiver.blocking_recv() {
                out.extend_from_slice(&done.line);
                finished.push(done);
                while out.len() < 64 << 10
                    && let Ok(done) = receiver.try_recv()
                {
                    out.extend_from_slice(&done.line);
                    finished.push(done);
                }
                output.write_all(&out)?;
                output.flush()?;
                out.clear();
                finished.clear();
            }
            Ok(())
        };
        let _ = tell.send(run());
    };
    if let Err(error) = thread::Builder::new().name("stdout".to_owned()).spawn(write) {
        log(&format!("cannot start a thread to write with: {error}"));
    }
    (sender, told)
}
