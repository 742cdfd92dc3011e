//! Puts a new database in the place of the present one, and mends a replacement that was broken off.
//!
//! The new database is in the folder `sled.new` of the data directory, whole and on disk. The present one moves from `sled`
//! to `sled.old`, the new one to `sled`, and only then is the old one deleted or given the name it is kept under. After
//! a process that died in between, [`move_back`] puts the old one back if no other is in its place. [`tidy`] removes the
//! rest, once the database in place has been checked: until then `sled.old` may be the only sound one.

use super::{database, format, private_directory::OWN_FILES};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Name under which a database is set aside that a replacement left behind and nobody asked to keep.
const SET_ASIDE: &str = "sled.replaced";

/// Name of a replaced database that is being deleted. Without its files it would look like one of another format.
const DISCARDED: &str = "sled.discarded";

/// Use of the database that a new one replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Previous {
    Delete,
    /// Keeps it in the data directory under this name, or this name with a number if it is taken.
    Keep(String),
}

/// The folder in which a new database is built.
pub fn unfinished(directory: &Path) -> PathBuf {
    directory.join("sled.new")
}

/// The folder of the present database while a new one takes its place.
pub fn replaced(directory: &Path) -> PathBuf {
    directory.join("sled.old")
}

/// Name under which a database of an older format is kept.
pub fn migrated_name(format: u32) -> String {
    format!("sled.format-{format}")
}

