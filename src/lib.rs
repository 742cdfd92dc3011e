//! `svc` routes events to sinks and calls to methods. Each folder uses only folders of lower levels;
//! `tests/layering.rs` checks that.
//!
//! An event's way: [`server::http`] authorizes and accepts it → [`routing::emit`] stamps it and asks
//! [`routing::matcher`] for the matching queues → [`routing::queue`] writes it to disk through [`platform::store`] →
//! [`delivery::deliver`] makes an attempt through [`delivery::sinks`] or [`delivery::subscriptions`] and settles it.
//!
//! A call's way: [`server::http`] authorizes and accepts it, for an MCP client through [`server::mcp`] →
//! [`calls::call`] resolves the name in [`calls::registry`] and picks a provider → [`calls::agent_link`] sends it to
//! the space's agent in the messages of [`model::agent_protocol`] → [`agent::method_server`] answers it.

// Level 0: types and rules without I/O.
pub mod model;

// Level 1: config, log, metrics; the store with its collections, audit log and key-value data; the guarded HTTP client.
pub mod platform;

// Level 2: users, roles, groups, tokens, sessions: who calls, with which permissions (`server::http` enforces them).
pub mod identity;

// Level 3: the matcher, the queues and the event's way in; the method registry and the call's way.
pub mod calls;
pub mod routing;

// Level 4: the lifecycle of spaces; the Lua sandbox, stored scripts, the runtime for programs of a space.
pub mod scripting;
pub mod spaces;

// Level 5: sinks, method subscriptions, the event's way out; sources, at which other services raise events.
pub mod delivery;
pub mod sources;

// Level 6: the daemon with its HTTP API, MCP endpoint and agent sessions; the agent of a space.
pub mod agent;
pub mod server;

// Level 7: the command line.
pub mod cli;

// Level 8: the entry points of the fuzz targets in `tests/fuzz/`.
#[doc(hidden)]
pub mod fuzz_entry;
