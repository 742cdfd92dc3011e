//! The sandbox: one Lua state that can compute and use the libraries of its program, and nothing else.
//!
//! [`state`] makes the state and prepares each run in it; the memory limit is set there, by
//! [`RunLimits::limit_memory`](super::limits::RunLimits::limit_memory). [`runs`] has a method for each kind of run,
//! [`filters`] runs the filters of an event, [`scope`] fills a run's environment, and [`raised_errors`] turns errors of
//! Lua into errors of a run.

mod filters;
mod raised_errors;
mod runs;
mod scope;
mod state;

pub(in crate::scripting) use filters::{FILTER_BUDGET, FilterState};
pub(in crate::scripting) use scope::FilterArguments;
pub(in crate::scripting) use state::Sandbox;
