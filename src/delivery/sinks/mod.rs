//! Sinks: webhooks and scripts that receive events, and json-rpc formatters that methods name.
//!
//! [`definition`] makes a [`Sink`] of the spec that its user writes, [`records`] is the collection of all sinks.
//! [`attempt`] makes one delivery attempt, through [`webhook`] or [`script`], with the services of a [`context`];
//! [`crate::delivery::deliver`] decides when, how often and in which order.
//!
//! A webhook sends a [`body`] or a [`batch_body`] to its [`webhook_url`], with [`webhook_headers`] and a [`signature`]
//! made with one of its [`webhook_secrets`] or its [`ed25519_key`]. A script runs a [`lazy_program`] with its
//! [`script_clients`]. A [`formatter`] shapes events for methods and receives none.

mod attempt;
mod batch_body;
pub mod body;
mod context;
pub mod definition;
mod ed25519_key;
pub mod formatter;
mod lazy_program;
pub mod records;
pub mod script;
mod script_clients;
pub mod signature;
mod sink;
#[cfg(test)]
pub(crate) mod test_support;
pub mod webhook;
mod webhook_headers;
mod webhook_secrets;
mod webhook_url;

pub use attempt::{PreviewError, attempt, attempt_batch, preview, quarantine, render_ahead, renders_ahead};
pub use body::{BodyError, EventBody, FirstBodies};
pub use context::SinkContext;
pub use definition::{Secrets, SinkDefinitionError, SinkLuaError};
pub use formatter::Formatter;
pub use records::{Sinks, SinksError};
pub use script::SinkScript;
pub use sink::{Sink, SinkPause, SinkTarget};
pub use webhook::Webhook;
pub use webhook_secrets::RotateError;
