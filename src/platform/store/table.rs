//! Typed records: JSON values under a one-byte prefix and an id.

use super::{Batch, Store, StoreError, keys};
use serde::{Serialize, de::DeserializeOwned};
use std::marker::PhantomData;

/// The records of one kind. `T` is stored as JSON, so that an older record reads under newer defaults.
pub struct Table<T> {
    kind: u8,
    records: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Table<T> {
    /// The table under one of the prefixes of [`keys`].
    pub const fn new(kind: u8) -> Self {
        Self { kind, records: PhantomData }
    }

    /// Every record.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read or holds a record this version does not understand.
    pub fn all(&self, store: &Store) -> Result<Vec<T>, StoreError> {
        store
            .scan(&[self.kind])
            .map(|entry| {
                let (key, value) = entry?;
                decode(&key, &value)
            })
            .collect()
    }

    /// The record with this id.
    ///
    /// # Errors
    ///
    /// Fails as [`Table::all`] does.
    pub fn get(&self, store: &Store, id: &[u8]) -> Result<Option<T>, StoreError> {
        let key = keys::key(self.kind, &[id]);
        store.get(&key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Puts a record, over the one with the same id.
    pub fn put(&self, batch: &mut Batch<'_>, id: &[u8], record: &T) {
        let value = serde_json::to_vec(record).expect("records have string keys and no failing serializers");
        batch.put(keys::key(self.kind, &[id]), value);
    }

    /// Removes a record, if it is there.
    pub fn delete(&self, batch: &mut Batch<'_>, id: &[u8]) {
        batch.delete(keys::key(self.kind, &[id]));
    }
}

fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::damaged(key, error))
}
