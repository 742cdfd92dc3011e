//! All subscriptions, in memory and on disk. A space's are changed together: all of a change is made, in both, or none
//! of it, and it is carried through even if its caller goes away.
//!
//! The book knows nothing of routes and queues: whoever keeps those listens to each [`Change`].

use super::Subscription;
use crate::{
    model::{
        id::{SinkId, SpaceId, UserId},
        method::Method,
        timestamp::Timestamp,
    },
    platform::store::{Change, Lanes, Store, StoreError, Table, carried_through, keys},
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

/// Under the space's id and the method's name, so that a method of a space can have one at most.
const SUBSCRIPTIONS: Table<Subscription> = Table::new(keys::SUBSCRIPTIONS);

/// Every subscription there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Subscriptions(Arc<Shared>);

struct Shared {
    store: Store,
    shelf: RwLock<Shelf>,
    /// One is held over a whole change, chosen by the space's id, so that two changes to one space reach disk and
    /// memory in the same order.
    changing: Lanes,
    listener: OnceLock<Listener>,
}

type Listener = Box<dyn Fn(&Change<Subscription>) + Send + Sync>;

#[derive(Default)]
struct Shelf {
    /// In order of creation, since ids are.
    all: BTreeMap<SinkId, Arc<Subscription>>,
    /// By the method's name.
    spaces: HashMap<SpaceId, BTreeMap<Arc<str>, Arc<Subscription>>>,
}

impl Subscriptions {
    /// Reads all subscriptions.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let mut shelf = Shelf::default();
        for subscription in SUBSCRIPTIONS.all(&store)? {
            shelf.put(Arc::new(subscription));
        }
        Ok(Self(Arc::new(Shared {
            store,
            shelf: RwLock::new(shelf),
            changing: Lanes::new(),
            listener: OnceLock::new(),
        })))
    }

    /// Has `listener` told of every change from now on, before the change's caller hears of it and in order for each
    /// space. There is one listener; a second is ignored.
    pub fn listen(&self, listener: impl Fn(&Change<Subscription>) + Send + Sync + 'static) {
        let _ = self.0.listener.set(Box::new(listener));
    }

    /// Makes the space's subscriptions exactly those of the methods that name events. A method that stays keeps its
    /// queue; what is as it was costs no write.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written. Nothing changes then.
    pub async fn replace(
        &self,
        space: SpaceId,
        space_name: &str,
        owner: UserId,
        methods: &[Method],
    ) -> Result<(), StoreError> {
        let space_name: Arc<str> = space_name.into();
        let subscribed = methods.iter().filter_map(|method| {
            let events = method.definition.events.clone()?;
            Some(Subscription {
                id: SinkId::new(),
                space,
                space_name: space_name.clone(),
                owner,
                method: method.name.clone(),
                events,
                event_sinks: method.event_sinks.clone(),
                created_at: Timestamp::now(),
            })
        });
        let wanted = subscribed.collect();
        self.change(space, || Some(wanted)).await
    }

    /// Removes all of the space's subscriptions.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written. Nothing changes then.
    pub async fn remove(&self, space: SpaceId) -> Result<(), StoreError> {
        self.remove_unless(space, || false).await
    }

    /// Removes all of the space's subscriptions, unless they are needed after all. That is asked when no other change
    /// to the space is under way, so that a registration which came meanwhile keeps its own.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written. Nothing changes then.
    pub async fn remove_unless(
        &self,
        space: SpaceId,
        needed: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        self.change(space, move || if needed() { None } else { Some(Vec::new()) }).await
    }

    /// Removes the subscriptions of every space that is not to be kept: those a crash left behind.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn retain(&self, keep: impl Fn(SpaceId) -> bool) -> Result<(), StoreError> {
        let gone: Vec<SpaceId> = self.0.read().spaces.keys().copied().filter(|space| !keep(*space)).collect();
        for space in gone {
            self.remove(space).await?;
        }
        Ok(())
    }

    pub fn get(&self, id: SinkId) -> Option<Arc<Subscription>> {
        self.0.read().all.get(&id).cloned()
    }

    /// The user's, oldest first.
    pub fn of(&self, owner: UserId) -> Vec<Arc<Subscription>> {
        let shelf = self.0.read();
        shelf.all.values().filter(|subscription| subscription.owner == owner).cloned().collect()
    }

    /// The space's, by the method's name.
    pub fn of_space(&self, space: SpaceId) -> Vec<Arc<Subscription>> {
        let shelf = self.0.read();
        shelf.spaces.get(&space).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Every subscription, oldest first.
    pub fn all(&self) -> Vec<Arc<Subscription>> {
        self.0.read().all.values().cloned().collect()
    }

    /// Makes the space's subscriptions what is wanted once it is this change's turn; `None` leaves them as they are.
    async fn change(
        &self,
        space: SpaceId,
        wanted: impl FnOnce() -> Option<Vec<Subscription>> + Send + 'static,
    ) -> Result<(), StoreError> {
        let shared = self.0.clone();
        carried_through(async move {
            let _changing = shared.changing.turn(space.as_bytes()).await;
            let Some(wanted) = wanted() else { return Ok(()) };
            let changes = shared.read().changes(space, wanted);
            if changes.is_empty() {
                return Ok(());
            }
            let written = shared.store.write(move |batch| {
                for change in &changes {
                    match change.sides() {
                        (_, Some(after)) => SUBSCRIPTIONS.put(batch, &after.key(), after),
                        (Some(before), None) => SUBSCRIPTIONS.delete(batch, &before.key()),
                        (None, None) => {}
                    }
                }
                changes
            });
            let changes = written.await?;
            for change in &changes {
                shared.write().apply(change);
            }
            if let Some(listener) = shared.listener.get() {
                changes.iter().for_each(listener);
            }
            Ok(())
        })
        .await
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write()
    }
}

