//! The HTTP API: all routes in one table, authorization in front of all of them, errors as JSON.
//!
//! A request goes through these files: [`server`] accepts the connection → [`dispatch`] takes the request →
//! [`authorize`] looks its [`route`] up, authenticates the caller, and checks the token's scope and the permissions → the
//! route's handler in [`routes`] answers, or fails with an [`ApiError`]. [`route_table`] lists the routes, and [`openapi`]
//! describes them. [`console`] serves the files of the web console, which uses these routes.
//!
//! # Adding a route
//!
//! 1. Write the handler in a file of `routes/`, in one of the forms of [`handler`]. Its signature says which
//!    [`services`] it uses, what it takes from the request ([`Json`], `Option<Json>`, [`Query`]) and what it answers
//!    ([`Json`], [`Created`], [`NoContent`], …). The types of bodies are in [`crate::model::api`]; those of requests
//!    derive `Deserialize` with `deny_unknown_fields`, and all derive `JsonSchema`.
//! 2. Add one line to [`route_table`]: method, path, access, handler, and summary. The route is closed to scoped tokens
//!    unless it names a scope: `get(…).in_scope(TokenScope::Methods)`.
//! 3. If the handler needs a service that its group does not have yet, add it to the group in [`services`].
//!
//! A handler that streams answers an [`EventStream`], which must end on [`ApiRequest::shutdown`] and when the caller's
//! credential lapses.

mod agent_socket;
mod authorize;
mod body;
mod body_memory;
mod client_info;
mod console;
mod cors;
mod dispatch;
mod error;
mod extract;
mod handler;
mod hello_limit;
mod idle;
mod metrics_listener;
mod openapi;
mod pagination;
mod query;
mod request;
mod response;
mod route;
mod route_access;
mod route_table;
mod routes;
mod server;
mod services;
mod shared_computation;
mod user_limits;
mod write_timeout;

pub use body_memory::BodyMemory;
pub use error::ApiError;
pub use extract::{Json, Query};
pub use metrics_listener::serve_metrics;
pub use request::ApiRequest;
pub use response::{Accepted, ArchiveStream, Created, EventStream, NoContent};
pub use routes::activity_figures::ActivityRecords;
pub use server::serve;
pub use services::{
    ActivityServices, BackupServices, EventServices, HttpServices, HttpSettings, LoginServices, MethodServices,
    ScriptRunServices, ScriptServices, SinkServices, SourceServices, SpaceServices, StatusServices,
    SubscriptionServices, UserServices,
};
pub use user_limits::UserLimits;

/// A response. Its body may be a stream.
pub type Response = warp::reply::Response;

#[cfg(test)]
mod tests;
