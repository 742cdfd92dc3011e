//! The records of a collection in memory: by id, by name within their scope, and those that are being written.

use super::change::{Change, CollectionError, CollectionRecord, CollectionWrite, Precondition, Revision};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

pub struct CollectionIndex<T: CollectionRecord> {
    pub records: BTreeMap<T::Id, IndexEntry<T>>,
    /// The written records of each scope, by name.
    scopes: HashMap<T::Scope, BTreeMap<String, T::Id>>,
    /// Records that are being written, which hold their names and count towards their quota.
    pending: HashMap<T::Id, Arc<T>>,
    last_revision: u64,
}

pub struct IndexEntry<T> {
    pub record: Arc<T>,
    pub revision: Revision,
}

impl<T: CollectionRecord> CollectionIndex<T> {
    pub fn new(records: impl IntoIterator<Item = T>) -> Self {
        let mut index =
            Self { records: BTreeMap::new(), scopes: HashMap::new(), pending: HashMap::new(), last_revision: 0 };
        for record in records {
            index.put(Arc::new(record));
        }
        index
    }

    pub fn find(&self, scope: T::Scope, name: &str) -> Option<&Arc<T>> {
        let id = self.scopes.get(&scope)?.get(name)?;
        self.records.get(id).map(|entry| &entry.record)
    }

    /// The records of a scope, by name.
    pub fn in_scope(&self, scope: T::Scope) -> impl Iterator<Item = &Arc<T>> {
        let ids = self.scopes.get(&scope).into_iter().flat_map(BTreeMap::values);
        ids.filter_map(|id| self.records.get(id)).map(|entry| &entry.record)
    }

    /// Scopes that have records with a name.
    pub fn scopes(&self) -> impl Iterator<Item = T::Scope> {
        self.scopes.keys().copied()
    }

    /// Checks a change and takes the names it needs. The records' ids are locked. If the change is allowed, the caller
    /// ends the reservation by [`CollectionIndex::release`], whether or not the change was written.
    pub fn reserve(
        &mut self,
        writes: &[(CollectionWrite<T>, Precondition)],
        quota: usize,
    ) -> Result<(), CollectionError<T>> {
        let changed: HashSet<T::Id> = writes.iter().map(|(write, _)| write.id()).collect();
        let mut puts = Vec::with_capacity(writes.len());
        for (write, expected) in writes {
            self.expect(write.id(), *expected)?;
            if let CollectionWrite::Put(record) = write {
                self.check(record, &changed, &puts, quota)?;
                puts.push(record.clone());
            }
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

    /// Checks one record of a change against the others of its scope: name, quota, and the rules of its kind.
    fn check(
        &self,
        record: &Arc<T>,
        changed: &HashSet<T::Id>,
        puts: &[Arc<T>],
        quota: usize,
    ) -> Result<(), CollectionError<T>> {
        let Some(name) = record.name() else { return Ok(()) };
        let (id, scope) = (record.id(), record.scope());
        let in_flight = |other: &&Arc<T>| other.id() != id && other.scope() == scope && other.name().is_some();
        let pending: Vec<&Arc<T>> = self.pending.values().chain(puts).filter(in_flight).collect();
        // A written record keeps its name until the change that takes it away is on disk.
        let written = || self.in_scope(scope).filter(|other| !changed.contains(&other.id()));
        if let Some(other) = written().chain(pending.iter().copied()).find(|other| other.name() == Some(name)) {
            return Err(CollectionError::NameTaken(other.clone()));
        }
        let others: Vec<&T> = written()
            .filter(|other| !self.pending.contains_key(&other.id()))
            .chain(pending.iter().copied())
            .map(|other| &**other)
            .collect();
        let is_new = self.records.get(&id).is_none_or(|entry| entry.record.scope() != scope);
        if is_new && record.is_counted() && others.len() >= quota {
            return Err(CollectionError::QuotaReached(quota));
        }
        record.check(&others).map_err(CollectionError::Refused)
    }

    fn put(&mut self, record: Arc<T>) -> Option<Arc<T>> {
        let before = self.remove(record.id());
        if let Some(name) = record.name() {
            self.scopes.entry(record.scope()).or_default().insert(name.to_owned(), record.id());
        }
        self.last_revision += 1;
        let revision = Revision(self.last_revision);
        self.records.insert(record.id(), IndexEntry { record, revision });
        before
    }

    fn remove(&mut self, id: T::Id) -> Option<Arc<T>> {
        let record = self.records.remove(&id)?.record;
        if let Some(name) = record.name()
            && let Some(names) = self.scopes.get_mut(&record.scope())
        {
            // In one change a name may have passed to another record already.
            if names.get(name) == Some(&id) {
                names.remove(name);
            }
            if names.is_empty() {
                self.scopes.remove(&record.scope());
            }
        }
        Some(record)
    }
}
