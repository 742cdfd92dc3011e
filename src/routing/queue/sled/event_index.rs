//! The index from an event's id to its position in history.
//!
//! A damaged entry of the index costs a search through the keys of all events, and no event: the writer thread puts the
//! entry back, or deletes it if there is no such event.

use super::{
    history::History,
    rows::{event_index_key, event_position, time, time_bytes, undamaged},
};
use crate::{
    model::id::EventId,
    platform::store::{Batch, StoreError, Value, keys},
    routing::queue::HistoryPosition,
};

impl History {
    /// Returns the position of an event as of the last group that was written.
    pub fn locate(&self, id: EventId) -> Result<Option<HistoryPosition>, StoreError> {
        match undamaged(read_entry(id, self.store.get(&event_index_key(id))))? {
            Some(found) => Ok(found),
            None => search(id, self.store.keys(vec![keys::EVENT]..vec![keys::EVENT + 1])),
        }
    }

    /// Returns the position of an event as the batch sees it, the writes of its own group included.
    pub fn locate_in(batch: &mut Batch<'_>, id: EventId) -> Result<Option<HistoryPosition>, StoreError> {
        if let Some(found) = undamaged(read_entry(id, batch.get(&event_index_key(id))))? {
            return Ok(found);
        }
        let found = search(id, batch.keys(&[keys::EVENT]))?;
        match found {
            Some(at) => Self::put_index(batch, at),
            None => batch.delete(event_index_key(id)),
        }
        Ok(found)
    }

    pub(super) fn put_index(batch: &mut Batch<'_>, at: HistoryPosition) {
        batch.put(event_index_key(at.id), time_bytes(at.accepted_at));
    }
}

fn read_entry(id: EventId, read: Result<Option<Value>, StoreError>) -> Result<Option<HistoryPosition>, StoreError> {
    let Some(value) = read? else { return Ok(None) };
    let accepted_at = time(&value).ok_or_else(|| StoreError::damaged(&event_index_key(id), "it is no time"))?;
    Ok(Some(HistoryPosition { accepted_at, id }))
}

fn search(
    id: EventId,
    keys: impl Iterator<Item = Result<Value, StoreError>>,
) -> Result<Option<HistoryPosition>, StoreError> {
    for key in keys {
        let at = event_position(&key?);
        if at.is_some_and(|at| at.id == id) {
            return Ok(at);
        }
    }
    Ok(None)
}
