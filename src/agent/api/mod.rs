//! The agent's local API, for programs of the space: emit events, register methods, find and call methods, load
//! libraries, use the key-value store, and read the agent's status.
//!
//! A request's way: [`server`] accepts the connection → [`guard`] checks its origin → [`routes`] dispatches it. Every
//! program on the machine may emit events; only the agent's user may change what it runs, and act as the owner of the
//! space.

mod error;
mod guard;
mod kv;
mod packages;
mod peer;
mod request;
mod routes;
mod server;

pub use error::NOT_CONNECTED;
pub use server::serve;
