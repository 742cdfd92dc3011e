//! Everything that crosses a process boundary, against the real binary, sockets and disks.

mod agents;
mod cli;
mod crash;
mod crowd;
mod delivery;
mod driver;
mod events;
mod faults;
mod health;
mod hostile_lua;
mod methods;
mod openapi;
mod published;
mod readme;
mod ready_made;
mod run;
mod scripts;
mod server;
mod sinks;
mod spaces;
mod subscriptions;
mod support;
mod timeouts;
