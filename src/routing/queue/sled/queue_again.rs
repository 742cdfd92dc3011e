//! Queueing an event of the history again, at the tail and under a new number: the step that dead letters and replays
//! share.

use super::{
    delivery_row::{DeliveryRow, EarlierNumber, StoredDelivery},
    queues::{QueueState, SinkQueue},
    rows::{delivery_key, number_key, position_bytes, queue_key, sequence_key},
};
use crate::{
    model::{
        event::Event,
        id::{ReplayId, SinkId},
    },
    platform::store::Batch,
    routing::queue::HistoryPosition,
};

/// An event that is to be queued again, with everything that had to be read.
pub(super) struct QueuedAgain<'a> {
    pub at: HistoryPosition,
    pub event: &'a Event,
    /// The delivery so far.
    pub delivery: Option<StoredDelivery>,
    /// The number that the event leaves.
    pub earlier: EarlierNumber,
    /// The key of the dead letter under that number, which goes.
    pub letter: Option<Vec<u8>>,
    /// The job that queues it.
    pub replay: Option<ReplayId>,
}

impl QueueState {
    /// Gives the event a place at the tail of the queue, if there is one by `has_room`, and returns its new number.
    /// Memory and batch change together; once the batch is on disk, the caller makes the event ready.
    pub fn queue_again(
        &self,
        batch: &mut Batch<'_>,
        sink: SinkId,
        again: QueuedAgain<'_>,
        has_room: impl FnOnce(&SinkQueue) -> bool,
    ) -> Option<u64> {
        let QueuedAgain { at, event, delivery, earlier, letter, replay } = again;
        let sequence = {
            let mut queues = self.queues();
            let queue = queues.get_mut(&sink).filter(|queue| has_room(queue))?;
            queue.reserved += 1;
            queue.replayed += usize::from(replay.is_some());
            queue.last_sequence += 1;
            if let (Some(_), Some(losses)) = (&letter, &mut queue.losses) {
                losses.dead_letters.retain(|letter| *letter != earlier.sequence);
            }
            if queue.counts() {
                self.undelivered.add(at, event.user_id, event.data.get().len(), &[sink]);
            }
            queue.last_sequence
        };
        // Writes may read the disk, and everything waits for the queues.
        if let Some(key) = letter {
            batch.delete(key);
        }
        batch.put(sequence_key(sink), sequence.to_be_bytes());
        batch.put(queue_key(sink, sequence), position_bytes(at));
        batch.put(number_key(sink, sequence), position_bytes(at));
        // Written even if there was no delivery: retention finds the queued event by its new number.
        let (size, row) = delivery.map_or((0, None), |delivery| (delivery.size, delivery.row));
        let (row, forgotten) = DeliveryRow::queued_again(row, earlier, sequence);
        if let Some(forgotten) = forgotten {
            batch.delete(number_key(sink, forgotten));
        }
        let row = DeliveryRow { replay, ..row };
        self.history.put_delivery(batch, event.user_id, delivery_key(at, sink), Some(size), &row);
        Some(sequence)
    }
}
