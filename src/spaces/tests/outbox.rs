//! The outbox of a space: events that a crash or a full disk left pending are emitted later, once and in order.

use super::*;
use crate::{
    model::health_check::CheckResult,
    platform::{collection::CollectionRecord, store::keys},
    spaces::{row::SpaceRow, system_events::PendingEvent},
};

/// Puts events into a space's outbox as a crash would leave it.
async fn leave(fixture: &TestSpaces, id: SpaceId, change: impl FnOnce(&mut SpaceRow) + Send + 'static) {
    let mut row = SpaceRow::TABLE.get(&fixture.store, id.as_bytes()).unwrap().unwrap();
    change(&mut row);
    fixture.store.write(move |batch| SpaceRow::TABLE.put(batch, id.as_bytes(), &row)).await.unwrap();
}

fn stored(fixture: &TestSpaces) -> usize {
    fixture.store.scan(&[keys::SPACES]).count()
}

#[tokio::test]
async fn events_that_a_crash_left_pending_are_emitted_at_the_next_start_in_order() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    let actor = fixture.ada.actor();
    leave(&fixture, space.id, move |row| {
        let space = Arc::make_mut(&mut row.space);
        space.state = SpaceState::Deployed;
        space.started_at = Some(Timestamp::now());
        row.outbox.push(PendingEvent::started(&row.space, actor.clone()));
        row.outbox.push(PendingEvent::stopped(&row.space, actor));
    })
    .await;
    let fixture = fixture.reopened(0).await;
    assert_eq!(fixture.emitted_kinds(), [""; 0]);
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), ["space.started", "space.stopped"]);
    let fixture = fixture.reopened(0).await;
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), [""; 0], "forgotten once emitted");
    fixture.close().await;
}

#[tokio::test]
async fn an_event_that_was_emitted_before_the_crash_is_stored_once() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    let actor = fixture.ada.actor();
    let (keep, kept) = std::sync::mpsc::channel();
    leave(&fixture, space.id, move |row| {
        row.outbox.push(PendingEvent::stopped(&row.space, actor));
        keep.send(row.outbox.clone()).unwrap();
    })
    .await;
    let fixture = fixture.reopened(0).await;
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), ["space.stopped"]);
    // The crash comes before the outbox on disk is emptied.
    let outbox = kept.recv().unwrap();
    leave(&fixture, space.id, move |row| row.outbox = outbox).await;
    let fixture = fixture.reopened(0).await;
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), [""; 0]);
    fixture.close().await;
}

#[tokio::test]
async fn a_space_marked_as_deleted_is_gone_at_once_and_its_event_still_comes() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    let actor = fixture.ada.actor();
    leave(&fixture, space.id, move |row| {
        row.deleted = true;
        row.outbox.push(PendingEvent::deleted(&row.space, actor, Timestamp::now()));
    })
    .await;
    let fixture = fixture.reopened(0).await;
    assert!(fixture.spaces.all().is_empty() && fixture.spaces.find(fixture.ada.id, "web").is_none());
    fixture.space("web", json!({})).await;
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), ["space.created", "space.deleted"]);
    let fixture = fixture.reopened(0).await;
    assert_eq!(stored(&fixture), 1, "nothing is left of it");
    fixture.close().await;
}

#[tokio::test]
async fn a_full_disk_refuses_new_spaces_and_delays_the_events_of_those_there_are() {
    let fixture = TestSpaces::new().await;
    let space = fixture.space("web", json!({})).await;
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    let fixture = fixture.reopened(u64::MAX).await;
    fixture.spaces.resume().await;
    let refused = fixture.try_create("more", Driver::External, json!({})).await;
    assert!(matches!(refused, Err(SpaceError::Store(crate::platform::store::StoreError::DiskFull))));
    let stopped = fixture.spaces.stop(fixture.ada.actor(), space.id).await.unwrap();
    assert_eq!(stopped.state, SpaceState::Stopped);
    fixture.spaces.delete(fixture.ada.actor(), space.id).await.unwrap();
    assert_eq!(fixture.emitted_kinds(), [""; 0]);
    let fixture = fixture.reopened(0).await;
    assert!(fixture.spaces.all().is_empty());
    fixture.spaces.resume().await;
    assert_eq!(fixture.emitted_kinds(), ["space.stopped", "space.deleted"]);
    fixture.close().await;
}

#[tokio::test]
async fn changes_of_health_that_find_no_room_do_not_pile_up_without_end() {
    let fixture = TestSpaces::new().await;
    let check = json!({"type": "tcp", "port": 1, "interval": "1s", "failures": 1});
    let space = fixture.space("web", json!({"health_check": check})).await;
    fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    let fixture = fixture.reopened(u64::MAX).await;
    fixture.spaces.resume().await;
    for n in 0..250 {
        let result = CheckResult { ok: n % 2 == 0, detail: None, checked_at: Timestamp::now() };
        fixture.spaces.checked(space.id, result).await.unwrap();
    }
    fixture.spaces.stop(fixture.ada.actor(), space.id).await.unwrap();
    let fixture = fixture.reopened(0).await;
    fixture.spaces.resume().await;
    let kinds = fixture.emitted_kinds();
    assert_eq!(kinds.len(), 100);
    assert_eq!(kinds[97..], ["space.healthy", "space.unhealthy", "space.stopped"], "the newest are kept");
    fixture.close().await;
}
