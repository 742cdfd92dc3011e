//! Keeps the link to one server: dials, lets the two get acquainted, talks until it breaks, and dials again.
//!
//! Waits between attempts double and are drawn at random below that, so that the agents of a zone do not come back all
//! at once. A refused token is tried again, but slowly: somebody may be mending it.

use super::{
    Agent,
    backoff::{Backoff, drawn},
    binding::{Belongs, HomeError},
    connection::{self, Ending, Talk},
    dial::{DialError, Socket},
    liveness::Pulse,
    server_link::Link,
    server_links::Seat,
    shutdown::Reason,
    startup,
};
use crate::model::agent_protocol::{Goodbye, Welcome};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How attempts follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The longest first wait, and the longest of all.
    pub first: Duration,
    pub most: Duration,
    /// The shortest and the longest wait after a refused token.
    pub refused: (Duration, Duration),
    /// A link that lasted so long was a good one: waits start anew.
    pub lasted: Duration,
}

/// Why there is no conversation.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Talk(#[from] Ending),
    #[error(transparent)]
    Home(#[from] HomeError),
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            most: Duration::from_secs(15),
            refused: (Duration::from_secs(15), Duration::from_secs(60)),
            lasted: Duration::from_secs(5),
        }
    }
}

/// Keeps a link to the server of this seat until the agent ends.
pub async fn keep(agent: Arc<Agent>, seat: usize) {
    let seat = &agent.links.seats()[seat];
    if seat.server.is_remote() && !seat.server.is_secure() {
        log::warn!("the link to {} is not encrypted, and the token travels on it: use https", seat.server);
    }
    let pace = agent.settings.pace;
    let mut backoff = Backoff::new(pace.first, pace.most);
    let mut told = String::new();
    let mut returning = false;
    loop {
        let pulse = Arc::<Pulse>::default();
        // Not only once the links part: a new link, made while the agent still drains, would start its space again.
        let connected = tokio::select! {
            biased;
            _ = agent.end.begun() => return,
            connected = connect(&agent, seat, returning, pulse.clone()) => connected,
        };
        let failed = match connected {
            Ok((socket, welcome)) => {
                returning = true;
                let began = Instant::now();
                told.clear();
                let ending = converse(&agent, seat, socket, welcome, &pulse).await;
                if began.elapsed() >= pace.lasted {
                    backoff.reset();
                }
                Failed::Talk(ending)
            }
            Err(failed) => failed,
        };
        let why = failed.to_string();
        seat.disconnect(why.clone());
        if agent.end.has_begun() {
            return;
        }
        let wait = match failed {
            Failed::Talk(Ending::Left) => return,
            Failed::Talk(Ending::Said(Goodbye::Replaced)) => {
                return agent.end.begin(Reason::Replaced(seat.server.clone()));
            }
            Failed::Talk(Ending::Said(Goodbye::Revoked)) => {
                return agent.end.begin(Reason::Revoked(seat.server.clone()));
            }
            Failed::Talk(Ending::Said(Goodbye::Stopped)) => {
                return agent.end.begin(Reason::Stopped(seat.server.clone()));
            }
            Failed::Home(error) => return agent.end.begin(Reason::Foreign(error)),
            Failed::Dial(DialError::Refused { .. }) => {
                log::error!("{}: {why}; trying again now and then", seat.server);
                drawn(pace.refused.0, pace.refused.1)
            }
            Failed::Dial(_) | Failed::Talk(_) => {
                // Told once, not at every attempt of a long night.
                let level = if why == told { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "{}: {why}; trying again", seat.server);
                told = why;
                backoff.next_drawn()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = agent.end.begun() => return,
        }
    }
}

async fn connect(
    agent: &Arc<Agent>,
    seat: &Seat,
    returning: bool,
    pulse: Arc<Pulse>,
) -> Result<(Socket, Welcome), Failed> {
    let mut socket = agent.dialer.dial(&seat.server, &agent.settings.token, pulse).await?;
    let welcome = connection::introduce(&mut socket, &agent.settings.node_id, returning).await?;
    if agent.home.settle(&welcome, &agent.spool).await? == Belongs::Anew {
        agent.registrar.forget().await;
        agent.packages.take(Vec::new());
    }
    Ok((socket, welcome))
}

async fn converse(agent: &Arc<Agent>, seat: &Seat, socket: Socket, welcome: Welcome, pulse: &Pulse) -> Ending {
    log::info!("{}: connected as space `{}` of zone `{}`", seat.server, welcome.space_name, welcome.zone);
    let (link, parcels) = Link::new(seat.server.clone(), agent.settings.answer);
    seat.connect(link.clone());
    // On its own: it waits for its turn among other changes, and for answers that are heard in the conversation.
    let (opened, publishing, script) = (agent.clone(), link.clone(), welcome.startup_script.clone());
    tokio::spawn(async move {
        startup::open(&opened, script).await;
        opened.registrar.introduce(&publishing).await;
    });
    let ending = Talk::new(agent, &link, welcome).go_on(socket, parcels, pulse).await;
    link.end();
    ending
}
