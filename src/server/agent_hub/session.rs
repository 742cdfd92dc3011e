//! One session of an agent: hello, welcome, messages in both directions, goodbye.

use super::{
    event_storage::ConfirmationStyle,
    hub::{AgentHub, AgentSession, raw_json},
    message_queues::MessageQueues,
};
use crate::{
    calls::agent_link::AgentOutboxReceiver,
    identity::Caller,
    model::{
        agent_protocol::{self, Goodbye, Hello, PROTOCOL, ToAgent, ToServer, Welcome},
        id::SpaceId,
    },
    spaces::{AgentConnect, SpaceError},
};
use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::time::Duration;

/// Time in which an agent must say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the goodbye to an agent.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that are written before a flush, even if more messages are queued.
const BATCH_BYTES: usize = 64 << 10;

/// Heartbeats without a byte from the agent after which it counts as gone.
const MAX_MISSED_HEARTBEATS: u32 = 3;

/// The longest name of a machine that is kept, in characters.
const MAX_NODE_ID: usize = 255;

/// A frame of the WebSocket, as far as it matters here.
#[derive(Debug)]
pub enum SocketFrame {
    Message(Bytes),
    /// A ping or a pong of the agent: it is alive.
    Alive,
    /// A ping to the agent.
    Ping,
    Close,
}

/// End of a session.
enum SessionEnd {
    /// The agent said goodbye.
    AgentGoodbye,
    /// The server ends the link, and tells the agent why.
    ServerGoodbye(Goodbye),
    /// The link was lost.
    Lost(&'static str),
}

impl AgentHub {
    /// Runs the session of an agent until one of the two ends it. `caller` is the owner that the agent's token names.
    pub async fn run_session<S, E>(&self, caller: Caller, space: SpaceId, socket: S)
    where
        S: Stream<Item = Result<SocketFrame, E>> + Sink<SocketFrame> + Send,
    {
        let _running = self.0.running.token();
        let (mut sink, mut stream) = socket.split();
        let permit = self.0.awaiting_hello.try_acquire();
        let hello = match &permit {
            Ok(_) => read_hello(&mut stream, space).await,
            Err(_) => Err(Some(Goodbye::Unavailable)),
        };
        drop(permit);
        let goodbye = match hello {
            Ok(hello) => self.run_linked(&caller, space, &hello, &mut sink, &mut stream).await,
            Err(goodbye) => goodbye,
        };
        if let Some(goodbye) = goodbye {
            log::debug!("the link of space {space} ends: {goodbye:?}");
            let sending = async {
                let _ = sink.send(frame(&ToAgent::Goodbye(goodbye))).await;
                let _ = sink.send(SocketFrame::Close).await;
            };
            let _ = tokio::time::timeout(GOODBYE_TIMEOUT, sending).await;
        }
    }

