//! All sinks, in memory and on disk. A change is made in both or in neither, one change to a sink at a time, and is
//! carried through even if its caller goes away. Changes to different sinks share the store's flushes.
//!
//! The book knows nothing of routes and queues: whoever keeps those listens to each [`Change`].

use super::Sink;
use crate::{
    model::{id::SinkId, owner::Owner},
    platform::store::{Batch, Change, Lanes, Store, StoreError, Table, carried_through, keys},
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, OnceLock},
};

const SINKS: Table<Sink> = Table::new(keys::SINKS);

/// Every sink there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Book(Arc<Shared>);

struct Shared {
    store: Store,
    /// Sinks a user can have.
    most: usize,
    shelf: RwLock<Shelf>,
    /// One is held over a whole change, chosen by the sink's id, so that two changes to one sink reach disk and
    /// memory in the same order and neither brings back what the other deleted.
    changing: Lanes,
    listener: OnceLock<Listener>,
}

type Listener = Box<dyn Fn(&Change<Sink>) + Send + Sync>;

#[derive(Default)]
struct Shelf {
    /// In order of creation, since ids are.
    sinks: BTreeMap<SinkId, Arc<Sink>>,
    /// Those of sinks that are being saved too: a name is taken from the moment a change begins.
    names: HashMap<Owner, HashMap<String, SinkId>>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    #[error("there is already a sink named `{0}` of this owner: choose another name, or change that one")]
    Conflict(String),
    #[error("a user has at most {0} sinks: delete one first, or have `limits.sinks` raised")]
    TooMany(usize),
    #[error("there is no sink {0}")]
    NotFound(SinkId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Book {
    /// Reads all sinks. Their Lua is compiled later, when each is first used. A user can have `most` of their own.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, most: usize) -> Result<Self, StoreError> {
        let mut shelf = Shelf::default();
        for sink in SINKS.all(&store)? {
            shelf.put(Arc::new(sink));
        }
        let shelf = RwLock::new(shelf);
        Ok(Self(Arc::new(Shared { store, most, shelf, changing: Lanes::new(), listener: OnceLock::new() })))
    }

    /// Has `listener` told of every change from now on, before the change's caller hears of it and in order for each sink.
    /// There is one listener; a second is ignored.
    pub fn listen(&self, listener: impl Fn(&Change<Sink>) + Send + Sync + 'static) {
        let _ = self.0.listener.set(Box::new(listener));
    }

    /// Adds a sink. `also` writes into the same batch, so that an audit entry stands or falls with the change.
    ///
    /// # Errors
    ///
    /// Fails if its owner has one of that name or too many, or the store cannot be written.
    pub async fn create(
        &self,
        sink: Sink,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Sink>, BookError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _changing = shared.changing.turn(sink.id.as_bytes()).await;
            let sink = shared.save(sink, also).await?;
            shared.tell(&Change::Created(sink.clone()));
            Ok(sink)
        })
        .await
    }

    /// Puts a sink in the place of the one with its id.
    ///
    /// # Errors
    ///
    /// Fails if that one is gone, its owner has another of that name or, being new to it, too many, or the store
    /// cannot be written.
    pub async fn update(
        &self,
        sink: Sink,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Sink>, BookError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _changing = shared.changing.turn(sink.id.as_bytes()).await;
            let before = shared.read().sinks.get(&sink.id).cloned().ok_or(BookError::NotFound(sink.id))?;
            let after = shared.save(sink, also).await?;
            shared.tell(&Change::Updated { before, after: after.clone() });
            Ok(after)
        })
        .await
    }

    /// Removes a sink and returns it.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(
        &self,
        id: SinkId,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Sink>, BookError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _changing = shared.changing.turn(id.as_bytes()).await;
            let sink = shared.read().sinks.get(&id).cloned().ok_or(BookError::NotFound(id))?;
            let write = shared.store.write(move |batch| {
                SINKS.delete(batch, id.as_bytes());
                also(batch);
            });
            write.await?;
            shared.write().take(id);
            shared.tell(&Change::Deleted(sink.clone()));
            Ok(sink)
        })
        .await
    }

    pub fn get(&self, id: SinkId) -> Option<Arc<Sink>> {
        self.0.read().sinks.get(&id).cloned()
    }

    /// The sink of this owner with this name.
    pub fn find(&self, owner: Owner, name: &str) -> Option<Arc<Sink>> {
        let shelf = self.0.read();
        let id = shelf.names.get(&owner)?.get(name)?;
        shelf.sinks.get(id).cloned()
    }

    /// Up to `limit` of the sinks that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<SinkId>, limit: usize, wanted: impl Fn(&Sink) -> bool) -> Vec<Arc<Sink>> {
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let shelf = self.0.read();
        let after = shelf.sinks.range((start, Bound::Unbounded)).map(|(_, sink)| sink);
        after.filter(|sink| wanted(sink)).take(limit).cloned().collect()
    }

    /// Every sink of these owners, oldest first.
    pub fn visible_to(&self, owners: &[Owner]) -> Vec<Arc<Sink>> {
        self.page(None, usize::MAX, |sink| owners.contains(&sink.owner))
    }

    /// Every sink, oldest first.
    pub fn all(&self) -> Vec<Arc<Sink>> {
        self.0.read().sinks.values().cloned().collect()
    }
}

