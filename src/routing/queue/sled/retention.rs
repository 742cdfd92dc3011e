//! Deletes old events. An event that is still queued is never deleted.
//!
//! Age deletes settled events in the order of their acceptance, and looks at those that are held only when one may have
//! been let go ([`super::age_sweep`]). Size deletes the oldest events of the user with the largest history, so that one
//! user's events do not push out those of others: settled ones first, then those that only dead letters hold, with the
//! letters. A write that adds to a history beyond its limit deletes as much in the same step, so that history cannot
//! grow faster than it is deleted: sled reuses the room of deleted rows and never gives it back, and the file keeps the
//! size of the longest history it has held. [`QueueState::prune`] deletes by age, and what the writes left.

use super::{
    dead_letters::DeletedLetters,
    history::History,
    owner_index::{Deletable, HeldBy},
    queues::QueueState,
    rows::{
        RoutedRow, dead_key, decode, delivery_key, event_key, event_position, first_event_key, number_key,
        position_bytes, queue_key,
    },
};
use crate::{
    model::{
        id::{SinkId, UserId},
        timestamp::Timestamp,
    },
    platform::store::{Batch, StoreError, keys, readable},
    routing::queue::{DeadLetter, HistoryPosition, Retention},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use tokio::time::Instant;

/// Old events looked at in one write of [`QueueState::prune`], so that emits do not wait long behind it.
const EVENTS_PER_WRITE: usize = 100;

/// Old events looked at in a write that adds one. More than one, because some are kept, and others may be smaller than
/// the new one.
const EVENTS_PER_ACCEPT: usize = 32;

/// Bytes by which history may exceed its limit. A few events are then deleted together.
const SLACK: u64 = 64 << 10;

/// The result for one old event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DeleteResult {
    Deleted,
    /// The event was damaged, and is deleted with all its deliveries.
    DeletedDamaged,
    /// It was deleted already.
    Absent,
    /// A queue holds it.
    Queued,
    /// Only these dead letters hold it.
    Dead(Vec<(SinkId, u64)>),
}

/// The events looked at and deleted in one or more writes.
#[derive(Clone, Copy, Default)]
struct DeletedCount {
    looked_at: usize,
    events: usize,
    damaged: usize,
}

impl DeletedCount {
    fn add(&mut self, other: Self) {
        self.looked_at += other.looked_at;
        self.events += other.events;
        self.damaged += other.damaged;
    }

    fn count(&mut self, result: &DeleteResult) {
        self.events += usize::from(matches!(result, DeleteResult::Deleted | DeleteResult::DeletedDamaged));
        self.damaged += usize::from(*result == DeleteResult::DeletedDamaged);
    }
}

impl QueueState {
    /// Deletes old events if history has outgrown the limit of the last [`QueueState::prune`]. Part of every write that
    /// adds an event.
    pub fn make_room(&self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let limit = self.history.counters.limit.load(Relaxed);
        if self.history.bytes() <= limit.saturating_add(SLACK) || self.store.has_snapshot() {
            return Ok(());
        }
        self.delete_by_size(batch, EVENTS_PER_ACCEPT).map(drop)
    }

    /// Deletes events until the rest is neither too old nor too large. Returns the number deleted.
    pub async fn prune(self: &Arc<Self>, retention: Retention) -> Result<usize, StoreError> {
        let counters = &self.history.counters;
        counters.limit.store(retention.bytes, Relaxed);
        counters.dead_letter_limit.store(retention.dead_letter_bytes, Relaxed);
        let mut deleted = DeletedCount::default();
        let mut result = self.history.delete_old(retention, &mut deleted).await;
        if result.is_ok() {
            result = self.delete_too_large(&mut deleted).await;
        }
        if deleted.damaged > 0 {
            log::warn!("history: {} damaged events were past their retention and are deleted", deleted.damaged);
        }
        result.map(|()| deleted.events)
    }

    async fn delete_too_large(self: &Arc<Self>, deleted: &mut DeletedCount) -> Result<(), StoreError> {
        // A queue may have let go of what it held at the last call.
        let state = self.clone();
        self.store.write(move |_| state.history.owners.recheck()).await?;
        loop {
            let state = self.clone();
            let count = self.store.write(move |batch| state.delete_by_size(batch, EVENTS_PER_WRITE)).await??;
            deleted.add(count);
            if count.looked_at < EVENTS_PER_WRITE {
                return Ok(());
            }
        }
    }

