//! The event's way out: [`deliver`] takes events from the queues and makes attempts through [`sinks`] and
//! [`subscriptions`]. [`filters`] are asked earlier, when an event is routed.
//!
//! An attempt passes through stages that cannot be confused: a
//! [`PendingDelivery`](crate::routing::queue::PendingDelivery) from the queue, a [`CompletedAttempt`] from a sink or
//! subscription, a [`SettledAttempt`](crate::routing::queue::SettledAttempt) from the retry policy back to the queue.
//!
//! A sink that fails for long is reported by an event: [`sink_failures`] keeps a [`sink_failure`] for each sink and
//! decides on the reports, [`sink_report`] is one of them, and [`sink_report_emitter`] emits them.

mod completed_attempt;
pub mod deliver;
pub mod filters;
mod plain_filter;
mod sink_failure;
mod sink_failures;
mod sink_report;
mod sink_report_emitter;
pub mod sinks;
pub mod subscriptions;

pub use completed_attempt::{CompletedAttempt, FailureKind, Postponed, RetryAfter};
pub use sink_failure::{FailureState, ReportedSink, SinkFailure};
pub use sink_failures::{SinkFailures, SinksToReport};
pub use sink_report_emitter::report_sinks;
