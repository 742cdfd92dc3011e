//! Reading from sled. Damage that its checks do not expect makes sled panic; here that is an error of the read.

use super::{
    StoreError,
    buffered_tree::{BufferedTree, TreeRows},
    chunked::{self, Framed, Value},
};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The rows of a range with their values put together, in order.
pub struct Scan {
    tree: Arc<BufferedTree>,
    rows: TreeRows,
    /// After an error of the database nothing further is read.
    ended: bool,
}

impl Scan {
    pub fn new(tree: &Arc<BufferedTree>, rows: TreeRows) -> Self {
        Self { tree: tree.clone(), rows, ended: false }
    }

    fn read(
        &mut self,
        next: impl Fn(&mut TreeRows) -> Option<sled::Result<(Value, Value)>>,
    ) -> Option<Result<(Value, Value), StoreError>> {
        while !self.ended {
            let row = match guarded(|| Ok(next(&mut self.rows))) {
                Ok(row) => row?,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            };
            let (key, raw) = match row {
                Ok(row) => row,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(StoreError::unreadable(error)));
                }
            };
            let value = match chunked::read(&key, &raw) {
                Ok(Framed::Whole(value)) => Ok(Some(value)),
                Ok(Framed::Pieces(_)) => get(&self.tree, &key),
                Err(error) => Err(error),
            };
            match value {
                Ok(Some(value)) => return Some(Ok((key, value))),
                // A value that is deleted before its pieces are read is left out.
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

impl Iterator for Scan {
    type Item = Result<(Value, Value), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read(Iterator::next)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.read(DoubleEndedIterator::next_back)
    }
}

/// The value under `key`, as of the last group that was written.
pub fn get(tree: &BufferedTree, key: &[u8]) -> Result<Option<Value>, StoreError> {
    guarded(|| chunked::get(key, |key| tree.get(key).map_err(StoreError::unreadable)))
}

/// Runs a read; a panic of sled becomes [`StoreError::Unreadable`].
pub fn guarded<T>(read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let reason = io::Error::other("the database engine failed while it read it");
        Err(StoreError::Unreadable(Arc::new(reason)))
    })
}
