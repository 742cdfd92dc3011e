//! Replay jobs: what they select, the room that they leave, their progress through crashes, and their end.

use super::{super::*, AttemptEnding, CAPACITY, EngineFixture, event, owner};
use crate::{
    model::{
        event::{Event, EventType},
        id::{EventId, SinkId},
        owner::Owner,
        replay::{ReplayChange, ReplayJob, ReplayState, ReplayedState},
        sequence::SequenceRange,
    },
    platform::{audit::AuditEntry, store::keys},
};
use std::{sync::Arc, time::Duration};

fn entry() -> AuditEntry {
    AuditEntry::new(None, "sink.replay", "x")
}

impl EngineFixture {
    /// Starts a replay to a sink, or continues the one under way, and makes steps as far as there is room.
    pub(super) async fn replay(&self, n: usize, states: Vec<ReplayedState>) {
        let new = NewReplay { states, ..NewReplay::default() };
        match self.engine.start_replay(self.sinks[n], new, entry()).await {
            Ok(_) | Err(ReplayError::UnderWay) => self.make_steps(n).await,
            Err(error) => panic!("{error}"),
        }
    }

    async fn make_steps(&self, n: usize) {
        while self.engine.advance_replay(self.sinks[n], usize::MAX).await.unwrap().has_more {}
    }

    async fn start(&self, new: NewReplay) -> ReplayJob {
        self.engine.start_replay(self.sinks[0], new, entry()).await.unwrap()
    }

    fn job(&self) -> ReplayJob {
        self.engine.replays(self.sinks[0]).remove(0)
    }

    /// Delivers everything that waits for the first sink, and returns the events.
    async fn deliver_all(&self) -> Vec<EventId> {
        let mut delivered = Vec::new();
        while let Some(pending) = self.engine.next_delivery(self.sinks[0]).await.unwrap() {
            delivered.push(pending.event.id);
            self.settle(0, AttemptEnding::Done).await;
        }
        self.store.write(|_| ()).await.unwrap();
        delivered
    }

    /// Emits events of which only the first fit into the queue, and delivers those.
    async fn burst(&self, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.push(None, 1).await.event.id);
        }
        self.deliver_all().await;
        ids
    }
}

fn lost() -> NewReplay {
    NewReplay { states: ReplayedState::LOST.to_vec(), ..NewReplay::default() }
}

#[tokio::test]
async fn dropped_events_come_in_order_in_half_of_the_free_places_and_a_crash_changes_nothing() {
    let mut fixture = EngineFixture::new().await;
    let ids = fixture.burst(CAPACITY + 5).await;
    let job = fixture.start(lost()).await;
    assert_eq!((job.state, job.matched, job.queued), (ReplayState::Running, None, 0));
    let mut replayed = Vec::new();
    for _ in 0..3 {
        fixture.make_steps(0).await;
        assert!(fixture.engine.depth(fixture.sinks[0]).queued <= CAPACITY / 2);
        fixture.crash().await;
        fixture.make_steps(0).await;
        let head = fixture.engine.next_delivery(fixture.sinks[0]).await.unwrap().unwrap();
        assert_eq!(head.replay, Some(job.id));
        replayed.extend(fixture.deliver_all().await);
    }
    assert_eq!(replayed, ids[CAPACITY..]);
    fixture.make_steps(0).await;
    let ended = fixture.job();
    assert_eq!((ended.state, ended.matched, ended.queued, ended.gone), (ReplayState::Done, Some(5), 5, Some(0)));
    assert!(ended.finished_at.is_some());
    // Everything is delivered now.
    fixture.replay(0, ReplayedState::LOST.to_vec()).await;
    assert_eq!((fixture.job().matched, fixture.job().queued), (Some(0), 0));
    fixture.end().await;
}

#[tokio::test]
async fn replayed_events_take_no_place_from_new_ones_and_come_behind_those_that_wait() {
    let fixture = EngineFixture::new().await;
    let ids = fixture.burst(CAPACITY + 9).await;
    let waiting = fixture.push(None, 1).await.event.id;
    fixture.replay(0, vec![ReplayedState::Dropped]).await;
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).queued, 1 + (CAPACITY - 1) / 2);
    let mut new = Vec::new();
    for _ in 0..CAPACITY - 1 {
        let receipt = fixture.push(None, 1).await;
        assert_eq!(receipt.dropped, [], "without a replay there would be room too");
        new.push(receipt.event.id);
    }
    assert_eq!(fixture.push(None, 1).await.dropped.len(), 1, "the queue is full of new events");
    let expected: Vec<_> = [&[waiting][..], &ids[CAPACITY..CAPACITY + 1], &new].concat();
    assert_eq!(fixture.deliver_all().await, expected);
    fixture.end().await;
}

