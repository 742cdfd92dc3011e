//! The limit of runs that one user starts and waits for: calls of tools, and tests and previews. They run beside the
//! queues and must not crowd them out.

use crate::{
    model::id::UserId,
    platform::keyed_limit::{KeyedLimit, KeyedPermit},
};
use std::sync::Arc;

/// Runs that one user has under way at once.
const RUNS: usize = 8;

/// The runs of every user. Cloning it is cheap.
#[derive(Clone)]
pub struct RunLimit(Arc<KeyedLimit<UserId>>);

/// The user has as many runs under way as a user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{RUNS} tests, previews and calls of tools of yours are under way: wait for one of them")]
pub struct TooManyRuns;

impl RunLimit {
    pub fn new() -> Self {
        Self(Arc::new(KeyedLimit::new(RUNS)))
    }

    /// A permit for one more run of the user.
    pub fn take(&self, user: UserId) -> Result<KeyedPermit<UserId>, TooManyRuns> {
        self.0.take(user).ok_or(TooManyRuns)
    }
}

impl Default for RunLimit {
    fn default() -> Self {
        Self::new()
    }
}
