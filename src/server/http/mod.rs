//! The HTTP edge: every route in one table, authentication in front of all of them, errors to status.
//!
//! A request's way, each step in its file: [`server`] accepts the connection → [`guard`] finds the route in the
//! [`route_table`], tells who calls and whether they may → one warp filter hands the request to the route's handler in
//! [`routes`] → the answer, or an [`ApiError`] as JSON. [`openapi`] describes the same table.
//!
//! # Adding a route
//!
//! 1. Write the handler in a file of `routes/`, in one of the two forms of [`request`]: what it takes ([`Json`],
//!    `Option<Json>`, [`Query`]) and answers ([`Json`], [`Created`], [`NoContent`], …) is in its signature. Body
//!    types derive `Deserialize` with `deny_unknown_fields` and `JsonSchema`; they live in [`crate::model::api`].
//! 2. Add one line to [`route_table::routes`]: method, path, who may call it, handler, and what it is for. It is
//!    closed to scoped tokens unless it says otherwise: `Route { scope: Some(Scope::Methods), ..get(…) }`.
//! 3. If it needs something that handlers do not have yet, add a field to [`App`].
//!
//! A handler that streams answers [`Events`]; its stream ends on [`Call::shutdown`] and on
//! [`Identity::lapsed`].

mod agent_socket;
mod app;
mod body;
mod cors;
mod error;
mod guard;
mod idle;
mod openapi;
mod pagination;
mod request;
mod route_table;
mod routes;
mod server;
mod user_limits;
mod write_timeout;

pub use app::App;
pub use error::ApiError;
pub use request::{Accepted, Call, Client, Created, Events, Json, NoContent, Query, Text, Transport};
pub use server::serve;
pub use user_limits::Rations;

/// An answer. Its body may be a stream.
pub type Response = warp::reply::Response;

#[cfg(test)]
mod tests;