impl Shelf {
    /// What has to happen for the space to have exactly what is wanted.
    fn changes(&self, space: SpaceId, wanted: Vec<Subscription>) -> Vec<Change<Subscription>> {
        let mut before = self.spaces.get(&space).cloned().unwrap_or_default();
        let mut changes = Vec::new();
        for new in wanted {
            match before.remove(&new.method) {
                // Another owner must not get what waits for this one.
                Some(old) if old.owner == new.owner => {
                    let after = Subscription { id: old.id, created_at: old.created_at, ..new };
                    if after != *old {
                        changes.push(Change::Updated { before: old, after: Arc::new(after) });
                    }
                }
                Some(old) => changes.extend([Change::Deleted(old), Change::Created(Arc::new(new))]),
                None => changes.push(Change::Created(Arc::new(new))),
            }
        }
        changes.extend(before.into_values().map(Change::Deleted));
        changes
    }

    fn apply(&mut self, change: &Change<Subscription>) {
        match change {
            Change::Created(new) | Change::Updated { after: new, .. } => self.put(new.clone()),
            Change::Deleted(old) => self.take(old),
        }
    }

    fn put(&mut self, subscription: Arc<Subscription>) {
        let space = self.spaces.entry(subscription.space).or_default();
        space.insert(subscription.method.clone(), subscription.clone());
        self.all.insert(subscription.id, subscription);
    }

    fn take(&mut self, subscription: &Subscription) {
        self.all.remove(&subscription.id);
        if let Some(space) = self.spaces.get_mut(&subscription.space) {
            space.remove(&subscription.method);
            if space.is_empty() {
                self.spaces.remove(&subscription.space);
            }
        }
    }
}

impl Subscription {
    fn key(&self) -> Vec<u8> {
        [self.space.as_bytes(), self.method.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::subscriptions::test_support::{StoreDirectory, method};
    use parking_lot::Mutex;

    fn names(subscriptions: &[Arc<Subscription>]) -> Vec<String> {
        subscriptions.iter().map(|subscription| subscription.name()).collect()
    }

    #[tokio::test]
    async fn only_a_method_that_names_events_subscribes() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let (space, ada) = (SpaceId::new(), UserId::new());
        let methods = [method("a", Some("custom.*"), &[]), method("b", None, &["shape"]), method("c", None, &[])];
        subscriptions.replace(space, "notes", ada, &methods).await.unwrap();
        assert_eq!(names(&subscriptions.all()), ["notes/a"]);
        assert_eq!(names(&subscriptions.of(ada)), ["notes/a"]);
        assert_eq!(subscriptions.of(UserId::new()), []);
        assert_eq!(subscriptions.of_space(SpaceId::new()), []);
    }

    #[tokio::test]
    async fn a_method_that_stays_keeps_its_id_and_one_that_comes_back_gets_a_new_one() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let (space, ada) = (SpaceId::new(), UserId::new());
        let id = |name: &str| {
            let found = subscriptions.of_space(space).into_iter().find(|subscription| &*subscription.method == name);
            found.map(|subscription| subscription.id)
        };
        let (stays, goes) = (method("stays", Some("custom.*"), &[]), method("goes", Some("custom.*"), &[]));
        subscriptions.replace(space, "notes", ada, &[stays, goes.clone()]).await.unwrap();
        let (first, second) = (id("stays").unwrap(), id("goes").unwrap());
        let stays = method("stays", Some("space.*"), &["shape"]);
        subscriptions.replace(space, "memos", ada, std::slice::from_ref(&stays)).await.unwrap();
        assert_eq!((id("stays"), id("goes")), (Some(first), None));
        let kept = subscriptions.get(first).unwrap();
        assert_eq!((kept.name().as_str(), kept.events.as_str()), ("memos/stays", "space.*"));
        assert_eq!(kept.event_sinks, ["shape"]);
        subscriptions.replace(space, "memos", ada, &[stays, goes]).await.unwrap();
        assert_eq!(id("stays"), Some(first));
        assert_ne!(id("goes"), Some(second));
        assert!(subscriptions.get(second).is_none());
    }

