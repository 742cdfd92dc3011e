//! The handlers, a file for each subject. [`super::route_table`] says which route each serves.

pub mod audit;
pub mod auth;
pub mod events;
pub mod groups;
pub mod mcp;
pub mod methods;
pub mod ops;
pub mod roles;
pub mod script_runs;
pub mod scripts;
pub mod sinks;
pub mod spaces;
pub mod subscriptions;
pub mod templates;
pub mod tokens;
pub mod users;
