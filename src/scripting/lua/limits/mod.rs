//! The limits of a run: its wall-clock time, processor time and memory.
//!
//! [`run_limits`] holds the limits and sets the memory limit of a Lua state. [`run_clock`] measures the time of one run
//! and ends it. [`watchdog`] makes every run look at its clock, and wakes those that wait.

mod run_clock;
mod run_limits;
mod watchdog;

pub(super) use run_clock::{RunClock, check};
pub use run_limits::LimitExceeded;
pub(super) use run_limits::RunLimits;
pub(super) use watchdog::Watchdog;
