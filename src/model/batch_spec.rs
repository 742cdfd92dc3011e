//! The batch of a webhook: how many events one request carries, and how long the first waits for others.

use super::units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most events of one request.
pub const MAX_BATCH_EVENTS: usize = 100;

/// The longest time for which an event waits for others.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The batches of a webhook, as users write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchSpec {
    /// The most events of one request, 1 to 100.
    pub max: usize,
    /// The time for which the first event waits for others after it was accepted; none if absent, at most 1m.
    #[serde(default = "no_wait", skip_serializing_if = "is_no_wait")]
    pub wait: Span,
}

/// The rule that a batch breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchSpecError {
    #[error("`webhook.batch.max` must be 1 to {MAX_BATCH_EVENTS}")]
    Max,
    #[error("`webhook.batch.wait` must be at most {}", Span(MAX_WAIT))]
    Wait,
}

impl BatchSpec {
    /// Checks both fields.
    pub fn check(&self) -> Result<(), BatchSpecError> {
        if !(1..=MAX_BATCH_EVENTS).contains(&self.max) {
            return Err(BatchSpecError::Max);
        }
        if self.wait.0 > MAX_WAIT {
            return Err(BatchSpecError::Wait);
        }
        Ok(())
    }
}

const fn no_wait() -> Span {
    Span(Duration::ZERO)
}

fn is_no_wait(wait: &Span) -> bool {
    wait.0.is_zero()
}
