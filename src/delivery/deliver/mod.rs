//! The event's way out: queue → attempt → settle.
//!
//! [`Deliverer`] gives each sink that has something to deliver a worker; [`worker`] takes the head of the queue, makes
//! the attempt and settles it. [`recipient`] finds the sink or subscription behind a queue, [`permits`] bounds the
//! attempts that run at once, [`retry_policy`] schedules the retry. [`sync_routes`] keeps routes and queues in line
//! with the sinks and subscriptions.

mod deliverer;
mod permits;
mod recipient;
mod retry_policy;
mod route_sync;
#[cfg(test)]
mod tests;
mod worker;

pub use deliverer::{Deliverer, DelivererDeps};
pub use route_sync::sync_routes;
