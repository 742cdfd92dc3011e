//! The journal: the last groups, each in one record, in two files beside sled's.
//!
//! A group is on disk once its record is: one write and one sync of a file that rarely grows. It goes into a buffer then
//! ([`super::buffered_tree`]). When a file of the journal is full, the other one is continued, and a thread hands the buffer of the
//! full one to sled, so that the file can be written over. After a crash sled's file may lack a part of a buffer; [`replay`]
//! hands sled everything in the journal once more, which makes it whole.
//!
//! | bytes | record |
//! |---|---|
//! | 4 | length of all that follows the checksum |
//! | 4 | checksum of all that follows it |
//! | 8 | number of the group |
//! | … | each change: length of the key, length of the value or [`DELETED`], key, value |
//!
//! Numbers rise by one from record to record. A file ends at the first record that is not whole or has another number than the
//! next one: the rest of a file that is written over holds records with lower numbers. The end of the journal that a power cut
//! tore off is therefore not told from damage here, but by the number beside the database ([`super::commit_mark`]).

use super::{
    StoreOpenError,
    block_tree::{BlockSizes, BlockTree},
    buffered_tree::BufferedTree,
    chunked::Value,
    commit_mark::Commit,
    database, keys,
    row_changes::RowChanges,
};
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

/// Bytes of a file of the journal from which the other one is continued.
const FILE_BYTES: u64 = 4 << 20;

/// Bytes by which a file grows. The sync of a write within the file leaves the file's length alone, which is cheaper.
const GROWTH: u64 = 256 << 10;

/// Bytes of one write of that. The system keeps what is written at once as one large page, all of which a later small write
/// would make it write again.
const PAGE: usize = 4096;

/// In place of the length of a value: the key is deleted.
const DELETED: u32 = u32::MAX;

/// The journal of an open database.
pub struct Journal {
    tree: Arc<BufferedTree>,
    files: [JournalFile; 2],
    /// The one that is written.
    current: usize,
    record: Vec<u8>,
    /// Frees the other file.
    checkpoint: Option<JoinHandle<io::Result<()>>>,
}

struct JournalFile {
    path: PathBuf,
    file: File,
    /// The end of the last record.
    end: u64,
    length: u64,
}

impl Journal {
    /// Begins the journal of this database, all groups of which are on disk.
    pub fn begin(database: &Path, tree: Arc<BufferedTree>) -> io::Result<Self> {
        let [first, second] = paths(database);
        let files = [JournalFile::open(first)?, JournalFile::open(second)?];
        database::sync_folder(database)?;
        Ok(Self { tree, files, current: 0, record: Vec::new(), checkpoint: None })
    }

    /// Puts a group on disk, and lets readers see it.
    pub fn append(&mut self, number: u64, changes: RowChanges) -> io::Result<()> {
        if self.checkpoint.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait_for_checkpoint()?;
        }
        encode(&mut self.record, number, &changes)?;
        let file = &self.files[self.current];
        if file.end > 0 && file.end + self.record.len() as u64 > FILE_BYTES {
            self.change_files()?;
        }
        self.files[self.current].append(&self.record)?;
        // A large group is rare, and need not be kept in memory.
        self.record.clear();
        self.record.shrink_to(1 << 20);
        self.tree.put(changes);
        Ok(())
    }

    /// Ends the journal of a database that is about to be closed: all groups are in sled's file then.
    pub fn end(mut self) -> io::Result<()> {
        self.wait_for_checkpoint()?;
        self.tree.change_buffers();
        self.tree.checkpoint()?;
        self.files.iter().try_for_each(|file| std::fs::remove_file(&file.path))
    }

    /// Continues with the other file, and begins to free this one.
    fn change_files(&mut self) -> io::Result<()> {
        self.wait_for_checkpoint()?;
        self.current = 1 - self.current;
        self.files[self.current].end = 0;
        self.tree.change_buffers();
        let tree = self.tree.clone();
        let thread = std::thread::Builder::new().name("store-checkpoint".to_owned());
        self.checkpoint = Some(thread.spawn(move || tree.checkpoint())?);
        Ok(())
    }

    fn wait_for_checkpoint(&mut self) -> io::Result<()> {
        match self.checkpoint.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(io::Error::other("the database engine failed during a write")),
            Some(Ok(result)) => result,
            None => Ok(()),
        }
    }
}

