//! `svc` routes events. This is the map of the house, from the ground up; a module uses only those above it on
//! this page, and `tests/layering.rs` checks that.
//!
//! The event's way: [`http`] takes it in → [`emit`] stamps it and asks [`route`] who hears it → [`queue`] puts it on
//! disk through [`store`] → [`deliver`] makes an attempt through [`sink`], or through
//! [`subscription`] if it is a method that listens, and settles it.
//!
//! The call's way: [`http`] takes it in → [`call`] asks [`registry`] who serves it for this caller and picks one →
//! [`link`] carries it to the space's agent as [`wire`] says, and the reply back. A tool's call comes in by [`mcp`].

// The vocabulary: pure types and rules, no I/O.
pub mod id;
pub mod jsonrpc;
pub mod library;
pub mod metrics;
pub mod pattern;
pub mod permission;
pub mod schema;
pub mod share;
pub mod timestamp;

pub mod event;
pub mod method;
pub mod owner;

// What agents and servers say to each other.
pub mod wire;

// Settings, the log, and the only module that names sled.
pub mod config;
pub mod logging;
pub mod store;

// What stands on the store or the network alone: the audit log, the guarded HTTP client, what scripts remember, the
// server's handle on an agent, the trie.
pub mod audit;
pub mod egress;
pub mod kv;
pub mod link;
pub mod route;

// Who calls; what waits to be delivered.
pub mod identity;
pub mod queue;

// What happens, as it happens; who serves which method.
pub mod live;
pub mod registry;

// The event's way in, and the call's way there and back.
pub mod call;
pub mod emit;

// The workspaces that events and methods come from, and the system events that tell of them.
pub mod space;

// The Lua sandbox, and the sinks that use it.
pub mod script;

// Scripts kept by name, for sinks, spaces and tools.
pub mod shelf;

pub mod sink;

// Methods that events are delivered to as if they were sinks.
pub mod subscription;

// The event's way out.
pub mod deliver;

// The server's end of an agent's link.
pub mod session;

// Methods as the tools of the Model Context Protocol.
pub mod mcp;

// Every route in one table, behind one guard.
pub mod http;

// The script runtime of a space.
pub mod run;

// The wiring of a server, the agent of a space, and the commands.
pub mod agent;
pub mod daemon;

pub mod cli;
