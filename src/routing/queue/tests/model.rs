//! The engine compared with a plain model under random pushes, settlements, redeliveries and crashes.
//!
//! A crash is a copy of the data directory taken while the engine runs, opened by a second engine: the copy is what
//! a killed process would have left. A crash may lose settlements but neither accepted events nor sequence numbers,
//! so the recovered queues must equal one of the states of the model since the last write that was awaited.

use super::{super::*, AttemptEnding, CAPACITY, DEAD_LETTERS, EngineFixture, SINKS};
use crate::{model::id::EventId, platform::audit::AuditEntry};
use proptest::{collection::vec, prelude::*};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum QueueStep {
    /// Accepts an event for the sinks whose bit is set.
    Push(u8),
    /// Accepts the last accepted id again.
    Repeat,
    Settle(usize, AttemptEnding),
    Redeliver(usize),
    Discard(usize),
    Crash,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelQueues {
    sinks: [ModelSink; SINKS],
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelSink {
    waiting: VecDeque<(u64, EventId, u32)>,
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
        }
    }
}

impl ModelQueues {
    fn push(&mut self, id: EventId, mask: u8) -> Vec<usize> {
        let mut dropped = Vec::new();
        for (n, sink) in self.sinks.iter_mut().enumerate().filter(|(n, _)| mask & 1 << n != 0) {
            sink.last_sequence += 1;
            if sink.waiting.len() < CAPACITY {
                sink.waiting.push_back((sink.last_sequence, id, 0));
            } else {
                dropped.push(n);
                sink.missed.push(sink.last_sequence);
            }
        }
        dropped
    }

    fn settle(&mut self, n: usize, ending: AttemptEnding) {
        let sink = &mut self.sinks[n];
        match ending {
            AttemptEnding::Retry => {
                if let Some(head) = sink.waiting.front_mut() {
                    head.2 += 1;
                }
            }
            AttemptEnding::Done => {
                if let Some((sequence, ..)) = sink.waiting.pop_front() {
                    sink.missed.retain(|missed| *missed > sequence);
                }
            }
            AttemptEnding::Dead => {
                if let Some((sequence, id, _)) = sink.waiting.pop_front() {
                    sink.dead.push((sequence, id));
                    sink.missed.push(sequence);
                    sink.missed.sort_unstable();
                    let surplus = sink.dead.len().saturating_sub(DEAD_LETTERS);
                    sink.dead.drain(..surplus);
                }
            }
        }
    }

    fn redeliver(&mut self, n: usize) {
        let sink = &mut self.sinks[n];
        while sink.waiting.len() < CAPACITY && !sink.dead.is_empty() {
            let (_, id) = sink.dead.remove(0);
            sink.last_sequence += 1;
            sink.waiting.push_back((sink.last_sequence, id, 0));
        }
    }
}

fn step() -> impl Strategy<Value = QueueStep> {
    let ending =
        prop_oneof![3 => Just(AttemptEnding::Done), 1 => Just(AttemptEnding::Retry), 1 => Just(AttemptEnding::Dead)];
    prop_oneof![
        8 => (1_u8..8).prop_map(QueueStep::Push),
        1 => Just(QueueStep::Repeat),
        6 => (0..SINKS, ending).prop_map(|(n, ending)| QueueStep::Settle(n, ending)),
        2 => (0..SINKS).prop_map(QueueStep::Redeliver),
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
                model.settle(n, ending);
                possible.push(model.clone());
            }
            QueueStep::Redeliver(n) => {
                let entry = AuditEntry::new(None, "sink.redeliver", n);
                fixture.engine.redeliver(fixture.sinks[n], DeadLetterFilter::All, entry).await.unwrap();
                model.redeliver(n);
                possible = vec![model.clone()];
            }
            QueueStep::Discard(n) => {
                let waiting = fixture.engine.discard_queue(fixture.sinks[n]).await.unwrap();
                prop_assert_eq!(waiting, model.sinks[n].waiting.len());
                fixture.engine.open_queue(&fixture.target(n), super::owner());
                model.sinks[n] = ModelSink::default();
                possible = vec![model.clone()];
            }
            QueueStep::Crash => {
                fixture.crash().await;
                let recovered = fixture.state();
                prop_assert!(possible.contains(&recovered), "{recovered:?} is none of {possible:?}");
                model = recovered;
                possible = vec![model.clone()];
            }
        }
    }
    fixture.store.write(|_| ()).await.unwrap();
    prop_assert_eq!(fixture.state(), model);
    fixture.end().await;
    Ok(())
}
