//! Events by the attempts at them, as the figures of the last hour count these.

use super::{super::*, AttemptEnding, EngineFixture};
use crate::model::{delivery::AttemptKind, timestamp::Timestamp};
use std::time::Duration;

#[tokio::test]
async fn history_finds_events_by_their_attempts() {
    let fixture = EngineFixture::new().await;
    let recovered = fixture.push(None, 0b01).await.event.id;
    fixture.settle(0, AttemptEnding::Retry).await;
    fixture.settle(0, AttemptEnding::Done).await;
    let given_up = fixture.push(None, 0b10).await.event.id;
    fixture.settle(1, AttemptEnding::Dead).await;
    fixture.push(None, 0b01).await;
    fixture.store.write(|_| ()).await.unwrap();
    let found = |kind, since| {
        let attempt = Some(AttemptFilter { kind, since });
        let page = fixture.engine.history(&HistoryFilter { limit: 9, attempt, ..HistoryFilter::default() }).unwrap();
        page.records.iter().map(|record| record.event.id).collect::<Vec<_>>()
    };
    assert_eq!(found(AttemptKind::Failed, None), [given_up, recovered]);
    assert_eq!(found(AttemptKind::Delivered, None), [recovered]);
    let soon = Timestamp::now().after(Duration::from_secs(60));
    assert_eq!(found(AttemptKind::Failed, Some(soon)), []);
    fixture.end().await;
}