impl JournalFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, end: 0, length })
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let end = self.end + record.len() as u64;
        if end > self.length {
            let length = end.next_multiple_of(GROWTH);
            for at in (self.length..length).step_by(PAGE) {
                self.file.write_all_at(&[0; PAGE], at)?;
            }
            self.length = length;
        }
        self.file.write_all_at(record, self.end)?;
        self.file.sync_data()?;
        self.end = end;
        Ok(())
    }
}

/// Opens a sound database of the current format, with all groups of its journal. `sizes` are those of its blocks.
pub fn open(database: &Path, sizes: BlockSizes) -> Result<Arc<BlockTree>, StoreOpenError> {
    let tree = BlockTree::new(database::open(database)?, sizes);
    // sled panics on damage that it does not expect.
    match catch_unwind(AssertUnwindSafe(|| replay(database, &tree))) {
        Ok(Ok(())) => Ok(tree),
        Ok(Err(source)) => Err(StoreOpenError::Directory { path: database.to_owned(), source }),
        Err(_) => Err(StoreOpenError::damaged(database, "the database engine failed while it read it")),
    }
}

/// Hands sled everything in the journal. It has the earlier groups already, and perhaps a part of the later ones.
fn replay(database: &Path, tree: &BlockTree) -> io::Result<()> {
    let in_file = tree.get(&[keys::COMMIT])?.as_ref().and_then(Commit::of_row).unwrap_or_default();
    let journal = JournalEnd::read(database)?.unless_older_than(in_file);
    if journal.first().is_none() {
        return Ok(());
    }
    log::info!("the last writes before a crash are taken from the journal");
    let changes = BTreeMap::from_iter(journal.changes());
    tree.apply(changes.iter().map(|(key, value)| (*key, value.map(Value::from))), |_, _| ())
}

/// The records up to the last one of a journal, without a gap between them.
#[derive(Default)]
pub struct JournalEnd(BTreeMap<u64, RowChanges>);

