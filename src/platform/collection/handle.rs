//! The handle to a collection: reads from memory, and changes that are written before they are seen.

use super::{
    change::{Change, Changes, CollectionError, CollectionRecord, CollectionWrite, Edit, Precondition, Revision},
    index::CollectionIndex,
};
use crate::platform::{
    keyed_mutex::KeyedMutex,
    run_to_completion::run_to_completion,
    store::{Batch, Store, StoreError},
};
use parking_lot::RwLock;
use std::{
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Decisions on one change, each on the records as another writer left them, before it fails with
/// [`CollectionError::Conflict`].
pub const ATTEMPTS: u32 = 20;

/// Every record of one kind. Cloning the handle is cheap.
pub struct Collection<T: CollectionRecord>(Arc<CollectionState<T>>);

struct CollectionState<T: CollectionRecord> {
    store: Store,
    /// Records that a namespace can have.
    quota: usize,
    index: RwLock<CollectionIndex<T>>,
    /// Held over a whole change by the ids of its records.
    changing: KeyedMutex,
    /// Held by the record's id from reading a record to replacing it, so that edits of one record wait for each other
    /// instead of deciding again.
    editing: KeyedMutex,
    listeners: RwLock<Vec<Listener<T>>>,
}

type Listener<T> = Arc<dyn Fn(&Change<T>) + Send + Sync>;

/// The names that a change under way has taken, given back when it ends.
struct Reservation<'a, T: CollectionRecord> {
    index: &'a RwLock<CollectionIndex<T>>,
    ids: Vec<T::Id>,
}

impl<T: CollectionRecord> Collection<T> {
    /// Reads all records. A namespace can have `quota` of them.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or a record is damaged.
    pub fn open(store: Store, quota: usize) -> Result<Self, StoreError> {
        let index = RwLock::new(CollectionIndex::new(T::TABLE.all(&store)?));
        let (changing, editing) = (KeyedMutex::new(), KeyedMutex::new());
        Ok(Self(Arc::new(CollectionState { store, quota, index, changing, editing, listeners: RwLock::default() })))
    }

    /// Calls `listener` with every change from now on. It must neither block nor wait for a change.
    pub fn listen(&self, listener: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.0.listeners.write().push(Arc::new(listener));
    }

    /// Makes a change, and returns it in the form in which the listeners got it.
    ///
    /// # Errors
    ///
    /// Nothing has changed then.
    pub async fn commit(&self, changes: Changes<T>) -> Result<Vec<Change<T>>, CollectionError<T>> {
        let state = self.0.clone();
        run_to_completion(async move { state.commit(changes).await }).await
    }

    /// Makes a change without waiting for the disk: memory and listeners get it at once, and it is written soon. For
    /// bookkeeping that a crash may undo.
    ///
    /// # Errors
    ///
    /// As [`Collection::commit`], except that the store's errors go unnoticed.
    pub async fn commit_soon(&self, changes: Changes<T>) -> Result<Vec<Change<T>>, CollectionError<T>> {
        self.0.commit_soon(changes).await
    }

