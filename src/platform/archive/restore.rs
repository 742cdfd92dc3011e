//! Restores an archive into a data directory.
//!
//! The database is built aside, while a thread of its own reads the records ahead and checks them. It is put in its
//! place when the whole archive was found right, so that a damaged archive or a restore that is broken off leaves the
//! directory as it was, or marked as unfinished.

use super::{ArchiveEnd, ArchiveError, ArchiveReader, ArchiveRecord, Manifest, repair::Repair};
use crate::{
    model::timestamp::Timestamp,
    platform::{
        secret_keys,
        store::{NewDatabase, OfflineDirectory, StoreOpenError},
    },
};
use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::mpsc,
};

/// Bytes of lines that the reading thread hands over at once, and the number of such groups that may wait.
const GROUP_BYTES: u64 = 1 << 20;
const GROUPS: usize = 2;

/// Treatment of a database that is in the directory already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingDatabase {
    Refuse,
    /// Replaces it, and keeps it beside the new one.
    Replace,
}

/// Reason for which nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{}: {source}", path.display())]
    Archive { path: PathBuf, source: ArchiveError },
    #[error("{} holds a database already: name another directory, or use --force to replace it", .0.display())]
    HasDatabase(PathBuf),
    #[error(transparent)]
    Directory(#[from] StoreOpenError),
    #[error("cannot write to {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The database is in place, and a file beside it is not.
    #[error(
        "the restore into {} is not finished: {source}. Run it again when this is mended; no server opens the directory \
         until then",
        path.display()
    )]
    Unfinished { path: PathBuf, source: io::Error },
}

/// A restore that was carried out.
#[derive(Debug)]
pub struct Restored {
    pub manifest: Manifest,
    pub end: ArchiveEnd,
    /// The name in the directory under which the database of before is kept.
    pub previous: Option<String>,
}

/// The bytes of lines and the records that are restored so far, of about this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreProgress {
    pub bytes: u64,
    pub of: u64,
    pub rows: u64,
}

