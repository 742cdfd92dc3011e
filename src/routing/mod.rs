//! The event's way in: [`emit`] accepts and stamps an event, [`matcher`] finds the sinks it is for and [`route`] has their filters, [`queue`] keeps it on
//! disk until it is delivered, and [`feed`] shows it to subscribers of the live stream. The way goes on in
//! [`crate::delivery::deliver`].

pub mod emit;
pub mod feed;
pub mod matcher;
pub mod queue;
pub mod route;
