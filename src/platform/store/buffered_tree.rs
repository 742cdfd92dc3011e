//! The tree of rows in sled, with buffers in front of it for the groups that the journal has and sled has not.
//!
//! There is one buffer for each file of the journal: a group goes into the current one. When its file is full, or the buffer itself, a thread hands
//! the buffer to sled ([`BufferedTree::checkpoint`]): the last value of every key alone, and only of those that the next buffer has not
//! changed again, so that most of what is queued and delivered within a moment never reaches sled. Readers look into the buffers
//! first, the newest first.

use super::{
    block_changes,
    block_tree::{self, BlockRows, BlockSizes, BlockTree},
    chunked::Value,
    keys,
    row_changes::RowChanges,
};
use parking_lot::RwLock;
use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fs::File,
    io,
    ops::{
        Bound::{self, Excluded, Included, Unbounded},
        RangeBounds as _,
    },
    sync::Arc,
};

pub struct BufferedTree {
    tree: Arc<BlockTree>,
    /// A handle to sled's file.
    file: File,
    buffers: RwLock<Buffers>,
}

struct Buffers {
    current: Arc<Buffer>,
    /// The one that is on its way to sled.
    full: Option<Arc<Buffer>>,
}

/// The last change of every key; `None` if it was deleted.
type Buffer = RwLock<BTreeMap<Value, Option<Value>>>;

impl BufferedTree {
    /// `file` is sled's.
    pub fn new(tree: Arc<BlockTree>, file: File) -> Self {
        Self { tree, file, buffers: RwLock::new(Buffers { current: Arc::default(), full: None }) }
    }

    /// The bytes of sled's file.
    pub fn file_bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.len())
    }

    /// The bytes of the rows in blocks that sled has.
    pub fn block_sizes(&self) -> BlockSizes {
        self.tree.sizes()
    }

    pub fn get(&self, key: impl AsRef<[u8]>) -> sled::Result<Option<Value>> {
        let key = key.as_ref();
        {
            let buffers = self.buffers.read();
            for buffer in buffers.newest_first() {
                if let Some(change) = buffer.read().get(key) {
                    return Ok(change.clone());
                }
            }
        }
        // A row that was in no buffer is in sled: a buffer is let go only after sled or the newer one has all its rows.
        self.tree.get(key)
    }

    /// The rows of a range, in order. Rows that are put or deleted meanwhile may be among them or not.
    pub fn range(&self, low: Bound<Value>, high: Bound<Value>) -> TreeRows {
        // The buffers first: they keep their rows for this reader, also when sled has them.
        let buffers = self.buffers.read().newest_first().cloned().collect();
        let sled = self.tree.range(low.clone(), high.clone());
        TreeRows { sled, first: None, last: None, buffers, low, high }
    }

    /// The rows whose keys start with `prefix`.
    pub fn scan_prefix(&self, prefix: &[u8]) -> TreeRows {
        let mut end = prefix.to_vec();
        while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
        let high = match end.last_mut() {
            Some(byte) => {
                *byte += 1;
                Excluded(end.into())
            }
            None => Unbounded,
        };
        self.range(Included(prefix.into()), high)
    }

    /// Adds a group, which every reader sees as a whole.
    pub fn put(&self, changes: RowChanges) {
        let buffers = self.buffers.read();
        let mut current = buffers.current.write();
        current.extend(changes.into_iter().map(|(key, value)| (key.into(), value.map(Value::from))));
    }

    /// Begins a new buffer. The one of before is given to sled by [`Self::checkpoint`], which has been done for the one before
    /// that.
    pub fn change_buffers(&self) {
        let mut buffers = self.buffers.write();
        debug_assert!(buffers.full.is_none(), "the buffer before is in sled");
        buffers.full = Some(std::mem::take(&mut buffers.current));
    }

    /// Hands sled the full buffer, puts everything that sled holds on disk, and lets go of the buffer.
    pub fn checkpoint(&self) -> io::Result<()> {
        let (full, newer) = {
            let buffers = self.buffers.read();
            let Some(full) = buffers.full.clone() else { return Ok(()) };
            (full, buffers.current.clone())
        };
        let changes = full.read();
        // A row that was changed again is left to the newer buffer, whose groups are in the journal: readers find it there, and a start
        // after a crash does too. So little of what is queued for a moment between two buffers reaches sled.
        let last = changes.iter().filter(|(key, _)| is_number(key) || !newer.read().contains_key(*key));
        block_changes::apply(&self.tree, last.map(|(key, value)| (&**key, value.clone())), |_, _| ())?;
        drop(changes);
        self.buffers.write().full = None;
        Ok(())
    }

    /// True if no buffer is on its way to sled.
    #[cfg(test)]
    pub fn is_checkpointed(&self) -> bool {
        self.buffers.read().full.is_none()
    }
}

