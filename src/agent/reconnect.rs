//! Keeps the link to one server: connects, runs the connection until it breaks, and connects again.
//!
//! Waits between attempts double, with jitter, so that the agents of a zone do not come back at once. A refused token
//! is tried again slowly, because it may be renewed meanwhile.

use super::{
    binding::{BindingChange, BindingError},
    connection::{self, Connection, ConnectionEnd},
    dial::{DialError, Socket},
    liveness::LinkActivity,
    server_link::ServerLink,
    server_links::ServerSlot,
    shutdown::StopReason,
    startup,
    state::AgentState,
};
use crate::{
    model::agent_protocol::{Goodbye, Welcome},
    platform::{
        backoff::{Backoff, random_between},
        task,
    },
};
use std::sync::Arc;
use tokio::time::Instant;

/// The reason why there is no link.
#[derive(Debug, thiserror::Error)]
enum LinkFailure {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Connection(#[from] ConnectionEnd),
    #[error(transparent)]
    Binding(#[from] BindingError),
}

/// Keeps a link to the server of this slot until the agent stops.
pub async fn stay_connected(agent: Arc<AgentState>, slot: usize) {
    let slot = &agent.links.slots()[slot];
    if slot.server.is_remote() && !slot.server.is_secure() {
        log::warn!("the link to {} is not encrypted, and the token travels on it: use https", slot.server);
    }
    let policy = agent.settings.reconnect;
    let mut backoff = Backoff::new(policy.first, policy.limit);
    let mut last_warning = String::new();
    let mut returning = false;
    loop {
        let activity = Arc::<LinkActivity>::default();
        // From the beginning of the shutdown: a new link, made while the agent drains, would start its space again.
        let connected = tokio::select! {
            biased;
            _ = agent.shutdown.begun() => return,
            connected = connect(&agent, slot, returning, activity.clone()) => connected,
        };
        let failure = match connected {
            Ok((socket, welcome)) => {
                returning = true;
                let began = Instant::now();
                last_warning.clear();
                let end = run_connection(&agent, slot, socket, welcome, &activity).await;
                if began.elapsed() >= policy.stable_after {
                    backoff.reset();
                }
                LinkFailure::Connection(end)
            }
            Err(failure) => failure,
        };
        let reason = failure.to_string();
        slot.disconnected(reason.clone());
        if agent.shutdown.has_begun() {
            return;
        }
        let server = || slot.server.clone();
        let wait = match failure {
            LinkFailure::Connection(ConnectionEnd::Left) => return,
            LinkFailure::Connection(ConnectionEnd::Goodbye(Goodbye::Replaced)) => {
                return agent.shutdown.begin(StopReason::Replaced(server()));
            }
            LinkFailure::Connection(ConnectionEnd::Goodbye(Goodbye::Revoked)) => {
                return agent.shutdown.begin(StopReason::Revoked(server()));
            }
            LinkFailure::Connection(ConnectionEnd::Goodbye(Goodbye::Stopped)) => {
                return agent.shutdown.begin(StopReason::SpaceStopped(server()));
            }
            LinkFailure::Binding(error) => return agent.shutdown.begin(StopReason::WrongSpace(error)),
            LinkFailure::Dial(DialError::TokenRefused { .. }) => {
                log::error!("{}: {reason}; trying again now and then", slot.server);
                random_between(policy.token_refused.0, policy.token_refused.1)
            }
            LinkFailure::Dial(_) | LinkFailure::Connection(_) => {
                // A repeated failure is a warning only once.
                let level = if reason == last_warning { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "{}: {reason}; trying again", slot.server);
                last_warning = reason;
                backoff.next_jittered()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = agent.shutdown.begun() => return,
        }
    }
}

async fn connect(
    agent: &Arc<AgentState>,
    slot: &ServerSlot,
    returning: bool,
    activity: Arc<LinkActivity>,
) -> Result<(Socket, Welcome), LinkFailure> {
    let mut socket = agent.dialer.dial(&slot.server, &agent.settings.token, activity).await?;
    let welcome = connection::say_hello(&mut socket, &agent.settings.node_id, returning).await?;
    if agent.binding.bind(&welcome, &agent.spool).await? == BindingChange::Rebound {
        agent.registrar.forget_saved().await;
        agent.packages.replace_libraries(Vec::new());
    }
    Ok((socket, welcome))
}

async fn run_connection(
    agent: &Arc<AgentState>,
    slot: &ServerSlot,
    socket: Socket,
    welcome: Welcome,
    activity: &LinkActivity,
) -> ConnectionEnd {
    log::info!("{}: connected as space `{}` of zone `{}`", slot.server, welcome.space_name, welcome.zone);
    let (link, messages) = ServerLink::new(slot.server.clone(), agent.settings.answer_timeout);
    slot.connected(link.clone());
    // A task of its own: it waits for other changes, and for answers that the connection reads.
    let (starting, publishing, script) = (agent.clone(), link.clone(), welcome.startup_script.clone());
    task::spawn(async move {
        startup::start_up(&starting, script).await;
        let publish = starting.registrar.publish_on_new_link(&publishing);
        tokio::join!(publish, startup::retry_pending(&starting, &publishing));
    });
    let end = Connection::new(agent, &link, welcome).run(socket, messages, activity).await;
    link.close();
    end
}
