//! The services of a worker's programs. Each is a request to the server, which knows on whose behalf the worker runs.

use super::server_socket::ServerSocket;
use crate::{
    model::{body_template::BodyTemplate, owner::Owner},
    scripting::{
        lua::{
            AgentReply, CompileError, EventEmitter, HostServices, HttpClient, HttpRequest, HttpResponse, MethodCaller,
            ModuleSource, Program, SpaceKv, ToolContext,
        },
        workers::{
            host_messages::{HostReply, HostRequest, HostResult},
            messages::{FromWorker, ToWorker},
            program_text::{ProgramContent, TextKind},
        },
    },
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{collections::HashMap, io, sync::Arc, task::Poll, time::Duration};

/// The server, as the programs of a worker reach it. Cloning it is cheap.
#[derive(Clone)]
pub(super) struct RemoteHost(Arc<RemoteHostShared>);

struct RemoteHostShared {
    link: Mutex<ServerSocket>,
    turn: Mutex<Turn>,
    programs: Mutex<HashMap<u64, KnownProgram>>,
}

/// The run whose turn it is.
#[derive(Default)]
struct Turn {
    run: u64,
    /// The request that the run has begun to wait for.
    request: Option<HostRequest>,
    reply: Option<HostResult>,
}

/// A program that the server sent, compiled when it is first used.
struct KnownProgram {
    content: ProgramContent,
    compiled: Option<Result<Program, CompileError>>,
}

impl RemoteHost {
    pub fn new(link: ServerSocket) -> Self {
        let (turn, programs) = (Mutex::default(), Mutex::default());
        Self(Arc::new(RemoteHostShared { link: Mutex::new(link), turn, programs }))
    }

    pub fn receive(&self) -> io::Result<ToWorker> {
        self.0.link.lock().receive()
    }

    pub fn send(&self, message: &FromWorker) -> io::Result<()> {
        self.0.link.lock().send(message)
    }

    /// Begins a turn of this run, with the reply it has waited for.
    pub fn begin_turn(&self, run: u64, reply: Option<HostResult>) {
        *self.0.turn.lock() = Turn { run, request: None, reply };
    }

    /// The request that the run waits for at the end of its turn.
    pub fn end_turn(&self) -> Option<HostRequest> {
        self.0.turn.lock().request.take()
    }

    pub fn learn(&self, id: u64, content: ProgramContent) {
        self.0.programs.lock().insert(id, KnownProgram { content, compiled: None });
    }

    pub fn forget(&self, id: u64) {
        self.0.programs.lock().remove(&id);
    }

    /// The program of this id, compiled; `None` if the server never sent it.
    pub fn program(&self, id: u64) -> Option<Result<Program, CompileError>> {
        let mut programs = self.0.programs.lock();
        let known = programs.get_mut(&id)?;
        Some(known.compiled.get_or_insert_with(|| compile(&known.content)).clone())
    }

    /// The services for programs of this worker.
    pub fn services(&self) -> HostServices {
        let host = Arc::new(self.clone());
        HostServices { http: host.clone(), kv: Some(host.clone()), caller: host.clone(), modules: host }
    }

    /// The context of a tool's run.
    pub fn tool_context(&self) -> ToolContext {
        let host = Arc::new(self.clone());
        ToolContext { owner: Owner::Global, caller: host.clone(), emitter: host }
    }

    /// Ends the run's turn with a request and continues with its reply.
    fn request(&self, request: HostRequest) -> BoxFuture<'static, HostResult> {
        let host = self.clone();
        let mut request = Some(request);
        Box::pin(std::future::poll_fn(move |_| {
            let mut turn = host.0.turn.lock();
            if let Some(request) = request.take() {
                turn.request = Some(request);
                return Poll::Pending;
            }
            turn.reply.take().map_or(Poll::Pending, Poll::Ready)
        }))
    }

    /// Asks during a turn and waits for the reply.
    fn ask(&self, request: HostRequest) -> HostResult {
        let run = self.0.turn.lock().run;
        let mut link = self.0.link.lock();
        let asked = link.send(&FromWorker::BlockingRequest { run, request });
        loop {
            let received = match &asked {
                Ok(()) => {
                    link.receive_only(|message| matches!(message, ToWorker::Reply { run: other, .. } if *other == run))
                }
                Err(error) => Err(error.kind().into()),
            };
            match received {
                Ok(ToWorker::Reply { result, .. }) => return result,
                Ok(ToWorker::Program { id, content }) => self.learn(id, content),
                // Without the server there is nobody left to run for.
                Ok(_) | Err(_) => std::process::exit(0),
            }
        }
    }
}

