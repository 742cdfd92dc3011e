//! The files of a data directory, to see that nothing has changed them.

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
