//! A thousand spaces at once. Their agents are tasks of this process that speak the agent protocol: a thousand real
//! agents would measure the machine rather than the server.

use crate::support::{Daemon, Receiver, TEST_TIMEOUT};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use svc::model::agent_protocol::{self, CallReply, Hello, PROTOCOL, ToAgent, ToServer};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest},
};

const SPACES: usize = 1000;

/// Memory that the unoptimised server may use for all of them, in KiB.
const MOST_MEMORY: u64 = 300 << 10;

/// State that all agents of the test share.
struct SharedState {
    server: String,
    /// Reports each accepted registration.
    registered: mpsc::Sender<usize>,
    /// Pending calls of the common method; none is answered before there is one for each space.
    common: watch::Sender<usize>,
}

/// One agent with its method server.
struct FakeAgent {
    number: usize,
    socket: WebSocketStream<TcpStream>,
}

impl FakeAgent {
    async fn connect(server: &str, number: usize, token: &str) -> Self {
        let address = server.trim_start_matches("http://");
        let mut request = format!("ws://{address}/api/agent").into_client_request().expect("the address is good");
        let bearer = format!("Bearer {token}").parse().expect("a token is a header's value");
        request.headers_mut().insert("authorization", bearer);
        let tcp = TcpStream::connect(address).await.expect("the server listens");
        let (socket, _) = tokio_tungstenite::client_async(request, tcp).await.expect("the server takes the token");
        Self { number, socket }
    }

    async fn send(&mut self, message: &ToServer) {
        self.socket.send(Message::binary(agent_protocol::encode(message))).await.expect("the link is up");
    }

    async fn receive(&mut self) -> ToAgent {
        loop {
            match self.socket.next().await.expect("the link is up").expect("the link is up") {
                Message::Binary(bytes) => return agent_protocol::decode(&bytes).expect("a server speaks the protocol"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("agent {}: {other:?}", self.number),
            }
        }
    }

    async fn register(&mut self) {
        let hello = Hello {
            protocol: PROTOCOL,
            version: "0".to_owned(),
            node_id: "shared".to_owned(),
            returning: false,
            confirmations_in_groups: true,
        };
        self.send(&ToServer::Hello(hello)).await;
        let welcome = self.receive().await;
        assert!(matches!(&welcome, ToAgent::Welcome(space) if space.space_name == format!("s{}", self.number)));
        let libraries = self.receive().await;
        assert!(matches!(&libraries, ToAgent::Libraries(none) if none.is_empty()), "{libraries:?}");
        let method = |name: &str, local: &str| json!({"name": name, "local_name": local, "description": "Does it"});
        let registration = json!({
            "server": {"command": "none", "timeout": 60},
            "methods": [method("{{space}}.own", "own"), method("common.echo", "echo")],
        });
        let registration = serde_json::from_value(registration).expect("it is a registration");
        self.send(&ToServer::Register { generation: 1, registration, groups: Default::default() }).await;
        let answer = self.receive().await;
        assert!(matches!(answer, ToAgent::Registered { generation: 1, .. }), "{}: {answer:?}", self.number);
    }

    /// Answers every call with the number of the space and the params of the call.
    async fn serve(mut self, shared: Arc<SharedState>) {
        loop {
            let ToAgent::Call { id, method, params, .. } = self.receive().await else { continue };
            if method == "echo" {
                shared.common.send_modify(|count| *count += 1);
                let _ = shared.common.subscribe().wait_for(|count| *count >= SPACES).await;
            }
            let result = json!({"space": self.number, "params": params});
            let result = RawValue::from_string(result.to_string()).expect("a value prints as JSON");
            self.send(&ToServer::Reply { id, reply: CallReply::Result(result) }).await;
        }
    }
}

/// Creates all spaces and returns the tokens of their agents, by number.
fn create(daemon: &Daemon) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let create = || {
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= SPACES {
                return made;
            }
            let reply = daemon.post("/api/spaces", &json!({"name": format!("s{number}")}));
            assert_eq!(reply.status, 201, "{}", reply.text);
            made.push((number, reply.json()["agent_token"].as_str().expect("a token").to_owned()));
        }
    };
    let mut made: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..16).map(|_| scope.spawn(create)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("it does not panic")).collect()
    });
    made.sort_unstable();
    made.into_iter().map(|(_, token)| token).collect()
}