/// Compiles a program that the server sent.
fn compile(content: &ProgramContent) -> Result<Program, CompileError> {
    let ProgramContent { kind, name, source } = content;
    match kind {
        TextKind::LuaTemplate => Program::template(&BodyTemplate::Lua(source.clone())),
        TextKind::TextTemplate => Program::template(&BodyTemplate::Text(source.clone())),
        TextKind::Script => Program::script(name, source),
        TextKind::Library => Program::library(name, source),
        TextKind::Tool => Program::tool(name, source),
        TextKind::Transform => Program::transform(source),
        TextKind::Filter => Program::filter(source),
    }
}

fn raw(json: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(json).map_err(|error| error.to_string())
}

fn unexpected() -> String {
    "the server's answer makes no sense".to_owned()
}

impl HttpClient for RemoteHost {
    fn send(&self, _: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        let reply = self.request(HostRequest::Http(request));
        Box::pin(async move {
            match reply.await? {
                HostReply::Http(response) => Ok(response),
                _ => Err(unexpected()),
            }
        })
    }
}

impl MethodCaller for RemoteHost {
    fn call(&self, _: Owner, method: &str, params: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        self.json(HostRequest::Call { method: method.to_owned(), params: params.get().to_owned() })
    }
}

impl EventEmitter for RemoteHost {
    fn emit(&self, _: Owner, kind: &str, payload: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        self.json(HostRequest::Emit { kind: kind.to_owned(), payload: payload.get().to_owned() })
    }
}

impl ModuleSource for RemoteHost {
    fn find(&self, _: Owner, name: &str) -> Result<Option<Program>, String> {
        match self.ask(HostRequest::Require { name: name.to_owned() })? {
            HostReply::Library(None) => Ok(None),
            HostReply::Library(Some(id)) => match self.program(id) {
                Some(Ok(program)) => Ok(Some(program)),
                Some(Err(error)) => Err(format!("the library `{name}` does not compile: {error}")),
                None => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }
}

impl SpaceKv for RemoteHost {
    fn get(&self, key: &str) -> AgentReply<Option<Box<RawValue>>> {
        let value = match self.ask(HostRequest::KvGet { key: key.to_owned() }) {
            Ok(HostReply::Json(json)) => json.map(raw).transpose(),
            Ok(_) => Err(unexpected()),
            Err(message) => Err(message),
        };
        Box::pin(std::future::ready(value))
    }

    fn set(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<()> {
        let (key, value) = (key.to_owned(), value.get().to_owned());
        let reply = self.request(HostRequest::KvSet { key, value, ttl });
        Box::pin(async move {
            match reply.await? {
                HostReply::Done => Ok(()),
                _ => Err(unexpected()),
            }
        })
    }

    fn add(&self, key: &str, value: Box<RawValue>, ttl: Option<Duration>) -> AgentReply<bool> {
        let (key, value) = (key.to_owned(), value.get().to_owned());
        self.truth(HostRequest::KvAdd { key, value, ttl })
    }

    fn increment(&self, key: &str, by: i64, ttl: Option<Duration>) -> AgentReply<i64> {
        let reply = self.request(HostRequest::KvIncrement { key: key.to_owned(), by, ttl });
        Box::pin(async move {
            match reply.await? {
                HostReply::Integer(sum) => Ok(sum),
                _ => Err(unexpected()),
            }
        })
    }

    fn delete(&self, key: &str) -> AgentReply<bool> {
        self.truth(HostRequest::KvDelete { key: key.to_owned() })
    }
}

impl RemoteHost {
    /// A request that is answered with JSON.
    fn json(&self, request: HostRequest) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let reply = self.request(request);
        Box::pin(async move {
            match reply.await? {
                HostReply::Json(Some(json)) => raw(json),
                _ => Err(unexpected()),
            }
        })
    }

    /// A request that is answered with yes or no.
    fn truth(&self, request: HostRequest) -> AgentReply<bool> {
        let reply = self.request(request);
        Box::pin(async move {
            match reply.await? {
                HostReply::Bool(answer) => Ok(answer),
                _ => Err(unexpected()),
            }
        })
    }
}
