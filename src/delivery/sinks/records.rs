//! All sinks, as a [`Collection`]: unique by name within their owner, bounded in number for each user.
//!
//! The secrets of webhooks are encrypted in every write, and decrypted when the collection is opened.
//!
//! Routes and queues follow by listening to each [`Change`] (`delivery::deliver::route_sync`).

use super::Sink;
use crate::{
    model::{id::SinkId, owner::Owner, timestamp::Timestamp},
    platform::{
        collection::{Change, Collection, CollectionError, CollectionRecord, Edit},
        secret_keys::SecretKeys,
        store::{Batch, Store, StoreError, Table, keys},
    },
};
use std::{convert::Infallible, sync::Arc};

/// Every sink there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Sinks {
    records: Collection<Sink>,
    keys: SecretKeys,
}

/// Reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum SinksError {
    #[error("there is already a sink named `{0}` of this owner: choose another name, or change that one")]
    NameTaken(String),
    #[error("a user has at most {0} sinks: delete one first, or have `limits.sinks` raised")]
    TooMany(usize),
    #[error("there is no sink {0}")]
    NotFound(SinkId),
    #[error("somebody else has changed the sink meanwhile: look at it and try again")]
    Conflict,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Sinks {
    /// Reads all sinks, and decrypts their secrets with `keys`. Their Lua is compiled later, when each is first used. A
    /// user can have `most` of their own.
    ///
    /// A sink whose secrets cannot be decrypted is there; its deliveries fail with the reason.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, most: usize, keys: SecretKeys) -> Result<Self, StoreError> {
        let records: Collection<Sink> = Collection::open(store, most)?;
        let (mut lost, mut example) = (0, None);
        for sink in records.all() {
            let Some(secrets) = sink.webhook_secrets() else { continue };
            secrets.unseal(&keys, sink.id);
            if let Err(reason) = secrets.read() {
                lost += 1;
                example.get_or_insert_with(|| format!("sink `{}` ({}): {reason}", sink.name, sink.id));
            }
        }
        if let Some(example) = example {
            log::error!("the secrets of {lost} webhooks cannot be decrypted, and their deliveries fail: {example}");
        }
        Ok(Self { records, keys })
    }

    /// Encrypts the secrets that an older version stored in clear, or that are encrypted with a former key.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn encrypt_stored(&self) -> Result<(), SinksError> {
        let is_outdated = |sink: &Sink| sink.webhook_secrets().is_some_and(|secrets| secrets.is_outdated(&self.keys));
        let mut count = 0;
        for sink in self.records.all().into_iter().filter(|sink| is_outdated(sink)) {
            let renew = |before: Arc<Sink>| async move { Ok::<_, SinksError>(Edit::put(before.with_new_secrets())) };
            self.edit(sink.id, renew).await?;
            count += 1;
        }
        if count > 0 {
            log::info!("the secrets of {count} webhooks are encrypted with the current key now");
        }
        Ok(())
    }

    /// Deletes the previous secrets of webhooks whose grace is over.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn forget_expired_secrets(&self) -> Result<(), SinksError> {
        let now = Timestamp::now();
        for sink in self.records.all().into_iter().filter(|sink| sink.without_expired_secret(now).is_some()) {
            let forget = |before: Arc<Sink>| async move {
                Ok::<_, SinksError>(match before.without_expired_secret(now) {
                    Some(after) => Edit::put(after),
                    None => Edit::put(before),
                })
            };
            match self.edit(sink.id, forget).await {
                Ok(_) | Err(SinksError::NotFound(_) | SinksError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Calls `listener` with every change from now on, by the rules of [`Collection::listen`].
    pub fn listen(&self, listener: impl Fn(&Change<Sink>) + Send + Sync + 'static) {
        self.records.listen(listener);
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
    ) -> Result<Arc<Sink>, SinksError> {
        self.seal(&sink);
        Ok(self.records.create(sink, also).await?)
    }

    /// Changes a sink by a decision on its present state, by the rules of [`Collection::edit`].
    ///
    /// # Errors
    ///
    /// Fails if it is gone, `decide` does, others keep changing it meanwhile, its owner has another of that name or,
    /// being new to it, too many, or the store cannot be written.
    pub async fn edit<E: From<SinksError>, F: Future<Output = Result<Edit<Sink>, E>>>(
        &self,
        id: SinkId,
        mut decide: impl FnMut(Arc<Sink>) -> F,
    ) -> Result<Arc<Sink>, E> {
        let decide = |before| {
            let deciding = decide(before);
            async move {
                let edit = deciding.await?;
                edit.record().into_iter().for_each(|sink| self.seal(sink));
                Ok(edit)
            }
        };
        self.records.edit(id, decide).await.map_err(SinksError::from)?
    }

    fn seal(&self, sink: &Sink) {
        if let Some(secrets) = sink.webhook_secrets() {
            secrets.seal(&self.keys, sink.id);
        }
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
    ) -> Result<Arc<Sink>, SinksError> {
        Ok(self.records.delete(id, also).await?)
    }

    pub fn get(&self, id: SinkId) -> Option<Arc<Sink>> {
        self.records.get(id)
    }

    /// The sink of this owner with this name.
    pub fn find(&self, owner: Owner, name: &str) -> Option<Arc<Sink>> {
        self.records.find(owner, name)
    }

    /// Up to `limit` of the sinks that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<SinkId>, limit: usize, wanted: impl Fn(&Sink) -> bool) -> Vec<Arc<Sink>> {
        self.records.page(cursor, limit, wanted)
    }

    /// Every sink of these owners, oldest first.
    pub fn visible_to(&self, owners: &[Owner]) -> Vec<Arc<Sink>> {
        self.page(None, usize::MAX, |sink| owners.contains(&sink.owner))
    }

    /// Every sink, oldest first.
    pub fn all(&self) -> Vec<Arc<Sink>> {
        self.records.all()
    }
}

impl CollectionRecord for Sink {
    type Id = SinkId;
    type Namespace = Owner;
    type Refusal = Infallible;

    const TABLE: Table<Self> = Table::new(keys::SINKS);

    fn id(&self) -> SinkId {
        self.id
    }

    fn key(&self) -> Vec<u8> {
        self.id.as_bytes().to_vec()
    }

    fn namespace(&self) -> Owner {
        self.owner
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn is_counted(&self) -> bool {
        matches!(self.owner, Owner::User(_))
    }
}

impl From<CollectionError<Sink>> for SinksError {
    fn from(error: CollectionError<Sink>) -> Self {
        match error {
            CollectionError::NameTaken(other) => Self::NameTaken(other.name.to_string()),
            CollectionError::QuotaReached(most) => Self::TooMany(most),
            CollectionError::NotFound(id) => Self::NotFound(id),
            CollectionError::Conflict(_) => Self::Conflict,
            CollectionError::Refused(never) => match never {},
            CollectionError::Store(error) => Self::Store(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::sinks::Secrets, model::id::UserId};
    use parking_lot::Mutex;
    use serde_json::json;
    use std::future::ready;
    use tempfile::TempDir;

    fn open(directory: &TempDir) -> (Store, Sinks) {
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        (store.clone(), Sinks::open(store, usize::MAX, SecretKeys::for_tests()).unwrap())
    }

    fn sink(user: UserId, name: &str, owner: &str, previous: Option<&Sink>) -> Sink {
        let webhook = json!({"url": "https://a.example/"});
        let spec = json!({"name": name, "events": "*", "type": "webhook", "owner": owner, "webhook": webhook});
        Sink::define(serde_json::from_value(spec).unwrap(), user, previous).unwrap()
    }

    async fn rename(sinks: &Sinks, user: UserId, id: SinkId, name: &str) -> Result<Arc<Sink>, SinksError> {
        sinks.edit(id, |before| ready(Ok(Edit::put(sink(user, name, "me", Some(&before)))))).await
    }

    #[tokio::test]
    async fn a_name_is_taken_per_owner() {
        let directory = TempDir::new().unwrap();
        let (_, sinks) = open(&directory);
        let (ada, bob) = (UserId::new(), UserId::new());
        sinks.create(sink(ada, "x", "me", None), |_| ()).await.unwrap();
        sinks.create(sink(bob, "x", "me", None), |_| ()).await.unwrap();
        sinks.create(sink(ada, "x", "global", None), |_| ()).await.unwrap();
        let again = sinks.create(sink(bob, "x", "global", None), |_| ()).await;
        assert!(matches!(again, Err(SinksError::NameTaken(name)) if name == "x"));
        assert_eq!(sinks.all().len(), 3);
        assert_eq!(sinks.visible_to(&[Owner::User(ada), Owner::Global]).len(), 2);
        assert_eq!(sinks.find(Owner::User(bob), "x").unwrap().owner, Owner::User(bob));
    }

    #[tokio::test]
    async fn two_creations_at_once_cannot_take_one_name() {
        let directory = TempDir::new().unwrap();
        let (_, sinks) = open(&directory);
        let ada = UserId::new();
        let tasks = (0..16).map(|_| {
            let sinks = sinks.clone();
            tokio::spawn(async move { sinks.create(sink(ada, "x", "me", None), |_| ()).await.is_ok() })
        });
        let made = futures_util::future::join_all(tasks).await;
        assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
    }

    #[tokio::test]
    async fn a_renamed_sink_frees_its_name_and_a_deleted_one_stays_deleted() {
        let directory = TempDir::new().unwrap();
        let (_, sinks) = open(&directory);
        let ada = UserId::new();
        let first = sinks.create(sink(ada, "old", "me", None), |_| ()).await.unwrap();
        rename(&sinks, ada, first.id, "new").await.unwrap();
        assert!(sinks.find(Owner::User(ada), "old").is_none());
        let second = sinks.create(sink(ada, "old", "me", None), |_| ()).await.unwrap();
        let clash = rename(&sinks, ada, second.id, "new").await;
        assert!(matches!(clash, Err(SinksError::NameTaken(_))));
        sinks.delete(first.id, |_| ()).await.unwrap();
        let late = rename(&sinks, ada, first.id, "new").await;
        assert!(matches!(late, Err(SinksError::NotFound(id)) if id == first.id));
        assert!(matches!(sinks.delete(first.id, |_| ()).await, Err(SinksError::NotFound(_))));
    }

    #[tokio::test]
    async fn changes_and_the_writes_of_their_batches_are_there_after_reopening() {
        let directory = TempDir::new().unwrap();
        let (store, sinks) = open(&directory);
        let ada = UserId::new();
        let kept = sinks.create(sink(ada, "kept", "me", None), |batch| batch.put(b"zk", b"1")).await.unwrap();
        let gone = sinks.create(sink(ada, "gone", "me", None), |_| ()).await.unwrap();
        sinks.delete(gone.id, |batch| batch.put(b"zg", b"1")).await.unwrap();
        store.close().await;
        drop((store, sinks));
        let (store, sinks) = open(&directory);
        assert_eq!(sinks.all().iter().map(|sink| sink.id).collect::<Vec<_>>(), [kept.id]);
        assert!(store.get(b"zk").unwrap().is_some() && store.get(b"zg").unwrap().is_some());
        store.close().await;
    }

    #[tokio::test]
    async fn a_change_that_was_not_written_did_not_happen() {
        let directory = TempDir::new().unwrap();
        let (store, sinks) = open(&directory);
        let ada = UserId::new();
        let kept = sinks.create(sink(ada, "kept", "me", None), |_| ()).await.unwrap();
        store.close().await;
        assert!(matches!(sinks.create(sink(ada, "x", "me", None), |_| ()).await, Err(SinksError::Store(_))));
        assert!(matches!(sinks.delete(kept.id, |_| ()).await, Err(SinksError::Store(_))));
        let renamed = rename(&sinks, ada, kept.id, "new").await;
        assert!(matches!(renamed, Err(SinksError::Store(_))));
        assert_eq!(sinks.all().len(), 1);
        assert_eq!(sinks.find(Owner::User(ada), "kept").map(|sink| sink.id), Some(kept.id));
        // The names of the failed changes are free: only the store refuses.
        for name in ["x", "new"] {
            assert!(matches!(sinks.create(sink(ada, name, "me", None), |_| ()).await, Err(SinksError::Store(_))));
        }
    }

    #[tokio::test]
    async fn the_listener_gets_every_change_in_order() {
        let directory = TempDir::new().unwrap();
        let (_, sinks) = open(&directory);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let notes = heard.clone();
        sinks.listen(move |change| {
            notes.lock().push(match change {
                Change::Created(sink) => format!("+{}", sink.name),
                Change::Updated { before, after } => format!("{}>{}", before.name, after.name),
                Change::Deleted(sink) => format!("-{}", sink.name),
            });
        });
        let ada = UserId::new();
        let first = sinks.create(sink(ada, "a", "me", None), |_| ()).await.unwrap();
        rename(&sinks, ada, first.id, "b").await.unwrap();
        sinks.delete(first.id, |_| ()).await.unwrap();
        assert_eq!(*heard.lock(), ["+a", "a>b", "-b"]);
    }

    #[tokio::test]
    async fn pages_follow_each_other() {
        let directory = TempDir::new().unwrap();
        let (_, sinks) = open(&directory);
        let ada = UserId::new();
        for name in ["a", "b", "c"] {
            sinks.create(sink(ada, name, "me", None), |_| ()).await.unwrap();
        }
        let first = sinks.page(None, 2, |_| true);
        let rest = sinks.page(Some(first[1].id), 2, |_| true);
        let names: Vec<_> = first.iter().chain(&rest).map(|sink| &*sink.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn a_secret_that_an_older_version_stored_in_clear_is_encrypted_at_the_next_start() {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let spec = json!({"name": "x", "events": "*", "type": "webhook", "webhook":
            {"url": "https://a.example", "secret": "plain-secret", "headers": {"X-Key": "plain-header"}}});
        let sink = Sink::define(serde_json::from_value(spec).unwrap(), UserId::new(), None).unwrap();
        let id = sink.id;
        let before = sink.spec(Secrets::Shown);
        // A sink that was not encrypted is written as older versions wrote it.
        store.write(move |batch| Sink::TABLE.put(batch, &sink.key(), &sink)).await.unwrap();
        let stored = |store: &Store| {
            let value = store.get(&keys::key(keys::SINKS, &[id.as_bytes()])).unwrap().unwrap();
            String::from_utf8(value.to_vec()).unwrap()
        };
        assert!(stored(&store).contains("plain-secret") && stored(&store).contains("plain-header"));
        let secret_keys = SecretKeys::for_tests();
        let sinks = Sinks::open(store.clone(), usize::MAX, secret_keys.clone()).unwrap();
        sinks.encrypt_stored().await.unwrap();
        assert!(!stored(&store).contains("plain-"), "{}", stored(&store));
        assert_eq!(sinks.get(id).unwrap().spec(Secrets::Shown), before);
        let again = Sinks::open(store.clone(), usize::MAX, secret_keys).unwrap();
        assert_eq!(again.get(id).unwrap().spec(Secrets::Shown), before);
        let without = Sinks::open(store.clone(), usize::MAX, SecretKeys::for_tests()).unwrap();
        assert_eq!(
            without.get(id).unwrap().spec(Secrets::Shown).webhook.unwrap().secret.unwrap().text(),
            Some("whsec_****")
        );
        without.encrypt_stored().await.unwrap();
        assert_eq!(again.get(id).unwrap().spec(Secrets::Shown), before, "what cannot be read is not written over");
        store.close().await;
    }
}
