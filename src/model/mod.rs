//! Types and rules without I/O: the vocabulary of every other folder.

pub mod agent_protocol;
pub mod api;
pub mod body_template;
pub mod delivery;
pub mod event;
pub mod health_check;
pub mod id;
pub mod json_input;
pub mod jsonrpc;
pub mod library;
pub mod lua_source;
pub mod method;
pub mod name;
pub mod outbound_http;
pub mod owner;
pub mod pattern;
pub mod permission;
pub mod permissions;
pub mod schema;
pub mod space_settings;
pub mod space_state;
mod strict;
pub mod template_spec;
pub mod timestamp;
pub mod units;
