//! The connection of one link, from the hello to its end: reads, writes, and sends heartbeats.
//!
//! Reading never waits for writing: each message is handled in tasks of its own, whose replies are queued in the link's
//! outbox. Writing batches what is queued and flushes once.

use super::{
    dial::Socket,
    in_flight::InFlightCalls,
    liveness::{DeadLink, LinkActivity, MAX_MISSED_HEARTBEATS},
    server_link::{LinkDown, QueuedMessage, ServerLink, ServerOutboxReceiver},
    shutdown::{LinkClosing, StopReason},
    state::AgentState,
};
use crate::model::{
    agent_protocol::{self, CallReply, Goodbye, Hello, ToAgent, ToServer, Welcome},
    health_check::{CheckResult, HealthCheck},
    method::MethodServerHealth,
};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    future::{Either, ready},
    stream::{SplitSink, SplitStream},
};
use serde_json::value::RawValue;
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior},
};
use tokio_tungstenite::tungstenite::{self, Message};

/// Time in which a server must welcome an agent.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a goodbye to be sent and for the server to close.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Messages that are written before a flush, even if more are queued.
const MAX_BATCH: usize = 256;

/// End of a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionEnd {
    #[error("the agent left")]
    Left,
    #[error("the server closed the link")]
    Closed,
    #[error("the server said goodbye: {}", describe_goodbye(.0))]
    Goodbye(Goodbye),
    #[error("the server said nothing for {MAX_MISSED_HEARTBEATS} heartbeats")]
    NothingReceived,
    #[error("the server took nothing for {MAX_MISSED_HEARTBEATS} heartbeats")]
    NothingSent,
    #[error("the server did not welcome us within {} s", WELCOME_TIMEOUT.as_secs())]
    NoWelcome,
    #[error("the server did not answer a registration in time")]
    NoAnswer,
    #[error("the link broke: {0}")]
    Broken(#[from] tungstenite::Error),
    #[error("the server said something unexpected: {0}")]
    Unexpected(String),
}

/// Sends the hello, and waits for the server's welcome. `returning` means that this process was welcomed there before.
///
/// # Errors
///
/// Fails if the server answers something else, or nothing in time.
pub async fn say_hello(socket: &mut Socket, node_id: &str, returning: bool) -> Result<Welcome, ConnectionEnd> {
    let hello = Hello {
        protocol: agent_protocol::PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: node_id.to_owned(),
        returning,
        confirmations_in_groups: true,
    };
    let exchange = async {
        socket.send(Message::binary(agent_protocol::encode(&ToServer::Hello(hello)))).await?;
        while let Some(message) = socket.next().await {
            match decode(message?)? {
                Some(ToAgent::Welcome(welcome)) => return Ok(welcome),
                Some(ToAgent::Goodbye(goodbye)) => return Err(ConnectionEnd::Goodbye(goodbye)),
                Some(other) => return Err(ConnectionEnd::Unexpected(format!("{other:?} before a welcome"))),
                None => {}
            }
        }
        Err(ConnectionEnd::Closed)
    };
    tokio::time::timeout(WELCOME_TIMEOUT, exchange).await.unwrap_or(Err(ConnectionEnd::NoWelcome))
}

/// A connection after its welcome.
pub struct Connection<'a> {
    agent: &'a Arc<AgentState>,
    link: &'a Arc<ServerLink>,
    heartbeat: Duration,
    calls: InFlightCalls,
    /// The health check that the server wants.
    check: watch::Sender<Option<Box<RawValue>>>,
}

impl<'a> Connection<'a> {
    pub fn new(agent: &'a Arc<AgentState>, link: &'a Arc<ServerLink>, welcome: Welcome) -> Self {
        let heartbeat = agent.settings.heartbeat;
        let calls = InFlightCalls::new(agent.calls.clone());
        Self { agent, link, heartbeat, calls, check: watch::Sender::new(welcome.health_check) }
    }

