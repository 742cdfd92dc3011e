//! Periodic deletion of records past their retention: events, audit entries, key-value data, sessions and orphans.

use super::services::Services;
use crate::{model::timestamp::Timestamp, platform::store::StoreError, routing::queue::Retention};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(60);

/// Sweeps at once and then once a minute, until `shutdown`. Failures are logged; the next sweep tries again.
pub async fn run(services: &Services, shutdown: &CancellationToken) {
    let user_records = services.user_records();
    let mut interval = tokio::time::interval(INTERVAL);
    let sweeping = async {
        loop {
            interval.tick().await;
            // A backup keeps the old value of everything that is deleted before it has read it.
            if services.store.has_snapshot() {
                continue;
            }
            if let Err(error) = purge_records(services).await {
                log::warn!("old records stay for now: {error}");
            }
            if let Err(error) = services.identity.purge_sessions().await {
                log::warn!("old sessions stay for now: {error}");
            }
            user_records.delete_orphans().await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = sweeping => {}
    }
}

async fn purge_records(services: &Services) -> Result<(), StoreError> {
    let history = &services.config.history;
    services.engine.prune(Retention { keep: history.keep.0, bytes: history.size.0 }).await?;
    services.audit.purge(Timestamp::now().before(history.audit.0), history.audit_size.0).await?;
    services.kv.purge().await?;
    Ok(())
}
