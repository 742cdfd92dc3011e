//! All subscriptions, as a [`Collection`]: one at most for each method of a space. A space's subscriptions are changed
//! together, one change at a time.
//!
//! Routes and queues follow by listening to each [`Change`] (`delivery::deliver::route_sync`).

use super::Subscription;
use crate::{
    model::{
        id::{SinkId, SpaceId, UserId},
        method::Method,
        timestamp::Timestamp,
    },
    platform::{
        collection::{
            ATTEMPTS, Change, Changes, Collection, CollectionError, CollectionRecord, Precondition, Revision,
        },
        keyed_mutex::KeyedMutex,
        run_to_completion::run_to_completion,
        store::{Store, StoreError, Table, keys},
    },
};
use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    sync::Arc,
};

/// Every subscription there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Subscriptions {
    records: Collection<Subscription>,
    /// Held by the space's id while a change to its subscriptions is decided and made, because the decision is about
    /// all of them. It keeps out no writer of another server; for that, each is changed at the revision that was read.
    changing: Arc<KeyedMutex>,
}

/// Reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionsError {
    #[error("somebody else keeps changing the subscriptions of the space: try again")]
    Conflict,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Subscriptions {
    /// Reads all subscriptions.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        Ok(Self { records: Collection::open(store, usize::MAX)?, changing: Arc::default() })
    }

    /// Calls `listener` with every change from now on, by the rules of [`Collection::listen`].
    pub fn listen(&self, listener: impl Fn(&Change<Subscription>) + Send + Sync + 'static) {
        self.records.listen(listener);
    }

    /// Makes the space's subscriptions exactly those of the methods that name events. A method that stays keeps its
    /// queue; an unchanged subscription is not written again.
    ///
    /// # Errors
    ///
    /// Nothing changes then.
    pub async fn replace(
        &self,
        space: SpaceId,
        space_name: &str,
        owner: UserId,
        methods: &[Method],
    ) -> Result<(), SubscriptionsError> {
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
                filter: method.filter.clone(),
                event_sinks: method.event_sinks.clone(),
                created_at: Timestamp::now(),
            })
        });
        let wanted: Vec<Subscription> = subscribed.collect();
        self.change(space, move || Some(wanted.clone())).await
    }

    /// Removes all of the space's subscriptions.
    ///
    /// # Errors
    ///
    /// Nothing changes then.
    pub async fn remove(&self, space: SpaceId) -> Result<(), SubscriptionsError> {
        self.remove_unless(space, || false).await
    }

    /// Removes all of the space's subscriptions, unless they are needed after all. That is asked when no other change
    /// to the space is under way, so that a registration which came meanwhile keeps its own.
    ///
    /// # Errors
    ///
    /// Nothing changes then.
    pub async fn remove_unless(
        &self,
        space: SpaceId,
        needed: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), SubscriptionsError> {
        self.change(space, move || if needed() { None } else { Some(Vec::new()) }).await
    }

    /// Removes the subscriptions of every space that is not to be kept: those a crash left behind.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn retain(&self, keep: impl Fn(SpaceId) -> bool) -> Result<(), StoreError> {
        for space in self.records.namespaces().into_iter().filter(|space| !keep(*space)) {
            match self.remove(space).await {
                Ok(()) => {}
                Err(SubscriptionsError::Store(error)) => return Err(error),
                // They are in use, so that no crash has left them behind.
                Err(error @ SubscriptionsError::Conflict) => {
                    log::warn!("the subscriptions of space {space} stay for now: {error}");
                }
            }
        }
        Ok(())
    }

    pub fn get(&self, id: SinkId) -> Option<Arc<Subscription>> {
        self.records.get(id)
    }

    /// The subscriptions of a user, oldest first.
    pub fn of(&self, owner: UserId) -> Vec<Arc<Subscription>> {
        self.records.page(None, usize::MAX, |subscription| subscription.owner == owner)
    }

    /// The subscriptions of a space, by the method's name.
    pub fn of_space(&self, space: SpaceId) -> Vec<Arc<Subscription>> {
        self.records.in_namespace(space)
    }

    /// Every subscription, oldest first.
    pub fn all(&self) -> Vec<Arc<Subscription>> {
        self.records.all()
    }

    /// Makes the space's subscriptions those that are wanted once no other change to the space is under way; `None`
    /// leaves them as they are. If another writer came in between, `wanted` is asked again.
    async fn change(
        &self,
        space: SpaceId,
        wanted: impl Fn() -> Option<Vec<Subscription>> + Send + 'static,
    ) -> Result<(), SubscriptionsError> {
        let this = self.clone();
        run_to_completion(async move {
            let _changing = this.changing.lock(&space).await;
            for _ in 0..ATTEMPTS {
                let before = this.records.revisions_in_namespace(space);
                let Some(wanted) = wanted() else { return Ok(()) };
                let changes = changes(before, wanted);
                if changes.is_empty() {
                    return Ok(());
                }
                match this.records.commit(changes).await {
                    Ok(_) => return Ok(()),
                    Err(CollectionError::Store(error)) => return Err(error.into()),
                    Err(CollectionError::Refused(never)) => match never {},
                    // One of the records was changed or deleted meanwhile, or one was added.
                    Err(
                        CollectionError::Conflict(_)
                        | CollectionError::NotFound(_)
                        | CollectionError::NameTaken(_)
                        | CollectionError::QuotaReached(_),
                    ) => {}
                }
            }
            Err(SubscriptionsError::Conflict)
        })
        .await
    }
}

