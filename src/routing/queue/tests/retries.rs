//! Waits for a retry, when the clock is set and over a restart.

use super::{super::*, EngineFixture, attempt};
use crate::{
    model::{id::EventId, timestamp::Timestamp},
    platform::store::keys,
};
use serde_json::{Value, json};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

impl EngineFixture {
    /// Fails the attempt at the head of the first sink's queue, and retries it after `wait`.
    async fn retry_first(&self, wait: Duration) {
        let pending = self.engine.next_delivery(self.sinks[0]).await.unwrap().unwrap();
        let attempt = attempt(pending.attempt_number(), AttemptOutcome::Failed);
        self.engine.settle(pending, SettledAttempt { attempt, settlement: Settlement::Retry(wait) }).await;
        self.store.write(|_| ()).await.unwrap();
    }

    /// Moves the times in a delivery's row, as if the clock had been that far ahead.
    async fn move_delivery(&self, id: EventId, by: Duration) {
        let HistoryPosition { accepted_at, id } = self.position(id);
        let sink = self.sinks[0];
        let time = accepted_at.micros().to_be_bytes();
        let key = keys::key(keys::DELIVERY, &[&time, id.as_bytes(), sink.as_bytes()]);
        let mut row: Value = serde_json::from_slice(&self.store.get(&key).unwrap().unwrap()).unwrap();
        let moved = |time: &Value| json!(time.as_str().unwrap().parse::<Timestamp>().unwrap().after(by));
        row["due"] = moved(&row["due"]);
        row["attempts"][0]["at"] = moved(&row["attempts"][0]["at"]);
        self.store.write(move |batch| batch.put(key, row.to_string())).await.unwrap();
    }

    fn next_in(&self) -> Duration {
        self.engine.queue_head(self.sinks[0]).unwrap().wait
    }
}

#[tokio::test]
async fn a_restart_with_the_clock_set_back_does_not_stretch_a_retry() {
    let mut fixture = EngineFixture::new().await;
    let id = fixture.push(None, 1).await.event.id;
    fixture.retry_first(Duration::from_secs(1)).await;
    fixture.move_delivery(id, HOUR).await;
    fixture.crash().await;
    let wait = fixture.next_in();
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
    assert!(wait > Duration::from_millis(500), "{wait:?}: the wait starts anew");
    fixture.end().await;
}

#[tokio::test]
async fn a_restart_keeps_the_rest_of_a_wait() {
    let mut fixture = EngineFixture::new().await;
    let id = fixture.push(None, 1).await.event.id;
    fixture.retry_first(2 * HOUR).await;
    fixture.crash().await;
    let wait = fixture.next_in();
    assert!(wait <= 2 * HOUR && wait > HOUR, "{wait:?}");
    let pending = fixture.engine.next_delivery(fixture.sinks[0]).await.unwrap().unwrap();
    assert_eq!((pending.event.id, pending.failures), (id, 1));
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_goes_by_a_clock_that_is_never_set() {
    let fixture = EngineFixture::new().await;
    fixture.push(None, 1).await;
    assert_eq!(fixture.next_in(), Duration::ZERO);
    let pending = fixture.engine.next_delivery(fixture.sinks[0]).await.unwrap().unwrap();
    let settlement = Settlement::Retry(HOUR);
    fixture.engine.settle(pending, SettledAttempt { attempt: attempt(1, AttemptOutcome::Failed), settlement }).await;
    assert_eq!(fixture.next_in(), HOUR);
    tokio::time::advance(HOUR / 4).await;
    assert_eq!(fixture.next_in(), HOUR / 4 * 3);
    tokio::time::advance(HOUR).await;
    assert_eq!(fixture.next_in(), Duration::ZERO);
    fixture.end().await;
}
