//! The event's way in: [`emit`] accepts and stamps an event, [`matcher`] finds the sinks it is for and [`route`] has
//! their filters, [`queue`] keeps it on disk until it is delivered, and [`feed`] shows it to subscribers of the live
//! stream and counts it in [`activity`]. The way goes on in [`crate::delivery::deliver`].

pub mod activity;
pub mod emit;
pub mod feed;
pub mod matcher;
pub mod queue;
pub mod route;