    #[tokio::test]
    async fn another_owner_of_the_space_does_not_inherit_the_queue() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let (space, ada, bob) = (SpaceId::new(), UserId::new(), UserId::new());
        let methods = [method("a", Some("*"), &[])];
        subscriptions.replace(space, "notes", ada, &methods).await.unwrap();
        let before = subscriptions.all()[0].id;
        subscriptions.replace(space, "notes", bob, &methods).await.unwrap();
        assert_eq!((subscriptions.of(ada).len(), subscriptions.of(bob).len()), (0, 1));
        assert_ne!(subscriptions.all()[0].id, before);
    }

    #[tokio::test]
    async fn spaces_do_not_touch_each_other_and_removing_one_leaves_the_rest() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let (one, two, ada) = (SpaceId::new(), SpaceId::new(), UserId::new());
        let methods = [method("a", Some("*"), &[])];
        subscriptions.replace(one, "one", ada, &methods).await.unwrap();
        subscriptions.replace(two, "two", ada, &methods).await.unwrap();
        assert_eq!(names(&subscriptions.all()), ["one/a", "two/a"]);
        subscriptions.remove(one).await.unwrap();
        assert_eq!(names(&subscriptions.all()), ["two/a"]);
        subscriptions.retain(|space| space != two).await.unwrap();
        assert_eq!(subscriptions.all(), []);
    }

    #[tokio::test]
    async fn what_is_needed_after_all_is_not_removed_and_that_is_asked_last() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let (space, ada) = (SpaceId::new(), UserId::new());
        let methods = [method("a", Some("*"), &[])];
        let seen = subscriptions.clone();
        let registered = subscriptions.replace(space, "notes", ada, &methods);
        let removed = subscriptions.remove_unless(space, move || !seen.of_space(space).is_empty());
        let (registered, removed) = tokio::join!(registered, removed);
        registered.and(removed).unwrap();
        assert_eq!(names(&subscriptions.all()), ["notes/a"]);
        subscriptions.remove_unless(space, || false).await.unwrap();
        assert_eq!(subscriptions.all(), []);
    }

    #[tokio::test]
    async fn what_was_changed_is_there_after_reopening() {
        let directory = StoreDirectory::new();
        let store = directory.store();
        let subscriptions = Subscriptions::open(store.clone()).unwrap();
        let (space, gone, ada) = (SpaceId::new(), SpaceId::new(), UserId::new());
        subscriptions.replace(space, "notes", ada, &[method("a", Some("custom.*"), &["x", "y"])]).await.unwrap();
        subscriptions.replace(gone, "gone", ada, &[method("a", Some("*"), &[])]).await.unwrap();
        subscriptions.remove(gone).await.unwrap();
        let kept = subscriptions.all();
        store.close().await;
        drop((store, subscriptions));
        let store = directory.store();
        assert_eq!(Subscriptions::open(store.clone()).unwrap().all(), kept);
        store.close().await;
    }

    #[tokio::test]
    async fn a_change_that_was_not_written_did_not_happen() {
        let directory = StoreDirectory::new();
        let store = directory.store();
        let subscriptions = Subscriptions::open(store.clone()).unwrap();
        let (space, ada) = (SpaceId::new(), UserId::new());
        let methods = [method("a", Some("*"), &[])];
        subscriptions.replace(space, "notes", ada, &methods).await.unwrap();
        store.close().await;
        assert!(subscriptions.remove(space).await.is_err());
        assert_eq!(subscriptions.all().len(), 1);
        // A registration that is only repeated needs no disk.
        subscriptions.replace(space, "notes", ada, &methods).await.unwrap();
    }

    #[tokio::test]
    async fn the_listener_hears_what_changed_and_nothing_else() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let notes = heard.clone();
        subscriptions.listen(move |change| {
            notes.lock().push(match change {
                Change::Created(new) => format!("+{}", new.method),
                Change::Updated { after, .. } => format!("={}", after.method),
                Change::Deleted(old) => format!("-{}", old.method),
            });
        });
        let (space, ada) = (SpaceId::new(), UserId::new());
        let (a, b) = (method("a", Some("*"), &[]), method("b", Some("*"), &[]));
        subscriptions.replace(space, "notes", ada, &[a.clone(), b.clone()]).await.unwrap();
        subscriptions.replace(space, "notes", ada, &[a.clone(), b]).await.unwrap();
        subscriptions.replace(space, "notes", ada, &[a, method("b", Some("custom.*"), &[])]).await.unwrap();
        subscriptions.remove(space).await.unwrap();
        assert_eq!(*heard.lock(), ["+a", "+b", "=b", "-a", "-b"]);
    }
}