impl Buffers {
    fn newest_first(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        std::iter::once(&self.current).chain(&self.full)
    }
}

/// True if a key is that of the number of the last group.
fn is_number(key: &[u8]) -> bool {
    key == [keys::COMMIT]
}

/// The rows of a range of a [`BufferedTree`].
pub struct TreeRows {
    sled: BlockRows,
    /// Rows that were taken from sled and not returned yet.
    first: Option<(Value, Value)>,
    last: Option<(Value, Value)>,
    buffers: Vec<Arc<Buffer>>,
    /// The range that is left.
    low: Bound<Value>,
    high: Bound<Value>,
}

/// An end of a range.
#[derive(Clone, Copy)]
enum RangeEnd {
    First,
    Last,
}

impl RangeEnd {
    /// The order in which two keys come from this end.
    fn order(self, one: &Value, other: &Value) -> Ordering {
        match self {
            Self::First => one.cmp(other),
            Self::Last => other.cmp(one),
        }
    }
}

impl TreeRows {
    /// The keys alone.
    pub fn keys(self) -> impl DoubleEndedIterator<Item = sled::Result<Value>> {
        self.map(|row| row.map(|(key, _)| key))
    }

    fn take(&mut self, end: RangeEnd) -> Option<sled::Result<(Value, Value)>> {
        loop {
            let in_sled = match self.take_sled(end) {
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(row)) => Some(row),
                None => None,
            };
            let (key, value) = match (in_sled, self.peek_buffers(end)) {
                (None, None) => return None,
                (None, Some(change)) => change,
                (Some((key, value)), None) => (key, Some(value)),
                (Some(row), Some(change)) => match end.order(&row.0, &change.0) {
                    Ordering::Less => (row.0, Some(row.1)),
                    Ordering::Equal => change,
                    Ordering::Greater => {
                        self.put_back(end, row);
                        change
                    }
                },
            };
            match end {
                RangeEnd::First => self.low = Excluded(key.clone()),
                RangeEnd::Last => self.high = Excluded(key.clone()),
            }
            if let Some(value) = value {
                return Some(Ok((key, value)));
            }
        }
    }

    fn put_back(&mut self, end: RangeEnd, row: (Value, Value)) {
        match end {
            RangeEnd::First => self.first = Some(row),
            RangeEnd::Last => self.last = Some(row),
        }
    }

    /// Takes the next row of sled in what is left of the range. sled goes on after its last row if rows have come since, also with
    /// rows that a buffer has had before.
    fn take_sled(&mut self, end: RangeEnd) -> Option<sled::Result<(Value, Value)>> {
        loop {
            let (kept, other) = match end {
                RangeEnd::First => (&mut self.first, &mut self.last),
                RangeEnd::Last => (&mut self.last, &mut self.first),
            };
            let next = kept.take().map(Ok).or_else(|| match end {
                RangeEnd::First => self.sled.next(),
                RangeEnd::Last => self.sled.next_back(),
            });
            match next.or_else(|| other.take().map(Ok)) {
                Some(Ok((key, _))) if !self.is_left(&key) => {}
                next => return next,
            }
        }
    }

    /// True if a key is in what is left of the range.
    fn is_left(&self, key: &Value) -> bool {
        (self.low.as_ref(), self.high.as_ref()).contains(key)
    }

    /// The next change of the buffers in what is left of the range, as the newest buffer has it.
    fn peek_buffers(&self, end: RangeEnd) -> Option<(Value, Option<Value>)> {
        if block_tree::is_empty(&self.low, &self.high) {
            return None;
        }
        let mut found: Option<(Value, Option<Value>)> = None;
        for buffer in &self.buffers {
            let buffer = buffer.read();
            let mut range = buffer.range::<Value, _>((self.low.as_ref(), self.high.as_ref()));
            let next = match end {
                RangeEnd::First => range.next(),
                RangeEnd::Last => range.next_back(),
            };
            let Some((key, value)) = next else { continue };
            if found.as_ref().is_none_or(|(found, _)| end.order(key, found).is_lt()) {
                found = Some((key.clone(), value.clone()));
            }
        }
        found
    }
}

impl Iterator for TreeRows {
    type Item = sled::Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(RangeEnd::First)
    }
}