#[tokio::test]
async fn a_replay_takes_the_dead_letter_away_and_a_delivered_event_is_sent_again_if_asked_for() {
    let fixture = EngineFixture::new().await;
    let dead = fixture.push(None, 1).await.event.id;
    fixture.settle(0, AttemptEnding::Dead).await;
    let delivered = fixture.push(None, 1).await.event.id;
    fixture.deliver_all().await;
    fixture.replay(0, vec![ReplayedState::Dead]).await;
    assert_eq!(fixture.engine.depth(fixture.sinks[0]).dead, 0);
    assert_eq!(fixture.engine.dead_letters(fixture.sinks[0], 0, 9).unwrap().len(), 0);
    assert_eq!(fixture.deliver_all().await, [dead]);
    fixture.replay(0, vec![ReplayedState::Delivered]).await;
    assert_eq!(fixture.deliver_all().await, [dead, delivered]);
    fixture.end().await;
}

#[tokio::test]
async fn a_job_selects_by_number_type_and_time_and_only_events_that_went_to_its_sink() {
    let fixture = EngineFixture::new().await;
    let ids = fixture.burst(CAPACITY + 4).await;
    let mut other = Event::clone(&event(None));
    other.kind = EventType::custom("other").unwrap();
    let other = fixture
        .engine
        .accept(Arc::new(other), vec![fixture.target(0)], AcceptOptions::default())
        .await
        .unwrap()
        .event
        .id;
    fixture.deliver_all().await;
    fixture.push(None, 0b10).await;
    let selected = |new: NewReplay| {
        let fixture = &fixture;
        async move {
            fixture.start(new).await;
            let mut all = Vec::new();
            while !fixture.job().state.is_finished() {
                fixture.make_steps(0).await;
                all.extend(fixture.deliver_all().await);
            }
            all
        }
    };
    let dropped = |from: u64, to: u64| NewReplay { sequences: vec![SequenceRange { from, to }], ..lost() };
    assert_eq!(selected(dropped(6, 7)).await, ids[5..7]);
    assert_eq!(selected(dropped(6, 7)).await, [], "they are delivered");
    let all = || NewReplay { states: ReplayedState::ALL.to_vec(), ..NewReplay::default() };
    assert_eq!(selected(NewReplay { kind: Some("custom.other".parse().unwrap()), ..all() }).await, [other]);
    let (fourth, fifth) = (fixture.position(ids[3]).accepted_at, fixture.position(ids[4]).accepted_at);
    assert_eq!(selected(NewReplay { since: Some(fourth), until: Some(fifth), ..all() }).await, ids[3..5]);
    assert_eq!(selected(NewReplay { sequences: vec![SequenceRange { from: 6, to: 6 }], ..all() }).await, [ids[5]]);
    assert_eq!(selected(all()).await, [&ids[..], &[other]].concat());
    fixture.end().await;
}

#[tokio::test]
async fn a_job_over_a_history_that_is_pruned_meanwhile_ends_and_says_how_many_were_gone() {
    let fixture = EngineFixture::new().await;
    fixture.burst(CAPACITY + 6).await;
    fixture.start(lost()).await;
    fixture.make_steps(0).await;
    let none = Retention { keep: Duration::ZERO, bytes: 0, dead_letter_bytes: u64::MAX };
    fixture.engine.prune(none).await.unwrap();
    assert_eq!(fixture.deliver_all().await.len(), CAPACITY / 2, "queued events are not pruned");
    fixture.make_steps(0).await;
    let ended = fixture.job();
    let gone = 6 - CAPACITY as u64 / 2;
    assert_eq!((ended.state, ended.matched, ended.gone), (ReplayState::Done, Some(6), Some(gone)));
    fixture.end().await;
}

#[tokio::test]
async fn a_job_can_be_paused_continued_and_cancelled_and_there_is_one_at_a_time() {
    let mut fixture = EngineFixture::new().await;
    fixture.burst(CAPACITY + 9).await;
    let sink = fixture.sinks[0];
    let none = fixture.engine.change_replay(sink, ReplayChange::Pause, entry()).await;
    assert!(matches!(none, Err(ReplayError::NoneUnderWay)));
    fixture.start(lost()).await;
    assert!(matches!(fixture.engine.start_replay(sink, lost(), entry()).await, Err(ReplayError::UnderWay)));
    fixture.make_steps(0).await;
    fixture.engine.change_replay(sink, ReplayChange::Pause, entry()).await.unwrap();
    fixture.deliver_all().await;
    fixture.crash().await;
    fixture.make_steps(0).await;
    assert_eq!((fixture.job().state, fixture.job().queued), (ReplayState::Paused, CAPACITY as u64 / 2));
    assert_eq!(fixture.engine.running_replays(), []);
    fixture.engine.change_replay(sink, ReplayChange::Resume, entry()).await.unwrap();
    fixture.make_steps(0).await;
    assert_eq!(fixture.job().queued, CAPACITY as u64);
    fixture.engine.change_replay(sink, ReplayChange::Cancel, entry()).await.unwrap();
    assert_eq!(fixture.deliver_all().await.len(), CAPACITY / 2, "what was queued stays");
    fixture.make_steps(0).await;
    assert_eq!((fixture.job().state, fixture.job().queued), (ReplayState::Cancelled, CAPACITY as u64));
    fixture.end().await;
}

