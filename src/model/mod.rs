//! Types and rules without I/O: the vocabulary of every other folder.
//!
//! - events on their way: [`event`], [`pattern`], [`event_filter`], [`delivery`], [`sequence`], [`replay`]
//! - calls: [`method`], [`jsonrpc`], [`schema`]
//! - definitions that users write: [`sink_spec`] with [`batch_spec`], [`body_template`], [`failure_policy`] and
//!   [`webhook_secret`]; [`source_spec`] with [`verifier`]; [`script_spec`] with [`lua_source`] and [`library`];
//!   [`space_settings`] with [`health_check`]; [`template_spec`]; [`outbound_http`] for the URLs and headers in them
//! - spaces: [`space_state`], [`agent_protocol`]
//! - identity: [`id`], [`owner`], [`name`], [`permission`], [`permissions`]
//! - the bodies of the HTTP API: [`api`]
//! - reading what users send: [`json_input`] over [`located_json`], [`toml_input`], [`json_text`], [`text_or_object`],
//!   [`text_value`], [`configured_value`]
//! - values: [`timestamp`], [`units`], [`id_map`]

pub mod agent_protocol;
pub mod api;
pub mod batch_spec;
pub mod body_template;
pub mod configured_value;
pub mod delivery;
pub mod event;
pub mod event_filter;
pub mod failure_policy;
pub mod health_check;
pub mod id;
pub mod id_map;
pub mod json_input;
pub mod json_text;
pub mod jsonrpc;
pub mod library;
mod located_json;
pub mod lua_source;
pub mod method;
pub mod name;
pub mod outbound_http;
pub mod owner;
pub mod pattern;
pub mod permission;
pub mod permissions;
pub mod replay;
pub mod script_spec;
pub mod sequence;
pub mod sink_spec;
pub mod source_spec;
pub mod space_settings;
pub mod space_state;
pub mod template_spec;
pub mod text_or_object;
pub mod text_value;
pub mod timestamp;
pub mod toml_input;
pub mod units;
pub mod verifier;
pub mod webhook_secret;

// The folder `schema`: a crate of its own, which is optimised for size.
pub use svc_schema as schema;
