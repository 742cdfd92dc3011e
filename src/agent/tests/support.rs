//! A scripted server, and an agent on a free port in a directory of its own.

use crate::{
    agent::{self, AgentError, AgentSettings, ReconnectPolicy, StopSignals},
    model::{
        agent_protocol::{
            self, CallReply, EventConfirmation, EventOutcome, Goodbye, StartupScript, ToAgent, ToServer, Welcome,
        },
        id::{EventId, SpaceId},
        method::{GroupIds, MethodServerHealth, Registration},
    },
    platform::store::StoreOptions,
};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json, value::RawValue};
use std::{collections::VecDeque, os::unix::fs::PermissionsExt as _, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

/// Time after which a test fails. Generous, because a busy machine is no bug.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Awaits an event, and fails the test if it takes too long.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, event).await.unwrap_or_else(|_| panic!("waited {TEST_TIMEOUT:?} for: {what}"))
}

/// A scripted server, as far as agents see one.
pub struct ScriptedServer {
    listener: TcpListener,
    pub url: String,
    pub space: SpaceId,
}

/// The server's side of one agent's link.
pub struct LinkedAgent {
    socket: WebSocketStream<TcpStream>,
    /// Messages that arrived before the one that a test waited for: events and registrations have no common order.
    early: VecDeque<ToServer>,
    pub hello: agent_protocol::Hello,
}

impl ScriptedServer {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url, space: SpaceId::new() }
    }

    /// Another server of the same space.
    pub async fn beside(other: &Self) -> Self {
        Self { space: other.space, ..Self::new().await }
    }

    /// The same server, whose agents now belong to another space.
    pub fn of_another_space(self) -> Self {
        Self { space: SpaceId::new(), ..self }
    }

    /// Accepts the next connection, without a handshake.
    pub async fn connection(&self) -> TcpStream {
        soon("a connection", self.listener.accept()).await.unwrap().0
    }

    /// Accepts an agent, up to its hello.
    #[allow(clippy::result_large_err, reason = "the type is the library's")]
    pub async fn accept(&self) -> LinkedAgent {
        let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.uri().path(), "/api/agent");
            assert_eq!(request.headers()["authorization"], "Bearer sva_test");
            Ok(response)
        };
        loop {
            let stream = self.connection().await;
            // An agent that ended while it connected leaves a connection without a handshake.
            let shaken = soon("a handshake", tokio_tungstenite::accept_hdr_async(stream, check)).await;
            let Ok(mut socket) = shaken else { continue };
            match next(&mut socket).await {
                Some(ToServer::Hello(hello)) => {
                    assert_eq!(hello.protocol, agent_protocol::PROTOCOL);
                    return LinkedAgent { socket, early: VecDeque::new(), hello };
                }
                None => {}
                other => panic!("an agent says hello first, not {other:?}"),
            }
        }
    }

    /// Accepts an agent and welcomes it.
    pub async fn welcome(&self) -> LinkedAgent {
        self.welcome_with(None).await
    }

    pub async fn welcome_with(&self, health_check: Option<Value>) -> LinkedAgent {
        let mut linked = self.accept().await;
        let health_check = health_check.map(|check| raw(&check));
        linked.send(ToAgent::Welcome(Welcome { health_check, ..self.plain_welcome() })).await;
        linked.send(ToAgent::Libraries(Vec::new())).await;
        linked
    }

    /// Accepts an agent and welcomes it with a startup script, without the libraries that it waits for.
    pub async fn welcome_to_run(&self, name: &str, source: &str) -> LinkedAgent {
        let mut linked = self.accept().await;
        let script = StartupScript { name: name.to_owned(), source: source.to_owned() };
        linked.send(ToAgent::Welcome(Welcome { startup_script: Some(script), ..self.plain_welcome() })).await;
        linked
    }

    fn plain_welcome(&self) -> Welcome {
        Welcome {
            space_id: self.space,
            space_name: "notes".to_owned(),
            zone: "default".to_owned(),
            max_payload: 1024,
            health_check: None,
            startup_script: None,
        }
    }

    /// Accepts an agent that has nothing to publish.
    pub async fn welcome_idle(&self) -> LinkedAgent {
        let mut linked = self.welcome().await;
        linked.expect_unregister().await;
        linked
    }
}

impl LinkedAgent {
    pub async fn send(&mut self, message: ToAgent) {
        self.socket.send(Message::binary(agent_protocol::encode(&message))).await.unwrap();
    }

