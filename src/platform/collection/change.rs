//! Records, changes to them, and the reasons for which a change is refused.

use crate::platform::store::{Batch, StoreError, Table};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    error::Error,
    fmt::{self, Debug},
    hash::Hash,
    sync::Arc,
};

/// A kind of record that a collection keeps.
pub trait CollectionRecord: Serialize + DeserializeOwned + Debug + Send + Sync + 'static {
    /// Ids are in the order of creation.
    type Id: Copy + Ord + Hash + Debug + Send + Sync + 'static;
    /// Names are unique and records are counted within a namespace.
    type Namespace: Copy + Eq + Hash + Send + Sync + 'static;
    /// A rule of this kind of record that a change broke; [`std::convert::Infallible`] if there are none.
    type Refusal: Error + Send + 'static;

    const TABLE: Table<Self>;

    fn id(&self) -> Self::Id;

    /// The bytes that the record is stored under.
    fn key(&self) -> Vec<u8>;

    fn namespace(&self) -> Self::Namespace;

    /// The name within the namespace. A record without one is neither found by name nor counted.
    fn name(&self) -> Option<&str>;

    /// True if the record counts towards the quota of its namespace.
    fn is_counted(&self) -> bool {
        true
    }

    /// Checks the record against the other records of its namespace. A record that is being written comes in both
    /// versions.
    ///
    /// # Errors
    ///
    /// The change is refused with this error.
    fn check(&self, others: &mut dyn Iterator<Item = &Self>) -> Result<(), Self::Refusal> {
        let _ = others;
        Ok(())
    }
}

/// A change that was made, as listeners get it.
#[derive(Clone, Debug)]
pub enum Change<T> {
    Created(Arc<T>),
    Updated { before: Arc<T>, after: Arc<T> },
    Deleted(Arc<T>),
}

impl<T> Change<T> {
    /// The record before the change and after it.
    pub fn sides(&self) -> (Option<&T>, Option<&T>) {
        match self {
            Self::Created(new) => (None, Some(new)),
            Self::Updated { before, after } => (Some(before), Some(after)),
            Self::Deleted(old) => (Some(old), None),
        }
    }

    /// The record as the change left it, or as it was before it was deleted.
    pub const fn record(&self) -> &Arc<T> {
        match self {
            Self::Created(record) | Self::Updated { after: record, .. } | Self::Deleted(record) => record,
        }
    }
}

/// The version of a record: a number that grows with each change to the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub(super) u64);

/// State of a record that a change requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no record with this id.
    Absent,
    /// There is a record with this id.
    Present,
    /// The record has not changed since this revision.
    Revision(Revision),
}

/// A change to be made: puts and deletes that are written together or not at all.
pub struct Changes<T: CollectionRecord> {
    pub(super) writes: Vec<(CollectionWrite<T>, Precondition)>,
    pub(super) also: Option<AlsoWrite>,
}

/// A decision on one record, for `Collection::edit`.
pub struct Edit<T> {
    /// `None` deletes the record.
    after: Option<Arc<T>>,
    also: Option<AlsoWrite>,
}

pub(super) enum CollectionWrite<T: CollectionRecord> {
    Put(Arc<T>),
    Delete(T::Id),
}

pub(super) type AlsoWrite = Box<dyn FnOnce(&mut Batch<'_>) + Send>;

/// Reason for which a change was not made.
#[derive(Debug)]
pub enum CollectionError<T: CollectionRecord> {
    /// Another record of the namespace has the name, or is about to.
    NameTaken(Arc<T>),
    /// The namespace has as many records as it may have.
    QuotaReached(usize),
    NotFound(T::Id),
    /// The record is not at the expected revision, or there is one where none was expected.
    Conflict(T::Id),
    Refused(T::Refusal),
    Store(StoreError),
}

impl<T: CollectionRecord> Changes<T> {
    pub const fn new() -> Self {
        Self { writes: Vec::new(), also: None }
    }

    #[must_use]
    pub fn put(mut self, record: impl Into<Arc<T>>, expected: Precondition) -> Self {
        self.writes.push((CollectionWrite::Put(record.into()), expected));
        self
    }

    #[must_use]
    pub fn delete(mut self, id: T::Id, expected: Precondition) -> Self {
        self.writes.push((CollectionWrite::Delete(id), expected));
        self
    }

    /// Has `also` write into the same batch, so that an audit entry stands or falls with the change.
    #[must_use]
    pub fn with(mut self, also: impl FnOnce(&mut Batch<'_>) + Send + 'static) -> Self {
        self.also = Some(Box::new(also));
        self
    }

    pub(super) fn ids(&self) -> Vec<T::Id> {
        self.writes.iter().map(|(write, _)| write.id()).collect()
    }

    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

impl<T: CollectionRecord> Edit<T> {
    /// Puts a record with the same id in the place of the present one.
    pub fn put(record: impl Into<Arc<T>>) -> Self {
        Self { after: Some(record.into()), also: None }
    }

    pub const fn delete() -> Self {
        Self { after: None, also: None }
    }

    /// The record that is put; `None` if it is deleted.
    pub const fn record(&self) -> Option<&Arc<T>> {
        self.after.as_ref()
    }

    /// Has `also` write into the same batch, as [`Changes::with`].
    #[must_use]
    pub fn with(mut self, also: impl FnOnce(&mut Batch<'_>) + Send + 'static) -> Self {
        self.also = Some(Box::new(also));
        self
    }

    /// The change to the record with this id, which must be at this revision.
    pub(super) fn into_changes(self, id: T::Id, revision: Revision) -> Changes<T> {
        let write = self.after.map_or(CollectionWrite::Delete(id), CollectionWrite::Put);
        Changes { writes: vec![(write, Precondition::Revision(revision))], also: self.also }
    }
}

impl<T: CollectionRecord> CollectionWrite<T> {
    pub fn id(&self) -> T::Id {
        match self {
            Self::Put(record) => record.id(),
            Self::Delete(id) => *id,
        }
    }
}

impl<T: CollectionRecord> Default for Changes<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: CollectionRecord> From<StoreError> for CollectionError<T> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<T: CollectionRecord> fmt::Display for CollectionError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTaken(other) => write!(f, "the name `{}` is taken", other.name().unwrap_or_default()),
            Self::QuotaReached(most) => write!(f, "there are at most {most} records"),
            Self::NotFound(id) => write!(f, "there is no record {id:?}"),
            Self::Conflict(id) => write!(f, "the record {id:?} has been changed meanwhile"),
            Self::Refused(refusal) => fmt::Display::fmt(refusal, f),
            Self::Store(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl<T: CollectionRecord> Error for CollectionError<T> {}
