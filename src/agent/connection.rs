//! The conversation on one link, from the server's welcome to the end: reads, writes, keeps the heartbeat.
//!
//! Reading never waits for writing: what a message asks for runs in tasks of its own, whose answers stand in the
//! link's line. Writing gathers what is in the line and flushes once.

use super::{
    Agent,
    dial::Socket,
    in_flight::Calls,
    liveness::{Pulse, Quiet, SILENT_BEATS},
    server_link::{Down, Link, Parcel},
    shutdown::{Parting, Reason},
};
use crate::model::{
    agent_protocol::{self, CallReply, Goodbye, Hello, MethodServerHealth, ToAgent, ToServer, Welcome},
    health_check::{CheckResult, HealthCheck},
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

/// How long a server may take to welcome an agent.
const WELCOME: Duration = Duration::from_secs(10);

/// How long a goodbye may take to be sent and heard.
const FAREWELL: Duration = Duration::from_secs(2);

/// Messages that are written before a flush, even if more wait.
const GATHER: usize = 256;

/// Why a conversation is over.
#[derive(Debug, thiserror::Error)]
pub enum Ending {
    #[error("we left")]
    Left,
    #[error("the server closed the link")]
    Closed,
    #[error("the server said goodbye: {}", words(.0))]
    Said(Goodbye),
    #[error("the server said nothing for {SILENT_BEATS} heartbeats")]
    Silent,
    #[error("the server took nothing for {SILENT_BEATS} heartbeats")]
    Deaf,
    #[error("the server did not welcome us within {} s", WELCOME.as_secs())]
    Unwelcome,
    #[error("the server did not answer a registration in time")]
    Unanswered,
    #[error("the link broke: {0}")]
    Broken(#[from] tungstenite::Error),
    #[error("the server said something unexpected: {0}")]
    Garbled(String),
}

/// Introduces the agent and hears what the server says to that. One that is `returning` was welcomed there before.
///
/// # Errors
///
/// Fails if that is no welcome, or does not come in time.
pub async fn introduce(socket: &mut Socket, node_id: &str, returning: bool) -> Result<Welcome, Ending> {
    let hello = Hello {
        protocol: agent_protocol::PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: node_id.to_owned(),
        returning,
    };
    let introducing = async {
        socket.send(Message::binary(agent_protocol::encode(&ToServer::Hello(hello)))).await?;
        while let Some(message) = socket.next().await {
            match read_message(message?)? {
                Some(ToAgent::Welcome(welcome)) => return Ok(welcome),
                Some(ToAgent::Goodbye(why)) => return Err(Ending::Said(why)),
                Some(other) => return Err(Ending::Garbled(format!("{other:?} before a welcome"))),
                None => {}
            }
        }
        Err(Ending::Closed)
    };
    tokio::time::timeout(WELCOME, introducing).await.unwrap_or(Err(Ending::Unwelcome))
}

/// One conversation.
pub struct Talk<'a> {
    pub agent: &'a Arc<Agent>,
    pub link: &'a Arc<Link>,
    pub heartbeat: Duration,
    calls: Calls,
    /// The health check to run.
    check: watch::Sender<Option<Box<RawValue>>>,
}

impl<'a> Talk<'a> {
    pub fn new(agent: &'a Arc<Agent>, link: &'a Arc<Link>, welcome: Welcome) -> Self {
        let heartbeat = agent.settings.heartbeat;
        let calls = Calls::new(agent.calls.clone());
        Self { agent, link, heartbeat, calls, check: watch::Sender::new(welcome.health_check) }
    }

    /// Talks until the link ends, one way or another.
    pub async fn go_on(self, socket: Socket, parcels: mpsc::Receiver<Parcel>, pulse: &Pulse) -> Ending {
        let (sink, stream) = socket.split();
        let mut reading = pin!(self.read(stream));
        let mut writing = pin!(self.write(sink, parcels));
        let parting = tokio::select! {
            ending = &mut reading => return ending,
            ending = &mut writing => return ending,
            quiet = pulse.stops(self.heartbeat) => return match quiet {
                Quiet::Silent => Ending::Silent,
                Quiet::Deaf => Ending::Deaf,
            },
            Err(Down) = self.agent.spool.carry(&self.link.outbox) => return Ending::Closed,
            Err(Down) = self.tell_health() => return Ending::Closed,
            Err(Down) = self.run_checks() => return Ending::Closed,
            () = self.link.ended() => return Ending::Unanswered,
            parting = self.agent.end.leaving() => parting,
        };
        if parting == Parting::Goodbye {
            let farewell = async {
                let (_, _) = tokio::join!(self.link.outbox.farewell(), &mut writing);
                // Until the server closes too: a socket that is closed with something unread in it takes back what
                // was sent last.
                (&mut reading).await
            };
            let _ = tokio::time::timeout(FAREWELL, farewell).await;
        }
        Ending::Left
    }

    async fn read(&self, mut stream: SplitStream<Socket>) -> Ending {
        while let Some(message) = stream.next().await {
            match message.map_err(Ending::Broken).and_then(read_message) {
                Ok(Some(message)) => {
                    if let Some(ending) = self.hear(message) {
                        return ending;
                    }
                }
                Ok(None) => {}
                Err(ending) => return ending,
            }
        }
        Ending::Closed
    }

    async fn write(&self, mut sink: SplitSink<Socket, Message>, mut parcels: mpsc::Receiver<Parcel>) -> Ending {
        let mut beats = tokio::time::interval_at(Instant::now() + self.heartbeat, self.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let speaking = async {
            loop {
                let mut next = tokio::select! {
                    parcel = parcels.recv() => parcel,
                    _ = beats.tick() => {
                        sink.feed(Message::Ping(Bytes::new())).await?;
                        None
                    }
                };
                // Answers come in bursts: once all that are ready stand in line, one write takes the lot.
                tokio::task::yield_now().await;
                let mut gathered = 0;
                while let Some(parcel) = next.take() {
                    match parcel {
                        Parcel::Message(bytes, _room) => sink.feed(Message::Binary(bytes)).await?,
                        Parcel::Farewell => {
                            sink.feed(Message::binary(agent_protocol::encode(&ToServer::Goodbye))).await?;
                            // Sends a close frame, and flushes.
                            sink.close().await?;
                            return Ok(Ending::Left);
                        }
                    }
                    gathered += 1;
                    if gathered < GATHER {
                        next = parcels.try_recv().ok();
                    }
                }
                sink.flush().await?;
            }
        };
        speaking.await.unwrap_or_else(Ending::Broken)
    }

    /// Does what a message asks for, without waiting for it. Returns an ending if it is the last.
    fn hear(&self, message: ToAgent) -> Option<Ending> {
        match message {
            ToAgent::Call { id, generation, method, params, notification } => {
                let (serving, params) = (&self.agent.serving, params.as_deref());
                if notification {
                    self.calls.start(id, serving.notify(generation, &method, params));
                    return None;
                }
                // What is under way is waited for then, and that must not grow.
                let calling = match self.agent.end.has_begun() {
                    true => Either::Left(ready(CallReply::Unavailable("its agent is stopping".to_owned()))),
                    false => Either::Right(serving.call(generation, &method, params)),
                };
                let outbox = self.link.outbox.clone();
                self.calls.start(id, async move {
                    let answer = calling.await;
                    // Without a link there is nobody to tell.
                    let _ = outbox.send(&ToServer::Reply { id, answer }).await;
                });
            }
            ToAgent::Cancel { id } => self.calls.cancel(id),
            ToAgent::Confirm { id, receipt } => self.agent.spool.settle(id, &receipt),
            ToAgent::Registered { generation } => self.link.answer(generation, Ok(())),
            ToAgent::Refused { generation, reason } => self.link.answer(generation, Err(reason)),
            ToAgent::Check(check) => {
                self.check.send_replace(check);
            }
            ToAgent::Libraries(libraries) => self.agent.packages.take(libraries),
            // We say goodbye too, before we go.
            ToAgent::Goodbye(Goodbye::Stopped) => self.agent.end.begin(Reason::Stopped(self.link.server.clone())),
            ToAgent::Goodbye(why) => return Some(Ending::Said(why)),
            ToAgent::Welcome(_) => return Some(Ending::Garbled("a second welcome".to_owned())),
        }
        None
    }

    /// Tells how the method server is: once the registration is published, and whenever it changes.
    async fn tell_health(&self) -> Result<Infallible, Down> {
        let mut published = self.link.published();
        loop {
            let generation = *published.borrow_and_update();
            let health = generation.and_then(|generation| self.agent.serving.health(generation));
            let (Some(generation), Some(mut health)) = (generation, health) else {
                published.changed().await.map_err(|_| Down)?;
                continue;
            };
            loop {
                let now = MethodServerHealth::from(&*health.borrow_and_update());
                self.link.outbox.send(&ToServer::Health { generation, health: now }).await?;
                tokio::select! {
                    changed = published.changed() => {
                        changed.map_err(|_| Down)?;
                        break;
                    }
                    Ok(()) = health.changed() => {}
                }
            }
        }
    }

    /// Runs the health check that the server has asked for last, and tells what it finds.
    async fn run_checks(&self) -> Result<Infallible, Down> {
        let mut wanted = self.check.subscribe();
        loop {
            let check = wanted.borrow_and_update().clone();
            tokio::select! {
                changed = wanted.changed() => changed.map_err(|_| Down)?,
                Err(Down) = self.run_check(check.as_deref()) => return Err(Down),
            }
        }
    }

    /// Runs one check on and on; there may be none to run.
    async fn run_check(&self, check: Option<&RawValue>) -> Result<Infallible, Down> {
        let Some(check) = check else { return std::future::pending().await };
        let check: HealthCheck = match serde_json::from_str(check.get()) {
            Ok(check) => check,
            Err(error) => {
                log::error!("{}: this agent cannot run the health check of the space: {error}", self.link.server);
                return std::future::pending().await;
            }
        };
        let checker = self.agent.checker();
        let (results, mut found) = mpsc::channel(1);
        let telling = async {
            while let Some(CheckResult { ok, detail, checked_at: at }) = found.recv().await {
                self.link.outbox.send(&ToServer::Checked { ok, detail, at }).await?;
            }
            Err(Down)
        };
        let ((), told) = tokio::join!(checker.run(&check, results), telling);
        told
    }
}

/// What a WebSocket message says; `None` for those that say nothing.
fn read_message(message: Message) -> Result<Option<ToAgent>, Ending> {
    match message {
        Message::Binary(bytes) => {
            agent_protocol::decode(&bytes).map(Some).map_err(|error| Ending::Garbled(error.to_string()))
        }
        Message::Text(_) => Err(Ending::Garbled("a text message".to_owned())),
        // The stream ends by itself after it.
        Message::Close(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(None),
    }
}

/// A server's goodbye as a sentence.
fn words(why: &Goodbye) -> String {
    match why {
        Goodbye::Stopped => "the space was stopped".to_owned(),
        Goodbye::Replaced => "another agent came with the same token".to_owned(),
        Goodbye::Revoked => "the token is not good any more, or its space is gone".to_owned(),
        Goodbye::Restarting => "it stops, and may come back".to_owned(),
        Goodbye::Unexpected(what) => format!("it did not expect what we said: {what}"),
    }
}