    /// The next message; `None` once the agent has closed the link.
    pub async fn receive(&mut self) -> Option<ToServer> {
        match self.early.pop_front() {
            Some(message) => Some(message),
            None => next(&mut self.socket).await,
        }
    }

    /// The next matching message; others are kept for later.
    async fn receive_matching(&mut self, wanted: impl Fn(&ToServer) -> bool) -> ToServer {
        if let Some(index) = self.early.iter().position(&wanted) {
            return self.early.remove(index).unwrap();
        }
        loop {
            match next(&mut self.socket).await.expect("the agent has more to say") {
                message if wanted(&message) => return message,
                message => self.early.push_back(message),
            }
        }
    }

    /// Waits for a heartbeat.
    pub async fn heartbeat(&mut self) {
        loop {
            match soon("a heartbeat", self.socket.next()).await.unwrap().unwrap() {
                Message::Ping(_) => return,
                other => assert!(other.is_binary(), "{other:?}"),
            }
        }
    }

    /// Receives the withdrawal of all methods, and confirms it.
    pub async fn expect_unregister(&mut self) -> u64 {
        match self.receive_matching(is_registration).await {
            ToServer::Unregister { generation } => {
                self.send(ToAgent::Registered { generation, groups: GroupIds::new(), warnings: Vec::new() }).await;
                generation
            }
            other => panic!("{other:?}"),
        }
    }

