//! The engine compared with a plain model under random pushes, settlements, holds, batches, redeliveries, replays and
//! crashes.
//!
//! A crash is a copy of the data directory taken while the engine runs, opened by a second engine: the copy is what
//! a killed process would have left. A crash may lose settlements but neither accepted events nor sequence numbers,
//! so the recovered queues must equal one of the states of the model since the last write that was awaited.

use super::{
    super::{sled::WaitingDelivery, *},
    AttemptEnding, CAPACITY, DEAD_LETTERS, EngineFixture, SINKS,
};
use crate::{
    model::{id::EventId, replay::ReplayedState},
    platform::audit::AuditEntry,
};
use proptest::{collection::vec, prelude::*};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum QueueStep {
    /// Accepts an event for the sinks whose bit is set.
    Push(u8),
    /// Accepts the last accepted id again.
    Repeat,
    Settle(usize, AttemptEnding),
    /// Settles up to so many events as one.
    SettleBatch(usize, usize, AttemptEnding),
    Redeliver(usize),
    /// Starts a replay of everything that has settled, or continues the one under way, as far as there is room.
    Replay(usize),
    Discard(usize),
    Crash,
}

#[derive(Clone, Debug, Default)]
struct ModelQueues {
    sinks: [ModelSink; SINKS],
    /// Every event with the states of its deliveries.
    history: Vec<(EventId, [Option<DeliveryState>; SINKS])>,
    replays: [Option<ModelReplay>; SINKS],
}

/// A replay that has not ended: the events of the history that it has not looked at.
#[derive(Clone, Debug)]
struct ModelReplay {
    next: usize,
    end: usize,
}