/// True without a database's folder. An empty one is what a first start of format 1 left that was killed.
pub fn is_absent(database: &Path) -> io::Result<bool> {
    match database.read_dir() {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The database that [`move_back`] would leave in place: the replaced one if there is no other.
pub fn present(directory: &Path) -> io::Result<Option<PathBuf>> {
    for path in [database::path(directory), replaced(directory)] {
        if !is_absent(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Puts the new database in the place of the present one.
///
/// # Errors
///
/// The present database is in its place still. If it cannot be moved back either, it is in `sled.old`.
pub fn put_in_place(directory: &Path, previous: &Previous) -> io::Result<()> {
    let (new, old, place) = (unfinished(directory), replaced(directory), database::path(directory));
    if old.exists() {
        // Nobody has checked the database in place, so this may be the better one.
        set_aside(directory, SET_ASIDE)?;
    }
    // An empty folder is replaced by the rename.
    let has_previous = !is_absent(&place)?;
    if has_previous {
        std::fs::rename(&place, &old)?;
    }
    let exchanged = std::fs::rename(&new, &place).and_then(|()| database::sync_folder(directory));
    let kept = exchanged.and_then(|()| match previous {
        Previous::Keep(name) if has_previous => set_aside(directory, name),
        Previous::Keep(_) | Previous::Delete => Ok(()),
    });
    if let Err(error) = kept {
        if !new.exists() {
            let _ = std::fs::rename(&place, &new);
        }
        let _ = move_back(directory);
        return Err(error);
    }
    if *previous == Previous::Delete && discard(directory).is_err() {
        // The next start tries again.
        log::warn!("{} is no longer needed and cannot be deleted", old.display());
    }
    // A power cut before this is on disk leaves a state that the next start mends.
    let _ = database::sync_folder(directory);
    Ok(())
}

/// Moves the replaced database back if no other is in its place. The caller holds the directory's lock.
pub fn move_back(directory: &Path) -> io::Result<()> {
    let (old, place) = (replaced(directory), database::path(directory));
    if old.exists() && is_absent(&place)? {
        std::fs::rename(&old, &place)?;
        database::sync_folder(directory)?;
    }
    Ok(())
}

/// Removes the rest of a replacement or a restore that was broken off. The caller holds the directory's lock, and has found the
/// database in place sound.
pub fn tidy(directory: &Path) -> io::Result<()> {
    let old = replaced(directory);
    if old.exists() {
        match format::read(&old) {
            // The database in place was made from it, and may have become one of a later format since.
            Ok(format::SECOND..=format::CURRENT) => discard(directory)?,
            Ok(format) if format < format::SECOND => set_aside(directory, &migrated_name(format))?,
            _ => set_aside(directory, SET_ASIDE)?,
        }
        database::sync_folder(directory)?;
    }
    for name in OWN_FILES {
        delete_file(&directory.join(format!("{name}.new")))?;
    }
    delete_folder(&directory.join(DISCARDED))?;
    delete_folder(&unfinished(directory))
}

/// Deletes the replaced database.
fn discard(directory: &Path) -> io::Result<()> {
    let (old, discarded) = (replaced(directory), directory.join(DISCARDED));
    delete_folder(&discarded)?;
    match std::fs::rename(&old, &discarded) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        moved => moved?,
    }
    // A power cut may keep the deletions and lose the new name.
    database::sync_folder(directory)?;
    delete_folder(&discarded)
}

fn delete_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Keeps the replaced database under this name, or this name with a number if it is taken.
pub fn set_aside(directory: &Path, name: &str) -> io::Result<()> {
    std::fs::rename(replaced(directory), directory.join(free_name(directory, name)))
}

pub fn delete_folder(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// A name in the directory that begins with `name` and is not taken.
pub fn free_name(directory: &Path, name: &str) -> String {
    let mut names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}.{number}")));
    names.find(|name| !directory.join(name).exists()).expect("the numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::store::{NewDatabase, Store, StoreOpenError, compact_offline, keys, test_support::files};
    use std::{process::Command, sync::Arc};
    use tempfile::TempDir;

    const KEY: [u8; 2] = [keys::KV, 1];

    fn path(directory: &TempDir, name: &str) -> PathBuf {
        directory.path().join(name)
    }

    fn copy(from: &Path, to: &Path) {
        assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
    }

    /// Writes a database with one value.
    fn write(folder: &Path, value: &str) {
        let directory = TempDir::new().unwrap();
        let mut database = NewDatabase::create(directory.path()).unwrap();
        database.put(&KEY, value.as_bytes()).unwrap();
        database.finish().unwrap().install(&Previous::Delete).unwrap();
        copy(&database::path(directory.path()), folder);
    }

    /// Writes a database of format 1 with one value.
    fn write_format_1(folder: &Path, value: &str) {
        let tree = database::open(folder).unwrap();
        tree.insert(KEY, [&[0], value.as_bytes()].concat()).unwrap();
        tree.flush().unwrap();
        drop(tree);
        database::wait_until_closed(folder).unwrap();
    }

    /// Begins a database as a process that is killed would leave it.
    fn write_unfinished(folder: &Path) {
        write(folder, "unfinished");
        std::fs::remove_file(folder.join("format")).unwrap();
    }

    /// The value in a data directory, and in a copy of a database.
    async fn opened(directory: &Path) -> Result<String, StoreOpenError> {
        let store = Store::open(directory, 0, Arc::default())?;
        let value = store.get(&KEY).unwrap().unwrap();
        store.close().await;
        drop(store);
        database::wait_until_closed(&database::path(directory)).unwrap();
        Ok(String::from_utf8(value.to_vec()).unwrap())
    }

    async fn value(folder: &Path) -> String {
        let directory = TempDir::new().unwrap();
        copy(folder, &database::path(directory.path()));
        opened(directory.path()).await.unwrap()
    }

    fn names(directory: &TempDir) -> Vec<String> {
        let entries = directory.path().read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "lock");
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_compaction_that_was_broken_off_at_any_step_leaves_its_database_in_place_and_nothing_else() {
        let steps: [&[&str]; 4] =
            [&["sled", "sled.new"], &["sled.old", "sled.new"], &["sled", "sled.old"], &["sled.old"]];
        for (number, step) in steps.into_iter().enumerate() {
            for compacts in [false, true] {
                let directory = TempDir::new().unwrap();
                for name in step {
                    match *name {
                        "sled.new" => write_unfinished(&path(&directory, name)),
                        name => write(&path(&directory, name), "kept"),
                    }
                }
                if compacts {
                    compact_offline(directory.path(), &mut |_| ()).unwrap();
                }
                assert_eq!(opened(directory.path()).await.unwrap(), "kept", "step {number}");
                assert_eq!(names(&directory), ["sled"], "step {number}");
            }
        }
    }

    #[tokio::test]
    async fn a_deletion_that_was_broken_off_is_finished_and_so_is_a_restore() {
        let directory = TempDir::new().unwrap();
        write(&path(&directory, "sled"), "kept");
        for name in ["sled.discarded", "sled.old"] {
            write(&path(&directory, name), "old");
        }
        // Its format is deleted already.
        std::fs::remove_file(path(&directory, "sled.discarded/format")).unwrap();
        for name in OWN_FILES {
            std::fs::write(path(&directory, &format!("{name}.new")), "staged").unwrap();
        }
        assert_eq!(opened(directory.path()).await.unwrap(), "kept");
        assert_eq!(names(&directory), ["sled"]);
    }

    #[tokio::test]
    async fn a_migration_that_was_broken_off_at_any_step_is_finished_and_keeps_the_old_database() {
        for step in 0..3 {
            let directory = TempDir::new().unwrap();
            match step {
                0 => write_format_1(&path(&directory, "sled"), "kept"),
                1 => write_format_1(&path(&directory, "sled.old"), "kept"),
                _ => {
                    write_format_1(&path(&directory, "sled.old"), "kept");
                    write(&path(&directory, "sled"), "kept");
                }
            }
            write_unfinished(&path(&directory, "sled.new"));
            assert_eq!(opened(directory.path()).await.unwrap(), "kept", "step {step}");
            assert_eq!(names(&directory), ["sled", "sled.format-1"], "step {step}");
            assert_eq!(format::read(&path(&directory, "sled.format-1")).unwrap(), 1);
            assert_eq!(value(&path(&directory, "sled.format-1")).await, "kept");
        }
    }

    #[tokio::test]
    async fn nothing_is_deleted_before_the_database_in_place_has_passed_its_check() {
        for damage in ["db", "format"] {
            let directory = TempDir::new().unwrap();
            write(&path(&directory, "sled"), "damaged");
            write(&path(&directory, "sled.old"), "sound");
            write_unfinished(&path(&directory, "sled.new"));
            match damage {
                "db" => std::fs::write(path(&directory, "sled/db"), [0x55; 5000]).unwrap(),
                _ => std::fs::write(path(&directory, "sled/format"), "99\n").unwrap(),
            }
            let before = files(directory.path());
            assert!(opened(directory.path()).await.is_err());
            assert!(files(directory.path()) == before, "{damage}: the refused start changed something");
            assert!(compact_offline(directory.path(), &mut |_| ()).is_err());
            assert!(files(directory.path()) == before, "{damage}: the refused compaction changed something");
            assert_eq!(value(&path(&directory, "sled.old")).await, "sound");
        }
    }

    #[tokio::test]
    async fn a_replaced_database_that_nobody_can_read_is_set_aside_and_not_deleted() {
        let directory = TempDir::new().unwrap();
        write(&path(&directory, "sled"), "kept");
        write(&path(&directory, "sled.old"), "newer");
        std::fs::write(path(&directory, "sled.old/format"), "99\n").unwrap();
        assert_eq!(opened(directory.path()).await.unwrap(), "kept");
        assert_eq!(names(&directory), ["sled", "sled.replaced"]);
    }

    #[tokio::test]
    async fn a_new_database_that_cannot_be_finished_or_installed_leaves_the_present_one_and_no_folder() {
        let directory = TempDir::new().unwrap();
        write(&path(&directory, "sled"), "kept");
        let begun = || {
            let mut database = NewDatabase::create(directory.path()).unwrap();
            database.put(&KEY, b"new").unwrap();
            database
        };
        drop(begun());
        assert_eq!(names(&directory), ["sled"]);

        let database = begun();
        std::fs::create_dir(path(&directory, "sled.new/format")).unwrap();
        assert!(database.finish().is_err());
        assert_eq!(names(&directory), ["sled"]);

        let finished = begun().finish().unwrap();
        std::fs::rename(path(&directory, "sled.new"), path(&directory, "elsewhere")).unwrap();
        assert!(finished.install(&Previous::Keep("sled.kept".into())).is_err());
        assert_eq!(names(&directory), ["elsewhere", "sled"]);
        assert_eq!(value(&path(&directory, "sled")).await, "kept");
    }
}
