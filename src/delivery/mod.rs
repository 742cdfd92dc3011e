//! The event's way out: [`deliver`] takes events from the queues and makes attempts through [`sinks`] and
//! [`subscriptions`].

pub mod deliver;
pub mod sinks;
pub mod subscriptions;