    /// Runs a link from its welcome to its end, and returns the goodbye for the agent, if it gets one.
    async fn run_linked<E>(
        &self,
        caller: &Caller,
        space: SpaceId,
        hello: &Hello,
        sink: &mut (impl Sink<SocketFrame> + Unpin),
        stream: &mut (impl Stream<Item = Result<SocketFrame, E>> + Unpin),
    ) -> Option<Goodbye> {
        let deps = &self.0.deps;
        let node_id: String = hello.node_id.chars().filter(|c| !c.is_control()).take(MAX_NODE_ID).collect();
        let arrival = if hello.returning { AgentConnect::Reconnected } else { AgentConnect::Started };
        let linked = match deps.spaces.linked(space, &node_id, arrival).await {
            Ok(linked) => linked,
            Err(SpaceError::NotFound) => return Some(Goodbye::Revoked),
            Err(SpaceError::NotLaunched(_) | SpaceError::WasStopped(_)) => return Some(Goodbye::Stopped),
            Err(error) => {
                log::warn!("the agent of space {space} is not linked: {error}");
                return Some(Goodbye::Unavailable);
            }
        };
        log::info!("the agent of space `{}` is linked, on {node_id}", linked.name);
        let (session, messages) = self.begin_session(space, linked.owner);
        // Read again: from now on a change is sent to this session.
        let current = deps.spaces.get(space).unwrap_or_else(|| linked.clone());
        let welcome = Welcome {
            space_id: space,
            space_name: linked.name.to_string(),
            zone: deps.zone.to_string(),
            max_payload: deps.max_payload,
            health_check: current.settings.health_check.as_ref().map(raw_json),
            startup_script: self.startup_script(&current),
        };
        // Behind the welcome and ahead of any call: programs of the space may need the libraries from their start.
        let libraries = self.send_libraries(&session, None).await;
        let end = match sink.send(frame(&ToAgent::Welcome(welcome))).await {
            Err(_) => SessionEnd::Lost("it could not be welcomed"),
            Ok(()) => {
                let (queues, receivers) = MessageQueues::new();
                let style = match hello.confirmations_in_groups {
                    true => ConfirmationStyle::Many,
                    false => ConfirmationStyle::One,
                };
                tokio::select! {
                    end = self.read_messages(&session, stream, &queues) => end,
                    goodbye = self.handle_messages(caller, &session.link, style, receivers) => match goodbye {
                        Some(goodbye) => SessionEnd::ServerGoodbye(goodbye),
                        None => SessionEnd::Lost("it is not listened to any more"),
                    },
                    () = self.write_messages(messages, sink) => SessionEnd::Lost("it could not be written to"),
                    never = self.follow_libraries(&session, libraries) => match never {},
                    goodbye = session.link.ended() => SessionEnd::ServerGoodbye(goodbye.unwrap_or(Goodbye::Unavailable)),
                    () = deps.identity.wait_until_revoked(caller) => SessionEnd::ServerGoodbye(Goodbye::Revoked),
                    () = deps.shutdown.cancelled() => SessionEnd::ServerGoodbye(Goodbye::Unavailable),
                }
            }
        };
        session.link.down();
        self.0.remove_session(&session);
        let goodbye = match end {
            SessionEnd::AgentGoodbye => {
                log::info!("the agent of space `{}` says goodbye", linked.name);
                if let Err(error) = deps.spaces.goodbye(space).await {
                    log::warn!("space `{}` is not stopped: {error}", linked.name);
                }
                None
            }
            SessionEnd::ServerGoodbye(goodbye) => {
                log::info!("the link of space `{}` is ended: {goodbye:?}", linked.name);
                Some(goodbye)
            }
            SessionEnd::Lost(reason) => {
                log::warn!("the agent of space `{}` is lost: {reason}", linked.name);
                None
            }
        };
        deps.spaces.unlinked(space);
        goodbye
    }

    /// Reads the agent's messages until it leaves or falls silent. Replies go to their calls; the rest is handed to the
    /// queues of the session, so that no reply waits for the disk.
    async fn read_messages<E>(
        &self,
        session: &AgentSession,
        stream: &mut (impl Stream<Item = Result<SocketFrame, E>> + Unpin),
        queues: &MessageQueues,
    ) -> SessionEnd {
        let silence = self.0.deps.heartbeat * MAX_MISSED_HEARTBEATS;
        let unexpected = |what: String| SessionEnd::ServerGoodbye(Goodbye::Unexpected(what));
        loop {
            let bytes = match tokio::time::timeout(silence, stream.next()).await {
                Err(_) => return SessionEnd::Lost("it gave no sign of life"),
                Ok(Some(Ok(SocketFrame::Message(bytes)))) => bytes,
                Ok(Some(Ok(SocketFrame::Alive | SocketFrame::Ping))) => continue,
                Ok(Some(Ok(SocketFrame::Close)) | None) => return SessionEnd::Lost("it hung up"),
                Ok(Some(Err(_))) => return SessionEnd::Lost("the connection broke"),
            };
            let taken = match agent_protocol::decode(&bytes) {
                Err(error) => return unexpected(error.to_string()),
                Ok(ToServer::Goodbye) => return SessionEnd::AgentGoodbye,
                Ok(ToServer::Hello(_)) => return unexpected("hello is said once".to_owned()),
                Ok(ToServer::Reply { id, reply }) => {
                    session.link.resolve(id, reply);
                    continue;
                }
                Ok(message) => queues.push(message, bytes.len()).await,
            };
            if taken.is_err() {
                return SessionEnd::ServerGoodbye(Goodbye::Unavailable);
            }
        }
    }

