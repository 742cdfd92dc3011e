//! The links of agents to this server: one session for each linked agent.
//!
//! [`hub`] knows the session in force of each space and follows changes of spaces and scripts. [`session`] runs one
//! link from the agent's hello to its end: it sends calls and reads replies, [`message_queues`] hold what else the
//! agent sends, [`registration`] publishes its methods, [`event_storage`] stores its events, and [`libraries`] keeps
//! the agent's libraries up to date.
//!
//! A space has one link. A newer one replaces the older, which gets a goodbye. The end of a link decides about the
//! space: a goodbye stops it, anything else leaves it deployed and waiting for its agent.

mod event_storage;
mod hub;
mod libraries;
mod message_queues;
mod registration;
mod session;

pub use hub::{AgentHub, AgentHubDeps, MAX_SOCKETS};
pub use session::SocketFrame;
