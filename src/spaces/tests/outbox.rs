//! Between the state and its event: what a crash, or a disk without room, leaves is raised later, once and in order.

use super::*;
use crate::{
    platform::{collection::CollectionRecord, store::keys},
    spaces::{row::SpaceRow, system_events::PendingEvent},
};

/// Puts events into a space's outbox as a crash would leave it.
async fn leave(world: &TestSpaces, id: SpaceId, change: impl FnOnce(&mut SpaceRow) + Send + 'static) {
    let mut row = SpaceRow::TABLE.get(&world.store, id.as_bytes()).unwrap().unwrap();
    change(&mut row);
    world.store.write(move |batch| SpaceRow::TABLE.put(batch, id.as_bytes(), &row)).await.unwrap();
}

fn stored(world: &TestSpaces) -> usize {
    world.store.scan(&[keys::SPACES]).count()
}

#[tokio::test]
async fn what_a_crash_left_pending_events_is_raised_at_the_next_start_in_order() {
    let world = TestSpaces::new().await;
    let space = world.space("web", json!({})).await;
    let actor = world.ada.actor();
    leave(&world, space.id, move |row| {
        let space = Arc::make_mut(&mut row.space);
        space.state = SpaceState::Deployed;
        space.started_at = Some(Timestamp::now());
        row.outbox.push(PendingEvent::started(&row.space, actor.clone()));
        row.outbox.push(PendingEvent::stopped(&row.space, actor));
    })
    .await;
    let world = world.reopened(0).await;
    assert_eq!(world.raised_kinds(), [""; 0]);
    world.spaces.resume().await;
    assert_eq!(world.raised_kinds(), ["space.started", "space.stopped"]);
    let world = world.reopened(0).await;
    world.spaces.resume().await;
    assert_eq!(world.raised_kinds(), [""; 0], "forgotten once raised");
    world.gone().await;
}

#[tokio::test]
async fn an_event_that_was_raised_before_the_crash_is_stored_once() {
    let world = TestSpaces::new().await;
    let space = world.space("web", json!({})).await;
    let actor = world.ada.actor();
    let (keep, kept) = std::sync::mpsc::channel();
    leave(&world, space.id, move |row| {
        row.outbox.push(PendingEvent::stopped(&row.space, actor));
        keep.send(row.outbox.clone()).unwrap();
    })
    .await;
    let world = world.reopened(0).await;
    world.spaces.resume().await;
    assert_eq!(world.raised_kinds(), ["space.stopped"]);
    // The crash comes before the outbox on disk is emptied.
    let outbox = kept.recv().unwrap();
    leave(&world, space.id, move |row| row.outbox = outbox).await;
    let world = world.reopened(0).await;
    world.spaces.resume().await;
    assert_eq!(world.raised_kinds(), [""; 0]);
    world.gone().await;
}

#[tokio::test]
async fn a_space_marked_as_deleted_is_gone_at_once_and_its_event_still_comes() {
    let world = TestSpaces::new().await;
    let space = world.space("web", json!({})).await;
    let actor = world.ada.actor();
    leave(&world, space.id, move |row| {
        row.deleted = true;
        row.outbox.push(PendingEvent::deleted(&row.space, actor, Timestamp::now()));
    })
    .await;
    let world = world.reopened(0).await;
    assert!(world.spaces.all().is_empty() && world.spaces.find(world.ada.id, "web").is_none());
    world.space("web", json!({})).await;
    world.spaces.resume().await;
    assert_eq!(world.raised_kinds(), ["space.created", "space.deleted"]);
    let world = world.reopened(0).await;
    assert_eq!(stored(&world), 1, "nothing is left of it");
    world.gone().await;
}

#[tokio::test]
async fn a_full_disk_refuses_new_spaces_and_delays_the_events_of_those_there_are() {
    let world = TestSpaces::new().await;
    let space = world.space("web", json!({})).await;
    world.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    let world = world.reopened(u64::MAX).await;
    world.spaces.resume().await;
    let refused = world.try_create("more", Driver::External, json!({})).await;
    assert!(matches!(refused, Err(SpaceError::Store(crate::platform::store::StoreError::DiskFull))));
    let stopped = world.spaces.stop(world.ada.actor(), space.id).await.unwrap();
    assert_eq!(stopped.state, SpaceState::Stopped);
    world.spaces.delete(world.ada.actor(), space.id).await.unwrap();
    assert_eq!(world.raised_kinds(), [""; 0]);
    let world = world.reopened(0).await;
    assert!(world.spaces.all().is_empty());
    world.spaces.resume().await;
    assert_eq!(world.raised_kinds(), ["space.stopped", "space.deleted"]);
    world.gone().await;
}