impl JournalEnd {
    /// Reads the files of a database that is not open. Nothing is changed.
    pub fn read(database: &Path) -> io::Result<Self> {
        let mut runs = Vec::new();
        for path in paths(database) {
            match std::fs::read(path) {
                Ok(bytes) => runs.push(records(&bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        runs.sort_by_key(|run| run.last_key_value().map_or(0, |(number, _)| *number));
        let mut end = runs.pop().unwrap_or_default();
        if let (Some(mut before), Some((first, _))) = (runs.pop(), end.first_key_value())
            && before.last_key_value().is_some_and(|(last, _)| last + 1 == *first)
        {
            end.append(&mut before);
        }
        Ok(Self(end))
    }

    /// Nothing, if sled's file has the last group of the journal and therefore all of them: a journal that lost its newer file holds
    /// old values.
    pub fn unless_older_than(self, in_file: Commit) -> Self {
        match self.0.last_key_value() {
            Some((last, _)) if *last > in_file.number => self,
            _ => Self::default(),
        }
    }

    /// The number of the first group.
    pub fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(number, _)| *number)
    }

    /// The last group; `None` without one.
    pub fn last(&self) -> Option<Commit> {
        let (_, changes) = self.0.last_key_value()?;
        Commit::of_row(&changes.get(&[keys::COMMIT][..])?.as_deref()?.into())
    }

    /// The last change of every key: its value, or `None` if it was deleted.
    pub fn changes(&self) -> HashMap<&[u8], Option<&[u8]>> {
        let changes = self.0.values().flatten();
        changes.map(|(key, value)| (key.as_slice(), value.as_deref())).collect()
    }
}

fn paths(database: &Path) -> [PathBuf; 2] {
    ["journal.0", "journal.1"].map(|name| database.join(name))
}

fn encode(record: &mut Vec<u8>, number: u64, changes: &RowChanges) -> io::Result<()> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).ok().filter(|length| *length < DELETED);
    let too_long = || io::Error::other("a write is too large");
    record.clear();
    record.extend_from_slice(&[0; 8]);
    record.extend_from_slice(&number.to_be_bytes());
    for (key, value) in changes {
        let value_length = match value {
            Some(value) => length(value).ok_or_else(too_long)?,
            None => DELETED,
        };
        record.extend_from_slice(&length(key).ok_or_else(too_long)?.to_be_bytes());
        record.extend_from_slice(&value_length.to_be_bytes());
        record.extend_from_slice(key);
        record.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let body = length(&record[8..]).ok_or_else(too_long)?;
    let checksum = crc32fast::hash(&record[8..]);
    record[..4].copy_from_slice(&body.to_be_bytes());
    record[4..8].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The records from the beginning of a file, as long as each is whole and has the next number.
fn records(mut bytes: &[u8]) -> BTreeMap<u64, RowChanges> {
    let mut records = BTreeMap::<u64, RowChanges>::new();
    while let Some((number, changes, rest)) = decode(bytes) {
        if records.last_key_value().is_some_and(|(last, _)| last + 1 != number) {
            break;
        }
        records.insert(number, changes);
        bytes = rest;
    }
    records
}

/// The record at the beginning, and what follows it; `None` if there is none, or it is not whole.
fn decode(bytes: &[u8]) -> Option<(u64, RowChanges, &[u8])> {
    let (length, rest) = take_length(bytes)?;
    let (checksum, rest) = take_length(rest)?;
    let (body, rest) = rest.split_at_checked(length as usize)?;
    let (number, mut body_rest) = body.split_first_chunk()?;
    if crc32fast::hash(body) != checksum {
        return None;
    }
    let mut changes = RowChanges::new();
    while !body_rest.is_empty() {
        let (key_length, after) = take_length(body_rest)?;
        let (value_length, after) = take_length(after)?;
        let (key, after) = after.split_at_checked(key_length as usize)?;
        let deleted = value_length == DELETED;
        let (value, after) = after.split_at_checked(if deleted { 0 } else { value_length as usize })?;
        changes.insert(key.to_vec(), (!deleted).then(|| value.to_vec()));
        body_rest = after;
    }
    Some((u64::from_be_bytes(*number), changes, rest))
}

fn take_length(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*length), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Bound::Unbounded;

    fn changes(number: u64) -> RowChanges {
        let value = (!number.is_multiple_of(3)).then(|| vec![number as u8; number as usize % 50]);
        [(number.to_be_bytes().to_vec(), value), (b"last".to_vec(), Some(number.to_be_bytes().to_vec()))].into()
    }

    fn encoded(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let (mut bytes, mut record) = (Vec::new(), Vec::new());
        for number in numbers {
            encode(&mut record, number, &changes(number)).unwrap();
            bytes.extend_from_slice(&record);
        }
        bytes
    }

    fn numbers(records: &BTreeMap<u64, RowChanges>) -> Vec<u64> {
        records.keys().copied().collect()
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let read = records(&encoded(7..40));
        assert_eq!(numbers(&read), (7..40).collect::<Vec<_>>());
        assert!(read.iter().all(|(number, read)| *read == changes(*number)));
    }

    #[test]
    fn a_file_ends_at_a_record_that_is_not_whole() {
        let (whole, bytes) = (encoded(1..4).len(), encoded(1..5));
        for length in whole..bytes.len() {
            assert_eq!(numbers(&records(&bytes[..length])), [1, 2, 3], "{length} bytes");
        }
        for bit in whole * 8..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(numbers(&records(&changed)), [1, 2, 3], "bit {bit}");
        }
        assert_eq!(numbers(&records(&[bytes, vec![0; 1000]].concat())), [1, 2, 3, 4]);
    }

