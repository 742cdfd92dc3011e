//! Changes of rows in blocks: rows at the end fill blocks up, others change the block that has them.

use super::{
    block_tree::BlockTree,
    chunked::Value,
    keys,
    row_block::{self, BlockWriter, MAX_CONTENT, MAX_SEALED, Row},
};
use std::{io, ops::Bound::Excluded};

/// Bytes that sled is handed before they are put on disk, with so many for each row beside its key and value. sled keeps what is not on
/// disk in memory, and a power cut tears off no more of its file than the check of that file takes for torn.
const MAX_UNSYNCED: usize = 1 << 20;
const ROW_OVERHEAD: usize = 256;

/// A block of this size, or with so many bytes of rows, is left as it is when rows come behind its last one.
const FULL: usize = MAX_SEALED * 3 / 4;
const FULL_CONTENT: usize = MAX_CONTENT * 7 / 8;

/// Bytes of values from which changes of one block are made in several steps: readers wait for the end of each.
const STEP: usize = 64 << 10;

// Each step makes some of its changes: those that it leaves to the next one, a block at most, are fewer.
const _: () = assert!(MAX_CONTENT * 5 / 4 < STEP);

/// A change of a row: its value, or `None` if it is deleted.
type RowChange<'a> = (&'a [u8], Option<Value>);

/// Makes some changes, which are in the order of their keys, and puts them on disk; the number of the last group after all others.
/// `replaced` is told of each row that was there under the key of a change.
pub fn apply<'a>(
    tree: &BlockTree,
    changes: impl Iterator<Item = RowChange<'a>>,
    replaced: impl FnMut(&[u8], &[u8]),
) -> io::Result<()> {
    let mut writer = TreeWriter { tree, blocks: BlockWriter::new()?, target: MAX_CONTENT, unsynced: 0, replaced };
    let (mut number, mut kind) = (None, None);
    let mut changes = changes.peekable();
    while let Some((key, value)) = changes.next() {
        if *key == [keys::COMMIT] {
            number = value;
            continue;
        }
        if !row_block::is_in_blocks(key) {
            if let Some(old) = writer.put_row(key, value)? {
                (writer.replaced)(key, &old);
            }
            continue;
        }
        // Rows of another kind are compressed in another ratio.
        if kind.replace(key[0]) != Some(key[0]) {
            writer.target = MAX_CONTENT;
        }
        let end = tree.sled.range::<&[u8], _>((Excluded(key), Excluded(&[key[0] + 1][..]))).next().transpose()?;
        let is_before_end = |key: &[u8]| end.as_ref().is_none_or(|(end, _)| *key < **end);
        let is_in_run = |(next, _): &RowChange<'_>| next[0] == key[0] && is_before_end(next);
        let size = |(_, value): &RowChange<'_>| value.as_ref().map_or(0, |value| value.len());
        let mut run = vec![(key, value)];
        while !run.is_empty() {
            let mut run_bytes: usize = run.iter().map(size).sum();
            while run_bytes < STEP
                && let Some(next) = changes.next_if(is_in_run)
            {
                run_bytes += size(&next);
                run.push(next);
            }
            let is_last = !changes.peek().is_some_and(is_in_run);
            let made = writer.merge(&run, is_last)?;
            run.drain(..made);
        }
    }
    if let Some(number) = number {
        tree.sled.insert([keys::COMMIT], number)?;
    }
    tree.sled.flush()?;
    Ok(())
}

/// Hands changes to sled.
struct TreeWriter<'a, F> {
    tree: &'a BlockTree,
    blocks: BlockWriter,
    /// Bytes of rows that should make a full block, by those before.
    target: usize,
    unsynced: usize,
    replaced: F,
}

