//! Types and rules without I/O: the vocabulary of every other folder.

pub mod agent_protocol;
pub mod delivery;
pub mod event;
pub mod id;
pub mod json_input;
pub mod jsonrpc;
pub mod library;
pub mod method;
pub mod owner;
pub mod pattern;
pub mod permission;
pub mod schema;
mod strict;
pub mod timestamp;
