//! A disk that loses its power: the recorded changes of a directory, and the states that a cut can leave of them.
//!
//! A write that was followed by a sync of its file is there after a cut. Of the others each may be there, absent, or there
//! in part, in steps of a sector. Changes of names are journalled: they survive up to some point in their order, which
//! is not before the last sync of anything.

use crate::support::Random;
use std::{
    collections::BTreeMap,
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

const SECTOR: usize = 512;

/// One recorded change.
#[derive(Clone, Debug)]
pub enum Change {
    /// A file was opened under this name, and created if it was not there.
    Open {
        inode: u64,
        path: PathBuf,
    },
    Write {
        inode: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        inode: u64,
        length: usize,
    },
    Sync {
        inode: u64,
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
            b'c' => Change::Open { inode, path: path(first) },
            b'w' => Change::Write { inode, offset, bytes: second.to_vec() },
            b't' => Change::Truncate { inode, length: offset },
            b's' => Change::Sync { inode },
            b'r' => Change::Rename { from: path(first), to: path(second) },
            b'm' => Change::MakeFolder { path: path(first) },
            b'u' => Change::Remove { path: path(first) },
            other => panic!("unknown record {other}"),
        };
        changes.push((at, change));
    }
    changes
}

/// Makes the directory as a cut after these changes could leave it. `recorded` is its name in the records.
pub fn cut(changes: &[Change], unsynced: Unsynced, random: &mut Random, recorded: &Path, directory: &Path) {
    let last_sync = changes.iter().rposition(|change| matches!(change, Change::Sync { .. })).unwrap_or(0);
    let names_until = match unsynced {
        Unsynced::Kept => changes.len(),
        Unsynced::Dropped => last_sync,
        Unsynced::Torn => last_sync + random.index(changes.len() - last_sync + 1),
    };
    let mut contents = BTreeMap::<u64, Vec<u8>>::new();
    let mut names = BTreeMap::<PathBuf, Option<u64>>::new();
    for (index, change) in changes.iter().enumerate() {
        match change {
            Change::Open { inode, path } => {
                if index < names_until && names.get(path) != Some(&Some(*inode)) {
                    names.insert(path.clone(), Some(*inode));
                    contents.insert(*inode, Vec::new());
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
            Change::Write { inode, offset, bytes } => {
                let Some(content) = contents.get_mut(inode) else { continue };
                let is_synced = changes[index..]
                    .iter()
                    .any(|later| matches!(later, Change::Sync { inode: synced } if synced == inode));
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
            Change::Truncate { inode, length } => {
                if let Some(content) = contents.get_mut(inode) {
                    content.resize(*length, 0);
                }
            }
            Change::Sync { .. } => {}
        }
    }
    // As the server makes it.
    DirBuilder::new().recursive(true).mode(0o700).create(directory).unwrap();
    for (path, inode) in names {
        let path = directory.join(path.strip_prefix(recorded).unwrap());
        match inode {
            None => std::fs::create_dir_all(path).unwrap(),
            Some(inode) => std::fs::write(path, &contents[&inode]).unwrap(),
        }
    }
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
