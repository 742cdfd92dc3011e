//! Retention: history that outgrows its limit, and a disk that is short of room.

use super::{super::*, AttemptEnding, DEAD_LETTERS, EngineFixture, event, user};
use crate::{
    model::{
        event::Event,
        id::{EventId, UserId},
        owner::Owner,
    },
    platform::{
        audit::{Audit, AuditEntry, AuditFilter},
        store::{BlockSizes, LiveBytes, StoreRoom, StoreSizes},
    },
};
use std::{sync::Arc, time::Duration};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

impl EngineFixture {
    /// Accepts an event of about 100 KiB for the sinks whose bit is set.
    pub(super) async fn push_large(&self, mask: u8) -> EventId {
        self.try_push_large(user(), mask).await.unwrap()
    }

    async fn try_push_large(&self, user: UserId, mask: u8) -> Result<EventId, AcceptError> {
        let mut event = Event::clone(&*event(None));
        event.user_id = user;
        let data = format!("{{\"x\":\"{}\"}}", "x".repeat(100 << 10));
        event.data = serde_json::value::RawValue::from_string(data).unwrap();
        let targets = (0..2).filter(|n| mask & 1 << n != 0).map(|n| self.target(n)).collect();
        Ok(self.engine.accept(Arc::new(event), targets, AcceptOptions::default()).await?.event.id)
    }

    fn has(&self, id: EventId) -> bool {
        self.engine.record(id).unwrap().is_some()
    }
}

#[tokio::test]
async fn while_the_disk_is_short_of_room_the_oldest_settled_history_goes_a_quarter_at_a_time() {
    let fixture = EngineFixture::new().await;
    let retention = Retention { keep: WEEK, bytes: 1 << 30, dead_letter_bytes: 1 << 30 };
    let waiting = fixture.push_large(0b01).await;
    let mut settled = Vec::new();
    for _ in 0..40 {
        settled.push(fixture.push_large(0b10).await);
        fixture.settle(1, AttemptEnding::Done).await;
    }
    fixture.store.write(|_| ()).await.unwrap();
    assert_eq!(fixture.engine.prune(retention).await.unwrap(), 0);
    let before = fixture.engine.history_bytes();
    let shortened = || {
        let live = fixture.engine.history_bytes();
        let room = StoreRoom {
            free: 63 << 20,
            keep_free: 64 << 20,
            sizes: StoreSizes {
                live: LiveBytes { all: live, in_blocks: live },
                blocks: BlockSizes::default(),
                file: 2 * before,
            },
        };
        retention.short_of_room(live, room).unwrap()
    };
    assert_eq!(fixture.engine.prune(shortened()).await.unwrap(), 11);
    assert!(fixture.engine.history_bytes() <= before / 4 * 3);
    assert!(fixture.has(waiting), "a queued event is kept");
    assert_eq!(
        settled.iter().map(|id| fixture.has(*id)).collect::<Vec<_>>(),
        [vec![false; 11], vec![true; 29]].concat()
    );
    let mut last = usize::MAX;
    while last > 0 {
        last = fixture.engine.prune(shortened()).await.unwrap();
    }
    let left = fixture.engine.history_bytes();
    assert!(left <= 1 << 20 && left > 800 << 10, "{left}: the last MiB stays");
    assert!(fixture.has(settled[39]) && fixture.has(waiting));
    fixture.end().await;
}

#[test]
fn history_is_kept_if_the_disk_would_be_short_of_room_without_it() {
    let retention = Retention { keep: WEEK, bytes: 1 << 30, dead_letter_bytes: 1 << 30 };
    let room = |free: u64| StoreRoom {
        free: free << 20,
        keep_free: 64 << 20,
        sizes: StoreSizes {
            live: LiveBytes { all: 40 << 20, in_blocks: 40 << 20 },
            blocks: BlockSizes::default(),
            file: 60 << 20,
        },
    };
    // Without 39 MiB of the history, 57 MiB of the file can be used again.
    assert_eq!(retention.short_of_room(40 << 20, room(16)).map(|retention| retention.bytes), Some(30 << 20));
    assert!(retention.short_of_room(20 << 20, room(16)).is_none());
    assert!(retention.short_of_room(40 << 20, room(6)).is_none());
}