/// Calls one method per space in one batch, and returns the spaces that answered, in the order of the calls.
fn call_all(daemon: &Daemon, name: impl Fn(usize) -> String) -> Vec<usize> {
    let call = |n| json!({"jsonrpc": "2.0", "method": name(n), "params": {"n": n}, "id": n});
    let reply = daemon.post("/api/methods/call", &(0..SPACES).map(call).collect::<Value>());
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answers = reply.json();
    let answers = answers.as_array().expect("a batch").iter().enumerate();
    let by = answers.map(|(n, answer)| {
        assert_eq!((&answer["id"], &answer["result"]["params"]), (&json!(n), &json!({"n": n})), "{answer}");
        usize::try_from(answer["result"]["space"].as_u64().expect("a number")).expect("a small one")
    });
    by.collect()
}

#[test]
fn a_thousand_spaces_that_register_at_once_are_all_served() {
    let daemon = Daemon::with(&[("LIMITS_SPACES", "2000")]);
    let tokens = create(&daemon);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let (registered, mut accepted) = mpsc::channel(SPACES);
    let shared = Arc::new(SharedState { server: daemon.url.clone(), registered, common: watch::Sender::new(0) });
    for (number, token) in tokens.into_iter().enumerate() {
        let shared = shared.clone();
        runtime.spawn(async move {
            let mut fake = FakeAgent::connect(&shared.server, number, &token).await;
            fake.register().await;
            shared.registered.send(number).await.expect("the test waits");
            fake.serve(shared).await;
        });
    }
    let all = runtime.block_on(async {
        let mut all = BTreeSet::new();
        let gathered = tokio::time::timeout(TEST_TIMEOUT, async {
            while all.len() < SPACES {
                all.extend(accepted.recv().await);
            }
        });
        gathered.await.map_err(|_| all.len()).map(|()| all)
    });
    assert_eq!(all, Ok((0..SPACES).collect()), "so many were accepted in {TEST_TIMEOUT:?}");

    let methods = daemon.get("/api/methods").json();
    let methods = methods["methods"].as_array().expect("a list");
    assert_eq!(methods.len(), SPACES + 1);
    let common = methods.iter().find(|method| method["name"] == "common.echo").expect("it is listed");
    assert_eq!((&common["provider_count"], &common["available_count"]), (&json!(SPACES), &json!(SPACES)));
    assert_eq!(call_all(&daemon, |n| format!("s{n}.own")), (0..SPACES).collect::<Vec<_>>());
    // Each call is answered after all were sent, so that each goes to a space with no call in flight.
    let by = call_all(&daemon, |_| "common.echo".to_owned());
    assert_eq!(by.into_iter().collect::<BTreeSet<_>>(), (0..SPACES).collect());
    // Descriptors that the server opens now are too large for select(2).
    let address = daemon.url.trim_start_matches("http://");
    let _idle: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(address).expect("it listens")).collect();
    let receiver = Receiver::start();
    daemon.create_sink(&json!({
        "name": "hook", "events": "custom.*", "type": "webhook", "owner": "global", "webhook": {"url": receiver.url("/")},
    }));
    let event = daemon.emit("n", &json!({}));
    let delivery = daemon.delivery(&event["event_id"], "delivered");
    assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(1), "{delivery}");
    let used = daemon.memory();
    assert!(used < MOST_MEMORY, "the server uses {used} KiB");
    runtime.shutdown_timeout(Duration::from_secs(1));
}
