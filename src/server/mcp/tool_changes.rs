//! Changes to the list of tools that one user is offered, grouped and rate-limited.

use super::catalog::{Catalog, CatalogChanges, CatalogDigest};
use crate::model::id::UserId;
use std::time::Duration;
use tokio::time::Instant;

/// Wait after a change, because changes come in groups: a registration that replaces another removes tools before it
/// adds others.
const SETTLE: Duration = Duration::from_millis(100);

/// Least time between two comparisons, and so between two reported changes.
const SPACING: Duration = Duration::from_secs(1);

/// Changes for one user, relative to the list that its client knows.
pub struct ToolChanges {
    catalog: Catalog,
    user: UserId,
    changes: CatalogChanges,
    known: CatalogDigest,
    /// Time of the next comparison at the earliest.
    next: Instant,
}

impl ToolChanges {
    /// Changes from now on.
    pub fn of(catalog: &Catalog, user: UserId) -> Self {
        // Subscribed before the digest is taken, so that no change falls between the two.
        let changes = catalog.changes();
        Self { catalog: catalog.clone(), user, changes, known: catalog.digest(user), next: Instant::now() }
    }

    /// Digest of the list that the client knows.
    pub const fn known(&self) -> CatalogDigest {
        self.known
    }

    /// Changes for a client that knows this list: if it is out of date, the first change is reported at once.
    pub fn since(mut self, known: CatalogDigest) -> Self {
        if known != self.known {
            self.known = known;
            self.changes.mark_changed();
        }
        self
    }

    /// Resolves once the user is offered another list than the client knows.
    pub async fn next(&mut self) -> CatalogDigest {
        loop {
            self.changes.next().await;
            tokio::time::sleep(SETTLE).await;
            tokio::time::sleep_until(self.next).await;
            // Changes until now are part of the digest below.
            self.changes.mark_unchanged();
            self.next = Instant::now() + SPACING;
            let now = self.catalog.digest(self.user);
            if now != self.known {
                self.known = now;
                return now;
            }
        }
    }
}