#[tokio::test]
async fn an_event_that_makes_history_too_large_replaces_the_oldest_ones_that_are_settled() {
    let fixture = EngineFixture::new().await;
    let waiting = fixture.push_large(0b01).await;
    let first = fixture.push_large(0).await;
    fixture.engine.prune(Retention { keep: WEEK, bytes: 1 << 20, dead_letter_bytes: 1 << 20 }).await.unwrap();
    let mut later = Vec::new();
    for _ in 0..30 {
        later.push(fixture.push_large(0).await);
        assert!(fixture.engine.history_bytes() < (1 << 20) + (64 << 10) + (102 << 10));
    }
    assert!(fixture.has(waiting) && !fixture.has(first));
    let kept: Vec<bool> = later.iter().map(|id| fixture.has(*id)).collect();
    assert_eq!(kept, [vec![false; 20], vec![true; 10]].concat());
    fixture.end().await;
}

#[tokio::test]
async fn events_of_one_user_push_out_their_own_before_those_of_others() {
    let mut fixture = EngineFixture::new().await;
    let (quiet, busy) = (UserId::new(), UserId::new());
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(fixture.try_push_large(quiet, 0).await.unwrap());
    }
    let retention = Retention { keep: WEEK, bytes: 1 << 20, dead_letter_bytes: 1 << 20 };
    fixture.engine.prune(retention).await.unwrap();
    for restart in [false, true] {
        if restart {
            fixture.crash().await;
            fixture.engine.prune(retention).await.unwrap();
        }
        for _ in 0..30 {
            fixture.try_push_large(busy, 0).await.unwrap();
        }
        assert!(kept.iter().all(|id| fixture.has(*id)), "after a restart: {restart}");
        assert!(fixture.engine.history_bytes() < (1 << 20) + (64 << 10) + (102 << 10));
    }
    // With as much as the busy one, the quiet one pays too.
    for _ in 0..5 {
        kept.push(fixture.try_push_large(quiet, 0).await.unwrap());
    }
    assert!(!fixture.has(kept[0]) && fixture.has(kept[7]));
    fixture.end().await;
}

#[tokio::test]
async fn dead_letters_count_towards_the_size_of_history_and_the_oldest_go_with_an_entry() {
    let fixture = EngineFixture::new().await;
    let mut dead = Vec::new();
    for _ in 0..3 {
        dead.push(fixture.push_large(0b01).await);
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    let waiting = fixture.push_large(0b10).await;
    let settled = fixture.push_large(0).await;
    fixture.store.write(|_| ()).await.unwrap();
    let keep_letters = Retention { keep: WEEK, bytes: 250 << 10, dead_letter_bytes: 1 << 20 };
    assert_eq!(fixture.engine.prune(keep_letters).await.unwrap(), 1);
    assert!(!fixture.has(settled), "the settled event goes first, though it is the newest");
    assert!(dead.iter().all(|id| fixture.has(*id)));
    let retention = Retention { dead_letter_bytes: 250 << 10, ..keep_letters };
    assert_eq!(fixture.engine.prune(retention).await.unwrap(), 2);
    assert_eq!(dead.iter().map(|id| fixture.has(*id)).collect::<Vec<_>>(), [false, false, true]);
    assert!(fixture.has(waiting), "a queued event is never deleted");
    let sink = fixture.sinks[0];
    assert_eq!(fixture.engine.depth(sink).dead, 1);
    assert_eq!(fixture.engine.dead_letters(sink, 0, 9).unwrap()[0].event_id, dead[2]);
    let filter = AuditFilter { action: Some("event.drop_dead_letters".to_owned()), ..AuditFilter::default() };
    let entries = Audit::new(fixture.store.clone()).list(filter, None, 9).await.unwrap().entries;
    assert_eq!((entries.len(), &entries[0].object), (1, &format!("sink:{sink}")));
    assert_eq!(
        entries[0].detail,
        serde_json::json!({
            "sink": "s0", "dead_letters": 2, "first_sequence": 1, "last_sequence": 2,
            "reason": "the history is over its 256000 bytes (`history.size`)",
        })
    );
    fixture.end().await;
}

#[tokio::test]
async fn dead_letters_go_after_all_settled_events_of_their_user() {
    let fixture = EngineFixture::new().await;
    let dead = fixture.push_large(0b01).await;
    fixture.settle(0, AttemptEnding::Dead).await;
    let retention = Retention { keep: WEEK, bytes: 1 << 20, dead_letter_bytes: 1 << 20 };
    fixture.engine.prune(retention).await.unwrap();
    for _ in 0..30 {
        fixture.push_large(0).await;
    }
    fixture.engine.prune(retention).await.unwrap();
    assert!(fixture.has(dead));
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).dead, 1);
    fixture.end().await;
}