    /// Writes queued messages in batches, and sends heartbeats.
    async fn write_messages(&self, mut messages: AgentOutboxReceiver, sink: &mut (impl Sink<SocketFrame> + Unpin)) {
        let mut heartbeat = tokio::time::interval(self.0.deps.heartbeat);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let first = tokio::select! {
                biased;
                next = messages.recv() => match next {
                    Some(next) => next,
                    None => return,
                },
                _ = heartbeat.tick() => {
                    if sink.send(SocketFrame::Ping).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            // After a yield, callers that are about to send have done so: under load many calls share a packet.
            tokio::task::yield_now().await;
            let mut next = Some(first);
            let mut written = 0;
            while let Some(queued) = next {
                let bytes = agent_protocol::encode(&queued.message);
                written += bytes.len();
                if sink.feed(SocketFrame::Message(bytes.into())).await.is_err() {
                    return;
                }
                next = if written < BATCH_BYTES { messages.try_recv() } else { None };
            }
            if sink.flush().await.is_err() {
                return;
            }
        }
    }
}

/// Reads the hello, with which an agent begins. An error is the goodbye for the agent, if it gets one.
async fn read_hello<E>(
    stream: &mut (impl Stream<Item = Result<SocketFrame, E>> + Unpin),
    space: SpaceId,
) -> Result<Hello, Option<Goodbye>> {
    let unexpected = |what: String| Some(Goodbye::Unexpected(what));
    let first = async {
        loop {
            match stream.next().await {
                Some(Ok(SocketFrame::Message(bytes))) => return Some(bytes),
                Some(Ok(SocketFrame::Alive | SocketFrame::Ping)) => {}
                Some(Ok(SocketFrame::Close) | Err(_)) | None => return None,
            }
        }
    };
    let bytes = tokio::time::timeout(HELLO_TIMEOUT, first).await.unwrap_or(None).ok_or(None)?;
    match agent_protocol::decode(&bytes) {
        Ok(ToServer::Hello(hello)) if hello.protocol == PROTOCOL => Ok(hello),
        Ok(ToServer::Hello(hello)) => {
            log::warn!("the agent of space {space} has version {}, whose protocol is not supported", hello.version);
            let ours = env!("CARGO_PKG_VERSION");
            Err(unexpected(format!("this server is version {ours} and speaks another protocol: use the same version")))
        }
        _ => Err(unexpected("an agent says hello first".to_owned())),
    }
}

fn frame(message: &ToAgent) -> SocketFrame {
    SocketFrame::Message(agent_protocol::encode(message).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_say_hello_is_given_up_after_ten_seconds() {
        let began = Instant::now();
        let mut silent = stream::pending::<Result<SocketFrame, ()>>();
        assert!(matches!(read_hello(&mut silent, SpaceId::new()).await, Err(None)));
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        let pings = stream::repeat_with(|| Ok::<_, ()>(SocketFrame::Alive));
        let mut pings = Box::pin(pings.then(|ping| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            ping
        }));
        assert!(matches!(read_hello(&mut pings, SpaceId::new()).await, Err(None)), "pings are no hello");
        assert_eq!(began.elapsed(), Duration::from_secs(20));
    }
}
