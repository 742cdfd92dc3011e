//! The writes of one group, gathered by the jobs of that group one after the other.

use super::{
    StoreError,
    buffered_tree::{BufferedTree, TreeRows},
    chunked::{self, Framed, Value},
    digest::Digest,
    keys,
    room::LiveGrowth,
    row_changes::RowChanges,
};
use std::ops::Bound::{Excluded, Included};

/// The writes of one group. A job sees the writes of the jobs before it.
pub struct Batch<'a> {
    tree: &'a BufferedTree,
    writes: RowChanges,
    bytes: usize,
    growth: LiveGrowth,
    digest: Digest,
    /// The database could not be read while the writes were gathered. The group is not written then, because the pages
    /// that could not be read are those that it would change.
    fault: Option<StoreError>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(tree: &'a BufferedTree) -> Self {
        Self {
            tree,
            writes: RowChanges::new(),
            bytes: 0,
            growth: LiveGrowth::default(),
            digest: Digest::default(),
            fault: None,
        }
    }

    /// Puts a value under a key, over the previous value if there is one.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl AsRef<[u8]>) {
        let key = key.into();
        self.remove_old(&key);
        self.add(key, value.as_ref());
    }

    /// Puts a value under a key that has none. Nothing is read, as [`Batch::put`] does to count the old value.
    pub fn put_new(&mut self, key: impl Into<Vec<u8>>, value: impl AsRef<[u8]>) {
        let key = key.into();
        debug_assert!(!matches!(self.raw(&key), Ok(Some(_))), "the key is new");
        self.add(key, value.as_ref());
    }

    /// Puts stored bytes under a key, which need be the value of no record.
    #[cfg(test)]
    pub(super) fn put_raw(&mut self, key: Vec<u8>, raw: &[u8]) {
        self.remove_old(&key);
        self.growth.add(&key, raw.len());
        self.digest.add(&key, raw);
        self.writes.insert(key, Some(raw.to_vec()));
    }

    /// Removes a key, if it is there.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        let key = key.into();
        self.remove_old(&key);
        self.writes.insert(key, None);
    }

    /// Removes a key whose value is known and small. Nothing is read.
    pub fn delete_known(&mut self, key: impl Into<Vec<u8>>, value: &[u8]) {
        let key = key.into();
        let raw = chunked::whole(&key, value);
        debug_assert!(!self.raw(&key).is_ok_and(|found| found.as_deref() != Some(&raw[..])), "the value is known");
        self.growth.remove(&key, raw.len());
        self.digest.remove(&key, &raw);
        self.writes.insert(key, None);
    }

    /// The value under a key, the group's own writes included.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] or [`StoreError::Unreadable`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        chunked::get(key, |key| self.raw(key))
    }

    /// Every key on disk that starts with `prefix`, in order, except those that the group deleted. Keys that the group
    /// itself put are not among them.
    pub fn keys(&self, prefix: &[u8]) -> impl Iterator<Item = Result<Value, StoreError>> + '_ {
        self.present(self.tree.scan_prefix(prefix))
    }

    /// Every key on disk from `first` to before `end`, in order, as [`Batch::keys`] has them.
    pub fn keys_between(&self, first: &[u8], end: &[u8]) -> impl Iterator<Item = Result<Value, StoreError>> + '_ {
        self.present(self.tree.range(Included(first.into()), Excluded(end.into())))
    }

    /// Removes every key that starts with `prefix`, the group's own writes included, and returns their number.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unreadable`].
    pub fn delete_prefix(&mut self, prefix: &[u8]) -> Result<usize, StoreError> {
        self.delete_raw(&keys::key(keys::PIECE, &[prefix]), |_| true)?;
        self.delete_raw(prefix, |_| true)
    }

    /// Bytes of rows that the group adds, less those that it removes.
    pub(super) const fn growth(&self) -> LiveGrowth {
        self.growth
    }

    /// The change of the digest of all rows.
    pub(super) const fn digest(&self) -> Digest {
        self.digest
    }

    /// Bytes put so far.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The keys that the writes put or remove.
    pub(super) fn changed_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.writes.keys().map(Vec::as_slice)
    }

    /// The changes of the group.
    pub(super) fn into_changes(self) -> Result<RowChanges, StoreError> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(self.writes),
        }
    }

    fn add(&mut self, key: Vec<u8>, value: &[u8]) {
        self.bytes += value.len();
        for (key, raw) in chunked::writes(key, value) {
            self.growth.add(&key, raw.len());
            self.digest.add(&key, &raw);
            self.writes.insert(key, Some(raw));
        }
    }

    fn present(&self, rows: TreeRows) -> impl Iterator<Item = Result<Value, StoreError>> + '_ {
        rows.keys()
            .map(|key| key.map_err(StoreError::unreadable))
            .filter(|key| !matches!(key, Ok(key) if self.writes.get(&**key).is_some_and(Option::is_none)))
    }

    /// The bytes under a key as they are stored.
    fn raw(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.as_deref().map(Value::from)),
            None => self.tree.get(key).map_err(StoreError::unreadable),
        }
    }

    /// Removes the pieces of the value under `key`, if it is in pieces, and counts what the value no longer takes.
    ///
    /// A damaged value does not say where its pieces are, so they are searched for. A record that cannot be read any
    /// more can then still be replaced and deleted.
    fn remove_old(&mut self, key: &[u8]) {
        let raw = match self.raw(key) {
            Ok(Some(raw)) => raw,
            Ok(None) => return,
            Err(error) => {
                self.fault = Some(error);
                return;
            }
        };
        self.growth.remove(key, raw.len());
        self.digest.remove(key, &raw);
        match chunked::read(key, &raw) {
            Ok(Framed::Whole(_)) => {}
            Ok(Framed::Pieces(head)) => {
                self.growth.all -= head.size(key).cast_signed();
                self.writes.extend(head.keys(key).map(|key| (key, None)));
            }
            Err(_) => {
                let prefix = keys::key(keys::PIECE, &[key]);
                if let Err(error) = self.delete_raw(&prefix, |piece| chunked::is_piece_of(key, piece)) {
                    self.fault = Some(error);
                }
            }
        }
    }

    fn delete_raw(&mut self, prefix: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Result<usize, StoreError> {
        let mut found = 0;
        for (key, value) in self.writes.iter_mut().filter(|(key, _)| key.starts_with(prefix) && wanted(key)) {
            if let Some(value) = value.take() {
                found += 1;
                self.growth.remove(key, value.len());
                self.digest.remove(key, &value);
            }
        }
        for row in self.tree.scan_prefix(prefix) {
            let (key, value) = row.map_err(StoreError::unreadable)?;
            if wanted(&key) && self.writes.insert(key.to_vec(), None).is_none() {
                found += 1;
                self.growth.remove(&key, value.len());
                self.digest.remove(&key, &value);
            }
        }
        Ok(found)
    }
}