    /// Looks at up to `events` of the user with the largest history, and deletes those that can be, until history has
    /// the size of its limit.
    fn delete_by_size(&self, batch: &mut Batch<'_>, events: usize) -> Result<DeletedCount, StoreError> {
        let (history, counters) = (&self.history, &self.history.counters);
        let (limit, dead_letter_limit) = (counters.limit.load(Relaxed), counters.dead_letter_limit.load(Relaxed));
        let (mut count, mut letters) = (DeletedCount::default(), DeletedLetters::default());
        let (mut largest, mut surplus, mut reached_newest) = (None, 0, false);
        while count.looked_at < events && history.bytes() > limit - surplus {
            let letters_go = history.bytes() > dead_letter_limit - surplus;
            let deletable = match (letters_go, reached_newest) {
                (true, false) => Deletable::Dead,
                (true, true) => Deletable::KnownDead,
                (false, false) => Deletable::Settled,
                (false, true) => break,
            };
            let Some(user) = largest.take().or_else(|| history.owners.largest(deletable)) else { break };
            let Some((accepted_at, found)) = history.owners.take(user, deletable) else { continue };
            largest = Some(user);
            count.looked_at += 1;
            let Some(at) = History::event_at(batch, accepted_at)? else {
                // It was accepted in this group of writes, and its key cannot be found yet.
                history.owners.put_back(user, accepted_at, None);
                (largest, reached_newest) = (None, true);
                continue;
            };
            let mut result = history.delete_settled(batch, at)?;
            if let DeleteResult::Dead(dead) = &result {
                if found == Deletable::Settled {
                    // The user's other events go before it.
                    history.owners.put_back(user, accepted_at, Some(HeldBy::DeadLetter));
                    continue;
                }
                self.delete_dead_letters(batch, dead, &mut letters);
                // Many letters go together, so that the audit log has few entries of it.
                surplus = limit.min(dead_letter_limit) / 16;
                result = history.delete_settled(batch, at)?;
            }
            if result == DeleteResult::Queued {
                history.owners.put_back(user, accepted_at, Some(HeldBy::Queue));
            }
            count.count(&result);
        }
        self.report_deleted(batch, letters, dead_letter_limit);
        Ok(count)
    }
}