#[tokio::test]
async fn dead_letters_go_while_every_other_event_is_being_written() {
    let fixture = EngineFixture::new().await;
    let small = Retention { keep: WEEK, bytes: 250 << 10, dead_letter_bytes: 250 << 10 };
    for _ in 0..3 {
        fixture.push_large(0b01).await;
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    fixture.store.write(|_| ()).await.unwrap();
    fixture.engine.prune(small).await.unwrap();
    let mut most = 0;
    for _ in 0..10 {
        // One group of writes: each event finds those before it unwritten.
        let events = (0..4).map(|_| fixture.push_large(0));
        futures_util::future::join_all(events).await;
        most = most.max(fixture.engine.history_bytes());
    }
    fixture.engine.prune(small).await.unwrap();
    assert!(fixture.engine.history_bytes() <= 250 << 10, "{} bytes", fixture.engine.history_bytes());
    assert!(most < 1 << 20, "{most} bytes");
    fixture.end().await;
}

#[tokio::test]
async fn a_user_with_too_many_undelivered_bytes_is_refused_until_some_are_delivered() {
    let mut fixture = EngineFixture::new().await;
    for mask in [0b01, 0b01, 0b01, 0b11, 0b10, 0b10] {
        fixture.push_large(mask).await;
    }
    fixture.crash().await;
    let refused = fixture.try_push_large(user(), 0b10).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the undelivered events of this user are over 512KiB (`limits.undelivered`): wait until the user's own sinks have \
         delivered them, or delete the sinks that fail"
    );
    assert!(matches!(refused, AcceptError::UndeliveredFull { .. }));
    fixture.push_large(0).await;
    fixture.try_push_large(UserId::new(), 0b10).await.unwrap();
    for _ in 0..2 {
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    fixture.push_large(0b01).await;
    fixture.end().await;
}

#[tokio::test]
async fn events_that_wait_for_a_global_sink_count_towards_no_user() {
    let mut fixture = EngineFixture::new().await;
    let (global, own) = (0b01, 0b10);
    let make_global = |fixture: &EngineFixture| fixture.engine.open_queue(&fixture.target(0), Owner::Global);
    make_global(&fixture);
    for mask in [global, global, global, global, own, own, own] {
        fixture.push_large(mask).await;
    }
    fixture.crash().await;
    let refused = fixture.try_push_large(user(), own).await.unwrap_err();
    assert!(matches!(refused, AcceptError::UndeliveredFull { .. }), "both sinks are the user's: {refused}");
    make_global(&fixture);
    fixture.settle(0, AttemptEnding::Done).await;
    fixture.push_large(global | own).await;
    fixture.end().await;
}

#[tokio::test]
async fn an_old_event_goes_once_nothing_holds_it_any_more() {
    let retention = Retention { keep: Duration::ZERO, bytes: u64::MAX, dead_letter_bytes: u64::MAX };
    let fixture = EngineFixture::new().await;
    let prune = async || {
        // Settlements before it are on disk.
        fixture.store.write(|_| ()).await.unwrap();
        fixture.engine.prune(retention).await.unwrap()
    };
    let settled = fixture.push(None, 0b001).await.event.id;
    let discarded = fixture.push(None, 0b010).await.event.id;
    let mut dead = Vec::new();
    for _ in 0..DEAD_LETTERS {
        dead.push(fixture.push(None, 0b100).await.event.id);
        fixture.settle(2, AttemptEnding::Dead).await;
    }
    assert_eq!(prune().await, 0, "all are held");
    assert_eq!(prune().await, 0);
    fixture.settle(0, AttemptEnding::Done).await;
    assert_eq!((prune().await, fixture.has(settled)), (1, false));
    fixture.engine.discard_queue(fixture.sinks[1]).await.unwrap();
    assert_eq!((prune().await, fixture.has(discarded)), (1, false));
    // One more letter than there is room for pushes the oldest out.
    fixture.push(None, 0b100).await;
    fixture.settle(2, AttemptEnding::Dead).await;
    assert_eq!((prune().await, fixture.has(dead[0])), (1, false));
    let entry = AuditEntry::new(None, "event.redeliver", "s2");
    fixture.engine.redeliver(fixture.sinks[2], DeadLetterFilter::All, entry).await.unwrap();
    fixture.settle(2, AttemptEnding::Done).await;
    assert_eq!((prune().await, fixture.has(dead[1])), (1, false));
    fixture.store.close().await;
}
