//! Tests that cross a process boundary: the real binary, real sockets and real disks.
//!
//! Each file is one subject; `support` has the daemon, the space, the webhook receiver and the MCP clients they share.

mod agents;
mod backup;
mod cli;
mod crash;
mod damage;
mod delivery;
mod docs;
mod events;
mod examples;
mod faults;
mod floods;
mod health;
mod hostile_lua;
mod hostile_schemas;
mod isolation;
mod mcp;
mod methods;
mod migration;
mod openapi;
mod power_cut;
mod process_driver;
mod python;
mod readme;
mod ready_made_sinks;
mod ready_made_sources;
mod registration_fields;
mod registration_languages;
mod registrations;
mod rights;
mod run;
mod secrets;
mod serial_mode;
mod server;
mod shell_hooks;
mod shutdown;
mod sinks;
mod slow_dns;
mod sources;
mod space_scripts;
mod spaces;
mod stored_scripts;
mod subscriptions;
mod support;
mod thousand_spaces;