#[tokio::test]
async fn few_jobs_are_kept_and_they_go_with_their_queue() {
    let mut fixture = EngineFixture::new().await;
    for _ in 0..15 {
        fixture.replay(0, vec![ReplayedState::Dead]).await;
    }
    fixture.crash().await;
    let jobs = fixture.engine.replays(fixture.sinks[0]);
    assert_eq!(jobs.len(), 10);
    assert!(jobs.windows(2).all(|pair| pair[0].id > pair[1].id), "newest first");
    let rows = |fixture: &EngineFixture| fixture.store.keys(vec![keys::REPLAY]..vec![keys::REPLAY + 1]).count();
    assert_eq!(rows(&fixture), 10);
    fixture.engine.discard_queue(fixture.sinks[0]).await.unwrap();
    assert_eq!((rows(&fixture), fixture.engine.replays(fixture.sinks[0]).len()), (0, 0));
    let refused = fixture.engine.start_replay(fixture.sinks[0], lost(), entry()).await;
    assert!(matches!(refused, Err(ReplayError::NoQueue)));
    fixture.engine.open_queue(&fixture.target(0), owner());
    fixture.end().await;
}

#[tokio::test]
async fn a_replay_that_waits_for_undelivered_bytes_makes_no_further_step_and_writes_nothing() {
    let fixture = EngineFixture::new().await;
    for mask in [0b01, 0b01, 0b10, 0b10] {
        fixture.push_large(mask).await;
    }
    fixture.deliver_all().await;
    fixture.start(NewReplay { states: vec![ReplayedState::Delivered], ..NewReplay::default() }).await;
    let steps = tokio::time::timeout(Duration::from_secs(30), fixture.make_steps(0));
    steps.await.expect("the second event waits for room, and no step follows at once");
    let waiting = fixture.job();
    assert_eq!((waiting.state, waiting.matched, waiting.queued), (ReplayState::Running, Some(2), 1));
    let step = fixture.engine.advance_replay(fixture.sinks[0], usize::MAX).await.unwrap();
    assert_eq!((step, fixture.job()), (ReplayStep::default(), waiting));
    fixture.deliver_all().await;
    fixture.make_steps(0).await;
    assert_eq!(fixture.job().queued, 2);
    fixture.end().await;
}

#[tokio::test]
async fn dead_letters_are_redelivered_into_the_places_of_new_events_also_during_a_replay() {
    let fixture = EngineFixture::new().await;
    fixture.burst(CAPACITY + 2).await;
    for _ in 0..3 {
        fixture.push(None, 1).await;
        fixture.settle(0, AttemptEnding::Dead).await;
    }
    fixture.replay(0, vec![ReplayedState::Dropped]).await;
    fixture.push(None, 1).await;
    let redelivered = fixture.engine.redeliver(fixture.sinks[0], DeadLetterFilter::All, entry()).await.unwrap();
    let depth = fixture.engine.depth(fixture.sinks[0]);
    assert_eq!((redelivered.queued, depth.live, depth.queued), (3, CAPACITY, CAPACITY + CAPACITY / 2));
    fixture.end().await;
}

#[tokio::test]
async fn the_sinks_of_an_owner_have_a_bounded_number_of_unfinished_jobs() {
    let fixture = EngineFixture::new().await;
    let sinks: Vec<_> = (0..16).map(|_| SinkId::new()).collect();
    for sink in &sinks {
        fixture.engine.open_queue(&RouteTarget { sink: *sink, name: "s".into() }, owner());
        fixture.engine.start_replay(*sink, lost(), entry()).await.unwrap();
    }
    let refused = fixture.engine.start_replay(fixture.sinks[0], lost(), entry()).await.unwrap_err();
    let reason = "16 replays to sinks of this owner are under way: wait until one has ended, or cancel one";
    assert_eq!((refused.to_string().as_str(), fixture.engine.replays(fixture.sinks[0])), (reason, vec![]));
    fixture.engine.open_queue(&fixture.target(1), Owner::Global);
    fixture.engine.start_replay(fixture.sinks[1], lost(), entry()).await.unwrap();
    fixture.engine.change_replay(sinks[3], ReplayChange::Cancel, entry()).await.unwrap();
    fixture.start(lost()).await;
    fixture.end().await;
}
