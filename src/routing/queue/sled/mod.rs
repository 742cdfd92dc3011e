//! The embedded engine: queues in the store, group-committed by its writer thread.
//!
//! [`engine`] implements the trait, [`recovery`] reads the queues back at start. [`queues`] is the state in memory,
//! [`write_ops`] and [`dead_letters`] the steps that run on the writer thread and keep memory and disk in line.
//! [`history`] reads events back, [`event_index`] finds one by its id, [`retention`] deletes old ones by the size that
//! [`owner_index`] counts for each user, [`undelivered`] counts what waits, [`event_cache`] keeps the last events in memory, [`rows`] and
//! [`delivery_row`] are the layout on disk,
//! [`audit_bursts`] the audit entries of lost events. [`gaps`] keeps the numbers that a sink misses, and [`numbers`] finds what became
//! of each. [`replays`] queues events of the history
//! again, for the jobs in [`replay_jobs`], by the step in [`requeue`] that dead letters take too.

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
mod queues;
mod recovery;
mod replay_jobs;
mod replays;
mod requeue;
mod retention;
mod rows;
mod sink_losses;
mod undelivered;
mod write_ops;

pub use engine::SledEngine;
#[cfg(test)]
pub(super) use engine::WaitingDelivery;
pub use queues::{EngineHooks, QueueLimits};
