//! Methods that listen: each method of a space that names `events` has a queue of its own, as a sink has (SPEC 6.4).
//!
//! [`records`] keeps all subscriptions on disk, so that events wait for a space whose agent is away. [`attempt`] makes one
//! delivery attempt: shapes the event, and calls the method through the [`Door`]. When, how often and in which order is
//! decided in `deliver`.

mod attempt;
mod records;
#[cfg(test)]
pub(crate) mod test_support;

pub use attempt::{Context, attempt, formatter};
pub use records::Subscriptions;

use crate::{
    calls::{call::Calls, registry::ProviderHealth},
    model::{
        id::{SinkId, SpaceId, UserId},
        jsonrpc::Outcome,
        owner::Owner,
        pattern::Patterns,
        timestamp::Timestamp,
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// One method of one space that is called for events. It is stored as this JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its queue's. A method that goes and comes back gets a new one: what its old queue held is gone for good, and
    /// history must not mistake one for the other.
    pub id: SinkId,
    pub space: SpaceId,
    pub space_name: Arc<str>,
    /// The space's. The subscription hears the events of this user.
    pub owner: UserId,
    /// The canonical name.
    pub method: Arc<str>,
    pub events: Patterns,
    /// The json-rpc sinks that may shape events for it, in the order to ask them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_sinks: Vec<String>,
    pub created_at: Timestamp,
}

/// The way to the methods that are served right now.
pub trait Door: Send + Sync + 'static {
    /// Whether the space can be called there now.
    fn presence(&self, space: SpaceId, method: &str) -> Presence;

    /// Calls the method there, under its local name and within its own timeout. The error is one line for people.
    fn call(&self, space: SpaceId, method: &str, params: Box<RawValue>) -> BoxFuture<'_, Result<Outcome, String>>;
}

/// Whether a space serves a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Ready,
    /// Its method server died and is being started again.
    Resting,
    /// Its agent is not linked, or does not serve the method.
    Away,
}

impl Subscription {
    /// What people know it by. No sink's name has a slash.
    pub fn name(&self) -> String {
        format!("{}/{}", self.space_name, self.method)
    }

    /// Whose events it hears.
    pub fn hears(&self) -> Owner {
        Owner::User(self.owner)
    }
}

impl Door for Calls {
    fn presence(&self, space: SpaceId, method: &str) -> Presence {
        match self.health_in(space, method) {
            Some(ProviderHealth::Running) => Presence::Ready,
            Some(ProviderHealth::Restarting(_)) => Presence::Resting,
            Some(ProviderHealth::Unlinked) | None => Presence::Away,
        }
    }

    fn call(&self, space: SpaceId, method: &str, params: Box<RawValue>) -> BoxFuture<'_, Result<Outcome, String>> {
        let method = method.to_owned();
        async move { self.call_in(space, &method, Some(&params)).await.map_err(|error| error.to_string()) }.boxed()
    }
}