    /// Receives a registration for the caller to answer: its generation and local names.
    pub async fn receive_register(&mut self) -> (u64, Vec<String>) {
        match self.receive_matching(is_registration).await {
            ToServer::Register { generation, registration, .. } => {
                (generation, registration.methods.into_iter().map(|method| method.local_name).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Receives a registration, accepts it, and returns all of it.
    pub async fn expect_whole_register(&mut self) -> Registration {
        match self.receive_matching(is_registration).await {
            ToServer::Register { generation, registration, .. } => {
                self.send(ToAgent::Registered { generation, groups: GroupIds::new(), warnings: Vec::new() }).await;
                registration
            }
            other => panic!("{other:?}"),
        }
    }

    /// Receives a registration and accepts it.
    pub async fn expect_register(&mut self) -> (u64, Vec<String>) {
        let (generation, names) = self.receive_register().await;
        self.send(ToAgent::Registered { generation, groups: GroupIds::new(), warnings: Vec::new() }).await;
        (generation, names)
    }

    pub async fn refuse(&mut self, generation: u64, reason: &str) {
        self.send(ToAgent::Refused { generation, reason: reason.to_owned() }).await;
    }

    pub async fn receive_event(&mut self) -> (EventId, String, Value) {
        match self.receive_matching(|message| matches!(message, ToServer::Event { .. })).await {
            ToServer::Event { id, kind, payload, .. } => (id, kind, serde_json::from_str(payload.get()).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    pub async fn receive_health(&mut self) -> (u64, MethodServerHealth) {
        match self.receive_matching(|message| matches!(message, ToServer::Health { .. })).await {
            ToServer::Health { generation, health } => (generation, health),
            other => panic!("{other:?}"),
        }
    }

    pub async fn receive_reply(&mut self) -> (u64, CallReply) {
        match self.receive_matching(|message| matches!(message, ToServer::Reply { .. })).await {
            ToServer::Reply { id, reply } => (id, reply),
            other => panic!("{other:?}"),
        }
    }

    pub async fn receive_check_result(&mut self) -> (bool, Option<String>) {
        match self.receive_matching(|message| matches!(message, ToServer::Checked { .. })).await {
            ToServer::Checked { ok, detail, .. } => (ok, detail),
            other => panic!("{other:?}"),
        }
    }

    /// Receives the goodbye.
    pub async fn receive_goodbye(&mut self) {
        self.receive_matching(|message| matches!(message, ToServer::Goodbye)).await;
    }

    pub async fn confirm(&mut self, id: EventId) {
        self.send(ToAgent::Confirm(EventConfirmation { id, outcome: EventOutcome::Stored })).await;
    }

    pub async fn goodbye(&mut self, why: Goodbye) {
        self.send(ToAgent::Goodbye(why)).await;
    }

    pub async fn call(&mut self, id: u64, generation: u64, method: &str, params: Value) {
        let call = ToAgent::Call {
            id,
            generation,
            method: method.to_owned(),
            params: Some(raw(&params)),
            notification: false,
        };
        self.send(call).await;
    }

    /// Calls a method, and waits for the reply.
    pub async fn answer(&mut self, generation: u64, method: &str, params: Value) -> CallReply {
        self.call(1, generation, method, params).await;
        let (id, answer) = self.receive_reply().await;
        assert_eq!(id, 1);
        answer
    }
}

fn is_registration(message: &ToServer) -> bool {
    matches!(message, ToServer::Register { .. } | ToServer::Unregister { .. })
}

async fn next(socket: &mut WebSocketStream<TcpStream>) -> Option<ToServer> {
    loop {
        match soon("a message", socket.next()).await {
            Some(Ok(Message::Binary(bytes))) => return Some(agent_protocol::decode(&bytes).unwrap()),
            Some(Ok(Message::Close(_))) | None | Some(Err(_)) => return None,
            Some(Ok(_)) => {}
        }
    }
}

pub fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

/// Settings for tests: short waits, and no heartbeat.
pub fn settings(scratch: &tempfile::TempDir, servers: &[&ScriptedServer]) -> AgentSettings {
    // A data directory with other files is taken only if nobody else can read it.
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    AgentSettings {
        servers: servers.iter().map(|server| server.url.parse().unwrap()).collect(),
        token: "sva_test".parse().unwrap(),
        data: scratch.path().to_owned(),
        methods_file: None,
        setup_timeout: TEST_TIMEOUT,
        spool: 100,
        heartbeat: Duration::from_secs(60),
        max_payload: 1024,
        drain: Duration::from_secs(2),
        store: StoreOptions::default(),
        directory: scratch.path().to_owned(),
        node_id: "here".to_owned(),
        reconnect: ReconnectPolicy {
            first: Duration::from_millis(10),
            limit: Duration::from_millis(50),
            token_refused: (Duration::from_millis(10), Duration::from_millis(20)),
            stable_after: Duration::ZERO,
        },
        // The processes of tests start, so there is nothing to watch.
        start_check: Duration::ZERO,
        answer_timeout: TEST_TIMEOUT,
    }
}

/// A running agent.
pub struct RunningAgent {
    pub address: String,
    pub signals: StopSignals,
    task: JoinHandle<Result<(), AgentError>>,
}

impl RunningAgent {
    pub async fn start(settings: AgentSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let signals = StopSignals::default();
        let task = tokio::spawn(agent::run(settings, listener, signals.clone()));
        Self { address, signals, task }
    }

    /// Waits until it has ended by itself.
    pub async fn ended(self) -> Result<(), AgentError> {
        soon("the agent to end", self.task).await.unwrap()
    }

    /// Stops it after these links are cut, because it would wait for them to receive its goodbye.
    pub async fn stop<T>(self, links: T) {
        drop(links);
        self.signals.stop.cancel();
        self.ended().await.unwrap();
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)).await
    }

    /// Sends a HEAD request, and returns the status and the entity tag.
    pub async fn head(&self, path: &str, headers: &str) -> (u16, String) {
        let address = &self.address;
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
        let (status, answer) = self.ask_for_text(&head).await;
        let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
        (status, tag.to_owned())
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.ask(&format!("DELETE {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        let (address, body) = (&self.address, body.to_string());
        let headers = format!("Host: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n");
        self.ask(&format!("PUT {path} HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())).await
    }

    pub async fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let headers = format!("Host: {}\r\nContent-Type: application/json\r\n", self.address);
        self.post_with(path, &headers, body).await
    }

    pub async fn post_with(&self, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        self.ask(&format!("{head}{body}")).await
    }

    /// Emits an event, and returns its id.
    pub async fn emit(&self, kind: &str, payload: Value) -> EventId {
        let (status, body) = self.post("/event", &json!({ "type": kind, "payload": payload }).to_string()).await;
        assert_eq!((status, &body["event_type"]), (202, &json!(format!("custom.{kind}"))), "{body}");
        body["event_id"].as_str().unwrap().parse().unwrap()
    }

    /// Waits for a status that fulfils the condition.
    pub async fn status(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        soon("a status", async {
            loop {
                let (code, status) = self.get("/status").await;
                assert_eq!(code, 200);
                if wanted(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    async fn ask(&self, request: &str) -> (u16, Value) {
        let (status, answer) = self.ask_for_text(request).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// The status code, and the whole response as text.
    async fn ask_for_text(&self, request: &str) -> (u16, String) {
        soon("an answer", async {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
        })
        .await
    }
}
