//! Everything that crosses a process boundary, against the real binary, sockets and disks.

mod cli;
mod crash;
mod delivery;
mod events;
mod faults;
mod hostile_lua;
mod openapi;
mod readme;
mod ready_made;
mod server;
mod sinks;
mod spaces;
mod support;
