//! Retention: history that outgrows its limit, and a disk that is short of room.

use super::{super::*, AttemptEnding, EngineFixture, event};
use crate::{
    model::{event::Event, id::EventId},
    platform::store::{StoreRoom, StoreSizes},
};
use std::{sync::Arc, time::Duration};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

impl EngineFixture {
    /// Accepts an event of about 100 KiB for the sinks whose bit is set.
    async fn push_large(&self, mask: u8) -> EventId {
        let mut event = Event::clone(&*event(None));
        let data = format!("{{\"x\":\"{}\"}}", "x".repeat(100 << 10));
        event.data = serde_json::value::RawValue::from_string(data).unwrap();
        let targets = (0..2).filter(|n| mask & 1 << n != 0).map(|n| self.target(n)).collect();
        self.engine.accept(Arc::new(event), targets).await.unwrap().event.id
    }

    fn has(&self, id: EventId) -> bool {
        self.engine.record(id).unwrap().is_some()
    }
}

#[tokio::test]
async fn while_the_disk_is_short_of_room_the_oldest_settled_history_goes_a_quarter_at_a_time() {
    let fixture = EngineFixture::new().await;
    let retention = Retention { keep: WEEK, bytes: 1 << 30 };
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
        let room = StoreRoom { free: 63 << 20, keep_free: 64 << 20, sizes: StoreSizes { live, file: 2 * before } };
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
    let retention = Retention { keep: WEEK, bytes: 1 << 30 };
    let room = |free: u64| StoreRoom {
        free: free << 20,
        keep_free: 64 << 20,
        sizes: StoreSizes { live: 40 << 20, file: 60 << 20 },
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
    fixture.engine.prune(Retention { keep: WEEK, bytes: 1 << 20 }).await.unwrap();
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
