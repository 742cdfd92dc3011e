//! Concurrency limits of the HTTP API: event streams and test runs per user, and compilations for all users together.

use super::error::ApiError;
use crate::{
    model::id::UserId,
    platform::keyed_limit::{KeyedLimit, KeyedPermit},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Event streams that one user has open at once.
const STREAMS: usize = 16;

/// Tests and previews that one user has running at once. They run beside the queues and must not crowd them out.
const TEST_RUNS: usize = 8;

/// Compilations that run at once. They are processor work and must leave processors for other requests.
const COMPILATIONS: usize = 2;

/// Advice to a caller that reached a limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Limits shared by all handlers.
pub struct UserLimits {
    streams: KeyedLimit<UserId>,
    test_runs: KeyedLimit<UserId>,
    compilations: Arc<Semaphore>,
}

impl UserLimits {
    pub fn new() -> Self {
        let compilations = Arc::new(Semaphore::new(COMPILATIONS));
        Self { streams: KeyedLimit::new(STREAMS), test_runs: KeyedLimit::new(TEST_RUNS), compilations }
    }

    /// A permit for one more event stream of the user.
    pub fn stream(&self, user: UserId) -> Result<KeyedPermit<UserId>, ApiError> {
        let message = || format!("you watch {STREAMS} streams already: close one first");
        self.streams.take(user).ok_or_else(|| ApiError::TooManyRequests { message: message(), wait: RETRY_AFTER })
    }

    /// A permit for one more test or preview of the user.
    pub fn test_run(&self, user: UserId) -> Result<KeyedPermit<UserId>, ApiError> {
        let message = || format!("{TEST_RUNS} tests and previews of yours are under way: wait for one of them");
        self.test_runs.take(user).ok_or_else(|| ApiError::TooManyRequests { message: message(), wait: RETRY_AFTER })
    }

    /// Waits for a permit to compile.
    pub async fn compilation(&self) -> OwnedSemaphorePermit {
        self.compilations.clone().acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Default for UserLimits {
    fn default() -> Self {
        Self::new()
    }
}