impl Shared {
    async fn save(
        &self,
        sink: Sink,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Sink>, BookError> {
        let sink = Arc::new(sink);
        self.write().reserve_name(&sink, self.most)?;
        let saved = sink.clone();
        let write = self.store.write(move |batch| {
            SINKS.put(batch, saved.id.as_bytes(), &saved);
            also(batch);
        });
        let written = write.await;
        let mut shelf = self.write();
        match written {
            Ok(()) => shelf.put(sink.clone()),
            Err(error) => {
                shelf.release_name(&sink);
                return Err(error.into());
            }
        }
        Ok(sink)
    }

    fn tell(&self, change: &Change<Sink>) {
        if let Some(listener) = self.listener.get() {
            listener(change);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write()
    }
}

impl Shelf {
    /// Takes a name for a sink that is about to be saved, unless another sink of the same owner has it, or the owner
    /// is a user with `most` sinks besides.
    fn reserve_name(&mut self, sink: &Sink, most: usize) -> Result<(), BookError> {
        let counted = matches!(sink.owner, Owner::User(_));
        let has_it = self.sinks.get(&sink.id).is_some_and(|old| old.owner == sink.owner);
        let names = self.names.entry(sink.owner).or_default();
        match names.get(&sink.name) {
            Some(id) if *id == sink.id => return Ok(()),
            Some(_) => return Err(BookError::Conflict(sink.name.clone())),
            None => {}
        }
        if counted && !has_it && names.len() >= most {
            return Err(BookError::TooMany(most));
        }
        names.insert(sink.name.clone(), sink.id);
        Ok(())
    }

    /// Gives the name of a sink that was not saved back, unless it had the name before.
    fn release_name(&mut self, sink: &Sink) {
        let had = |old: &Arc<Sink>| old.owner == sink.owner && old.name == sink.name;
        if !self.sinks.get(&sink.id).is_some_and(had) {
            self.remove_name(sink);
        }
    }

    fn put(&mut self, sink: Arc<Sink>) {
        self.take(sink.id);
        self.names.entry(sink.owner).or_default().insert(sink.name.clone(), sink.id);
        self.sinks.insert(sink.id, sink);
    }

    fn take(&mut self, id: SinkId) {
        if let Some(old) = self.sinks.remove(&id) {
            self.remove_name(&old);
        }
    }

    fn remove_name(&mut self, sink: &Sink) {
        if let Some(names) = self.names.get_mut(&sink.owner) {
            names.remove(&sink.name);
            if names.is_empty() {
                self.names.remove(&sink.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::UserId;
    use parking_lot::Mutex;
    use serde_json::json;
    use std::path::PathBuf;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            Self(std::env::temp_dir().join(format!("svc-book-{}", uuid::Uuid::now_v7())))
        }

        fn open(&self) -> (Store, Book) {
            let store = Store::open(&self.0, 0, Arc::default()).unwrap();
            (store.clone(), Book::open(store, usize::MAX).unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn sink(user: UserId, name: &str, owner: &str, previous: Option<&Sink>) -> Sink {
        let webhook = json!({"url": "https://a.example/"});
        let spec = json!({"name": name, "events": "*", "type": "webhook", "owner": owner, "webhook": webhook});
        Sink::define(serde_json::from_value(spec).unwrap(), user, previous).unwrap()
    }

    #[tokio::test]
    async fn a_name_is_taken_per_owner() {
        let scratch = Scratch::new();
        let (_, book) = scratch.open();
        let (ada, bob) = (UserId::new(), UserId::new());
        book.create(sink(ada, "x", "me", None), |_| ()).await.unwrap();
        book.create(sink(bob, "x", "me", None), |_| ()).await.unwrap();
        book.create(sink(ada, "x", "global", None), |_| ()).await.unwrap();
        let again = book.create(sink(bob, "x", "global", None), |_| ()).await;
        assert!(matches!(again, Err(BookError::Conflict(name)) if name == "x"));
        assert_eq!(book.all().len(), 3);
        assert_eq!(book.visible_to(&[Owner::User(ada), Owner::Global]).len(), 2);
        assert_eq!(book.find(Owner::User(bob), "x").unwrap().owner, Owner::User(bob));
    }

    #[tokio::test]
    async fn two_creations_at_once_cannot_take_one_name() {
        let scratch = Scratch::new();
        let (_, book) = scratch.open();
        let ada = UserId::new();
        let tasks = (0..16).map(|_| {
            let book = book.clone();
            tokio::spawn(async move { book.create(sink(ada, "x", "me", None), |_| ()).await.is_ok() })
        });
        let made = futures_util::future::join_all(tasks).await;
        assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
    }

    #[tokio::test]
    async fn a_renamed_sink_frees_its_name_and_a_deleted_one_stays_deleted() {
        let scratch = Scratch::new();
        let (_, book) = scratch.open();
        let ada = UserId::new();
        let first = book.create(sink(ada, "old", "me", None), |_| ()).await.unwrap();
        book.update(sink(ada, "new", "me", Some(&first)), |_| ()).await.unwrap();
        assert!(book.find(Owner::User(ada), "old").is_none());
        let second = book.create(sink(ada, "old", "me", None), |_| ()).await.unwrap();
        let clash = book.update(sink(ada, "new", "me", Some(&second)), |_| ()).await;
        assert!(matches!(clash, Err(BookError::Conflict(_))));
        book.delete(first.id, |_| ()).await.unwrap();
        let late = book.update(sink(ada, "new", "me", Some(&first)), |_| ()).await;
        assert!(matches!(late, Err(BookError::NotFound(id)) if id == first.id));
        assert!(matches!(book.delete(first.id, |_| ()).await, Err(BookError::NotFound(_))));
    }

    #[tokio::test]
    async fn what_was_changed_is_there_after_reopening_with_what_was_written_along() {
        let scratch = Scratch::new();
        let (store, book) = scratch.open();
        let ada = UserId::new();
        let kept = book.create(sink(ada, "kept", "me", None), |batch| batch.put(b"zk", b"1")).await.unwrap();
        let gone = book.create(sink(ada, "gone", "me", None), |_| ()).await.unwrap();
        book.delete(gone.id, |batch| batch.put(b"zg", b"1")).await.unwrap();
        store.close().await;
        drop((store, book));
        let (store, book) = scratch.open();
        assert_eq!(book.all().iter().map(|sink| sink.id).collect::<Vec<_>>(), [kept.id]);
        assert!(store.get(b"zk").unwrap().is_some() && store.get(b"zg").unwrap().is_some());
        store.close().await;
    }

    #[tokio::test]
    async fn a_change_that_was_not_written_did_not_happen() {
        let scratch = Scratch::new();
        let (store, book) = scratch.open();
        let ada = UserId::new();
        let kept = book.create(sink(ada, "kept", "me", None), |_| ()).await.unwrap();
        store.close().await;
        assert!(matches!(book.create(sink(ada, "x", "me", None), |_| ()).await, Err(BookError::Store(_))));
        assert!(matches!(book.delete(kept.id, |_| ()).await, Err(BookError::Store(_))));
        let renamed = book.update(sink(ada, "new", "me", Some(&kept)), |_| ()).await;
        assert!(matches!(renamed, Err(BookError::Store(_))));
        assert_eq!(book.all().len(), 1);
        assert_eq!(book.find(Owner::User(ada), "kept").map(|sink| sink.id), Some(kept.id));
        // The names that were not taken after all are free: only the store stands in the way.
        for name in ["x", "new"] {
            assert!(matches!(book.create(sink(ada, name, "me", None), |_| ()).await, Err(BookError::Store(_))));
        }
    }

    #[tokio::test]
    async fn the_listener_hears_every_change_in_order() {
        let scratch = Scratch::new();
        let (_, book) = scratch.open();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let notes = heard.clone();
        book.listen(move |change| {
            notes.lock().push(match change {
                Change::Created(sink) => format!("+{}", sink.name),
                Change::Updated { before, after } => format!("{}>{}", before.name, after.name),
                Change::Deleted(sink) => format!("-{}", sink.name),
            });
        });
        let ada = UserId::new();
        let first = book.create(sink(ada, "a", "me", None), |_| ()).await.unwrap();
        book.update(sink(ada, "b", "me", Some(&first)), |_| ()).await.unwrap();
        book.delete(first.id, |_| ()).await.unwrap();
        assert_eq!(*heard.lock(), ["+a", "a>b", "-b"]);
    }

    #[tokio::test]
    async fn pages_follow_each_other() {
        let scratch = Scratch::new();
        let (_, book) = scratch.open();
        let ada = UserId::new();
        for name in ["a", "b", "c"] {
            book.create(sink(ada, name, "me", None), |_| ()).await.unwrap();
        }
        let first = book.page(None, 2, |_| true);
        let rest = book.page(Some(first[1].id), 2, |_| true);
        let names: Vec<_> = first.iter().chain(&rest).map(|sink| sink.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