impl<F: FnMut(&[u8], &[u8])> TreeWriter<'_, F> {
    /// Makes changes of rows that are all in one block, or would be, and returns their number. Unless they are the last ones for this
    /// block, new rows that would be the last of several blocks are left to the next ones, which may fill it: sled writes a whole page after
    /// few changes of it.
    fn merge(&mut self, run: &[RowChange<'_>], is_last: bool) -> io::Result<usize> {
        let Some((first, _)) = run.first() else { return Ok(0) };
        let block = self.tree.block_of(first)?;
        let old = match &block {
            Some((start, sealed)) => self.tree.open(start, sealed)?.rows(),
            None => Vec::new(),
        };
        let is_changed = |key: &[u8]| run.binary_search_by(|(changed, _)| (**changed).cmp(key)).is_ok();
        let (changed, mut rows): (Vec<Row>, Vec<Row>) = old.into_iter().partition(|(key, _)| is_changed(key));
        let new: Vec<Row> = run.iter().filter_map(|(key, value)| Some((Value::from(*key), value.clone()?))).collect();
        if new.is_empty() && changed.is_empty() {
            return Ok(run.len());
        }
        let follows = new.first().is_none_or(|(new, _)| rows.last().is_none_or(|(kept, _)| kept < new));
        let may_leave = !is_last && changed.is_empty() && follows;
        let is_full = |sealed: &Value| sealed.len() >= FULL || row_block::bytes(&rows) >= FULL_CONTENT;
        let left = match block {
            Some((start, sealed)) if !is_full(&sealed) || !changed.is_empty() || !follows => {
                let target = if new.is_empty() {
                    // The rest of a block fits into one.
                    usize::MAX / 2
                } else if !follows && new.len() > changed.len() {
                    // More rows are likely to come between these.
                    self.target * 3 / 4
                } else {
                    self.target
                };
                let left_from = may_leave.then_some(rows.len());
                rows.extend_from_slice(&new);
                rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                let (blocks, left) = self.split(Some(&start), &rows, target, left_from)?;
                self.replace(&start, &sealed, blocks)?;
                left
            }
            _ => {
                let (blocks, left) = self.split(None, &new, self.target, may_leave.then_some(0))?;
                for (key, sealed) in blocks {
                    self.put_row(&key, Some(sealed))?;
                }
                left
            }
        };
        let (made, left) = new.split_at(new.len() - left);
        self.count_content(made, &changed);
        changed.iter().for_each(|(key, value)| (self.replaced)(key, value));
        Ok(left.first().map_or(run.len(), |(left, _)| run.partition_point(|(key, _)| *key < &**left)))
    }

    /// Puts blocks in the place of one, in one step.
    fn replace(&mut self, start: &Value, old: &Value, mut blocks: Vec<Row>) -> io::Result<()> {
        if blocks.len() < 2 {
            self.put_row(start, blocks.pop().map(|(_, sealed)| sealed))?;
            return Ok(());
        }
        let mut batch = sled::Batch::default();
        self.count(start, Some(old), None);
        for (key, sealed) in blocks {
            self.count(&key, None, Some(&sealed));
            batch.insert(key, sealed);
        }
        self.tree.sled.apply_batch(batch)?;
        self.sync_if_due()
    }

    /// Makes blocks of rows, with about `target` bytes of rows in each. The first one begins at `start`, or with its first row. Rows of
    /// the last of several are left if all have the number `left_from` or a higher one; how many is returned.
    fn split(
        &mut self,
        start: Option<&Value>,
        all: &[Row],
        mut target: usize,
        left_from: Option<usize>,
    ) -> io::Result<(Vec<Row>, usize)> {
        let (mut blocks, mut rows) = (Vec::new(), all);
        while let Some((first, _)) = rows.first() {
            let start = start.filter(|_| blocks.is_empty()).unwrap_or(first);
            // All of them, if they are few more than in a full block.
            let mut fitting = row_block::fitting_rows(rows, target + target / 4);
            if fitting < rows.len() {
                fitting = row_block::fitting_rows(rows, target).max(1);
            } else if !blocks.is_empty() && left_from.is_some_and(|from| all.len() - rows.len() >= from) {
                return Ok((blocks, rows.len()));
            }
            let mut sealed = self.blocks.seal(start, &rows[..fitting])?;
            while sealed.len() > MAX_SEALED && fitting > 1 {
                // A tenth less than what should fit, because the ratio of the part is not that of the whole.
                target = row_block::bytes(&rows[..fitting]) * MAX_SEALED / sealed.len() * 9 / 10;
                self.target = target;
                fitting = row_block::fitting_rows(&rows[..fitting - 1], target).max(1);
                sealed = self.blocks.seal(start, &rows[..fitting])?;
            }
            if sealed.len() < FULL && fitting < rows.len() {
                target = (target * 5 / 4).min(MAX_CONTENT);
                self.target = self.target.max(target);
            }
            blocks.push((start.clone(), sealed.into()));
            rows = &rows[fitting..];
        }
        Ok((blocks, 0))
    }

    /// Puts a row of sled, or deletes it. Returns the one of before.
    fn put_row(&mut self, key: &[u8], value: Option<Value>) -> io::Result<Option<Value>> {
        let old = match value.clone() {
            Some(value) => self.tree.sled.insert(key, value)?,
            None => self.tree.sled.remove(key)?,
        };
        self.count(key, old.as_ref(), value.as_ref());
        self.sync_if_due()?;
        Ok(old)
    }

    fn count(&mut self, key: &[u8], old: Option<&Value>, new: Option<&Value>) {
        let size = |value: Option<&Value>| value.map_or(0, |value| key.len() + value.len());
        self.unsynced += ROW_OVERHEAD + key.len() + size(new);
        if row_block::is_in_blocks(key) {
            let mut sizes = self.tree.sizes.lock();
            sizes.sealed = (sizes.sealed + size(new) as u64).saturating_sub(size(old) as u64);
        }
    }

    fn count_content(&self, new: &[Row], old: &[Row]) {
        let size = |rows: &[Row]| rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        let mut sizes = self.tree.sizes.lock();
        sizes.content = (sizes.content + size(new)).saturating_sub(size(old));
    }

    fn sync_if_due(&mut self) -> io::Result<()> {
        if self.unsynced > MAX_UNSYNCED {
            self.tree.sled.flush()?;
            self.unsynced = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::store::{block_tree::BlockSizes, test_support::noise};
    use proptest::prelude::*;
    use std::{
        collections::BTreeMap,
        ops::Bound::{Included, Unbounded},
        sync::Arc,
    };

    fn tree(directory: &std::path::Path) -> Arc<BlockTree> {
        BlockTree::new(sled::Config::new().path(directory).open().unwrap(), BlockSizes::default())
    }

    /// The key of a row in blocks, or of one that is not.
    fn key(n: u16) -> Vec<u8> {
        let kind = [keys::DELIVERY, keys::EVENT, keys::KV, keys::QUEUE][usize::from(n % 4)];
        keys::key(kind, &[&(n / 4).to_be_bytes(), &[7; 16]])
    }

    /// A value that looks like its neighbours or not.
    fn value(seed: u16, length: usize) -> Value {
        let bytes: Vec<u8> = match seed % 2 {
            0 => noise(seed.into(), length),
            _ => seed.to_be_bytes().into_iter().cycle().take(length).collect(),
        };
        bytes.into()
    }

    type ChangeGroup = BTreeMap<Vec<u8>, Option<Value>>;

    fn change(tree: &BlockTree, changes: &ChangeGroup) {
        apply(tree, changes.iter().map(|(key, value)| (key.as_slice(), value.clone())), |_, _| ()).unwrap();
    }

    fn changes() -> impl Strategy<Value = ChangeGroup> {
        let seed_and_length = (any::<u16>(), prop_oneof![4 => 0..80_usize, 2 => 200..900_usize, 1 => Just(4101_usize)]);
        let put = (0..1200_u16, seed_and_length).prop_map(|(n, (seed, length))| vec![(n, Some(value(seed, length)))]);
        let run = (0..1100_u16, 1..100_u16, any::<u16>(), 0..300_usize).prop_map(|(from, count, seed, length)| {
            (from..from + count).map(|n| (n, Some(value(seed.wrapping_add(n), length)))).collect()
        });
        let delete =
            (0..1200_u16, 1..300_u16).prop_map(|(from, count)| (from..from + count).map(|n| (n, None)).collect());
        let step = prop_oneof![3 => put, 3 => run, 2 => delete];
        prop::collection::vec(step, 1..12).prop_map(|steps: Vec<Vec<(u16, Option<Value>)>>| {
            steps.into_iter().flatten().map(|(n, value)| (key(n), value)).collect()
        })
    }

    /// Every block is small enough for sled's pages, and has rows, all of them before the next block.
    fn check_blocks(tree: &BlockTree) {
        let mut last: Option<Value> = None;
        for row in tree.sled.iter() {
            let (start, stored) = row.unwrap();
            assert!(last.as_ref().is_none_or(|last| *last < start), "a row is behind the beginning of the next block");
            let rows = tree.open(&start, &stored).unwrap().rows();
            assert!(rows.len() == 1 || stored.len() <= MAX_SEALED, "{} bytes of {} rows", stored.len(), rows.len());
            assert!(rows.is_sorted_by(|one, other| one.0 < other.0) && rows[0].0 >= start);
            last = Some(rows.last().unwrap().0.clone());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn rows_in_blocks_are_those_of_a_plain_map(
            groups in prop::collection::vec(changes(), 1..6),
            (low, high) in (0..1200_u16, 0..1200_u16),
            ends in prop::collection::vec(any::<bool>(), 0..1300),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let tree = tree(directory.path());
            let mut model = BTreeMap::<Vec<u8>, Value>::new();
            for changes in groups {
                let mut replaced = BTreeMap::new();
                let in_order = changes.iter().map(|(key, value)| (key.as_slice(), value.clone()));
                apply(&tree, in_order, |key, old| {
                    assert!(replaced.insert(key.to_vec(), Value::from(old)).is_none(), "told twice");
                }).unwrap();
                let mut expected = BTreeMap::new();
                for (key, value) in changes {
                    let old = match value {
                        Some(value) => model.insert(key.clone(), value),
                        None => model.remove(&key),
                    };
                    expected.extend(old.map(|old| (key, old)));
                }
                prop_assert_eq!(replaced, expected);
                check_blocks(&tree);
            }
            let size = |(key, value): &Row| (key.len() + value.len()) as u64;
            let sealed = tree.sled.iter().map(Result::unwrap).filter(|(key, _)| row_block::is_in_blocks(key));
            let content = model.iter().filter(|(key, _)| row_block::is_in_blocks(key));
            let content = content.map(|(key, value)| (key.len() + value.len()) as u64).sum();
            prop_assert_eq!(tree.sizes(), BlockSizes { content, sealed: sealed.map(|row| size(&row)).sum() });
            for n in 0..1200 {
                prop_assert_eq!(tree.get(&key(n)).unwrap(), model.get(&key(n)).cloned());
            }
            let rows = |low, high| tree.range(low, high).map(|row| row.map(|(key, value)| (key.to_vec(), value)).unwrap());
            let all: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(rows(Unbounded, Unbounded).collect::<Vec<_>>(), all);
            let (low, high) = (key(low).min(key(high)), key(low).max(key(high)));
            let part: Vec<_> = model.range(low.clone()..=high.clone()).map(|(key, value)| (key.clone(), value.clone())).collect();
            let bounds = || tree.range(Included(low.as_slice().into()), Included(high.as_slice().into()));
            let mut backwards: Vec<_> = bounds().rev().map(|row| row.map(|(key, value)| (key.to_vec(), value)).unwrap()).collect();
            backwards.reverse();
            prop_assert_eq!(&backwards, &part);
            // From both ends at once.
            let (mut rest, mut expected) = (bounds(), part.into_iter());
            for from_the_end in ends {
                let (row, next) = match from_the_end {
                    true => (rest.next_back(), expected.next_back()),
                    false => (rest.next(), expected.next()),
                };
                prop_assert_eq!(row.map(|row| row.map(|(key, value)| (key.to_vec(), value)).unwrap()), next);
            }
        }
    }

    #[test]
    fn rows_at_the_end_leave_full_blocks_alone_and_fill_the_last_one() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree(directory.path());
        let event =
            |n: u32| (keys::key(keys::EVENT, &[&n.to_be_bytes(), &[1; 16]]), Some(Value::from(&[b'x'; 600][..])));
        for n in 0..400 {
            change(&tree, &[event(n)].into());
        }
        let blocks: Vec<_> = tree.sled.iter().map(Result::unwrap).collect();
        assert!(blocks.len() < 400 / 20, "{}", blocks.len());
        change(&tree, &(400..500).map(event).collect());
        for (before, after) in blocks.iter().zip(tree.sled.iter().map(Result::unwrap)).take(blocks.len() - 1) {
            assert_eq!(*before, after);
        }
    }

    #[test]
    fn many_rows_at_the_end_write_each_block_once() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree(directory.path());
        let row = |n: u32| (keys::key(keys::EVENT, &[&n.to_be_bytes()]), Some(value(n as u16, 600)));
        // The last block of before is filled up.
        change(&tree, &(0..3).map(row).collect());
        let writes = tree.sled.watch_prefix([]);
        change(&tree, &(3..1000).map(row).collect());
        let end = keys::key(keys::KV, &[b"end"]);
        change(&tree, &[(end.clone(), Some(value(1, 1)))].into());
        let writes = writes.map(|write| write.key().clone());
        let mut written: Vec<_> = writes.take_while(|key| **key != end[..]).collect();
        // Those of one batch come in any order.
        written.sort_unstable();
        let blocks: Vec<_> = tree.sled.iter().keys().map(Result::unwrap).filter(|key| **key != end[..]).collect();
        assert_eq!(written, blocks);
    }

    #[test]
    fn a_reader_misses_no_row_that_stays_while_blocks_are_split() {
        let directory = tempfile::tempdir().unwrap();
        let tree = tree(directory.path());
        let row = |n: u32| (keys::key(keys::QUEUE, &[&n.to_be_bytes()]), Some(value(n as u16 & !1, 40)));
        change(&tree, &(0..4000).step_by(8).map(row).collect());
        let writer = std::thread::spawn({
            let tree = tree.clone();
            move || (1..8).for_each(|shift| change(&tree, &(shift..4000).step_by(8).map(row).collect()))
        });
        let expected: Vec<_> = (0..4000).step_by(8).map(|n| row(n).0).collect();
        while !writer.is_finished() {
            let stays = |row: sled::Result<Row>| {
                let key = row.unwrap().0.to_vec();
                u32::from_be_bytes(key[1..5].try_into().unwrap()).is_multiple_of(8).then_some(key)
            };
            let forwards: Vec<_> = tree.range(Unbounded, Unbounded).filter_map(stays).collect();
            assert_eq!(forwards, expected);
            let mut backwards: Vec<_> = tree.range(Unbounded, Unbounded).rev().filter_map(stays).collect();
            backwards.reverse();
            assert_eq!(backwards, expected);
            assert!((0..4000).step_by(8).all(|n| tree.get(&row(n).0).unwrap().is_some()));
        }
        writer.join().unwrap();
    }
}
