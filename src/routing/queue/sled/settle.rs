//! Settling attempts: at once in memory by the worker that made them, and on disk soon after by the writer thread.

use super::{
    delivery_row::DeliveryRow,
    gaps::GapChange,
    history::History,
    queues::QueueState,
    rows::{delivery_key, position_bytes, queue_key},
};
use crate::{
    model::{delivery::AttemptKind, sequence::MissReason},
    platform::store::{Batch, StoreError},
    routing::queue::{DeadLetter, DeliveryState, PendingDelivery, SettledAttempt, Settlement},
};
use tokio::time::Instant;

impl QueueState {
    /// Applies settlements of the first events of a queue to it in memory. Returns the change of the gaps for each;
    /// `None`, and changes nothing, if they are not at the head any more, because the sink was deleted during the
    /// attempt.
    pub fn settle_in_memory(&self, batch: &[(PendingDelivery, SettledAttempt)]) -> Option<Vec<GapChange>> {
        let (first, _) = batch.first()?;
        let mut queues = self.queues();
        let queue = queues.get_mut(&first.sink)?;
        let is_queued = |(at, (pending, _)): (usize, &(PendingDelivery, SettledAttempt))| {
            let queued = queue.ready.get(at);
            queued.is_some_and(|queued| queued.sequence == pending.sequence && queued.event == Some(pending.position()))
        };
        if !batch.iter().enumerate().all(is_queued) {
            return None;
        }
        let mut kept = 0;
        let settle = |(pending, settled): &(PendingDelivery, SettledAttempt)| {
            if let Settlement::Retry(wait) = settled.settlement {
                let queued = &mut queue.ready[kept];
                queued.failures += 1;
                queued.recorded = true;
                queued.due = Some(Instant::now() + wait);
                kept += 1;
                return GapChange::default();
            }
            queue.reserved -= 1;
            let replay = queue.ready.remove(kept).and_then(|settled| settled.replay);
            if replay.is_some() && queue.release_replayed(self.limits.queue) {
                self.replays.room.notify_one();
            }
            self.undelivered.remove(pending.position(), pending.sink);
            match (&settled.settlement, &mut queue.losses) {
                (Settlement::DeadLetter(_), _) => {
                    queue.losses_mut().gaps.add_lost(pending.sequence, MissReason::DeadLetter)
                }
                (_, Some(losses)) => losses.gaps.remove_told(pending.sequence),
                (_, None) => GapChange::default(),
            }
        };
        Some(batch.iter().map(settle).collect())
    }

    pub fn count_settled(&self, settled: &SettledAttempt) {
        match settled.state() {
            DeliveryState::Skipped => self.metrics.skipped.increment(),
            DeliveryState::Delivered => self.metrics.delivered.increment(),
            DeliveryState::Dead => self.metrics.dead.increment(),
            DeliveryState::Queued | DeliveryState::Dropped | DeliveryState::Discarded => {}
        }
        if settled.attempt.outcome.kind() == AttemptKind::Failed {
            self.metrics.attempts_failed.increment();
        }
    }

    /// Puts the rows of one settlement into the batch, on the writer thread.
    pub fn write_settlement(
        &self,
        batch: &mut Batch<'_>,
        pending: &PendingDelivery,
        settled: SettledAttempt,
        gap: &GapChange,
    ) -> Result<(), StoreError> {
        let PendingDelivery { sink, sequence, event, .. } = pending;
        let (sink, sequence, position) = (*sink, *sequence, pending.position());
        if !self.has_queue(sink) {
            return Ok(());
        }
        let state = settled.state();
        let SettledAttempt { attempt, settlement } = settled;
        let old = if pending.recorded { History::delivery_in(batch, position, sink)? } else { None };
        let old_size = pending.recorded.then(|| old.as_ref().map_or(0, |old| old.size));
        let mut row = old.and_then(|old| old.row).unwrap_or(DeliveryRow {
            state,
            sequence,
            failures: pending.failures,
            due: attempt.at,
            attempts: Vec::new(),
            earlier: Vec::new(),
            replay: None,
        });
        row.state = state;
        let (number, at, ended_at) = (attempt.number, attempt.at, attempt.ended_at());
        row.add_attempt(attempt);
        match settlement {
            Settlement::Retry(wait) => {
                row.failures += 1;
                row.due = ended_at.after(wait);
            }
            Settlement::Complete => {
                batch.delete_known(queue_key(sink, sequence), &position_bytes(position));
                self.history.counters.age_sweep.let_go(position.accepted_at);
            }
            Settlement::DeadLetter(why) => {
                batch.delete_known(queue_key(sink, sequence), &position_bytes(position));
                let letter = DeadLetter {
                    event_id: event.id,
                    event_type: event.kind.as_str().to_owned(),
                    event_ts: event.ts,
                    sequence,
                    died_at: at,
                    why,
                    attempts: number,
                };
                self.put_dead_letter(batch, sink, &letter);
            }
        }
        gap.write(batch, sink);
        self.history.put_delivery(batch, event.user_id, delivery_key(position, sink), old_size, &row);
        Ok(())
    }
}
