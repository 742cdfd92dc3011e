//! The limits of a run: its wall-clock time, processor time and memory.
//!
//! Time is enforced by the [`watchdog`], which makes every run check its [`run_clock`] and wakes runs that wait; a run
//! over its time ends itself. Memory is enforced by Lua's allocator, with the limit that [`run_limits`] sets on a
//! state.

mod run_clock;
mod run_limits;
mod watchdog;

pub(in crate::scripting) use run_clock::RunClock;
pub(super) use run_clock::check;
pub use run_limits::LimitExceeded;
pub(in crate::scripting) use run_limits::RunLimits;
pub(in crate::scripting) use watchdog::Watchdog;
