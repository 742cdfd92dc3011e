//! [`LogFile`]: the state of a database as sled would recover it.

use super::{
    damage::{Damage, Damages, LOG},
    page_table::PageTable,
    pages::Pages,
    recovery::{self, LogEnd, Recovered},
    rows::{self, RowsRead},
    salvage::Salvage,
    segments::Slots,
    snapshot, tree,
};
use std::{fs::File, io, path::Path, sync::OnceLock};

/// The state of a database as sled would recover it, read without changing a byte.
pub struct LogFile {
    slots: Option<Slots>,
    table: PageTable,
    pages: Pages,
    /// The leaves in the order of their keys, if the tree is whole.
    leaves: Option<Vec<u64>>,
    damages: Damages,
    ends_early: bool,
    /// The readable leaves of a broken tree, once they are needed.
    salvage: OnceLock<Salvage>,
}

impl LogFile {
    /// Reads the database in `directory` and checks everything that sled would use of it. A directory without a log is an
    /// empty database. Nobody may write to the directory meanwhile.
    ///
    /// # Errors
    ///
    /// Fails only if a file cannot be read. Damage is no error; see [`Self::damages`].
    pub fn read(directory: &Path, log_end: LogEnd) -> io::Result<Self> {
        let mut damages = Damages::default();
        snapshot::check_settings(directory, &mut damages)?;
        let file = match File::open(directory.join(LOG)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if snapshot::exists(directory)? {
                    damages.log(None, "the file is missing");
                }
                return Ok(Self {
                    slots: None,
                    table: PageTable::default(),
                    pages: Pages::default(),
                    leaves: Some(Vec::new()),
                    damages,
                    ends_early: false,
                    salvage: OnceLock::new(),
                });
            }
            Err(error) => return Err(error),
        };
        let slots = Slots::new(file)?;
        let snapshot = snapshot::read(directory, &mut damages)?;
        let Recovered { table, ends_early } = recovery::recover(&slots, snapshot, log_end, &mut damages)?;
        let pages = Pages::read(&slots, &table, &mut damages)?;
        let leaves = tree::leaves(&pages, &table, &mut damages);
        Ok(Self { slots: Some(slots), table, pages, leaves, damages, ends_early, salvage: OnceLock::new() })
    }

    /// The damaged places, the first of them if there are very many. Empty means that sled may open the database.
    pub fn damages(&self) -> &[Damage] {
        &self.damages.list
    }

    /// The number of all damaged places that were found.
    pub fn damage_count(&self) -> u64 {
        self.damages.count
    }

    /// True if changes can be read behind the end of the log, which do not count.
    pub const fn ends_early(&self) -> bool {
        self.ends_early
    }

    /// The length of the log.
    pub fn file_bytes(&self) -> u64 {
        self.slots.as_ref().map_or(0, Slots::bytes)
    }

    /// The bytes of the log that are in use, which is about what the database takes once it is compacted.
    pub fn live_bytes(&self) -> u64 {
        self.pages.live
    }

    /// Visits every row that can be read: all of them, in the order of their keys, if the tree is whole. Of a broken one the
    /// rows come in any order, some of them may be older than the last state, and none is visited twice.
    pub fn rows(&self, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<RowsRead> {
        let Some(slots) = &self.slots else { return Ok(RowsRead::default()) };
        let Some(leaves) = self.whole() else { return self.salvage(slots)?.rows(slots, visit) };
        let mut read = RowsRead::default();
        for pid in leaves {
            match rows::leaf_of(slots, &self.table, *pid)? {
                Some(leaf) => {
                    for (key, value) in &leaf.rows {
                        read.rows += 1;
                        visit(key, value);
                    }
                }
                None => read.lost_pages += 1,
            }
        }
        Ok(read)
    }

    /// The value of a key: the row that [`Self::rows`] visits.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some(slots) = &self.slots else { return Ok(None) };
        let Some(leaves) = self.whole() else { return self.salvage(slots)?.get(slots, key) };
        let after = leaves.partition_point(|pid| *self.pages.outlines[pid].lo <= *key);
        let Some(pid) = after.checked_sub(1).map(|index| leaves[index]) else { return Ok(None) };
        Ok(rows::leaf_of(slots, &self.table, pid)?.and_then(|mut leaf| leaf.rows.remove(key)))
    }

    /// The leaves in the order of their keys, if every one can be read.
    fn whole(&self) -> Option<&[u64]> {
        self.leaves.as_deref().filter(|_| self.pages.broken.is_empty())
    }

    fn salvage(&self, slots: &Slots) -> io::Result<&Salvage> {
        if let Some(salvage) = self.salvage.get() {
            return Ok(salvage);
        }
        let found = Salvage::search(slots, &self.table, &self.pages)?;
        Ok(self.salvage.get_or_init(|| found))
    }
}