impl History {
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Relaxed)
    }

    /// Deletes the settled events that are too old.
    async fn delete_old(&self, retention: Retention, deleted: &mut DeletedCount) -> Result<(), StoreError> {
        let horizon = Timestamp::now().before(retention.keep);
        let sweep = &self.counters.age_sweep;
        let mut from = first_event_key(sweep.begin(horizon, Instant::now()));
        loop {
            let (history, first) = (self.clone(), from);
            let looked_at = self.store.write(move |batch| history.delete_before(batch, &first, horizon)).await;
            let (count, next) = looked_at.flatten().inspect_err(|_| sweep.let_go_any())?;
            deleted.add(count);
            let Some(next) = next else { return Ok(()) };
            from = next;
        }
    }

    /// Deletes old events from this key on. Returns the key to continue from, or none if nothing is left to delete.
    fn delete_before(
        &self,
        batch: &mut Batch<'_>,
        from: &[u8],
        horizon: Timestamp,
    ) -> Result<(DeletedCount, Option<Vec<u8>>), StoreError> {
        let keys: Vec<_> = batch.keys_between(from, &[keys::EVENT + 1]).take(EVENTS_PER_WRITE).collect();
        let (mut count, mut next) = (DeletedCount::default(), None);
        for key in keys {
            let key = key?;
            let Some(at) = event_position(&key) else { continue };
            if at.accepted_at >= horizon {
                return Ok((count, None));
            }
            count.count(&self.delete_settled(batch, at)?);
            let mut after = key.to_vec();
            after.push(0);
            next = Some(after);
        }
        Ok((count, next))
    }

    /// Finds the event that was accepted at this time, among those on disk.
    fn event_at(batch: &Batch<'_>, accepted_at: Timestamp) -> Result<Option<HistoryPosition>, StoreError> {
        let end = first_event_key(Timestamp::from_micros(accepted_at.micros().saturating_add(1)));
        let key = batch.keys_between(&first_event_key(accepted_at), &end).next().transpose()?;
        Ok(key.and_then(|key| event_position(&key)))
    }

    /// Deletes an event and its deliveries, unless a queue or a dead letter still needs it.
    fn delete_settled(&self, batch: &mut Batch<'_>, at: HistoryPosition) -> Result<DeleteResult, StoreError> {
        let key = event_key(at);
        let Some(value) = readable(batch.get(&key))? else { return self.delete_damaged(batch, at, 0) };
        let Some(value) = value else { return Ok(DeleteResult::Absent) };
        let Some(row) = readable(decode::<RoutedRow>(&key, &value))? else {
            return self.delete_damaged(batch, at, value.len());
        };
        let mut freed = value.len();
        let (mut deliveries, mut dead) = (Vec::new(), Vec::new());
        for routed in &row.routed {
            let delivery = Self::delivery_in(batch, at, routed.sink)?;
            let row = delivery.as_ref().and_then(|delivery| delivery.row.as_ref());
            let sequence = row.map_or(routed.sequence, |row| row.sequence);
            let is_queued = match &delivery {
                // A redelivery has another sequence number than the first routing, and the damaged record held it.
                Some(delivery) if delivery.row.is_none() => is_held(batch, routed.sink, at)?,
                _ => exists(batch, &queue_key(routed.sink, sequence))?,
            };
            if is_queued {
                return Ok(DeleteResult::Queued);
            }
            if exists(batch, &dead_key(routed.sink, sequence))? {
                dead.push((routed.sink, sequence));
            }
            if let Some(delivery) = delivery {
                freed += delivery.size;
                deliveries.push(delivery_key(at, routed.sink));
                let numbers = delivery.row.iter().flat_map(|row| row.later_numbers(routed.sequence));
                deliveries.extend(numbers.map(|sequence| number_key(routed.sink, sequence)));
            }
        }
        if !dead.is_empty() {
            return Ok(DeleteResult::Dead(dead));
        }
        self.delete_rows(batch, at, Some(row.event.user_id), deliveries, freed);
        Ok(DeleteResult::Deleted)
    }

    /// Deletes a damaged event of `size` bytes with all its deliveries. Nothing can be delivered from it any more: a
    /// queue that still holds it makes it a dead letter.
    fn delete_damaged(
        &self,
        batch: &mut Batch<'_>,
        at: HistoryPosition,
        size: usize,
    ) -> Result<DeleteResult, StoreError> {
        let prefix = keys::key(keys::DELIVERY, &[&position_bytes(at)]);
        let deliveries = batch.keys(&prefix).map(|key| Ok(key?.to_vec())).collect::<Result<Vec<_>, StoreError>>()?;
        let mut freed = size;
        for key in &deliveries {
            freed += readable(batch.get(key))?.flatten().map_or(0, |value| value.len());
        }
        self.delete_rows(batch, at, None, deliveries, freed);
        Ok(DeleteResult::DeletedDamaged)
    }

    /// Deletes the rows of an event, whose user is unknown if it is damaged.
    fn delete_rows(
        &self,
        batch: &mut Batch<'_>,
        at: HistoryPosition,
        user: Option<UserId>,
        deliveries: Vec<Vec<u8>>,
        freed: usize,
    ) {
        self.resize(batch, freed, 0);
        self.owners.remove(user, at.accepted_at, freed);
        batch.delete(event_key(at));
        self.index.remove(at);
        for key in deliveries {
            batch.delete(key);
        }
    }
}

/// Returns `true` if any place in the sink's queue, or any of its dead letters, holds the event.
fn is_held(batch: &Batch<'_>, sink: SinkId, at: HistoryPosition) -> Result<bool, StoreError> {
    for key in batch.keys(&keys::key(keys::QUEUE, &[sink.as_bytes()])) {
        if readable(batch.get(&key?))?.flatten().is_some_and(|value| *value == position_bytes(at)[..]) {
            return Ok(true);
        }
    }
    for key in batch.keys(&keys::key(keys::DEAD, &[sink.as_bytes()])) {
        let key = key?;
        let Some(value) = readable(batch.get(&key))?.flatten() else { continue };
        if readable(decode::<DeadLetter>(&key, &value))?.is_some_and(|letter| letter.event_id == at.id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tells if there is a record under the key, damaged or not.
fn exists(batch: &Batch<'_>, key: &[u8]) -> Result<bool, StoreError> {
    Ok(readable(batch.get(key))?.is_none_or(|value| value.is_some()))
}