    /// Runs the connection until it ends.
    pub async fn run(self, socket: Socket, messages: ServerOutboxReceiver, activity: &LinkActivity) -> ConnectionEnd {
        let (sink, stream) = socket.split();
        let mut reading = pin!(self.read(stream));
        let mut writing = pin!(self.write(sink, messages));
        let closing = tokio::select! {
            end = &mut reading => return end,
            end = &mut writing => return end,
            dead = activity.stopped(self.heartbeat) => return match dead {
                DeadLink::NothingReceived => ConnectionEnd::NothingReceived,
                DeadLink::NothingSent => ConnectionEnd::NothingSent,
            },
            Err(LinkDown) = self.agent.spool.send_over(&self.link.outbox) => return ConnectionEnd::Closed,
            Err(LinkDown) = self.report_server_health() => return ConnectionEnd::Closed,
            Err(LinkDown) = self.run_health_checks() => return ConnectionEnd::Closed,
            () = self.link.closed() => return ConnectionEnd::NoAnswer,
            closing = self.agent.shutdown.links_closing() => closing,
        };
        if closing == LinkClosing::WithGoodbye {
            let goodbye = async {
                let (_, _) = tokio::join!(self.link.outbox.send_goodbye(), &mut writing);
                // Read until the server closes too: closing a socket with unread input discards what was sent last.
                (&mut reading).await
            };
            let _ = tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await;
        }
        ConnectionEnd::Left
    }

    async fn read(&self, mut stream: SplitStream<Socket>) -> ConnectionEnd {
        while let Some(message) = stream.next().await {
            match message.map_err(ConnectionEnd::Broken).and_then(decode) {
                Ok(Some(message)) => {
                    if let Some(end) = self.handle(message) {
                        return end;
                    }
                }
                Ok(None) => {}
                Err(end) => return end,
            }
        }
        ConnectionEnd::Closed
    }

    async fn write(&self, mut sink: SplitSink<Socket, Message>, mut messages: ServerOutboxReceiver) -> ConnectionEnd {
        let mut heartbeats = tokio::time::interval_at(Instant::now() + self.heartbeat, self.heartbeat);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let sending = async {
            loop {
                let mut next = tokio::select! {
                    queued = messages.recv() => queued,
                    _ = heartbeats.tick() => {
                        sink.feed(Message::Ping(Bytes::new())).await?;
                        None
                    }
                };
                // Replies come in bursts: after a yield all that are ready are queued, and one flush sends them.
                tokio::task::yield_now().await;
                let mut batch = 0;
                while let Some(queued) = next.take() {
                    // The message keeps its room until it is written. Cloning its bytes is cheap.
                    match &queued.message {
                        QueuedMessage::Encoded(bytes) => sink.feed(Message::Binary(bytes.clone())).await?,
                        QueuedMessage::Goodbye => {
                            sink.feed(Message::binary(agent_protocol::encode(&ToServer::Goodbye))).await?;
                            // Sends a close frame, and flushes.
                            sink.close().await?;
                            return Ok(ConnectionEnd::Left);
                        }
                    }
                    batch += 1;
                    if batch < MAX_BATCH {
                        next = messages.try_recv();
                    }
                }
                sink.flush().await?;
            }
        };
        sending.await.unwrap_or_else(ConnectionEnd::Broken)
    }

    /// Starts the work that a message asks for, without waiting for it. Returns the end if it is the last message.
    fn handle(&self, message: ToAgent) -> Option<ConnectionEnd> {
        match message {
            ToAgent::Call { id, generation, method, params, notification } => {
                let (generations, params) = (&self.agent.generations, params.as_deref());
                if notification {
                    self.calls.start(id, generations.notify(generation, &method, params));
                    return None;
                }
                // The shutdown waits for the calls in flight, so no new ones may join them.
                let calling = match self.agent.shutdown.has_begun() {
                    true => Either::Left(ready(CallReply::Unavailable("its agent is stopping".to_owned()))),
                    false => Either::Right(generations.call(generation, &method, params)),
                };
                let outbox = self.link.outbox.clone();
                self.calls.start(id, async move {
                    let reply = calling.await;
                    // Without a link nobody waits for it.
                    let _ = outbox.send(&ToServer::Reply { id, reply }).await;
                });
            }
            ToAgent::Cancel { id } => self.calls.cancel(id),
            ToAgent::Confirm(confirmation) => self.agent.spool.settle(&[confirmation]),
            ToAgent::ConfirmMany(confirmations) => self.agent.spool.settle(&confirmations),
            ToAgent::Registered { generation, groups, warnings } => {
                self.link.set_warnings(warnings);
                self.link.resolve(generation, Ok(groups));
            }
            ToAgent::Refused { generation, reason } => self.link.resolve(generation, Err(reason)),
            ToAgent::Check(check) => {
                self.check.send_replace(check);
            }
            ToAgent::Libraries(libraries) => self.agent.packages.replace_libraries(libraries),
            // The agent drains, and says goodbye too.
            ToAgent::Goodbye(Goodbye::Stopped) => {
                self.agent.shutdown.begin(StopReason::SpaceStopped(self.link.server.clone()));
            }
            ToAgent::Goodbye(goodbye) => return Some(ConnectionEnd::Goodbye(goodbye)),
            ToAgent::Welcome(_) => return Some(ConnectionEnd::Unexpected("a second welcome".to_owned())),
        }
        None
    }