    #[test]
    fn the_rest_of_a_file_that_is_written_over_is_not_read() {
        // All records have the same length, so that an old one begins where the last new one ends.
        let same = |numbers: std::ops::Range<u64>| {
            let (mut bytes, mut record) = (Vec::new(), Vec::new());
            for number in numbers {
                encode(&mut record, number, &[(b"key".to_vec(), Some(number.to_be_bytes().to_vec()))].into()).unwrap();
                bytes.extend_from_slice(&record);
            }
            bytes
        };
        let (mut file, new) = (same(1..10), same(20..23));
        file[..new.len()].copy_from_slice(&new);
        assert_eq!(numbers(&records(&file)), [20, 21, 22]);
    }

    #[test]
    fn two_files_are_one_journal_if_no_number_is_missing_between_them() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = paths(directory.path());
        let read = |one, other| {
            std::fs::write(&first, encoded(one)).unwrap();
            std::fs::write(&second, encoded(other)).unwrap();
            numbers(&JournalEnd::read(directory.path()).unwrap().0)
        };
        assert_eq!(read(1..4, 4..6), [1, 2, 3, 4, 5]);
        assert_eq!(read(4..6, 1..4), [1, 2, 3, 4, 5]);
        assert_eq!(read(1..3, 4..6), [4, 5]);
        assert_eq!(read(9..12, 1..1), [9, 10, 11]);
        std::fs::remove_file(&first).unwrap();
        std::fs::remove_file(&second).unwrap();
        assert!(JournalEnd::read(directory.path()).unwrap().0.is_empty());
    }

    #[test]
    fn rows_that_a_checkpoint_leaves_to_the_newer_file_are_there_after_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path();
        let key = |name: &str| name.as_bytes().to_vec();
        let value = |text: &str| Some(text.as_bytes().to_vec());
        let group = |number, rows: [(&str, Option<Vec<u8>>); 2]| {
            let (commit_key, commit) = Commit { number, ..Commit::default() }.row();
            let mut group = RowChanges::from(rows.map(|(name, value)| (key(name), value)));
            group.insert(commit_key.into(), Some(commit));
            group
        };
        let sled = database::open(database).unwrap();
        let file = File::open(database::file(database)).unwrap();
        let tree = Arc::new(BufferedTree::new(BlockTree::new(sled.clone(), BlockSizes::default()), file));
        let mut journal = Journal::begin(database, tree.clone()).unwrap();
        journal.append(1, group(1, [("changed", value("old")), ("queued", value("a moment"))])).unwrap();
        journal.append(2, group(2, [("kept", value("kept")), ("deleted", value("late"))])).unwrap();
        tree.change_buffers();
        journal.current = 1;
        journal.append(3, group(3, [("changed", value("new")), ("queued", None)])).unwrap();
        tree.checkpoint().unwrap();
        assert_eq!(sled.get("changed").unwrap(), None);
        assert_eq!(sled.get("queued").unwrap(), None);
        assert_eq!(sled.get("kept").unwrap().as_deref(), Some(&b"kept"[..]));
        // The first file is written over, and the process ends.
        journal.current = 0;
        journal.files[0].end = 0;
        tree.change_buffers();
        journal.append(4, group(4, [("deleted", None), ("last", value("last"))])).unwrap();
        drop((journal, tree, sled));
        database::wait_until_closed(database).unwrap();
        let tree = open(database, BlockSizes::default()).unwrap();
        let rows = tree.range(Unbounded, Unbounded).map(|row| row.unwrap()).filter(|(key, _)| **key != [keys::COMMIT]);
        let rows: Vec<_> = rows.map(|(key, value)| (key.to_vec(), Some(value.to_vec()))).collect();
        assert_eq!(
            rows,
            [("changed", "new"), ("kept", "kept"), ("last", "last")].map(|(name, text)| (key(name), value(text)))
        );
    }
}
