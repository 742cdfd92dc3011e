//! All sources, as a [`Collection`]: unique by slug, bounded in number for each user.
//!
//! Secrets are encrypted in every write, and decrypted when the collection is opened. What a source does while the
//! server runs, its rate limit and its counts, is kept beside the records.

use super::{activity::SourceActivity, rate::RateLimit, source::Source};
use crate::{
    model::{id::SourceId, owner::Owner},
    platform::{
        collection::{Change, Collection, CollectionError, CollectionRecord, Edit},
        secret_keys::SecretKeys,
        store::{Batch, Store, StoreError, Table, keys},
    },
};
use parking_lot::Mutex;
use std::{collections::HashMap, convert::Infallible, sync::Arc};

/// Every source there is. Cloning the handle is cheap.
#[derive(Clone)]
pub struct Sources {
    records: Collection<Source>,
    keys: SecretKeys,
    /// The most sources of one user.
    most: usize,
    /// Held while sources are counted and one is added.
    adding: Arc<tokio::sync::Mutex<()>>,
    running: Arc<Mutex<HashMap<SourceId, Arc<RunningSource>>>>,
}

/// The state of a source while the server runs.
#[derive(Default)]
pub struct RunningSource {
    pub rate: RateLimit,
    pub activity: SourceActivity,
    /// Held while dead letters are redelivered, so that none is sent twice.
    pub redelivery: tokio::sync::Mutex<()>,
}

/// Reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    #[error("the slug `{0}` is taken: choose another")]
    SlugTaken(String),
    #[error("a user has at most {0} sources: delete one first, or have `limits.sources` raised")]
    TooMany(usize),
    #[error("there is no source {0}")]
    NotFound(SourceId),
    #[error("somebody else has changed the source meanwhile: look at it and try again")]
    Conflict,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Sources {
    /// Reads all sources, and decrypts their secrets with `keys`. A user can have `most` of their own.
    ///
    /// A source whose secrets cannot be decrypted is there, and takes no requests.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store, most: usize, keys: SecretKeys) -> Result<Self, StoreError> {
        let records: Collection<Source> = Collection::open(store, usize::MAX)?;
        for source in records.all() {
            source.secrets.unseal(&keys, source.id);
            if let Err(reason) = source.secrets.read() {
                log::error!("source `{}` takes no requests: its secret cannot be used: {reason}", source.slug);
            }
        }
        let running = Arc::<Mutex<HashMap<SourceId, Arc<RunningSource>>>>::default();
        let ended = running.clone();
        records.listen(move |change| {
            if let Change::Deleted(source) = change {
                ended.lock().remove(&source.id);
            }
        });
        Ok(Self { records, keys, most, adding: Arc::default(), running })
    }

    /// Encrypts the secrets anew that are encrypted with a former key.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written.
    pub async fn encrypt_stored(&self) -> Result<(), SourcesError> {
        for source in self.records.all().into_iter().filter(|source| source.secrets.is_outdated(&self.keys)) {
            let renew = |before: Arc<Source>| async move {
                Ok::<_, SourcesError>(match before.with_new_secrets() {
                    Some(renewed) => Edit::put(renewed),
                    None => Edit::put(before),
                })
            };
            self.edit(source.id, renew).await?;
        }
        Ok(())
    }

    /// Calls `listener` with every change from now on, by the rules of [`Collection::listen`].
    pub fn listen(&self, listener: impl Fn(&Change<Source>) + Send + Sync + 'static) {
        self.records.listen(listener);
    }

    /// Adds a source. `also` writes into the same batch, so that an audit entry stands or falls with the change.
    ///
    /// # Errors
    ///
    /// Fails if its slug is taken, its owner has too many, or the store cannot be written.
    pub async fn create(
        &self,
        source: Source,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Source>, SourcesError> {
        let _adding = self.adding.lock().await;
        self.check_count(&source)?;
        source.secrets.seal(&self.keys, source.id);
        Ok(self.records.create(source, also).await?)
    }

    /// Changes a source by a decision on its present state, by the rules of [`Collection::edit`].
    ///
    /// # Errors
    ///
    /// Fails if it is gone, `decide` does, others keep changing it meanwhile, another has that slug, its owner, being
    /// new to it, has too many, or the store cannot be written.
    pub async fn edit<E: From<SourcesError>, F: Future<Output = Result<Edit<Source>, E>>>(
        &self,
        id: SourceId,
        mut decide: impl FnMut(Arc<Source>) -> F,
    ) -> Result<Arc<Source>, E> {
        let decide = |before: Arc<Source>| {
            let owner = before.owner;
            let deciding = decide(before);
            async move {
                let edit = deciding.await?;
                if let Some(source) = edit.record() {
                    if source.owner != owner {
                        self.check_count(source)?;
                    }
                    source.secrets.seal(&self.keys, source.id);
                }
                Ok(edit)
            }
        };
        self.records.edit(id, decide).await.map_err(SourcesError::from)?
    }

    /// Checks that the owner of a source that is added, or given to it, has room for it. Slugs have one namespace, so
    /// the collection cannot count by owner.
    fn check_count(&self, source: &Source) -> Result<(), SourcesError> {
        let others =
            self.records.all().into_iter().filter(|other| other.owner == source.owner && other.id != source.id);
        match source.owner {
            Owner::User(_) if others.count() >= self.most => Err(SourcesError::TooMany(self.most)),
            _ => Ok(()),
        }
    }

    /// Removes a source and returns it.
    ///
    /// # Errors
    ///
    /// Fails if it is gone, or the store cannot be written.
    pub async fn delete(
        &self,
        id: SourceId,
        also: impl FnOnce(&mut Batch<'_>) + Send + 'static,
    ) -> Result<Arc<Source>, SourcesError> {
        Ok(self.records.delete(id, also).await?)
    }

    pub fn get(&self, id: SourceId) -> Option<Arc<Source>> {
        self.records.get(id)
    }

    /// The source with this slug.
    pub fn find(&self, slug: &str) -> Option<Arc<Source>> {
        self.records.find((), slug)
    }

    /// Up to `limit` of the sources that are `wanted`, oldest first, beginning after `cursor`.
    pub fn page(&self, cursor: Option<SourceId>, limit: usize, wanted: impl Fn(&Source) -> bool) -> Vec<Arc<Source>> {
        self.records.page(cursor, limit, wanted)
    }

    /// Every source of this owner, oldest first.
    pub fn of(&self, owner: Owner) -> Vec<Arc<Source>> {
        self.page(None, usize::MAX, |source| source.owner == owner)
    }

    /// Every source, oldest first.
    pub fn all(&self) -> Vec<Arc<Source>> {
        self.records.all()
    }

    /// The state of a source since the server started.
    pub fn running(&self, id: SourceId) -> Arc<RunningSource> {
        self.running.lock().entry(id).or_default().clone()
    }
}

impl CollectionRecord for Source {
    type Id = SourceId;
    type Namespace = ();
    type Refusal = Infallible;

    const TABLE: Table<Self> = Table::new(keys::SOURCES);

    fn id(&self) -> SourceId {
        self.id
    }

    fn key(&self) -> Vec<u8> {
        self.id.as_bytes().to_vec()
    }

    fn namespace(&self) {}

    fn name(&self) -> Option<&str> {
        Some(&self.slug)
    }
}

impl From<CollectionError<Source>> for SourcesError {
    fn from(error: CollectionError<Source>) -> Self {
        match error {
            CollectionError::NameTaken(other) => Self::SlugTaken(other.slug.clone()),
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
    use crate::model::{id::UserId, timestamp::Timestamp};
    use serde_json::json;

    fn source(user: UserId, slug: &str) -> Source {
        let spec = json!({"slug": slug, "verify": {"type": "github", "secret": "first-secret"}});
        Source::define(serde_json::from_value(spec).unwrap(), user, None).unwrap()
    }

    fn open(directory: &tempfile::TempDir, most: usize, keys: &SecretKeys) -> (Store, Sources) {
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        (store.clone(), Sources::open(store, most, keys.clone()).unwrap())
    }

    #[tokio::test]
    async fn a_slug_is_taken_for_all_and_a_user_has_a_bounded_number() {
        let directory = tempfile::tempdir().unwrap();
        let (store, sources) = open(&directory, 2, &SecretKeys::for_tests());
        let (ada, bob) = (UserId::new(), UserId::new());
        sources.create(source(ada, "a"), |_| ()).await.unwrap();
        let taken = sources.create(source(bob, "a"), |_| ()).await;
        assert!(matches!(taken, Err(SourcesError::SlugTaken(slug)) if slug == "a"));
        let tasks = (0..8).map(|n| {
            let sources = sources.clone();
            tokio::spawn(async move { sources.create(source(ada, &format!("b{n}")), |_| ()).await.is_ok() })
        });
        let made = futures_util::future::join_all(tasks).await;
        assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1, "the second of two");
        sources.create(source(bob, "c"), |_| ()).await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn a_source_whose_key_is_lost_is_there_without_its_secret_and_a_new_secret_mends_it() {
        let directory = tempfile::tempdir().unwrap();
        let keys = SecretKeys::for_tests();
        let (store, sources) = open(&directory, 9, &keys);
        let id = sources.create(source(UserId::new(), "a"), |_| ()).await.unwrap().id;
        let read = |sources: &Sources| {
            let source = sources.get(id).unwrap();
            source.secrets.valid(Timestamp::now()).ok().map(|valid| valid.map(ToString::to_string).collect::<Vec<_>>())
        };
        let again = Sources::open(store.clone(), 9, keys).unwrap();
        assert_eq!(read(&again), Some(vec!["first-secret".to_owned()]));
        let without = Sources::open(store.clone(), 9, SecretKeys::for_tests()).unwrap();
        assert_eq!(read(&without), None);
        without.encrypt_stored().await.unwrap();
        assert_eq!(read(&again), Some(vec!["first-secret".to_owned()]), "what cannot be read is not written over");
        let mend = |before: Arc<Source>| async move {
            let mut spec = before.spec();
            spec.verify.secret = Some("second-secret".to_owned().into());
            let mended = Source::define(spec, UserId::new(), Some(&before)).unwrap();
            Ok::<_, SourcesError>(Edit::put(mended))
        };
        without.edit(id, mend).await.unwrap();
        assert_eq!(read(&without), Some(vec!["second-secret".to_owned()]));
        store.close().await;
    }
}
