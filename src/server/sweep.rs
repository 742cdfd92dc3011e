//! Periodic deletion of records past their retention: events, audit entries, key-value data, sessions and orphans. And
//! periodic return of memory.
//!
//! History is pruned more often than once a minute while the disk is short of room: the oldest events are then deleted
//! beyond what the retention asks for, so that a server whose own history filled the disk recovers by itself. If that
//! cannot give enough room, because something else filled the disk, the history is kept.

use super::services::Services;
use crate::{
    model::timestamp::Timestamp,
    platform::{audit::AuditSizes, memory, store::StoreError},
    routing::queue::{BurstEnd, Retention},
};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(60);

/// Time between two looks at the room on the disk.
const ROOM_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two looks at memory that was freed.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// Sweeps at once and then once a minute, until `shutdown`. Failures are logged; the next sweep tries again.
pub async fn run(services: &Services, shutdown: &CancellationToken) {
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = async { tokio::join!(sweep_records(services), sweep_history(services), return_memory()); } => {}
    }
}

/// Returns memory to the system that the start has needed, and then what was freed a while ago.
async fn return_memory() {
    let mut interval = interval(MEMORY_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one completes at once.
    interval.tick().await;
    interval.tick().await;
    memory::unmap_start_code();
    loop {
        memory::return_freed_memory();
        interval.tick().await;
    }
}

async fn sweep_records(services: &Services) {
    let user_records = services.user_records();
    let mut interval = interval(INTERVAL);
    loop {
        interval.tick().await;
        // A backup keeps the old value of everything that is deleted before it has read it.
        if services.store.has_snapshot() {
            continue;
        }
        if let Err(error) = services.engine.end_bursts(BurstEnd::Over).await {
            log::warn!("the losses of sinks are summed up later: {error}");
        }
        services.failures.report_late(|id, report| {
            if let Some(sink) = services.sinks.get(id) {
                report(sink.reported());
            }
        });
        if let Err(error) = purge_records(services).await {
            log::warn!("old records stay for now: {error}");
        }
        if let Err(error) = services.identity.purge_sessions().await {
            log::warn!("old sessions stay for now: {error}");
        }
        if let Err(error) = services.sinks.forget_expired_secrets().await {
            log::warn!("replaced secrets of webhooks stay for now: {error}");
        }
        user_records.delete_orphans().await;
    }
}

async fn purge_records(services: &Services) -> Result<(), StoreError> {
    let history = &services.config.history;
    let most = AuditSizes { ordinary: history.audit_size.0, administrative: history.audit_admin_size.0 };
    let audit = services.audit.purge(Timestamp::now().before(history.audit.0), most).await;
    services.kv.purge().await?;
    audit?;
    Ok(())
}

async fn sweep_history(services: &Services) {
    let (mut minute, mut room) = (interval(INTERVAL), interval(ROOM_INTERVAL));
    minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
    room.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shortage = Shortage::None;
    loop {
        tokio::select! {
            _ = minute.tick() => {}
            _ = room.tick() => if !services.store.is_short_of_room() { continue },
        }
        if services.store.has_snapshot() {
            continue;
        }
        if let Err(error) = prune_history(services, &mut shortage).await {
            log::warn!("old events stay for now: {error}");
        }
    }
}

/// The shortage of room as it was seen and logged last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortage {
    None,
    /// Deleting history gives room.
    OfHistory,
    /// Something else than the history takes the room.
    OfOthers,
}

async fn prune_history(services: &Services, shortage: &mut Shortage) -> Result<(), StoreError> {
    let (engine, history) = (&services.engine, &services.config.history);
    let retention = Retention { keep: history.keep.0, bytes: history.size.0, dead_letter_bytes: history.size.0 };
    let short = services.store.room().filter(|room| room.is_short());
    let Some(room) = short else {
        *shortage = Shortage::None;
        engine.prune(retention).await?;
        return Ok(());
    };
    let Some(shortened) = retention.short_of_room(engine.history_bytes(), room) else {
        if std::mem::replace(shortage, Shortage::OfOthers) != Shortage::OfOthers {
            log::warn!("the disk is almost full, and without the history it would be too: the history is kept");
        }
        engine.prune(retention).await?;
        return Ok(());
    };
    *shortage = Shortage::OfHistory;
    let deleted = engine.prune(shortened).await?;
    if deleted > 0 {
        log::warn!("the disk is almost full: the {deleted} oldest events of the history are deleted");
    }
    Ok(())
}
