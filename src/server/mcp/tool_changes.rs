//! When what a user is offered has changed: often enough to be of use, seldom enough not to be a burden.

use super::catalog::{Catalog, Changes, Digest};
use crate::model::id::UserId;
use std::time::Duration;
use tokio::time::Instant;

/// Changes come in groups: a registration that replaces another takes things away before it adds others.
const SETTLE: Duration = Duration::from_millis(100);

/// The least time between two looks, and so between two pieces of news.
const SPACING: Duration = Duration::from_secs(1);

/// The news for one user, compared with what was told last.
pub struct News {
    catalog: Catalog,
    user: UserId,
    changes: Changes,
    told: Digest,
    /// No look before this.
    next: Instant,
}

impl News {
    /// News from here on.
    pub fn of(catalog: &Catalog, user: UserId) -> Self {
        // Before the look, so that nothing falls between.
        let changes = catalog.changes();
        Self { catalog: catalog.clone(), user, changes, told: catalog.digest(user), next: Instant::now() }
    }

    /// What the client knows of, if it knows everything that it was told.
    pub const fn told(&self) -> Digest {
        self.told
    }

    /// For a client that has heard nothing since this: if that is not how things are, the first news comes at once.
    pub fn since(mut self, known: Digest) -> Self {
        if known != self.told {
            self.told = known;
            self.changes.mark();
        }
        self
    }

    /// Resolves once the user is offered something else than it was told of.
    pub async fn next(&mut self) -> Digest {
        loop {
            self.changes.next().await;
            tokio::time::sleep(SETTLE).await;
            tokio::time::sleep_until(self.next).await;
            // What came meanwhile is in what is looked at now.
            self.changes.forget();
            self.next = Instant::now() + SPACING;
            let now = self.catalog.digest(self.user);
            if now != self.told {
                self.told = now;
                return now;
            }
        }
    }
}
