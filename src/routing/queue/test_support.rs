//! Support for tests that continue with the files of a process that has ended.

use std::path::Path;

/// Copies a data directory, as a killed process would have left it.
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // The copy of this file could be newer than that of the database, which a crash cannot cause.
        if entry.file_name() == "mark" {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            // sled replaces its snapshot files while it runs.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}
