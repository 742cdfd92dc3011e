//! The limits of a run: its wall-clock time, processor time and memory.
//!
//! Time is enforced by the [`watchdog`], which makes every run check its [`run_clock`] and wakes runs that wait; a run over
//! its time ends itself. Memory is enforced by Lua's allocator, with the limit that [`run_limits`] sets on a state.

mod run_clock;
mod run_limits;
mod watchdog;

pub(super) use run_clock::{RunClock, check};
pub use run_limits::LimitExceeded;
pub(super) use run_limits::RunLimits;
pub(super) use watchdog::Watchdog;