/// Records that were read one after the other, as rows of the database, with the bytes and records up to the last of
/// them.
#[derive(Default)]
struct RecordGroup {
    stored: Vec<(Vec<u8>, Vec<u8>)>,
    files: Vec<(&'static str, Vec<u8>)>,
    bytes: u64,
    rows: u64,
}

/// Restores the archive in `file` into `directory`.
///
/// # Errors
///
/// Nothing is restored then, and a database in the directory is still there. An error after the new database is in
/// place leaves the directory marked as unfinished.
pub fn restore(
    file: &Path,
    directory: &Path,
    existing: ExistingDatabase,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Restored, RestoreError> {
    let archive = File::open(file).map_err(ArchiveError::Unreadable).and_then(ArchiveReader::new);
    let archive = archive.map_err(|source| RestoreError::Archive { path: file.to_owned(), source })?;
    let offline = OfflineDirectory::create(directory)?;
    let restored = restore_into(&offline, archive, file, directory, existing, progress);
    if restored.is_err() {
        offline.delete_if_created();
    }
    restored
}

fn restore_into(
    offline: &OfflineDirectory,
    archive: ArchiveReader<File>,
    file: &Path,
    directory: &Path,
    existing: ExistingDatabase,
    progress: &mut dyn FnMut(RestoreProgress),
) -> Result<Restored, RestoreError> {
    let damaged = |source| RestoreError::Archive { path: file.to_owned(), source };
    let failed = |source| RestoreError::Write { path: directory.to_owned(), source };
    let may_replace = existing == ExistingDatabase::Replace || offline.has_unfinished_restore();
    if offline.has_database()? && !may_replace {
        return Err(RestoreError::HasDatabase(directory.to_owned()));
    }
    let manifest = archive.manifest().clone();
    let mut database = offline.new_database()?;
    let mut staged = Vec::new();
    let (full, filled) = mpsc::sync_channel(GROUPS);
    let (end, counters) = std::thread::scope(|scope| {
        let reading = scope.spawn(move || read_ahead(archive, &full));
        for RecordGroup { stored, files, bytes, rows } in filled {
            for (key, raw) in stored {
                database.put_row(&key, &raw).map_err(failed)?;
            }
            for (name, content) in files {
                let content = with_present_keys(directory, name, content).map_err(failed)?;
                staged.push(StagedFile::write(directory, name, &content).map_err(failed)?);
            }
            progress(RestoreProgress { bytes, of: manifest.bytes_estimate, rows });
        }
        let read = reading.join();
        read.unwrap_or_else(|_| Err(ArchiveError::Unreadable(io::Error::other("the reader panicked")))).map_err(damaged)
    })?;
    put_counters(&mut database, counters, end.is_whole()).map_err(failed)?;

    // Everything that needs room is on disk before anything is replaced.
    let database = database.finish().map_err(failed)?;
    let name = format!("sled.before-restore-{}", Timestamp::now().seconds());
    let previous = offline.begin_restore(database, &name).map_err(failed)?;
    let finished = staged.into_iter().try_for_each(StagedFile::put_in_place).and_then(|()| offline.end_restore());
    finished.map_err(|source| RestoreError::Unfinished { path: directory.to_owned(), source })?;
    Ok(Restored { manifest, end, previous })
}

/// Adds the keys that the directory has to those of the archive: the database that is kept aside needs them.
fn with_present_keys(directory: &Path, name: &str, content: Vec<u8>) -> io::Result<Vec<u8>> {
    if name != secret_keys::KEY_FILE {
        return Ok(content);
    }
    match std::fs::read(directory.join(name)) {
        Ok(present) => Ok(secret_keys::merged(&content, &present)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(content),
        Err(error) => Err(error),
    }
}

/// Reads the records of an archive in groups, until its end or until nobody takes them. Returns its last line and its
/// counters.
fn read_ahead(
    mut archive: ArchiveReader<File>,
    full: &mpsc::SyncSender<RecordGroup>,
) -> Result<(ArchiveEnd, Repair), ArchiveError> {
    let (mut counters, mut group, mut sent) = (Repair::new(), RecordGroup::default(), 0);
    while let Some(record) = archive.next_record()? {
        match record {
            ArchiveRecord::Row { key, value } => {
                if counters.keeps(&key, &value) {
                    group.stored.extend(NewDatabase::rows_of(key, &value));
                }
            }
            ArchiveRecord::File { name, content } => group.files.push((name, content)),
        }
        (group.bytes, group.rows) = (archive.bytes(), archive.rows());
        if group.bytes - sent >= GROUP_BYTES {
            sent = group.bytes;
            if full.send(std::mem::take(&mut group)).is_err() {
                break;
            }
        }
    }
    (group.bytes, group.rows) = (archive.bytes(), archive.rows());
    // An error means that the writing end has failed, which tells why.
    let _ = full.send(group);
    let end = archive.end().cloned().ok_or(ArchiveError::Incomplete { rows: archive.rows() })?;
    Ok((end, counters))
}

fn put_counters(database: &mut NewDatabase, counters: Repair, is_whole: bool) -> io::Result<()> {
    if is_whole {
        return counters.archived().iter().try_for_each(|(key, value)| database.put(key, value));
    }
    counters.repaired().iter().try_for_each(|(key, number)| database.put(key, &number.to_be_bytes()))
}

/// A file for the directory that only its owner can read, beside the one that it replaces. Dropping it deletes it.
struct StagedFile {
    staged: PathBuf,
    place: PathBuf,
}

impl StagedFile {
    fn write(directory: &Path, name: &str, content: &[u8]) -> io::Result<Self> {
        let file = Self { staged: directory.join(format!("{name}.new")), place: directory.join(name) };
        let _ = std::fs::remove_file(&file.staged);
        let mut out = File::options().write(true).create_new(true).mode(0o600).open(&file.staged)?;
        out.write_all(content)?;
        out.sync_all()?;
        Ok(file)
    }

    fn put_in_place(self) -> io::Result<()> {
        std::fs::rename(&self.staged, &self.place)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.staged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{
        archive::ArchiveWriter,
        store::{Store, compact_offline, keys},
    };
    use std::{collections::BTreeMap, process::Command, sync::Arc};
    use tempfile::TempDir;

    const MARKER: &str = "restore.unfinished";
    const KEPT: &str = "sled.before-restore-1";

    fn key() -> Vec<u8> {
        keys::key(keys::SINKS, &[&[0; 16]])
    }

    /// A data directory with the value "old" and the token "old", and an archive with "new" and "new".
    struct Fixture {
        folder: TempDir,
        data: PathBuf,
        archive: PathBuf,
    }

    impl Fixture {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            let (data, archive) = (folder.path().join("data"), folder.path().join("new.backup"));
            for value in ["old", "new"] {
                let mut writer = ArchiveWriter::new(Vec::new(), &Manifest::new(0)).unwrap();
                writer.file("admin.token", value.as_bytes()).unwrap();
                writer.row(&key(), format!("\"{value}\"").as_bytes()).unwrap();
                std::fs::write(&archive, writer.finish().unwrap().0).unwrap();
                if value == "old" {
                    restore(&archive, &data, ExistingDatabase::Refuse, &mut |_| ()).unwrap();
                }
            }
            Self { folder, data, archive }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.data.join(name)
        }

        fn rename(&self, from: &str, to: &str) {
            std::fs::rename(self.path(from), self.path(to)).unwrap();
        }

        fn restore(&self, existing: ExistingDatabase) -> Result<Restored, RestoreError> {
            restore(&self.archive, &self.data, existing, &mut |_| ())
        }

        /// Writes the database of the archive to this name.
        fn put_restored(&self, name: &str) {
            let other = self.folder.path().join("other");
            restore(&self.archive, &other, ExistingDatabase::Refuse, &mut |_| ()).unwrap();
            std::fs::rename(other.join("sled"), self.path(name)).unwrap();
            std::fs::remove_dir_all(other).unwrap();
        }

        fn mark(&self, content: &str) {
            std::fs::write(self.path(MARKER), content).unwrap();
        }

        /// Breaks a restore by force off after this many of its steps.
        fn break_off(&self, steps: usize) {
            self.mark(KEPT);
            self.put_restored("sled.new");
            let renames = [("sled", "sled.old"), ("sled.new", "sled"), ("sled.old", KEPT)];
            renames.iter().take(steps).for_each(|(from, to)| self.rename(from, to));
            if steps > renames.len() {
                std::fs::write(self.path("admin.token"), "new").unwrap();
            }
        }

        fn token(&self) -> String {
            std::fs::read_to_string(self.path("admin.token")).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = self.data.read_dir().unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.retain(|name| name != "lock");
            names.sort();
            names
        }

        fn kept(&self) -> Vec<String> {
            self.names().into_iter().filter(|name| name.starts_with("sled.")).collect()
        }

        /// The value in the database of this name.
        async fn value(&self, name: &str) -> String {
            let copy = TempDir::new().unwrap();
            let sled = copy.path().join("sled");
            assert!(Command::new("cp").arg("-r").arg(self.path(name)).arg(&sled).status().unwrap().success());
            let store = Store::open(copy.path(), 0, Arc::default()).unwrap();
            let value = store.get(&key()).unwrap().unwrap();
            store.close().await;
            serde_json::from_slice(&value).unwrap()
        }

        /// Every file with its content.
        fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
            let mut files = BTreeMap::new();
            let mut folders = vec![self.data.clone()];
            while let Some(folder) = folders.pop() {
                for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
                    match path.is_dir() {
                        true => folders.push(path),
                        false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
                    }
                }
            }
            files
        }
    }

    #[tokio::test]
    async fn a_database_that_was_moved_aside_is_not_replaced_without_force() {
        let fixture = Fixture::new();
        fixture.rename("sled", "sled.old");
        let before = fixture.files();
        let refused = fixture.restore(ExistingDatabase::Refuse);
        assert!(matches!(refused, Err(RestoreError::HasDatabase(_))), "{refused:?}");
        assert!(fixture.files() == before);
        let previous = fixture.restore(ExistingDatabase::Replace).unwrap().previous.unwrap();
        assert_eq!((fixture.value("sled").await, fixture.value(&previous).await), ("new".into(), "old".into()));
    }

    #[tokio::test]
    async fn a_restore_that_was_broken_off_at_any_step_is_run_again_and_keeps_the_database_of_before() {
        for steps in 0..5 {
            for existing in [ExistingDatabase::Refuse, ExistingDatabase::Replace] {
                let fixture = Fixture::new();
                fixture.break_off(steps);
                let previous = fixture.restore(existing).unwrap().previous.unwrap();
                assert_eq!(fixture.value(&previous).await, "old", "after {steps} steps");
                assert_eq!((fixture.value("sled").await, fixture.token()), ("new".into(), "new".into()));
                let rest = fixture.names();
                assert!(["sled.old", "sled.new", MARKER].iter().all(|name| !rest.iter().any(|left| left == name)));
            }
        }
    }

    #[tokio::test]
    async fn a_directory_with_half_a_restore_is_refused_unchanged_and_the_error_names_the_way_back() {
        for steps in 0..5 {
            let fixture = Fixture::new();
            fixture.break_off(steps);
            let before = fixture.files();
            let opened = Store::open(&fixture.data, 0, Arc::default()).map(drop).unwrap_err().to_string();
            let compacted = compact_offline(&fixture.data, &mut |_| ()).unwrap_err().to_string();
            assert!(fixture.files() == before, "after {steps} steps");
            assert_eq!(opened, compacted);
            let previous = ["", "sled.old", "sled.old", KEPT, KEPT][steps];
            let renames = format!("rename `{previous}` to `sled`, and delete `{MARKER}`");
            let deletes = format!("again, or go back by hand: delete `{MARKER}` there");
            assert!(opened.ends_with(if steps == 0 { &deletes } else { &renames }), "after {steps} steps: {opened}");
            // These are the steps of the message.
            if steps > 0 {
                let _ = std::fs::remove_dir_all(fixture.path("sled"));
                fixture.rename(previous, "sled");
            }
            std::fs::remove_file(fixture.path(MARKER)).unwrap();
            Store::open(&fixture.data, 0, Arc::default()).unwrap().close().await;
            assert_eq!((fixture.value("sled").await, fixture.kept()), ("old".into(), vec![]), "after {steps} steps");
        }
    }

    #[tokio::test]
    async fn a_restore_into_an_empty_directory_that_was_broken_off_is_run_again() {
        for is_in_place in [false, true] {
            let fixture = Fixture::new();
            std::fs::remove_dir_all(fixture.path("sled")).unwrap();
            fixture.mark("\n");
            fixture.put_restored(if is_in_place { "sled" } else { "sled.new" });
            let error = Store::open(&fixture.data, 0, Arc::default()).map(drop).unwrap_err().to_string();
            assert!(error.ends_with("again"), "there is no way back: {error}");
            fixture.restore(ExistingDatabase::Refuse).unwrap();
            assert_eq!((fixture.value("sled").await, fixture.token()), ("new".into(), "new".into()));
            assert!(!fixture.path(MARKER).exists());
        }
    }

    #[tokio::test]
    async fn both_databases_of_a_broken_replacement_are_kept_by_a_restore_with_force() {
        let fixture = Fixture::new();
        fixture.put_restored("sled.old");
        let previous = fixture.restore(ExistingDatabase::Replace).unwrap().previous.unwrap();
        assert_eq!(fixture.kept(), [previous.as_str(), "sled.replaced"]);
        assert_eq!(fixture.value(&previous).await, "old");
        assert_eq!(fixture.value("sled.replaced").await, "new");
    }

    #[tokio::test]
    async fn a_restore_that_fails_before_anything_is_replaced_leaves_the_directory_as_it_was() {
        let fixture = Fixture::new();
        let before = fixture.files();
        let obstacle = fixture.path("sled.new/format");
        let failed = restore(&fixture.archive, &fixture.data, ExistingDatabase::Replace, &mut |_| {
            std::fs::create_dir(&obstacle).unwrap();
        });
        assert!(matches!(failed, Err(RestoreError::Write { .. })), "{failed:?}");
        assert!(fixture.files() == before, "{:?}", fixture.names());
        assert_eq!(fixture.names(), ["admin.token", "sled"]);
        Store::open(&fixture.data, 0, Arc::default()).unwrap().close().await;
    }

    #[tokio::test]
    async fn a_restore_that_cannot_replace_a_file_beside_the_database_can_be_run_again() {
        let fixture = Fixture::new();
        std::fs::remove_file(fixture.path("admin.token")).unwrap();
        std::fs::create_dir(fixture.path("admin.token")).unwrap();
        let failed = fixture.restore(ExistingDatabase::Replace);
        assert!(matches!(failed, Err(RestoreError::Unfinished { .. })), "{failed:?}");
        let error = Store::open(&fixture.data, 0, Arc::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains("broken off"), "{error}");
        std::fs::remove_dir(fixture.path("admin.token")).unwrap();
        let previous = fixture.restore(ExistingDatabase::Refuse).unwrap().previous.unwrap();
        assert_eq!((fixture.value(&previous).await, fixture.token()), ("old".into(), "new".into()));
    }
}
