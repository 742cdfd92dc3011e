//! A worker: the process that runs the Lua of one owner.
//!
//! [`serve`] is its main loop, on one thread; [`server_socket`] its socket; [`filter_runner`] runs filters;
//! [`remote_host`] the services of its programs, each of which asks the server.

mod filter_runner;
mod remote_host;
mod serve;
mod server_socket;

pub use serve::run_worker;