/// The changes after which a space has exactly the wanted subscriptions.
fn changes(before: Vec<(Arc<Subscription>, Revision)>, wanted: Vec<Subscription>) -> Changes<Subscription> {
    let by_method =
        |(old, revision): (Arc<Subscription>, _)| (old.method.clone(), (old, Precondition::Revision(revision)));
    let mut before: BTreeMap<Arc<str>, _> = before.into_iter().map(by_method).collect();
    let mut changes = Changes::new();
    let mut seen = HashSet::new();
    for new in wanted {
        if !seen.insert(new.method.clone()) {
            continue;
        }
        match before.remove(&new.method) {
            // Another owner must not get the events that wait for this one.
            Some((old, read)) if old.owner == new.owner => {
                let after = Subscription { id: old.id, created_at: old.created_at, ..new };
                if after != *old {
                    changes = changes.put(after, read);
                }
            }
            Some((old, read)) => changes = changes.delete(old.id, read).put(new, Precondition::Absent),
            None => changes = changes.put(new, Precondition::Absent),
        }
    }
    before.into_values().fold(changes, |changes, (old, read)| changes.delete(old.id, read))
}

impl CollectionRecord for Subscription {
    type Id = SinkId;
    type Namespace = SpaceId;
    type Refusal = Infallible;

    const TABLE: Table<Self> = Table::new(keys::SUBSCRIPTIONS);

    fn id(&self) -> SinkId {
        self.id
    }

    /// The space's id and the method's name, so that a method of a space can have one at most.
    fn key(&self) -> Vec<u8> {
        [self.space.as_bytes(), self.method.as_bytes()].concat()
    }

    fn namespace(&self) -> SpaceId {
        self.space
    }

    fn name(&self) -> Option<&str> {
        Some(&self.method)
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
    async fn a_change_that_another_writer_overtook_is_decided_again() {
        let directory = StoreDirectory::new();
        let subscriptions = Subscriptions::open(directory.store()).unwrap();
        let (space, ada, bob) = (SpaceId::new(), UserId::new(), UserId::new());
        subscriptions.replace(space, "notes", ada, &[method("a", Some("*"), &[])]).await.unwrap();
        let before = subscriptions.all().remove(0);
        // The other writer gives the space to bob, and writes that only after this change has been decided.
        let (decided, wait) = std::sync::mpsc::channel();
        let given = Subscription { owner: bob, ..Subscription::clone(&before) };
        let given = Changes::new().put(given, Precondition::Present).with(move |_| wait.recv().unwrap());
        let mut other = Box::pin(subscriptions.records.commit(given));
        assert!(futures_util::poll!(&mut other).is_pending());
        let wanted = Subscription { events: "space.*".parse().unwrap(), ..Subscription::clone(&before) };
        let wanted = Subscription { id: SinkId::new(), ..wanted };
        let asked = Arc::new(Mutex::new(0));
        let count = asked.clone();
        let changed = subscriptions.change(space, move || {
            *count.lock() += 1;
            // Nobody waits for it the second time.
            let _ = decided.send(());
            Some(vec![wanted.clone()])
        });
        changed.await.unwrap();
        other.await.unwrap();
        assert_eq!(*asked.lock(), 2);
        let after = subscriptions.of_space(space);
        assert_eq!((after.len(), after[0].owner, after[0].events.as_str()), (1, ada, "space.*"));
        assert_ne!(after[0].id, before.id, "the queue in between was bob's");
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
    async fn subscriptions_that_are_still_needed_are_not_removed_and_the_need_is_checked_last() {
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
    async fn changes_are_there_after_reopening() {
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
    async fn the_listener_gets_the_changes_and_nothing_else() {
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
