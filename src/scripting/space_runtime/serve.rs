//! A method server with Lua handlers: JSON-RPC 2.0, one message a line, from an input to an output.
//!
//! Lines are read ([`read_lines`]); the requests of a message are handled concurrently, each in a run of its own;
//! responses are written in the order in which they are done ([`writer`]). A batch gets one response. The number of
//! requests in progress is bounded: while it is reached, nothing is read, and the sender waits.
//!
//! [`crate::model::jsonrpc`] reads the messages and [`crate::platform::lines`] splits the input.

use super::{
    loaded_program::{LoadError, LoadedProgram},
    output::write_to_stderr,
};
use crate::{
    model::jsonrpc::{ErrorObject, MAX_BATCH, Request, RpcBody, RpcResponse, code},
    platform::{
        lines::{Line, LineSplitter},
        task,
    },
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

/// The most requests in progress, including those that wait for a turn or to be written.
const MAX_IN_PROGRESS: usize = 1024;

/// The longest line, in bytes: as long as an agent sends.
const MAX_LINE: usize = 16 << 20;

/// The most bytes of one read.
const CHUNK: usize = 64 << 10;

/// The most lines that were read and not handled yet.
const READ_AHEAD: usize = 64;

/// The reason a method server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Load(#[from] LoadError),
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

/// A response to be written, and its permits, which it holds until then.
struct ResponseLine {
    line: Vec<u8>,
    _permits: OwnedSemaphorePermit,
}

/// Runs the set-up script with `arguments`, then answers requests until the input ends or `closing` is cancelled.
/// Requests in progress are still answered.
pub async fn serve(
    program: Arc<LoadedProgram>,
    name: &str,
    arguments: Vec<String>,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    closing: CancellationToken,
) -> Result<(), ServeError> {
    let setup = program.run_once(arguments).await;
    setup.result.map_err(ServeError::SetUp)?;
    if setup.handlers.is_empty() {
        return Err(ServeError::NoMethods(name.to_owned()));
    }
    let server = Arc::new(HandlerServer { program, handlers: setup.handlers });
    let mut lines = lines(input);
    let (responses, mut written) = writer(output);
    let permits = Arc::new(Semaphore::new(MAX_IN_PROGRESS));
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = closing.cancelled() => None,
            // The output is closed.
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
        let count = match &message {
            Ok(RpcBody::Batch(requests)) => requests.len(),
            _ => 1,
        };
        let count = u32::try_from(count).expect("a batch is bounded");
        let _permits = permits.clone().acquire_many_owned(count).await.expect("the semaphore is never closed");
        let (server, responses) = (server.clone(), responses.clone());
        task::spawn(async move {
            if let Some(line) = server.answer(message).await {
                let _ = responses.send(ResponseLine { line, _permits });
            }
        });
    }
    // The writer ends when the last task has dropped its sender.
    drop(responses);
    let ended = written.await.unwrap_or(Ok(()));
    server.program.shut_down();
    ended.map_err(ServeError::Output)
}

/// Answers requests with the registered handlers.
struct HandlerServer {
    program: Arc<LoadedProgram>,
    handlers: BTreeMap<String, MethodHandler>,
}

impl HandlerServer {
    /// The response line to a message; `None` if it has only notifications.
    async fn answer(&self, message: Result<RpcBody, ErrorObject>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match message {
            Err(error) => RpcResponse::from(error).write(&crate::model::jsonrpc::Id::null(), &mut out),
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

    /// The response to one request; `None` for a notification.
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
                    write_to_stderr(format!("the notification `{}` failed: {outcome}", request.method).as_bytes());
                }
                return None;
            }
        }
        Some(out)
    }

    async fn outcome(&self, method: &str, params: Option<Box<RawValue>>) -> RpcResponse {
        let Some(handler) = self.handlers.get(method) else {
            let message = format!("the program names no handler for `{method}`");
            return ErrorObject::new(code::METHOD_NOT_FOUND, message).into();
        };
        match self.program.call_handler(handler, params).await {
            Ok(result) => RpcResponse::Result(result),
            Err(error) => RpcResponse::Error(error_object(error)),
        }
    }
}

/// The JSON-RPC error object of a failed run.
fn error_object(error: ScriptError) -> Box<RawValue> {
    #[derive(Serialize)]
    struct RaisedError {
        code: i64,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    }
    let object = match error {
        ScriptError::RaisedWith { code, message, data } => {
            RaisedError { code: code.unwrap_or_else(|| code::INTERNAL.into()), message, data }
        }
        // The params fit into a line, but not into the budgets of a run.
        ScriptError::Data(error) => RaisedError {
            code: code::INVALID_PARAMS.into(),
            message: format!("the params cannot be read: {error}"),
            data: None,
        },
        other => RaisedError { code: code::INTERNAL.into(), message: other.to_string(), data: None },
    };
    serde_json::value::to_raw_value(&object).expect("numbers, text and JSON are JSON")
}

/// Starts a thread that reads lines until the end of the input or an error.
fn lines(input: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Incoming>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    // Without a thread the sender is dropped, so the input ends at once.
    if let Err(error) = thread::Builder::new().name("stdin".to_owned()).spawn(move || read_lines(input, &sender)) {
        write_to_stderr(format!("cannot start a thread to read with: {error}").as_bytes());
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

/// Starts a thread that writes responses, several at a time if several are done. The receiver gets its end.
fn writer(
    mut output: impl Write + Send + 'static,
) -> (mpsc::UnboundedSender<ResponseLine>, oneshot::Receiver<io::Result<()>>) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<ResponseLine>();
    let (ended, end) = oneshot::channel();
    let write = move || {
        let mut run = || {
            let mut out = Vec::new();
            let mut written = Vec::new();
            while let Some(response) = receiver.blocking_recv() {
                out.extend_from_slice(&response.line);
                written.push(response);
                while out.len() < 64 << 10
                    && let Ok(response) = receiver.try_recv()
                {
                    out.extend_from_slice(&response.line);
                    written.push(response);
                }
                output.write_all(&out)?;
                output.flush()?;
                out.clear();
                written.clear();
            }
            Ok(())
        };
        let _ = ended.send(run());
    };
    if let Err(error) = thread::Builder::new().name("stdout".to_owned()).spawn(write) {
        write_to_stderr(format!("cannot start a thread to write with: {error}").as_bytes());
    }
    (sender, end)
}
