//! The journal: the last groups, each in one record, in two files beside sled's.
//!
//! A group is on disk once its record is ([`super::journal_record`]): one write and one sync of a file that rarely grows
//! ([`super::journal_file`]). It goes into a buffer then ([`super::buffered_tree`]). When a file of the journal is full, or the buffer, the
//! other file is continued, and a thread hands the buffer to sled, so that the full file can be written over. After a crash sled's file may
//! lack a part of a buffer; [`replay`] hands sled everything in the journal once more, which makes it whole.
//!
//! Numbers rise by one from record to record. A file ends at the first record that is not whole or has another number than the
//! next one: the rest of a file that is written over holds records with lower numbers. The end of the journal that a power cut
//! tore off is therefore not told from damage here, but by the number beside the database ([`super::commit_mark`]).

use super::{
    StoreOpenError, block_changes,
    block_tree::{BlockSizes, BlockTree},
    buffered_tree::BufferedTree,
    chunked::Value,
    commit_mark::Commit,
    database,
    journal_file::JournalFile,
    journal_record::{self, RecordWriter},
    keys,
    row_changes::RowChanges,
};
use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

/// Bytes of a file of the journal from which the other one is continued.
const FILE_BYTES: u64 = 4 << 20;

/// Bytes of the changes in a buffer from which the next one is begun. A file may have few bytes for many changes.
const BUFFER_BYTES: usize = 4 << 20;

/// The journal of an open database.
pub struct Journal {
    tree: Arc<BufferedTree>,
    files: [JournalFile; 2],
    /// The one that is written.
    current: usize,
    /// Bytes of the changes in the current buffer.
    buffered: usize,
    record: RecordWriter,
    /// Frees the other file.
    checkpoint: Option<JoinHandle<io::Result<()>>>,
}

impl Journal {
    /// Begins the journal of this database, all groups of which are on disk.
    pub fn begin(database: &Path, tree: Arc<BufferedTree>) -> io::Result<Self> {
        let [first, second] = paths(database);
        let files = [JournalFile::open(first)?, JournalFile::open(second)?];
        database::sync_folder(database)?;
        Ok(Self { tree, files, current: 0, buffered: 0, record: RecordWriter::new()?, checkpoint: None })
    }

    /// Puts a group on disk, and lets readers see it.
    pub fn append(&mut self, number: u64, changes: RowChanges) -> io::Result<()> {
        if self.checkpoint.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait_for_checkpoint()?;
        }
        let content = self.record.write(number, &changes)?;
        let file = &self.files[self.current];
        let is_full =
            file.end() + self.record.bytes().len() as u64 > FILE_BYTES || self.buffered + content > BUFFER_BYTES;
        if is_full && file.end() > 0 {
            self.change_files()?;
        }
        self.files[self.current].append(self.record.bytes())?;
        self.record.clear();
        self.buffered += content;
        self.tree.put(changes);
        Ok(())
    }

    /// Ends the journal of a database that is about to be closed: all groups are in sled's file then. The journal is
    /// deleted after `note_end`, and kept if that fails.
    pub fn end(mut self, note_end: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.wait_for_checkpoint()?;
        self.tree.change_buffers();
        self.tree.checkpoint()?;
        note_end()?;
        self.files.iter().try_for_each(|file| std::fs::remove_file(file.path()))
    }

    /// Continues with the other file, and begins to free this one.
    fn change_files(&mut self) -> io::Result<()> {
        self.wait_for_checkpoint()?;
        self.current = 1 - self.current;
        self.files[self.current].begin_again();
        self.buffered = 0;
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
    // The process may have been killed before it synced the last record. A power cut must not take it back once sled has a part.
    for path in paths(database) {
        match File::open(path) {
            Ok(file) => file.sync_data()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let changes = BTreeMap::from_iter(journal.changes());
    block_changes::apply(tree, changes.iter().map(|(key, value)| (*key, value.map(Value::from))), |_, _| ())
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
                Ok(bytes) => runs.push(journal_record::read_all(&bytes)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Bound::Unbounded;

    fn encoded(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let change = |number: u64| [(b"key".to_vec(), Some(number.to_be_bytes().to_vec()))].into();
        journal_record::in_present_form(&numbers.into_iter().map(|number| (number, change(number))).collect())
    }

    fn numbers(records: &BTreeMap<u64, RowChanges>) -> Vec<u64> {
        records.keys().copied().collect()
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
        journal.files[0].begin_again();
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
