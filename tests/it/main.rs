//! Everything that crosses a process boundary, against the real binary, sockets and disks.

mod agents;
mod cli;
mod crash;
mod delivery;
mod events;
mod faults;
mod hostile_lua;
mod methods;
mod openapi;
mod readme;
mod ready_made;
mod server;
mod sinks;
mod spaces;
mod subscriptions;
mod support;
