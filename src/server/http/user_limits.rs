//! Concurrency limits of the HTTP API, for each user: event streams, test runs, and checks of schemas.

use super::error::ApiError;
use crate::{
    model::id::UserId,
    platform::{
        keyed_limit::{KeyedLimit, KeyedPermit},
        keyed_semaphore::KeyedSemaphore,
    },
    scripting::scripts::RunLimit,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Event streams that one user has open at once.
const STREAMS: usize = 16;

/// Checks of schemas that one user has running at once, and waiting.
const SCHEMA_CHECKS: usize = 1;
const SCHEMA_CHECKS_WAITING: usize = 16;

/// Advice to a caller that reached a limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Limits shared by all handlers.
pub struct UserLimits {
    streams: KeyedLimit<UserId>,
    test_runs: RunLimit,
    schema_checks: KeyedSemaphore<UserId>,
    /// Checks of all users. They are processor work and must leave processors for other requests. A user has at most one
    /// place in its queue, so that users take turns.
    all_schema_checks: Arc<Semaphore>,
}

/// Permission to check one schema, released when dropped.
pub struct SchemaCheckPermit {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl UserLimits {
    /// Tests and previews count towards `test_runs`, as calls of tools do.
    pub fn new(test_runs: RunLimit) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        Self {
            streams: KeyedLimit::new(STREAMS),
            test_runs,
            schema_checks: KeyedSemaphore::new(SCHEMA_CHECKS, SCHEMA_CHECKS_WAITING),
            all_schema_checks: Arc::new(Semaphore::new(processors)),
        }
    }

    /// A permit for one more event stream of the user.
    pub fn stream(&self, user: UserId) -> Result<KeyedPermit<UserId>, ApiError> {
        let message = || format!("you watch {STREAMS} streams already: close one first");
        self.streams.take(user).ok_or_else(|| ApiError::TooManyRequests { message: message(), wait: RETRY_AFTER })
    }

    /// A permit for one more test or preview of the user.
    pub fn test_run(&self, user: UserId) -> Result<KeyedPermit<UserId>, ApiError> {
        let refused = |error| ApiError::TooManyRequests { message: format!("{error}"), wait: RETRY_AFTER };
        self.test_runs.take(user).map_err(refused)
    }

    /// Waits for a permit to check a schema of the user.
    pub async fn schema_check(&self, user: UserId) -> Result<SchemaCheckPermit, ApiError> {
        let message = || format!("{SCHEMA_CHECKS_WAITING} schemas of yours wait to be checked: wait for one of them");
        let busy = || ApiError::TooManyRequests { message: message(), wait: RETRY_AFTER };
        let of_user = self.schema_checks.acquire(user).await.ok_or_else(busy)?;
        let of_all = self.all_schema_checks.clone().acquire_owned().await.expect("the semaphore is never closed");
        Ok(SchemaCheckPermit { _of_user: of_user, _of_all: of_all })
    }
}
