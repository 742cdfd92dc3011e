//! sled's tree with some kinds of rows in blocks ([`row_block`]): reads find the block of a row, writes change whole blocks
//! ([`super::block_changes`]).
//!
//! A row is in the last block that begins at its key or before it, and the rows of a block end before the next block begins. That holds at
//! every moment, for readers and after a crash:
//!
//! 1. A block is replaced by several in one batch. sled applies a batch under a lock that each of its reads takes, and recovers it as a whole.
//! 2. Rows move only to blocks with higher keys, so that a reader who goes through the tree meanwhile misses none.
//! 3. A block is deleted with its last row; rows that come into its range later go to the block before it.
//! 4. New blocks that replace none have only rows that readers find in a buffer, and a crash in the journal.

use super::{
    chunked::Value,
    row_block::{self, BlockReader, Row, RowBlock},
};
use parking_lot::Mutex;
use std::{
    io,
    ops::{
        Bound::{self, Excluded, Included, Unbounded},
        RangeBounds as _,
    },
    sync::Arc,
};

/// Blocks of each kind that are kept decompressed. Readers of neighbouring rows come one after the other.
const OPEN_BLOCKS: usize = 2;

pub struct BlockTree {
    pub(super) sled: sled::Db,
    open_blocks: [Mutex<OpenBlock>; OPEN_BLOCKS * row_block::KINDS.len()],
    pub(super) sizes: Mutex<BlockSizes>,
}

/// Bytes of the rows in blocks, keys included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSizes {
    /// The rows themselves.
    pub content: u64,
    /// The compressed blocks that sled has.
    pub sealed: u64,
}

/// A block that was read.
#[derive(Default)]
struct OpenBlock {
    reader: Option<BlockReader>,
    last: Option<(Value, RowBlock)>,
}

impl BlockTree {
    /// `sizes` are those of the blocks that sled has.
    pub fn new(sled: sled::Db, sizes: BlockSizes) -> Arc<Self> {
        Arc::new(Self { sled, open_blocks: Default::default(), sizes: Mutex::new(sizes) })
    }

    pub fn sizes(&self) -> BlockSizes {
        *self.sizes.lock()
    }

    pub fn get(&self, key: &[u8]) -> sled::Result<Option<Value>> {
        if !row_block::is_in_blocks(key) {
            return self.sled.get(key);
        }
        let Some((start, sealed)) = self.block_of(key)? else { return Ok(None) };
        Ok(self.open(&start, &sealed)?.get(key))
    }

    /// The rows of a range, in order. Rows that are put or deleted meanwhile may be among them or not.
    pub fn range(self: &Arc<Self>, low: Bound<Value>, high: Bound<Value>) -> BlockRows {
        let unread_end = Some(high.clone());
        BlockRows {
            tree: self.clone(),
            blocks: None,
            front: Vec::new().into_iter(),
            back: Vec::new(),
            unread_end,
            low,
            high,
        }
    }

    /// The block that has the row with this key, if any has.
    pub(super) fn block_of(&self, key: &[u8]) -> sled::Result<Option<(Value, Value)>> {
        self.sled.range(&key[..1]..=key).next_back().transpose()
    }

    /// The rows that sled has as this value under the key `start`.
    pub(super) fn open(&self, start: &Value, sealed: &Value) -> sled::Result<RowBlock> {
        let Some(kind) = row_block::KINDS.iter().position(|kind| start.first() == Some(kind)) else {
            return Ok(RowBlock::One((start.clone(), sealed.clone())));
        };
        let slot = kind * OPEN_BLOCKS + crc32fast::hash(start) as usize % OPEN_BLOCKS;
        let mut slot = self.open_blocks[slot].lock();
        // The kept value keeps its address from being used again.
        if let Some((last, block)) = &slot.last
            && std::ptr::eq(last.as_ref(), sealed.as_ref())
        {
            return Ok(block.clone());
        }
        let reader = match &mut slot.reader {
            Some(reader) => reader,
            none => none.insert(BlockReader::new()?),
        };
        let block = reader.open(start, sealed).map_err(|error| sled::Error::Io(io::Error::other(error)))?;
        if let RowBlock::Several(_) = block {
            slot.last = Some((sealed.clone(), block.clone()));
        }
        Ok(block)
    }
}

/// The rows of a range of a [`BlockTree`].
pub struct BlockRows {
    tree: Arc<BlockTree>,
    /// The blocks from the first one on, once it was searched for.
    blocks: Option<sled::Iter>,
    /// Rows of a block that was read from either end, of which some may have been returned from the other one.
    front: std::vec::IntoIter<Row>,
    back: Vec<Row>,
    /// The end of the blocks that were not read from the end; `None` if all were.
    unread_end: Option<Bound<Value>>,
    /// The range that is left.
    low: Bound<Value>,
    high: Bound<Value>,
}

impl BlockRows {
    fn is_left(&self, key: &Value) -> bool {
        (self.low.as_ref(), self.high.as_ref()).contains(key)
    }

    /// The rows of a block that are in what is left of the range.
    fn left_of(&self, start: &Value, sealed: &Value) -> sled::Result<Vec<Row>> {
        let (low, high) = (self.low.as_ref().map(AsRef::as_ref), self.high.as_ref().map(AsRef::as_ref));
        Ok(self.tree.open(start, sealed)?.rows_between(low, high))
    }

    /// The bound from which sled's rows hold rows of the range: the block that has the first of them may begin before it.
    fn first_block(&self) -> sled::Result<Bound<Value>> {
        if let Included(key) | Excluded(key) = &self.low
            && row_block::is_in_blocks(key)
            && let Some((start, _)) = self.tree.block_of(key)?
        {
            return Ok(Included(start));
        }
        Ok(self.low.clone())
    }

    fn take_first(&mut self) -> sled::Result<Option<Row>> {
        loop {
            while let Some(row) = self.front.next() {
                if self.is_left(&row.0) {
                    self.low = Excluded(row.0.clone());
                    return Ok(Some(row));
                }
            }
            if self.blocks.is_none() {
                let first = self.first_block()?;
                self.blocks = Some(self.tree.sled.range((first, self.high.clone())));
            }
            let Some(block) = self.blocks.as_mut().and_then(Iterator::next) else { return Ok(None) };
            let (start, sealed) = block?;
            self.front = self.left_of(&start, &sealed)?.into_iter();
        }
    }

    fn take_last(&mut self) -> sled::Result<Option<Row>> {
        loop {
            while let Some(row) = self.back.pop() {
                if self.is_left(&row.0) {
                    self.high = Excluded(row.0.clone());
                    return Ok(Some(row));
                }
            }
            let Some(end) = self.unread_end.take() else { return Ok(None) };
            let first = self.first_block()?;
            // Each block is searched for anew: rows that are moved meanwhile go to blocks behind theirs.
            if is_empty(&first, &end) {
                return Ok(None);
            }
            let Some(block) = self.tree.sled.range((first, end)).next_back() else { return Ok(None) };
            let (start, sealed) = block?;
            self.back = self.left_of(&start, &sealed)?;
            self.unread_end = Some(Excluded(start));
        }
    }
}

/// True if no key is between the two. Ranges of maps refuse such bounds.
pub fn is_empty(low: &Bound<Value>, high: &Bound<Value>) -> bool {
    match (low, high) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(low), Included(high)) => low > high,
        (Included(low) | Excluded(low), Included(high) | Excluded(high)) => low >= high,
    }
}

impl Iterator for BlockRows {
    type Item = sled::Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take_first().transpose()
    }
}

impl DoubleEndedIterator for BlockRows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take_last().transpose()
    }
}
