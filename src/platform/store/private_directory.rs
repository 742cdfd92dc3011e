//! The data directory as one that its owner alone can access.
//!
//! A directory that is not recognized as one of svc is never changed: a mistyped `--data` must not close somebody's
//! directory to its other users.

use super::StoreOpenError;
use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
};

/// Permissions of others than the owner.
const OTHERS: u32 = 0o077;

/// The files of a data directory beside its databases: those of the first administrator, and the key of the secrets.
pub const OWN_FILES: [&str; 3] = ["admin.token", "admin.password", "secrets.key"];

/// Beginnings of the names of databases that were replaced, or are about to be, after `sled.`.
const REPLACED: [&str; 5] = ["old", "discarded", "replaced", "format-", "before-restore-"];

/// A directory with no other entries counts as empty: one is made by the file system, one by a start that was broken off.
const OF_NOBODY: [&str; 2] = ["lost+found", "lock"];

/// Makes the directory, or takes it from other users if it is empty or has a database: it holds webhook secrets and
/// payloads.
///
/// # Errors
///
/// [`StoreOpenError::NotOwner`] if it belongs to another user, [`StoreOpenError::ForeignDirectory`] if it is accessible to
/// others and is neither empty nor a data directory. Nothing is changed then.
pub fn private_directory(directory: &Path) -> Result<(), StoreOpenError> {
    let failed = |source| StoreOpenError::Directory { path: directory.to_owned(), source };
    let foreign = |reason| StoreOpenError::ForeignDirectory { path: directory.to_owned(), reason };
    let found = match fs::metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed);
        }
        Err(error) => return Err(failed(error)),
    };
    if !found.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    check_owner(directory, &found)?;
    let is_data = match content(directory).map_err(failed)? {
        Content::Data => true,
        Content::Nothing => false,
        Content::Other if found.mode() & OTHERS != 0 => {
            return Err(foreign("is accessible to other users, and holds files that are not those of svc"));
        }
        Content::Other => false,
    };
    close(directory, &found).map_err(failed)?;
    if is_data {
        close_files(directory).map_err(failed)?;
    }
    Ok(())
}

/// Refuses the directory of another user: files that are made in it would not be that user's.
///
/// # Errors
///
/// [`StoreOpenError::NotOwner`].
pub fn check_owner(directory: &Path, found: &Metadata) -> Result<(), StoreOpenError> {
    // SAFETY: the call has no arguments and cannot fail.
    if found.uid() == unsafe { libc::geteuid() } {
        return Ok(());
    }
    Err(StoreOpenError::NotOwner { path: directory.to_owned(), owner: found.uid() })
}

/// Entries of a directory.
enum Content {
    Nothing,
    /// A database, or the files of the first administrator.
    Data,
    Other,
}

fn content(directory: &Path) -> io::Result<Content> {
    let mut content = Content::Nothing;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if is_of_svc(&name.to_string_lossy()) {
            return Ok(Content::Data);
        }
        if !OF_NOBODY.iter().any(|known| name == *known) {
            content = Content::Other;
        }
    }
    Ok(content)
}

/// Recognizes the databases, with those that were replaced, the key of the secrets, and the files of the first administrator.
fn is_of_svc(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name);
    let is_replaced = |rest: &str| REPLACED.iter().any(|known| rest.starts_with(known));
    name == "sled" || OWN_FILES.contains(&name) || name.strip_prefix("sled.").is_some_and(is_replaced)
}

/// Closes the files that an older version left accessible to others. Other directories may be those of spaces, whose
/// programs decide on them.
fn close_files(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        let is_ours = is_of_svc(&entry.file_name().to_string_lossy());
        if found.is_file() || (found.is_dir() && is_ours) {
            close(&entry.path(), &found)?;
        }
        if found.is_dir() && is_ours {
            close_tree(&entry.path())?;
        }
    }
    Ok(())
}

fn close_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_symlink() {
            continue;
        }
        close(&entry.path(), &found)?;
        if found.is_dir() {
            close_tree(&entry.path())?;
        }
    }
    Ok(())
}

fn close(path: &Path, found: &Metadata) -> io::Result<()> {
    match found.mode() & OTHERS {
        0 => Ok(()),
        _ => fs::set_permissions(path, Permissions::from_mode(found.mode() & 0o7777 & !OTHERS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn open_to_all(path: &Path) {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_directory_of_others_is_refused_and_not_changed() {
        for name in ["notes.txt", "admin.css", "sled.txt", "secrets.keyring"] {
            let directory = TempDir::new().unwrap();
            let file = directory.path().join(name);
            fs::write(&file, "mine").unwrap();
            open_to_all(directory.path());
            open_to_all(&file);
            let error = private_directory(directory.path()).unwrap_err();
            assert!(matches!(error, StoreOpenError::ForeignDirectory { .. }), "{error}");
            assert!(error.to_string().contains("--data"), "{error}");
            assert_eq!((mode(directory.path()), mode(&file)), (0o755, 0o755));
        }
    }

    #[test]
    fn a_directory_that_belongs_to_another_user_is_refused() {
        // SAFETY: the call has no arguments and cannot fail.
        let foreign = if unsafe { libc::geteuid() } == 0 {
            let directory = TempDir::new().unwrap();
            std::os::unix::fs::chown(directory.path(), Some(12345), None).unwrap();
            let refused = private_directory(directory.path());
            std::os::unix::fs::chown(directory.path(), Some(0), None).unwrap();
            refused
        } else {
            private_directory(Path::new("/"))
        };
        let error = foreign.unwrap_err();
        assert!(error.to_string().contains("belongs to another user"), "{error}");
    }

    #[test]
    fn an_empty_directory_and_one_with_a_database_are_closed_to_others() {
        let directory = TempDir::new().unwrap();
        let (empty, used) = (directory.path().join("empty"), directory.path().join("used"));
        fs::create_dir_all(empty.join(OF_NOBODY[0])).unwrap();
        fs::create_dir_all(used.join("sled/blobs")).unwrap();
        fs::create_dir_all(used.join("spaces")).unwrap();
        fs::write(used.join("sled/blobs/1"), "").unwrap();
        fs::write(used.join("lock"), "").unwrap();
        for path in ["", "sled", "sled/blobs", "sled/blobs/1", "lock", "spaces"] {
            open_to_all(&used.join(path));
        }
        open_to_all(&empty);
        private_directory(&empty).unwrap();
        private_directory(&used).unwrap();
        assert_eq!(mode(&empty), 0o700);
        let modes = ["", "sled", "sled/blobs", "sled/blobs/1", "lock", "spaces"].map(|path| mode(&used.join(path)));
        assert_eq!(modes, [0o700, 0o700, 0o700, 0o700, 0o700, 0o755]);
    }

    #[test]
    fn a_missing_directory_is_made_for_its_owner_alone() {
        let directory = TempDir::new().unwrap();
        let made = directory.path().join("a/b");
        private_directory(&made).unwrap();
        assert_eq!(mode(&made), 0o700);
    }
}