    /// Adds a record. `also` writes into the same batch.
    ///
    /// # Errors
    ///
    /// As [`Collection::commit`].
    pub async fn create(
        &self,
        record: T,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<T>, CollectionError<T>> {
        let record = Arc::new(record);
        self.commit(Changes::new().put(record.clone(), Precondition::Absent).with(also)).await?;
        Ok(record)
    }

    /// Changes or deletes one record by a decision on its present state, and returns the record as the change left it.
    ///
    /// The change is made at the revision that `decide` saw. If another change came in between, `decide` is asked
    /// again, about the record as it has become, up to [`ATTEMPTS`] times in all. It must not edit the same collection.
    /// If it puts the very record that it was given, nothing is written and no listener is called.
    ///
    /// # Errors
    ///
    /// As [`Collection::commit`]. The inner error is that of `decide`. Nothing has changed in either case.
    pub async fn edit<E, F>(
        &self,
        id: T::Id,
        mut decide: impl FnMut(Arc<T>) -> F,
    ) -> Result<Result<Arc<T>, E>, CollectionError<T>>
    where
        F: Future<Output = Result<Edit<T>, E>>,
    {
        let _editing = self.0.editing.lock(&id).await;
        for _ in 0..ATTEMPTS {
            let (before, revision) = self.get_revision(id).ok_or(CollectionError::NotFound(id))?;
            let edit = match decide(before.clone()).await {
                Ok(edit) => edit,
                Err(error) => return Ok(Err(error)),
            };
            if edit.record().is_some_and(|after| Arc::ptr_eq(after, &before)) {
                return Ok(Ok(before));
            }
            match self.commit(edit.into_changes(id, revision)).await {
                Err(CollectionError::Conflict(_)) => {}
                made => return only_record(id, &made?).map(Ok),
            }
        }
        Err(CollectionError::Conflict(id))
    }

    /// Removes a record and returns it.
    ///
    /// # Errors
    ///
    /// As [`Collection::commit`].
    pub async fn delete(
        &self,
        id: T::Id,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<T>, CollectionError<T>> {
        only_record(id, &self.commit(Changes::new().delete(id, Precondition::Present).with(also)).await?)
    }

    pub fn get(&self, id: T::Id) -> Option<Arc<T>> {
        self.0.index.read().records.get(&id).map(|entry| entry.record.clone())
    }

    /// The record and its revision, to expect when it is changed.
    pub fn get_revision(&self, id: T::Id) -> Option<(Arc<T>, Revision)> {
        self.0.index.read().records.get(&id).map(|entry| (entry.record.clone(), entry.revision))
    }

    pub fn find(&self, namespace: T::Namespace, name: &str) -> Option<Arc<T>> {
        self.0.index.read().find(namespace, name).cloned()
    }

    /// Up to `limit` of the records that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<T::Id>, limit: usize, wanted: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let index = self.0.index.read();
        let after = index.records.range((start, Bound::Unbounded)).map(|(_, entry)| &entry.record);
        after.filter(|record| wanted(record)).take(limit).cloned().collect()
    }

    /// The records of a namespace, by name.
    pub fn in_namespace(&self, namespace: T::Namespace) -> Vec<Arc<T>> {
        self.0.index.read().in_namespace(namespace).cloned().collect()
    }

    /// The records of a namespace with their revisions, by name.
    pub fn revisions_in_namespace(&self, namespace: T::Namespace) -> Vec<(Arc<T>, Revision)> {
        let index = self.0.index.read();
        index.entries_in_namespace(namespace).map(|entry| (entry.record.clone(), entry.revision)).collect()
    }

    /// The namespaces that have records.
    pub fn namespaces(&self) -> Vec<T::Namespace> {
        self.0.index.read().namespaces().collect()
    }

    /// Every record, oldest first.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.page(None, usize::MAX, |_| true)
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns true if a change waits until the readers of the index have left. No later change gets ahead of it.
    #[cfg(test)]
    pub(super) fn has_waiting_writer(&self) -> bool {
        self.0.index.is_locked_exclusive()
    }
}

impl<T: CollectionRecord> CollectionState<T> {
    async fn commit(&self, mut changes: Changes<T>) -> Result<Vec<Change<T>>, CollectionError<T>> {
        let ids = changes.ids();
        let _changing = self.changing.lock_all(ids.iter()).await;
        let reservation = self.reserve(&changes)?;
        let write = self.store.write(self.job(&mut changes));
        write.await?;
        let made = self.index.write().apply(changes.writes.into_iter().map(|(write, _)| write).collect());
        drop(reservation);
        for change in &made {
            self.notify(change);
        }
        Ok(made)
    }

    async fn commit_soon(&self, mut changes: Changes<T>) -> Result<Vec<Change<T>>, CollectionError<T>> {
        let ids = changes.ids();
        let _changing = self.changing.lock_all(ids.iter()).await;
        let reservation = self.reserve(&changes)?;
        self.store.write_soon(self.job(&mut changes));
        let made = self.index.write().apply(changes.writes.into_iter().map(|(write, _)| write).collect());
        drop(reservation);
        for change in &made {
            self.notify(change);
        }
        Ok(made)
    }

    fn reserve(&self, changes: &Changes<T>) -> Result<Reservation<'_, T>, CollectionError<T>> {
        self.index.write().reserve(&changes.writes, self.quota)?;
        Ok(Reservation { index: &self.index, ids: changes.ids() })
    }

    /// The job that writes a change. Deletes come first: within one change a key may pass from one record to another.
    fn job(&self, changes: &mut Changes<T>) -> impl FnOnce(&mut Batch<'_>) + Send + use<T> {
        let also = changes.also.take();
        let index = self.index.read();
        let former = changes.writes.iter().filter_map(|(write, _)| index.records.get(&write.id()));
        let deletes: Vec<Vec<u8>> = former.map(|entry| entry.record.key()).collect();
        let puts = changes.writes.iter().filter_map(|(write, _)| match write {
            CollectionWrite::Put(record) => Some(record.clone()),
            CollectionWrite::Delete(_) => None,
        });
        let puts: Vec<Arc<T>> = puts.collect();
        move |batch| {
            deletes.iter().for_each(|key| T::TABLE.delete(batch, key));
            puts.iter().for_each(|record| T::TABLE.put(batch, &record.key(), record));
            if let Some(also) = also {
                also(batch);
            }
        }
    }

    fn notify(&self, change: &Change<T>) {
        // Copied, so that a listener may add another.
        let listeners = self.listeners.read().clone();
        for listener in listeners {
            if catch_unwind(AssertUnwindSafe(|| listener(change))).is_err() {
                log::error!("a listener panicked at a change to {:?}", change.record().id());
            }
        }
    }
}

/// The record of a change to one record.
fn only_record<T: CollectionRecord>(id: T::Id, made: &[Change<T>]) -> Result<Arc<T>, CollectionError<T>> {
    made.first().map(|change| change.record().clone()).ok_or(CollectionError::NotFound(id))
}

impl<T: CollectionRecord> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        self.index.write().release(self.ids.iter().copied());
    }
}

impl<T: CollectionRecord> Clone for Collection<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
