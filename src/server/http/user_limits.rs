//! What one user may have at once of what all of them share: streams to watch and sinks being tried out. And
//! compilations, of which there are few for all.

use super::error::ApiError;
use crate::{
    model::id::UserId,
    platform::keyed_limit::{Share, Shares},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams of events a user watches at once.
const STREAMS: usize = 16;

/// Tests and previews of a user under way at once. They run beside the queues and must not crowd them out.
const TRIALS: usize = 8;

/// Sinks whose Lua is compiled at once. It is work for a processor, of which others need some too.
const COMPILATIONS: usize = 2;

/// When to ask again for what is used up.
const AGAIN: Duration = Duration::from_secs(1);

/// What is handed out.
pub struct Rations {
    streams: Shares<UserId>,
    trials: Shares<UserId>,
    compilations: Arc<Semaphore>,
}

impl Rations {
    pub fn new() -> Self {
        let compilations = Arc::new(Semaphore::new(COMPILATIONS));
        Self { streams: Shares::new(STREAMS), trials: Shares::new(TRIALS), compilations }
    }

    /// One more stream for the user.
    ///
    /// # Errors
    ///
    /// Fails if it has as many as it gets.
    pub fn stream(&self, user: UserId) -> Result<Share<UserId>, ApiError> {
        let message = || format!("you watch {STREAMS} streams already: close one first");
        self.streams.take(user).ok_or_else(|| ApiError::TooManyRequests { message: message(), wait: AGAIN })
    }

    /// One more test or preview for the user.
    ///
    /// # Errors
    ///
    /// Fails if it has as many as it gets.
    pub fn trial(&self, user: UserId) -> Result<Share<UserId>, ApiError> {
        let message = || format!("{TRIALS} tests and previews of yours are under way: wait for one of them");
        self.trials.take(user).ok_or_else(|| ApiError::TooManyRequests { message: message(), wait: AGAIN })
    }

    /// A turn at compiling, waited for.
    pub async fn compilation(&self) -> OwnedSemaphorePermit {
        self.compilations.clone().acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Default for Rations {
    fn default() -> Self {
        Self::new()
    }
}
