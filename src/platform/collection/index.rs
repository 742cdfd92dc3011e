//! The records of a collection in memory: by id, by name within their namespace, and those that are being written.

use super::change::{Change, CollectionError, CollectionRecord, CollectionWrite, Precondition, Revision};
use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

pub struct CollectionIndex<T: CollectionRecord> {
    pub records: BTreeMap<T::Id, IndexEntry<T>>,
    /// The written records of each namespace, by name.
    namespaces: HashMap<T::Namespace, BTreeSet<ByName<T>>>,
    /// Records that are being written, which hold their names and count towards their quota.
    pending: HashMap<T::Id, Arc<T>>,
    last_revision: u64,
}

pub struct IndexEntry<T> {
    pub record: Arc<T>,
    pub revision: Revision,
}

/// A record that is ordered and found by its name, which is not kept a second time.
struct ByName<T>(Arc<T>);

impl<T: CollectionRecord> CollectionIndex<T> {
    pub fn new(records: impl IntoIterator<Item = T>) -> Self {
        let mut index =
            Self { records: BTreeMap::new(), namespaces: HashMap::new(), pending: HashMap::new(), last_revision: 0 };
        for record in records {
            index.put(Arc::new(record));
        }
        index
    }

    pub fn find(&self, namespace: T::Namespace, name: &str) -> Option<&Arc<T>> {
        self.namespaces.get(&namespace)?.get(name).map(|named| &named.0)
    }

    /// The records of a namespace, by name.
    pub fn in_namespace(&self, namespace: T::Namespace) -> impl Iterator<Item = &Arc<T>> {
        self.namespaces.get(&namespace).into_iter().flatten().map(|named| &named.0)
    }

    /// The records of a namespace with their revisions, by name.
    pub fn entries_in_namespace(&self, namespace: T::Namespace) -> impl Iterator<Item = &IndexEntry<T>> {
        self.in_namespace(namespace).filter_map(|record| self.records.get(&record.id()))
    }

    /// Namespaces that have records with a name.
    pub fn namespaces(&self) -> impl Iterator<Item = T::Namespace> {
        self.namespaces.keys().copied()
    }

    /// Checks a change and takes the names it needs. The records' ids are locked. If the change is allowed, the caller
    /// ends the reservation by [`CollectionIndex::release`], whether or not the change was written.
    pub fn reserve(
        &mut self,
        writes: &[(CollectionWrite<T>, Precondition)],
        quota: usize,
    ) -> Result<(), CollectionError<T>> {
        let changed: HashSet<T::Id> = writes.iter().map(|(write, _)| write.id()).collect();
        let mut puts: Vec<Arc<T>> = Vec::with_capacity(writes.len());
        let mut names: HashMap<(T::Namespace, &str), &Arc<T>> =
            self.pending.values().filter_map(|record| Some(((record.namespace(), record.name()?), record))).collect();
        for (write, expected) in writes {
            self.expect(write.id(), *expected)?;
            let CollectionWrite::Put(record) = write else { continue };
            if let Some(name) = record.name() {
                if let Some(other) = names.insert((record.namespace(), name), record) {
                    return Err(CollectionError::NameTaken(other.clone()));
                }
                self.check(record, name, &changed, &puts, quota)?;
            }
            puts.push(record.clone());
        }
        self.pending.extend(puts.into_iter().map(|record| (record.id(), record)));
        Ok(())
    }

    pub fn release(&mut self, ids: impl Iterator<Item = T::Id>) {
        for id in ids {
            self.pending.remove(&id);
        }
    }

    /// Makes a change that is on disk visible.
    pub fn apply(&mut self, writes: Vec<CollectionWrite<T>>) -> Vec<Change<T>> {
        let apply = |write: CollectionWrite<T>| match write {
            CollectionWrite::Put(record) => match self.put(record.clone()) {
                Some(before) => Some(Change::Updated { before, after: record }),
                None => Some(Change::Created(record)),
            },
            CollectionWrite::Delete(id) => self.remove(id).map(Change::Deleted),
        };
        writes.into_iter().filter_map(apply).collect()
    }

    fn expect(&self, id: T::Id, expected: Precondition) -> Result<(), CollectionError<T>> {
        match (self.records.get(&id), expected) {
            (None, Precondition::Absent) | (Some(_), Precondition::Present) => Ok(()),
            (Some(entry), Precondition::Revision(revision)) if entry.revision == revision => Ok(()),
            (Some(_), _) => Err(CollectionError::Conflict(id)),
            (None, _) => Err(CollectionError::NotFound(id)),
        }
    }

    /// Checks one record of a change against the others of its namespace: the names of written records, the quota, and
    /// the rules of its kind. A record that is being written by another change counts as it is and as it will be, since
    /// a crash may leave either.
    fn check(
        &self,
        record: &Arc<T>,
        name: &str,
        changed: &HashSet<T::Id>,
        puts: &[Arc<T>],
        quota: usize,
    ) -> Result<(), CollectionError<T>> {
        let (id, namespace) = (record.id(), record.namespace());
        // A written record keeps its name until the change that takes it away is on disk.
        if let Some(other) = self.find(namespace, name).filter(|other| !changed.contains(&other.id())) {
            return Err(CollectionError::NameTaken(other.clone()));
        }
        let is_written_here = |id: &T::Id| {
            self.records
                .get(id)
                .is_some_and(|entry| entry.record.namespace() == namespace && entry.record.name().is_some())
        };
        let in_flight = || {
            self.pending.values().chain(puts).filter(|other| other.namespace() == namespace && other.name().is_some())
        };
        if record.is_counted() && quota < usize::MAX && !is_written_here(&id) {
            let written = self.namespaces.get(&namespace).map_or(0, BTreeSet::len);
            let leaving = changed.iter().filter(|id| is_written_here(id)).count();
            let arriving = in_flight().filter(|other| changed.contains(&other.id()) || !is_written_here(&other.id()));
            if written - leaving + arriving.count() >= quota {
                return Err(CollectionError::QuotaReached(quota));
            }
        }
        let written = self.in_namespace(namespace).filter(|other| !changed.contains(&other.id()));
        let mut others = written.chain(in_flight()).map(|other| &**other);
        record.check(&mut others).map_err(CollectionError::Refused)
    }

    fn put(&mut self, record: Arc<T>) -> Option<Arc<T>> {
        let before = self.remove(record.id());
        if record.name().is_some() {
            self.namespaces.entry(record.namespace()).or_default().replace(ByName(record.clone()));
        }
        self.last_revision += 1;
        let revision = Revision(self.last_revision);
        self.records.insert(record.id(), IndexEntry { record, revision });
        before
    }

    fn remove(&mut self, id: T::Id) -> Option<Arc<T>> {
        let record = self.records.remove(&id)?.record;
        if let Some(name) = record.name()
            && let Some(names) = self.namespaces.get_mut(&record.namespace())
        {
            // In one change a name may have passed to another record already.
            if names.get(name).is_some_and(|named| named.0.id() == id) {
                names.remove(name);
            }
            if names.is_empty() {
                self.namespaces.remove(&record.namespace());
            }
        }
        Some(record)
    }
}

impl<T: CollectionRecord> Borrow<str> for ByName<T> {
    fn borrow(&self) -> &str {
        self.0.name().unwrap_or_default()
    }
}

impl<T: CollectionRecord> Ord for ByName<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        Borrow::<str>::borrow(self).cmp(other.borrow())
    }
}

impl<T: CollectionRecord> PartialOrd for ByName<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: CollectionRecord> PartialEq for ByName<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: CollectionRecord> Eq for ByName<T> {}
