//! A disk that loses its power: the recorded changes of a directory, and the states that a cut can leave of them.
//!
//! A write that was followed by a sync of its file is there after a cut. Of the others each may be there, absent, or there
//! in part, in steps of a sector. Changes of names are journalled: they survive up to some point in their order, which
//! is not before the last sync of a folder, or of a file that is new or has another length than at its last sync.

use crate::support::Random;
use std::{
    collections::BTreeMap,
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

const SECTOR: usize = 512;

/// One recorded change. Files and folders have numbers: the log has their inodes, and a new file may have that of a deleted one.
#[derive(Clone, Debug)]
pub enum Change {
    /// A file was opened under this name, and created if it was not there.
    Open {
        file: u64,
        path: PathBuf,
    },
    Write {
        file: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: u64,
        length: usize,
    },
    Sync {
        file: u64,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    MakeFolder {
        path: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
}

/// The fate of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    Kept,
    Dropped,
    /// Each write is kept, dropped or torn.
    Torn,
}

/// Reads the records, each with the number of bytes of the log up to its end.
pub fn read_log(log: &[u8]) -> Vec<(usize, Change)> {
    let mut changes = Vec::new();
    let mut numbers = FileNumbers::default();
    let mut at = 0;
    // The process may have been killed in the middle of a record.
    while let Some(head) = log.get(at..at + 33) {
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
        let (inode, offset) = (number(1), usize::try_from(number(9)).unwrap());
        let (first_length, second_length) = (number(17) as usize, number(25) as usize);
        let Some(strings) = log.get(at + 33..at + 33 + first_length + second_length) else { break };
        let (first, second) = strings.split_at(first_length);
        let path = |bytes: &[u8]| PathBuf::from(String::from_utf8(bytes.to_vec()).unwrap());
        at += 33 + first_length + second_length;
        let change = match head[0] {
            b'c' => Change::Open { file: numbers.opened(inode, path(first)), path: path(first) },
            b'w' => Change::Write { file: numbers.of(inode), offset, bytes: second.to_vec() },
            b't' => Change::Truncate { file: numbers.of(inode), length: offset },
            b's' => Change::Sync { file: numbers.of(inode) },
            b'r' => Change::Rename { from: path(first), to: path(second) },
            b'm' => Change::MakeFolder { path: path(first) },
            b'u' => Change::Remove { path: path(first) },
            other => panic!("unknown record {other}"),
        };
        match &change {
            Change::Rename { from, to } => rename(&mut numbers.names, from, to),
            Change::Remove { path } => _ = numbers.names.remove(path),
            _ => {}
        }
        changes.push((at, change));
    }
    changes
}

/// The numbers of files and folders while the log is read.
#[derive(Default)]
struct FileNumbers {
    /// The inodes of the names that are there.
    names: BTreeMap<PathBuf, Option<u64>>,
    /// The files and folders that have the inodes now.
    by_inode: BTreeMap<u64, u64>,
    count: u64,
}

impl FileNumbers {
    fn opened(&mut self, inode: u64, path: PathBuf) -> u64 {
        if self.names.insert(path, Some(inode)) != Some(Some(inode)) {
            self.by_inode.remove(&inode);
        }
        self.of(inode)
    }

    fn of(&mut self, inode: u64) -> u64 {
        *self.by_inode.entry(inode).or_insert_with(|| {
            self.count += 1;
            self.count
        })
    }
}

/// Makes the directory as a cut after these changes could leave it. `recorded` is its name in the records.
pub fn cut(changes: &[Change], unsynced: Unsynced, random: &mut Random, recorded: &Path, directory: &Path) {
    let names_from = last_sync_of_names(changes);
    let names_until = match unsynced {
        Unsynced::Kept => changes.len(),
        Unsynced::Dropped => names_from,
        Unsynced::Torn => names_from + random.index(changes.len() - names_from + 1),
    };
    let mut contents = BTreeMap::<u64, Vec<u8>>::new();
    let mut names = BTreeMap::<PathBuf, Option<u64>>::new();
    for (index, change) in changes.iter().enumerate() {
        match change {
            Change::Open { file, path } => {
                if index < names_until {
                    names.insert(path.clone(), Some(*file));
                    contents.entry(*file).or_default();
                }
            }
            Change::MakeFolder { path } => {
                if index < names_until {
                    names.insert(path.clone(), None);
                }
            }
            Change::Rename { from, to } => {
                if index < names_until {
                    rename(&mut names, from, to);
                }
            }
            Change::Remove { path } => {
                if index < names_until {
                    names.remove(path);
                }
            }
            Change::Write { file, offset, bytes } => {
                let Some(content) = contents.get_mut(file) else { continue };
                let is_synced = changes[index..]
                    .iter()
                    .any(|later| matches!(later, Change::Sync { file: synced } if synced == file));
                for (sector, bytes) in sectors(*offset, bytes) {
                    let is_kept = is_synced
                        || match unsynced {
                            Unsynced::Kept => true,
                            Unsynced::Dropped => false,
                            Unsynced::Torn => random.below(2) == 0,
                        };
                    if is_kept {
                        content.resize(content.len().max(sector + bytes.len()), 0);
                        content[sector..sector + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            Change::Truncate { file, length } => {
                if let Some(content) = contents.get_mut(file) {
                    content.resize(*length, 0);
                }
            }
            Change::Sync { .. } => {}
        }
    }
    // As the server makes it.
    DirBuilder::new().recursive(true).mode(0o700).create(directory).unwrap();
    for (path, file) in names {
        let path = directory.join(path.strip_prefix(recorded).unwrap());
        match file {
            None => std::fs::create_dir_all(path).unwrap(),
            Some(file) => std::fs::write(path, &contents[&file]).unwrap(),
        }
    }
}

/// The place of the last change that put the names on disk too.
fn last_sync_of_names(changes: &[Change]) -> usize {
    let mut last = 0;
    // The length of each file, and true if it is new or has changed since its last sync.
    let mut files = BTreeMap::<u64, (usize, bool)>::new();
    for (index, change) in changes.iter().enumerate() {
        match change {
            Change::Open { file, .. } => _ = files.entry(*file).or_insert((0, true)),
            Change::Write { file, offset, bytes } => {
                let (length, is_changed) = files.entry(*file).or_default();
                let end = offset + bytes.len();
                *is_changed |= end > *length;
                *length = end.max(*length);
            }
            Change::Truncate { file, length: new } => {
                let (length, is_changed) = files.entry(*file).or_default();
                *is_changed |= new != length;
                *length = *new;
            }
            Change::Sync { file } => match files.get_mut(file) {
                Some((_, false)) => {}
                Some((_, is_changed)) => {
                    *is_changed = false;
                    last = index;
                }
                // A folder.
                None => last = index,
            },
            Change::Rename { .. } | Change::MakeFolder { .. } | Change::Remove { .. } => {}
        }
    }
    last
}

fn rename(names: &mut BTreeMap<PathBuf, Option<u64>>, from: &Path, to: &Path) {
    let moved: Vec<PathBuf> = names.keys().filter(|path| path.starts_with(from)).cloned().collect();
    for path in moved {
        let entry = names.remove(&path).expect("it was just listed");
        let rest = path.strip_prefix(from).unwrap();
        let new = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
        names.insert(new, entry);
    }
}

/// The parts of a write that fall into one sector each, with their offsets.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let first = (SECTOR - offset % SECTOR).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let rest = rest.chunks(SECTOR).enumerate().map(move |(index, part)| (offset + first + index * SECTOR, part));
    std::iter::once((offset, head)).chain(rest)
}
