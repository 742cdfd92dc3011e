//! `/mcp`: the caller's methods and stored tools as tools of the Model Context Protocol, in all versions that rmcp speaks.
//!
//! A message goes through these files: [`http`](crate::server::http) authorizes it → [`endpoint`] takes it →
//! [`origin_check`] checks its host and origin → [`message`] classifies it → [`rmcp_service`] has rmcp parse it and
//! call a [`handler`] made for this caller → [`catalog`] finds the tools that the caller is offered → [`tool`] converts
//! them and their results to MCP. A tool that is a method is called through [`crate::calls::call`], a stored one is run
//! by [`crate::scripting::scripts`].
//!
//! Requests are independent: nothing is kept between them, and each is answered as its own caller. Older clients still get
//! a [`session`], whose id is bound to its user, so that they listen for [`tool_changes`].

mod catalog;
mod endpoint;
mod error;
mod handler;
mod in_flight;
mod message;
mod origin_check;
mod raw_result;
mod request_state;
mod rmcp_service;
mod session;
mod state;
mod tool;
mod tool_changes;

pub use endpoint::{Endpoint, StreamEvent};
pub use error::EndpointError;
pub use origin_check::OriginError;
pub use rmcp_service::Reply;
pub use state::EndpointDeps;
