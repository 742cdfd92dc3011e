//! Support for tests that look at the files of a data directory, continue with those of a process that has ended, or need large values.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Every file of a directory except the lock, with its content.
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.file_name().unwrap() != "lock" {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Copies a data directory, as a killed process would have left it.
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()).collect();
    // Copied last, this file could be newer than the copy of the database, which a crash cannot cause.
    entries.sort_by_key(|entry| entry.file_name() != "mark");
    for entry in entries {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            // sled replaces its snapshot files while it runs.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}

/// Bytes that cannot be compressed, the same ones for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
