//! Subscriptions: each method of a space that names `events` has a queue of its own, as a sink has.
//!
//! [`records`] keeps all subscriptions on disk, so that events wait for a space whose agent is away. [`attempt`] makes
//! one delivery attempt: it shapes the event into params and calls the method through the [`MethodGateway`].
//! [`crate::delivery::deliver`] decides when, how often and in which order.

mod attempt;
mod gateway;
mod records;
mod subscription;
#[cfg(test)]
pub(crate) mod test_support;

pub use attempt::{MethodContext, attempt, event_sink_warnings, formatters_for};
pub use gateway::{MethodGateway, Presence};
pub use records::{Subscriptions, SubscriptionsError};
pub use subscription::Subscription;