    /// Reports the health of the method server: once its registration is published, and at every change.
    async fn report_server_health(&self) -> Result<Infallible, LinkDown> {
        let mut published = self.link.published();
        loop {
            let generation = *published.borrow_and_update();
            let health = generation.and_then(|generation| self.agent.generations.health(generation));
            let (Some(generation), Some(mut health)) = (generation, health) else {
                published.changed().await.map_err(|_| LinkDown)?;
                continue;
            };
            loop {
                // Of a stopping agent the server expects nothing new, and sends calls to other spaces.
                let stopping = self.agent.shutdown.has_begun();
                let now = match stopping {
                    true => MethodServerHealth::Restarting { reason: "its agent is stopping".to_owned() },
                    false => health.borrow_and_update().reported(),
                };
                self.link.outbox.send(&ToServer::Health { generation, health: now }).await?;
                tokio::select! {
                    _ = self.agent.shutdown.begun(), if !stopping => {}
                    changed = published.changed() => {
                        changed.map_err(|_| LinkDown)?;
                        break;
                    }
                    Ok(()) = health.changed() => {}
                }
            }
        }
    }

    /// Runs the health check that the server wants, and reports its results.
    async fn run_health_checks(&self) -> Result<Infallible, LinkDown> {
        let mut wanted = self.check.subscribe();
        loop {
            let check = wanted.borrow_and_update().clone();
            tokio::select! {
                changed = wanted.changed() => changed.map_err(|_| LinkDown)?,
                Err(LinkDown) = self.run_health_check(check.as_deref()) => return Err(LinkDown),
            }
        }
    }

    /// Runs one health check at its interval, for ever; without a check it only waits.
    async fn run_health_check(&self, check: Option<&RawValue>) -> Result<Infallible, LinkDown> {
        let Some(check) = check else { return std::future::pending().await };
        let check: HealthCheck = match serde_json::from_str(check.get()) {
            Ok(check) => check,
            Err(error) => {
                log::error!("{}: this agent cannot run the health check of the space: {error}", self.link.server);
                return std::future::pending().await;
            }
        };
        let checker = self.agent.health_checker();
        let (sender, mut results) = mpsc::channel(1);
        let reporting = async {
            while let Some(CheckResult { ok, detail, checked_at: at }) = results.recv().await {
                self.link.outbox.send(&ToServer::Checked { ok, detail, at }).await?;
            }
            Err(LinkDown)
        };
        let ((), reported) = tokio::join!(checker.run(&check, sender), reporting);
        reported
    }
}

/// Decodes a WebSocket message; `None` for control frames.
fn decode(message: Message) -> Result<Option<ToAgent>, ConnectionEnd> {
    match message {
        Message::Binary(bytes) => {
            agent_protocol::decode(&bytes).map(Some).map_err(|error| ConnectionEnd::Unexpected(error.to_string()))
        }
        Message::Text(_) => Err(ConnectionEnd::Unexpected("a text message".to_owned())),
        // The stream ends by itself after a close frame.
        Message::Close(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
    }
}

fn describe_goodbye(goodbye: &Goodbye) -> String {
    match goodbye {
        Goodbye::Stopped => "the space was stopped".to_owned(),
        Goodbye::Replaced => "another agent came with the same token".to_owned(),
        Goodbye::Revoked => "the token is no longer valid, or its space is gone".to_owned(),
        Goodbye::Unavailable => "it cannot serve this agent now".to_owned(),
        Goodbye::Unexpected(what) => format!("it did not expect what we said: {what}"),
    }
}
