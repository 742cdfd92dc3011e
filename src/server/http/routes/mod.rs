//! The handlers, one file per subject. [`super::route_table`] says which route each one serves.
//!
//! Several subjects share these: [`ownership`] decides which records a caller sees and manages, [`script_references`] checks
//! that records name usable scripts, [`compile`] checks Lua and schemas, [`sample_event`] makes the events of tests and previews,
//! [`sink_status`] says how a sink fares, and [`views`] converts records that several responses mention.

mod compile;
mod ownership;
mod sample_event;
mod script_references;
mod sink_status;
mod views;

pub mod activity;
pub mod activity_figures;
pub mod audit;
pub mod auth;
pub mod backup;
pub mod event_explanation;
pub mod event_stream;
pub mod events;
pub mod groups;
pub mod inbound;
pub mod mcp;
pub mod methods;
pub mod queues;
pub mod replays;
pub mod roles;
pub mod script_runs;
pub mod scripts;
pub mod sequences;
pub mod sink_preview;
pub mod sinks;
pub mod sources;
pub mod spaces;
pub mod status;
pub mod subscriptions;
pub mod templates;
pub mod tokens;
pub mod users;
