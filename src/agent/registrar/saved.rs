//! The registration on disk, from which the next start of the agent takes it up again.

use crate::{
    agent::registration_file::Declaration,
    platform::store::{Batch, Store, StoreError, Table, keys},
};

/// Key of the registration in the agent's table.
const KEY: &[u8] = b"registration";
const REGISTRATIONS: Table<Declaration> = Table::new(keys::AGENT);

/// The saved registration.
pub struct SavedRegistration {
    store: Store,
}

impl SavedRegistration {
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// The registration that was saved last. One that cannot be read is logged, and counts as none.
    pub fn load(&self) -> Option<Declaration> {
        REGISTRATIONS.get(&self.store, KEY).unwrap_or_else(|error| {
            log::error!("the saved registration cannot be read: {error}");
            None
        })
    }

    /// # Errors
    ///
    /// Fails if the database cannot be written.
    pub async fn save(&self, declaration: Declaration) -> Result<(), StoreError> {
        self.store.write(move |batch: &mut Batch<'_>| REGISTRATIONS.put(batch, KEY, &declaration)).await
    }

    /// # Errors
    ///
    /// Fails if the database cannot be written.
    pub async fn delete(&self) -> Result<(), StoreError> {
        self.store.write(|batch: &mut Batch<'_>| REGISTRATIONS.delete(batch, KEY)).await
    }
}
