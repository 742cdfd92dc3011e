//! The agent: runs inside a space, keeps a link to each of its servers, and supervises the space's method server.
//!
//! An event's way: [`api`] → [`spool`] → [`connection`] → the server, until it confirms. A call's way: [`connection`] →
//! [`generations`] → [`method_server`], and its answer back. [`run`] starts and stops everything; [`state`] is shared
//! by all parts.
//!
//! | concern | files |
//! |---|---|
//! | link to a server | [`reconnect`], [`dial`], [`connection`], [`server_link`], [`server_links`], [`liveness`], [`in_flight`], [`binding`] |
//! | methods | [`registrar`], [`registration_file`], [`generations`]; [`method_server`] starts, restarts and stops the process |
//! | set-up scripts | [`startup`], [`setup`], [`setup_changes`] |
//! | programs of the space | [`api`] on loopback, [`proxy`] to the server's API, [`packages`], [`child_process`], [`child_env`] |
//! | the space's health | [`health_check`] |
//! | end | [`shutdown`] |

mod api;
mod binding;
mod child_env;
mod child_process;
mod connection;
mod dial;
mod generations;
mod health_check;
mod in_flight;
mod liveness;
pub mod method_server;
mod packages;
mod proxy;
mod reconnect;
mod registrar;
mod registration_file;
mod run;
mod server_link;
mod server_links;
mod server_url;
mod settings;
mod setup;
mod setup_changes;
mod shutdown;
mod spool;
mod startup;
mod state;
#[cfg(test)]
mod tests;

pub use api::NOT_CONNECTED;
pub use run::{AgentError, run};
pub use server_url::{BearerToken, BearerTokenError, ServerUrl, ServerUrlError};
pub use settings::{AgentSettings, ReconnectPolicy, StopSignals};
