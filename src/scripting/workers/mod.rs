//! The Lua of users runs in worker processes, never in the server.
//!
//! The server's side, top to bottom: [`lua_workers`] is the handle that callers use and [`filters`] the part of it for
//! filters ([`filter_runs`]), [`pool`] has the workers ([`places`], [`slot_queue`]) and starts them ([`process`]),
//! [`worker_link`] is the connection to one of them, over a [`worker_socket`], [`host_requests`] answers what runs ask
//! for, and [`quarantine`] remembers programs that end their workers. The worker's side is [`worker`], which gives up
//! everything but its socket ([`confinement`]). Between them are [`messages`] and [`host_messages`] in frames
//! ([`wire`]), with the inputs of runs in [`input_messages`].
//!
//! A worker belongs to one owner until it ends, and everything it sends is untrusted: whose run it is, the server
//! knows.

mod confinement;
mod filter_runs;
mod filters;
mod fuzz;
mod host_messages;
mod host_requests;
mod input_messages;
mod lua_workers;
mod messages;
mod places;
mod pool;
mod process;
mod program_text;
mod quarantine;
mod rendered_messages;
mod slot_queue;
mod wire;
mod worker;
mod worker_link;
mod worker_socket;

#[cfg(test)]
mod filter_tests;
#[cfg(test)]
mod tests;

pub use fuzz::fuzz_messages;
pub use host_requests::WorkerServices;
pub use lua_workers::LuaWorkers;
pub use process::{WORKER_COMMAND, WorkerCommand};
pub use program_text::{LibraryTexts, ProgramText};
pub use quarantine::Quarantined;
pub use worker::run_worker;
