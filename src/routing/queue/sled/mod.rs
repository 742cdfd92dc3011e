//! The embedded engine: queues in the store, group-committed by its writer thread.
//!
//! [`engine`] implements the trait, [`recovery`] reads the queues back at start. [`queues`] is the state in memory;
//! [`accept`], [`settle`] and [`dead_letters`] change it together with the rows on disk.
//! [`history`] reads events back, [`event_index`] finds one by its id, [`retention`] deletes old ones by the age that
//! [`age_sweep`] has reached and the size that [`owner_index`] counts for each user, [`undelivered`] counts what waits,
//! [`event_cache`] keeps the last events in memory, [`rows`] and [`delivery_row`] are the layout on disk,
//! [`audit_bursts`] the audit entries of lost events, [`sink_losses`] the losses of one sink. [`gaps`] keeps the
//! numbers that a sink misses, and [`numbers`] finds what became of each. [`replays`] queues events of the history
//! again, for the jobs in [`replay_jobs`], by the step in [`queue_again`] that dead letters take too.

mod accept;
mod age_sweep;
mod audit_bursts;
mod dead_letters;
mod delivery_row;
mod engine;
mod event_cache;
mod event_index;
mod gaps;
mod history;
mod numbers;
mod owner_index;
mod queue_again;
mod queues;
mod recovery;
mod replay_jobs;
mod replays;
mod retention;
mod rows;
mod settle;
mod sink_losses;
mod undelivered;

pub use engine::SledEngine;
#[cfg(test)]
pub(super) use engine::WaitingDelivery;
pub use queues::{EngineHooks, QueueLimits};
