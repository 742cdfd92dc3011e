//! The server's end of an agent's link: greets it, carries calls out and answers back ([`Sessions::converse`]), and takes
//! registrations, events and health in ([`intake`]). What the space's programs can load is kept up with
//! ([`libraries`]).
//!
//! A space has one link. A newer one takes its place, and the older is told so. How a link ends decides what becomes of
//! the space: a goodbye stops it, anything else leaves it deployed and waiting for its agent.

mod intake;
mod libraries;

use intake::Intake;

use crate::{
    calls::{
        agent_link::{Line, Link},
        registry::Registry,
    },
    delivery::{deliver::Deliverer, subscriptions::Subscriptions},
    identity::{Caller, Identity},
    model::{
        agent_protocol::{self, Goodbye, Hello, PROTOCOL, ToAgent, ToServer, Welcome},
        id::{SpaceId, UserId},
        space_state::SpaceState,
    },
    platform::store::{Lanes, StoreError},
    routing::emit::Emitter,
    scripting::scripts::Scripts,
    spaces::{Arrival, Change, SpaceError, Spaces},
};
use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{MutexGuard, Notify, Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long an agent may take to say who it is.
const GREETING: Duration = Duration::from_secs(10);

/// How long the last words to an agent may take.
const PARTING: Duration = Duration::from_secs(2);

/// Events of one agent that may wait to be stored; then it is not read from until some are.
const WAITING_EVENTS: usize = 512;

/// The same for what is said now and then.
const WAITING_WORDS: usize = 16;

/// Agents that may be about to say hello at once. They hold no place among the connections.
const GREETED_AT_ONCE: usize = 1024;

/// Bytes that are gathered before they go out together.
const GATHERED: usize = 64 << 10;

/// The longest name of a machine that is kept.
const LONGEST_NODE: usize = 255;

/// Everybody's sessions. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Sessions(Arc<Shared>);

/// What a session works with.
pub struct Parts {
    pub zone: Arc<str>,
    pub max_payload: usize,
    pub heartbeat: Duration,
    pub identity: Identity,
    pub spaces: Spaces,
    pub scripts: Scripts,
    pub registry: Registry,
    pub subscriptions: Subscriptions,
    pub emitter: Arc<Emitter>,
    pub deliverer: Deliverer,
    pub shutdown: CancellationToken,
}

struct Shared {
    parts: Parts,
    /// The link in force of each space.
    links: Mutex<HashMap<SpaceId, Arc<Seat>>>,
    /// One is held over a registration, from its check to its publication, chosen by the owner: only methods of one
    /// owner can be in each other's way.
    registering: Lanes,
    greetings: Semaphore,
    /// Counts the conversations.
    running: TaskTracker,
}

/// A link in its place.
struct Seat {
    link: Arc<Link>,
    owner: UserId,
    /// Told when the owner's libraries may be others than were sent.
    stale: Notify,
}

/// A WebSocket's frame, as far as it matters here.
#[derive(Debug)]
pub enum Frame {
    Message(Bytes),
    /// A ping or a pong: only a sign of life.
    Sign,
    /// Asks for one.
    Ping,
    Close,
}

/// What a link that is being set up or running comes to.
enum End {
    /// The agent said goodbye.
    Goodbye,
    /// We end it, and tell the agent why.
    Parted(Goodbye),
    /// Nothing more came.
    Lost(&'static str),
}

impl Sessions {
    /// Sessions that end the links of spaces that stop or go, and drop what such spaces served.
    pub fn new(parts: Parts) -> Self {
        let sessions = Self(Arc::new(Shared {
            parts,
            links: Mutex::default(),
            registering: Lanes::new(),
            greetings: Semaphore::new(GREETED_AT_ONCE),
            running: TaskTracker::new(),
        }));
        let listening = sessions.clone();
        sessions.0.parts.spaces.listen(move |change| listening.follow(change));
        let listening = sessions.clone();
        sessions.0.parts.scripts.listen(move |change| listening.note_scripts(change));
        sessions
    }

    /// Forgets the subscriptions of spaces that stopped in the moment in which an earlier server did.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        self.0.parts.subscriptions.retain(|space| self.0.is_deployed(space)).await
    }

    /// Waits until every agent has been told that the server stops. Only after shutdown was called for.
    pub async fn finished(&self) {
        self.0.running.close();
        self.0.running.wait().await;
    }

    /// Speaks with an agent until one of the two ends it. The caller is who the agent's token made it.
    pub async fn converse<S, E>(&self, caller: Caller, space: SpaceId, socket: S)
    where
        S: Stream<Item = Result<Frame, E>> + Sink<Frame> + Send,
    {
        let _running = self.0.running.token();
        let (mut sink, mut stream) = socket.split();
        let greeting = self.0.greetings.try_acquire();
        let greeted = match &greeting {
            Ok(_) => self.greet(&mut stream, space).await,
            Err(_) => Err(Some(Goodbye::Restarting)),
        };
        drop(greeting);
        let parting = match greeted {
            Ok(hello) => self.accompany(&caller, space, &hello, &mut sink, &mut stream).await,
            Err(parting) => parting,
        };
        if let Some(why) = parting {
            log::debug!("the link of space {space} ends: {why:?}");
            let last_words = async {
                let _ = sink.send(message(&ToAgent::Goodbye(why))).await;
                let _ = sink.send(Frame::Close).await;
            };
            let _ = tokio::time::timeout(PARTING, last_words).await;
        }
    }

    async fn greet<E>(
        &self,
        stream: &mut (impl Stream<Item = Result<Frame, E>> + Unpin),
        space: SpaceId,
    ) -> Result<Hello, Option<Goodbye>> {
        let unexpected = |why: String| Some(Goodbye::Unexpected(why));
        let first = async {
            loop {
                match stream.next().await {
                    Some(Ok(Frame::Message(bytes))) => return Some(bytes),
                    Some(Ok(Frame::Sign | Frame::Ping)) => {}
                    Some(Ok(Frame::Close) | Err(_)) | None => return None,
                }
            }
        };
        let bytes = tokio::time::timeout(GREETING, first).await.unwrap_or(None).ok_or(None)?;
        match agent_protocol::decode(&bytes) {
            Ok(ToServer::Hello(hello)) if hello.protocol == PROTOCOL => Ok(hello),
            Ok(ToServer::Hello(hello)) => {
                log::warn!("the agent of space {space} is version {} and cannot be spoken with", hello.version);
                let ours = env!("CARGO_PKG_VERSION");
                Err(unexpected(format!(
                    "this server is version {ours} and speaks another protocol: use the same version"
                )))
            }
            _ => Err(unexpected("an agent says hello first".to_owned())),
        }
    }

    /// A link from its welcome to its end; gives what to tell the agent last, if anything.
    async fn accompany<E>(
        &self,
        caller: &Caller,
        space: SpaceId,
        hello: &Hello,
        sink: &mut (impl Sink<Frame> + Unpin),
        stream: &mut (impl Stream<Item = Result<Frame, E>> + Unpin),
    ) -> Option<Goodbye> {
        let parts = &self.0.parts;
        let node_id: String = hello.node_id.chars().filter(|c| !c.is_control()).take(LONGEST_NODE).collect();
        let arrival = if hello.returning { Arrival::Returning } else { Arrival::New };
        let linked = match parts.spaces.linked(space, &node_id, arrival).await {
            Ok(linked) => linked,
            Err(SpaceError::NotFound) => return Some(Goodbye::Revoked),
            Err(SpaceError::NotLaunched(_) | SpaceError::WasStopped(_)) => return Some(Goodbye::Stopped),
            Err(error) => {
                log::warn!("the agent of space {space} is not linked: {error}");
                return Some(Goodbye::Restarting);
            }
        };
        log::info!("the agent of space `{}` is linked, on {node_id}", linked.name);
        let (seat, line) = self.take_place(space, linked.owner);
        let link = &seat.link;
        // As it is now that there is a link to tell of changes.
        let current = parts.spaces.get(space).unwrap_or_else(|| linked.clone());
        let welcome = Welcome {
            space_id: space,
            space_name: linked.name.to_string(),
            zone: parts.zone.to_string(),
            max_payload: parts.max_payload,
            health_check: current.settings.health_check.as_ref().map(raw),
            startup_script: self.startup_script(&current),
        };
        // First in line: what runs in the space may need them from its beginning.
        let libraries = self.send_libraries(&seat, None).await;
        let ((events, raised), (words, said)) = (mpsc::channel(WAITING_EVENTS), mpsc::channel(WAITING_WORDS));
        let intake = Intake { events, words };
        let end = match sink.send(message(&ToAgent::Welcome(welcome))).await {
            Err(_) => End::Lost("it could not be welcomed"),
            Ok(()) => tokio::select! {
                end = self.listen_to(link, stream, &intake) => end,
                end = self.heed_all(link, said) => end,
                () = self.speak(line, sink) => End::Lost("it could not be written to"),
                end = self.take_in(caller, link, raised) => end,
                never = self.follow_libraries(&seat, libraries) => match never {},
                why = link.ended() => End::Parted(why.unwrap_or(Goodbye::Restarting)),
                () = parts.identity.wait_until_invalid(caller) => End::Parted(Goodbye::Revoked),
                () = parts.shutdown.cancelled() => End::Parted(Goodbye::Restarting),
            },
        };
        link.down();
        self.0.leave_place(&seat);
        let parting = match end {
            End::Goodbye => {
                log::info!("the agent of space `{}` says goodbye", linked.name);
                if let Err(error) = parts.spaces.goodbye(space).await {
                    log::warn!("space `{}` is not stopped: {error}", linked.name);
                }
                None
            }
            End::Parted(why) => {
                log::info!("the link of space `{}` is ended: {why:?}", linked.name);
                Some(why)
            }
            End::Lost(why) => {
                log::warn!("the agent of space `{}` is lost: {why}", linked.name);
                None
            }
        };
        parts.spaces.unlinked(space);
        parting
    }

    /// Makes a link the one in force; an older one is told so.
    fn take_place(&self, space: SpaceId, owner: UserId) -> (Arc<Seat>, Line) {
        let (link, line) = Link::new(space);
        let seat = Arc::new(Seat { link, owner, stale: Notify::new() });
        let before = self.0.links().insert(space, seat.clone());
        if let Some(before) = before {
            before.link.end(Goodbye::Replaced);
        }
        // It may have been stopped before there was a link to end.
        if !self.0.is_deployed(space) {
            seat.link.end(Goodbye::Stopped);
        }
        (seat, line)
    }

    /// Sends what stands in line, as much together as there is, and asks for signs of life.
    async fn speak(&self, mut line: Line, sink: &mut (impl Sink<Frame> + Unpin)) {
        let mut heartbeat = tokio::time::interval(self.0.parts.heartbeat);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let first = tokio::select! {
                biased;
                next = line.recv() => match next {
                    Some(next) => next,
                    None => return,
                },
                _ = heartbeat.tick() => {
                    if sink.send(Frame::Ping).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            // Whoever is about to call too gets to, so that under load many calls share a packet.
            tokio::task::yield_now().await;
            let mut next = Some(first);
            let mut gathered = 0;
            while let Some(message) = next {
                let bytes = agent_protocol::encode(&message);
                gathered += bytes.len();
                if sink.feed(Frame::Message(bytes.into())).await.is_err() {
                    return;
                }
                next = if gathered < GATHERED { line.try_recv() } else { None };
            }
            if sink.flush().await.is_err() {
                return;
            }
        }
    }

    /// Keeps links, methods and subscriptions in step with what becomes of a space.
    fn follow(&self, change: &Change) {
        match change {
            Change::Created(_) | Change::Started(_) | Change::TokenRotated(_) => {}
            Change::Updated { before, after } => {
                if before.settings.health_check != after.settings.health_check
                    && let Some(link) = self.0.link(after.id)
                {
                    link.post(ToAgent::Check(after.settings.health_check.as_ref().map(raw)));
                }
            }
            Change::Stopped(space) => self.end(space.id, Goodbye::Stopped),
            Change::Deleted(space) => self.end(space.id, Goodbye::Revoked),
        }
    }

    fn end(&self, space: SpaceId, why: Goodbye) {
        if let Some(link) = self.0.link(space) {
            link.end(why);
        }
        self.drop_served(space);
    }

    /// Forgets what a space served, unless it is deployed again by then.
    fn drop_served(&self, space: SpaceId) {
        self.0.parts.registry.unregister(space);
        let (sessions, asked) = (self.clone(), self.clone());
        tokio::spawn(async move {
            let removed = sessions.0.parts.subscriptions.remove_unless(space, move || asked.0.is_deployed(space));
            if let Err(error) = removed.await {
                // The next start finds them and does it then.
                log::warn!("the subscriptions of space {space} stay for now: {error}");
            }
        });
    }
}

impl Shared {
    /// The turn to register for the link's space.
    async fn turn(&self, link: &Link) -> MutexGuard<'_, ()> {
        // Of a space that is gone by now nothing is registered, whoever's turn it is.
        let owner = self.parts.spaces.get(link.space()).map_or([0; 16], |space| *space.owner.as_bytes());
        self.registering.turn(&owner).await
    }

    fn is_deployed(&self, space: SpaceId) -> bool {
        self.parts.spaces.get(space).is_some_and(|space| space.state == SpaceState::Deployed)
    }

    fn links(&self) -> parking_lot::MutexGuard<'_, HashMap<SpaceId, Arc<Seat>>> {
        self.links.lock()
    }

    fn link(&self, space: SpaceId) -> Option<Arc<Link>> {
        self.links().get(&space).map(|seat| seat.link.clone())
    }

    /// Gives up the place, unless another link has it by now.
    fn leave_place(&self, seat: &Arc<Seat>) {
        let (mut links, space) = (self.links(), seat.link.space());
        if links.get(&space).is_some_and(|current| Arc::ptr_eq(current, seat)) {
            links.remove(&space);
        }
    }
}

fn message(message: &ToAgent) -> Frame {
    Frame::Message(agent_protocol::encode(message).into())
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("settings are JSON")
}