/// The queues are what an engine shows of its state.
impl PartialEq for ModelQueues {
    fn eq(&self, other: &Self) -> bool {
        self.sinks == other.sinks
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelSink {
    waiting: VecDeque<WaitingDelivery>,
    dead: Vec<(u64, EventId)>,
    last_sequence: u64,
    /// Numbers that the sink was not told of.
    missed: Vec<u64>,
}

impl EngineFixture {
    fn state(&self) -> ModelQueues {
        ModelQueues {
            sinks: self.sinks.map(|sink| ModelSink {
                waiting: self.engine.waiting(sink).into(),
                dead: self
                    .engine
                    .dead_letters(sink, 0, 100)
                    .unwrap()
                    .iter()
                    .map(|letter| (letter.sequence, letter.event_id))
                    .collect(),
                last_sequence: self.engine.depth(sink).last_sequence,
                missed: self.engine.missed(sink),
            }),
            ..ModelQueues::default()
        }
    }
}

impl ModelQueues {
    fn push(&mut self, id: EventId, mask: u8) -> Vec<usize> {
        let mut dropped = Vec::new();
        let mut states = [None; SINKS];
        for (n, sink) in self.sinks.iter_mut().enumerate().filter(|(n, _)| mask & 1 << n != 0) {
            sink.last_sequence += 1;
            if sink.waiting_for(false) < CAPACITY {
                sink.queue(id, false);
                states[n] = Some(DeliveryState::Queued);
            } else {
                dropped.push(n);
                states[n] = Some(DeliveryState::Dropped);
                sink.missed.push(sink.last_sequence);
            }
        }
        self.history.push((id, states));
        dropped
    }

    fn set_state(&mut self, n: usize, id: EventId, state: DeliveryState) {
        let event = self.history.iter_mut().find(|(event, _)| *event == id).unwrap();
        event.1[n] = Some(state);
    }

    /// Settles up to `max` events that have failed equally often as one.
    fn settle(&mut self, n: usize, max: usize, ending: AttemptEnding) {
        let sink = &mut self.sinks[n];
        let Some(WaitingDelivery { failures, .. }) = sink.waiting.front().copied() else { return };
        let size = sink.waiting.iter().take(max).take_while(|waiting| waiting.failures == failures).count();
        match ending {
            AttemptEnding::Retry | AttemptEnding::Hold => {
                for waiting in sink.waiting.iter_mut().take(size) {
                    waiting.failures += 1;
                    waiting.is_held = matches!(ending, AttemptEnding::Hold);
                }
            }
            AttemptEnding::Done => {
                for WaitingDelivery { sequence, event, .. } in sink.waiting.drain(..size).collect::<Vec<_>>() {
                    self.sinks[n].missed.retain(|missed| *missed > sequence);
                    self.set_state(n, event, DeliveryState::Delivered);
                }
            }
            AttemptEnding::Dead => {
                for WaitingDelivery { sequence, event, .. } in sink.waiting.drain(..size).collect::<Vec<_>>() {
                    let sink = &mut self.sinks[n];
                    sink.dead.push((sequence, event));
                    sink.missed.push(sequence);
                    sink.missed.sort_unstable();
                    let surplus = sink.dead.len().saturating_sub(DEAD_LETTERS);
                    sink.dead.drain(..surplus);
                    self.set_state(n, event, DeliveryState::Dead);
                }
            }
        }
    }

    fn redeliver(&mut self, n: usize) {
        while self.sinks[n].waiting_for(false) < CAPACITY && !self.sinks[n].dead.is_empty() {
            let (_, id) = self.sinks[n].dead.remove(0);
            self.queue_again(n, id, false);
        }
    }

    fn replay(&mut self, n: usize) {
        let mut replay = self.replays[n].take().unwrap_or(ModelReplay { next: 0, end: self.history.len() });
        let room = self.sinks[n].free_replay_places();
        let mut queued = 0;
        while queued < room && replay.next < replay.end {
            let (id, states) = self.history[replay.next];
            if matches!(states[n], Some(DeliveryState::Dropped | DeliveryState::Dead | DeliveryState::Delivered)) {
                self.sinks[n].dead.retain(|(_, dead)| *dead != id);
                self.queue_again(n, id, true);
                queued += 1;
            }
            replay.next += 1;
        }
        // Without room the job does not look whether it has ended.
        if room == 0 || replay.next < replay.end {
            self.replays[n] = Some(replay);
        }
    }

    fn queue_again(&mut self, n: usize, id: EventId, is_replayed: bool) {
        self.sinks[n].last_sequence += 1;
        self.sinks[n].queue(id, is_replayed);
        self.set_state(n, id, DeliveryState::Queued);
    }
}

impl ModelSink {
    /// Queues an event under the last number.
    fn queue(&mut self, event: EventId, is_replayed: bool) {
        let sequence = self.last_sequence;
        self.waiting.push_back(WaitingDelivery { sequence, event, failures: 0, is_held: false, is_replayed });
    }

    /// The number of events that wait, replayed ones or others.
    fn waiting_for(&self, is_replayed: bool) -> usize {
        self.waiting.iter().filter(|waiting| waiting.is_replayed == is_replayed).count()
    }

    fn free_replay_places(&self) -> usize {
        let places = match self.waiting_for(false) {
            0 => CAPACITY / 2,
            live => (CAPACITY - live) / 2,
        };
        places.saturating_sub(self.waiting_for(true))
    }
}

fn step() -> impl Strategy<Value = QueueStep> {
    let ending = prop_oneof![3 => Just(AttemptEnding::Done), 1 => Just(AttemptEnding::Retry), 1 => Just(AttemptEnding::Hold), 1 => Just(AttemptEnding::Dead)];
    let batch = (0..SINKS, 2..=CAPACITY, ending.clone());
    prop_oneof![
        8 => (1_u8..8).prop_map(QueueStep::Push),
        1 => Just(QueueStep::Repeat),
        4 => (0..SINKS, ending).prop_map(|(n, ending)| QueueStep::Settle(n, ending)),
        3 => batch.prop_map(|(n, max, ending)| QueueStep::SettleBatch(n, max, ending)),
        2 => (0..SINKS).prop_map(QueueStep::Redeliver),
        4 => (0..SINKS).prop_map(QueueStep::Replay),
        1 => (0..SINKS).prop_map(QueueStep::Discard),
        1 => Just(QueueStep::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_queues_agree_with_a_plain_model_through_crashes(steps in vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(agree(steps))?;
    }
}

async fn agree(steps: Vec<QueueStep>) -> Result<(), TestCaseError> {
    let mut fixture = EngineFixture::new().await;
    let mut model = ModelQueues::default();
    // The states that a crash may recover: after the last awaited write and after each settlement since.
    let mut possible = vec![model.clone()];
    let mut last = None;
    for step in steps {
        match step {
            QueueStep::Push(mask) => {
                let receipt = fixture.push(None, mask).await;
                last = Some((receipt.event.id, mask));
                let dropped = model.push(receipt.event.id, mask);
                prop_assert_eq!(receipt.matched.len(), mask.count_ones() as usize);
                let names: Vec<_> = dropped.iter().map(|n| format!("s{n}")).collect();
                let dropped_names: Vec<_> = receipt.dropped.iter().map(|target| target.name.to_string()).collect();
                prop_assert_eq!(dropped_names, names);
                possible = vec![model.clone()];
            }
            QueueStep::Repeat => {
                let Some((id, mask)) = last else { continue };
                let receipt = fixture.push(Some(id), 7).await;
                prop_assert_eq!(receipt.acceptance, Acceptance::Repeated);
                prop_assert_eq!(receipt.matched.len(), mask.count_ones() as usize);
                possible = vec![model.clone()];
            }
            QueueStep::Settle(n, ending) => {
                fixture.settle(n, ending).await;
                model.settle(n, 1, ending);
                possible.push(model.clone());
            }
            QueueStep::SettleBatch(n, max, ending) => {
                fixture.settle_batch(n, max, ending).await;
                model.settle(n, max, ending);
                // One state: a crash settles all of a batch or none.
                possible.push(model.clone());
            }
            QueueStep::Redeliver(n) => {
                let entry = AuditEntry::new(None, "sink.redeliver", n);
                fixture.engine.redeliver(fixture.sinks[n], DeadLetterFilter::All, entry).await.unwrap();
                model.redeliver(n);
                possible = vec![model.clone()];
            }
            QueueStep::Replay(n) => {
                fixture.replay(n, ReplayedState::ALL.to_vec()).await;
                model.replay(n);
                possible = vec![model.clone()];
            }
            QueueStep::Discard(n) => {
                let waiting = fixture.engine.discard_queue(fixture.sinks[n]).await.unwrap();
                prop_assert_eq!(waiting, model.sinks[n].waiting.len());
                fixture.engine.open_queue(&fixture.target(n), super::owner());
                model.sinks[n] = ModelSink::default();
                model.replays[n] = None;
                possible = vec![model.clone()];
            }
            QueueStep::Crash => {
                fixture.crash().await;
                let recovered = fixture.state();
                let state = possible.iter().rev().find(|state| **state == recovered).cloned();
                prop_assert!(state.is_some(), "{recovered:?} is none of {possible:?}");
                model = state.unwrap();
                possible = vec![model.clone()];
            }
        }
    }
    fixture.store.write(|_| ()).await.unwrap();
    prop_assert_eq!(fixture.state(), model);
    fixture.end().await;
    Ok(())
}