impl DoubleEndedIterator for TreeRows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(RangeEnd::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(directory: &std::path::Path) -> BufferedTree {
        let sled = sled::Config::new().path(directory).open().unwrap();
        BufferedTree::new(BlockTree::new(sled, BlockSizes::default()), File::open(directory.join("db")).unwrap())
    }

    /// One step of the test: a change, or the way of a buffer into sled.
    #[derive(Clone, Debug)]
    enum Step {
        Change(u8, Option<u8>),
        ChangeBuffers,
        Checkpoint,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..12_u8, any::<u8>()).prop_map(|(key, value)| Step::Change(key, Some(value))),
            3 => (0..12_u8).prop_map(|key| Step::Change(key, None)),
            1 => Just(Step::ChangeBuffers),
            1 => Just(Step::Checkpoint),
        ];
        prop::collection::vec(step, 0..40)
    }

    fn rows(rows: impl Iterator<Item = sled::Result<(Value, Value)>>) -> Vec<(u8, u8)> {
        rows.map(|row| row.map(|(key, value)| (key[1], value[0])).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
        #[test]
        fn rows_are_the_same_wherever_they_are(
            steps in steps(),
            low in 0..12_u8,
            high in 0..12_u8,
            ends in prop::collection::vec(any::<bool>(), 12),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let tree = tree(directory.path());
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Change(key, value) => {
                        let change = (vec![b'k', key], value.map(|value| vec![value]));
                        tree.put([change].into());
                        match value {
                            Some(value) => model.insert(key, value),
                            None => model.remove(&key),
                        };
                    }
                    Step::ChangeBuffers if tree.buffers.read().full.is_none() => tree.change_buffers(),
                    Step::ChangeBuffers => {}
                    Step::Checkpoint => tree.checkpoint().unwrap(),
                }
            }
            for key in 0..12 {
                let value = tree.get([b'k', key]).unwrap();
                prop_assert_eq!(value.map(|value| value[0]), model.get(&key).copied());
            }
            let all: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(rows(tree.scan_prefix(b"k")), all.clone());
            prop_assert_eq!(rows(tree.scan_prefix(b"k").rev()), all.into_iter().rev().collect::<Vec<_>>());
            let (low, high) = (low.min(high), low.max(high));
            let part: Vec<_> = model.range(low..high).map(|(key, value)| (*key, *value)).collect();
            let range = || tree.range(Included(vec![b'k', low].into()), Excluded(vec![b'k', high].into()));
            prop_assert_eq!(rows(range()), part.clone());
            // From both ends at once.
            let (mut rest, mut expected) = (range(), part.into_iter());
            for from_the_end in ends {
                let (row, next) = match from_the_end {
                    true => (rest.next_back(), expected.next_back()),
                    false => (rest.next(), expected.next()),
                };
                prop_assert_eq!(row.map(|row| row.map(|(key, value)| (key[1], value[0])).unwrap()), next);
            }
        }
    }

    #[test]
    fn rows_that_go_to_sled_while_they_are_read_are_neither_missed_nor_doubled() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree(directory.path());
        let put = |keys: std::ops::Range<u32>| {
            tree.put(keys.map(|key| (key.to_be_bytes().to_vec(), Some(vec![1]))).collect());
        };
        put(0..500);
        tree.change_buffers();
        tree.checkpoint().unwrap();
        put(500..700);
        tree.change_buffers();
        put(700..1000);
        let mut rows = tree.range(Unbounded, Unbounded);
        let mut seen: Vec<u32> = Vec::new();
        for n in 0.. {
            if n == 10 || n == 600 {
                tree.checkpoint().unwrap();
                tree.change_buffers();
            }
            let Some(row) = rows.next() else { break };
            seen.push(u32::from_be_bytes(row.unwrap().0[..].try_into().unwrap()));
        }
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn rows_that_go_to_sled_after_its_last_row_was_read_come_once_from_either_end() {
        for backwards in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let tree = tree(directory.path());
            let put = |keys: std::ops::Range<u8>| tree.put(keys.map(|key| (vec![key], Some(vec![1]))).collect());
            put(if backwards { 10..20 } else { 0..10 });
            tree.change_buffers();
            tree.checkpoint().unwrap();
            put(if backwards { 0..10 } else { 10..20 });
            tree.change_buffers();
            let mut rows = tree.range(Unbounded, Unbounded);
            let mut next = || if backwards { rows.next_back() } else { rows.next() };
            let mut seen: Vec<u8> = (0..15).map(|_| next().unwrap().unwrap().0[0]).collect();
            tree.checkpoint().unwrap();
            seen.extend(std::iter::from_fn(|| next().map(|row| row.unwrap().0[0])));
            let expected: Vec<u8> = if backwards { (0..20).rev().collect() } else { (0..20).collect() };
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_prefix_may_end_with_the_largest_byte() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree(directory.path());
        let keys: [&[u8]; 5] = [b"a", b"a\xff", b"a\xffb", b"b", b"\xff\xff"];
        tree.put(keys.iter().map(|key| (key.to_vec(), Some(Vec::new()))).collect());
        let found =
            |prefix: &[u8]| tree.scan_prefix(prefix).keys().map(|key| key.unwrap().to_vec()).collect::<Vec<_>>();
        assert_eq!(found(b"a\xff"), [b"a\xff".to_vec(), b"a\xffb".to_vec()]);
        assert_eq!(found(b"\xff"), [b"\xff\xff".to_vec()]);
        assert_eq!(found(b"").len(), 5);
    }
}
