//! Opening a data directory: lock, format, checks, migration, compaction, and only then sled.
//!
//! Everything that can refuse the start is checked before sled opens the database, because sled changes the files of a
//! damaged one. So a refused start leaves every byte of every database as it was.

use super::{
    StoreOpenError,
    buffered_tree::BufferedTree,
    check::{self, DatabaseState},
    commit_mark::{self, CommitMark},
    database,
    directory_lock::lock,
    disk, format,
    journal::{self, Journal},
    new_database::NewDatabase,
    private_directory::{check_owner, private_directory},
    replacement::{self, Previous},
    restore_marker,
    rewrite::{self, Compaction, RewriteProgress},
    room::LiveBytes,
    writer::GroupLog,
};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A database smaller than this is not worth compacting at start.
const COMPACT_FROM: u64 = 32 << 20;

/// Bytes that the new database of a compaction takes for each byte of data, at most, and beyond that. The room that is kept
/// free for writes may be used: a server that filled its own disk has no more, and after the compaction it has.
const COMPACT_ROOM: u64 = 3;
const COMPACT_MARGIN: u64 = 8 << 20;

/// Choices for opening a data directory.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes of the disk to leave free.
    pub keep_free: u64,
    /// The database is compacted when it takes this many times what is in use of it; 0 for never.
    pub compact_at: u32,
    pub migration: Migration,
}

/// Treatment of a database of an older format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    Allowed,
    Refused,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { keep_free: 0, compact_at: 4, migration: Migration::Allowed }
    }
}

impl StoreOptions {
    fn is_worth_compacting(&self, state: &DatabaseState) -> bool {
        let limit = state.log_bytes.saturating_mul(self.compact_at.into());
        self.compact_at > 0 && state.size >= COMPACT_FROM && state.size > limit
    }
}

/// An open database, before its writer is started.
pub struct OpenDatabase {
    pub tree: Arc<BufferedTree>,
    pub groups: GroupLog,
    /// Bytes of all rows, and of those in blocks.
    pub live: LiveBytes,
    pub lock: File,
}

/// Opens the database in `directory`, creating both if need be.
pub fn open(directory: &Path, options: &StoreOptions) -> Result<OpenDatabase, StoreOpenError> {
    let failed = |source| StoreOpenError::Directory { path: directory.to_owned(), source };
    private_directory(directory)?;
    let lock = lock(directory)?;
    restore_marker::refuse(directory)?;
    replacement::move_back(directory).map_err(failed)?;
    let path = database::path(directory);
    if replacement::is_absent(&path).map_err(failed)? {
        let first = NewDatabase::create(directory)?.finish().map_err(failed)?;
        first.install(&Previous::Delete).map_err(failed)?;
    }
    let found = check::format(directory)?;
    if found > format::CURRENT {
        return Err(StoreOpenError::NewerFormat { path, found, known: format::CURRENT });
    }
    if found < format::CURRENT && options.migration == Migration::Refused {
        return Err(StoreOpenError::OlderFormat { path, found, known: format::CURRENT });
    }
    let mut state = check::check(directory, found)?;
    replacement::tidy(directory).map_err(failed)?;
    match found {
        format::CURRENT => {}
        format::SECOND.. => format::write(&path).map_err(failed)?,
        _ => {
            migrate(directory, found)?;
            state = check::check(directory, format::CURRENT)?;
        }
    }
    if options.is_worth_compacting(&state) {
        compact(directory, &state);
        state = check::check(directory, format::CURRENT)?;
    }
    let blocks = journal::open(&path, state.blocks)?;
    let file = File::open(database::file(&path)).map_err(failed)?;
    let tree = Arc::new(BufferedTree::new(blocks, file));
    let groups = GroupLog {
        mark: CommitMark::open(&path, state.commit).map_err(failed)?,
        journal: Journal::begin(&path, tree.clone()).map_err(failed)?,
    };
    Ok(OpenDatabase { tree, groups, live: state.live, lock })
}

fn migrate(directory: &Path, found: u32) -> Result<(), StoreOpenError> {
    let (shown, current) = (directory.display(), format::CURRENT);
    log::info!("the data in {shown} has format {found} and is rewritten in format {current}");
    rewrite::migrate(directory, &mut |rows| log::info!("{rows} rows are rewritten"))?;
    // It belonged to the old database.
    let _ = std::fs::remove_file(directory.join(commit_mark::FILE));
    log::info!("the data is rewritten; the old database is kept as {}", replacement::migrated_name(found));
    Ok(())
}

/// Compacts the database. It is as sound as before if that fails, only large.
fn compact(directory: &Path, state: &DatabaseState) {
    let needed = state.log_bytes.saturating_mul(COMPACT_ROOM).saturating_add(COMPACT_MARGIN);
    if disk::free_bytes(directory).is_some_and(|free| free < needed) {
        log::warn!(
            "the database takes {} bytes for {} of data; to compact it, free {needed} bytes",
            state.size,
            state.log_bytes
        );
        return;
    }
    log::info!("the database takes {} bytes for {} of data and is compacted", state.size, state.log_bytes);
    match rewrite::compact(directory, &mut |rows| log::info!("{rows} rows are rewritten")) {
        Ok(done) => log::info!("the database takes {} bytes now", done.after),
        Err(error) => log::warn!("the database stays as large as it is: {error}"),
    }
}

/// Rewrites the database in a data directory that no server uses, so that it takes only the space it needs.
///
/// # Errors
///
/// Fails if the directory is in use, belongs to another user or has no sound database of the current format; the database is
/// as it was then.
pub fn compact_offline(directory: &Path, progress: &mut RewriteProgress<'_>) -> Result<Compaction, StoreOpenError> {
    let failed = |source| StoreOpenError::Directory { path: directory.to_owned(), source };
    let path = find_database(directory)?;
    check_owner(directory, &std::fs::metadata(directory).map_err(failed)?)?;
    let _lock = lock(directory)?;
    restore_marker::refuse(directory)?;
    replacement::move_back(directory).map_err(failed)?;
    let (found, known) = (check::format(directory)?, format::CURRENT);
    if found > known {
        return Err(StoreOpenError::NewerFormat { path, found, known });
    }
    if found < format::SECOND {
        return Err(StoreOpenError::OlderFormat { path, found, known });
    }
    check::check(directory, found)?;
    replacement::tidy(directory).map_err(failed)?;
    if found < known {
        format::write(&path).map_err(failed)?;
    }
    rewrite::compact(directory, progress)
}

/// The folder of the database, which may have been moved aside by a replacement that was broken off.
///
/// # Errors
///
/// [`StoreOpenError::NoDatabase`] without one, so that a mistyped path creates nothing.
pub fn find_database(directory: &Path) -> Result<PathBuf, StoreOpenError> {
    let path = database::path(directory);
    if !path.exists() && !replacement::replaced(directory).exists() {
        return Err(StoreOpenError::NoDatabase(directory.to_owned()));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::store::{
        Store, chunked,
        commit_mark::Commit,
        journal_record, keys,
        test_support::{files, noise},
    };
    use std::{collections::BTreeMap, time::Duration};
    use tempfile::TempDir;

    fn open(directory: &Path) -> Result<Store, StoreOpenError> {
        Store::open(directory, 0, Arc::default())
    }

    async fn close(store: Store) {
        let path = database::path(store.directory());
        store.close().await;
        drop(store);
        database::wait_until_closed(&path).unwrap();
    }

    async fn put(store: &Store, rows: std::ops::Range<u32>) {
        for n in rows {
            let key = keys::key(keys::KV, &[&n.to_be_bytes()]);
            store.write(move |batch| batch.put(key, vec![n as u8; 3000])).await.unwrap();
        }
    }

    fn rows(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let rows = store.scan(&[keys::KV]).map(|row| row.unwrap());
        rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    #[tokio::test]
    async fn a_database_of_a_newer_format_is_refused_with_both_versions_and_not_changed() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, 0..3).await;
        close(store).await;
        std::fs::write(directory.path().join("sled/format"), "7\n").unwrap();
        let before = files(directory.path());
        let Err(error) = open(directory.path()) else { panic!("it opened") };
        assert!(matches!(error, StoreOpenError::NewerFormat { found: 7, known: 5, .. }), "{error}");
        assert!(error.to_string().contains("format 7") && error.to_string().contains("up to 5"), "{error}");
        assert_eq!(files(directory.path()), before);
    }

    #[tokio::test]
    async fn the_database_of_another_user_is_not_compacted() {
        // SAFETY: the call has no arguments and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, 0..3).await;
        close(store).await;
        std::os::unix::fs::chown(directory.path(), Some(12345), None).unwrap();
        let before = files(directory.path());
        let error = compact_offline(directory.path(), &mut |_| ()).unwrap_err();
        assert!(matches!(error, StoreOpenError::NotOwner { owner: 12345, .. }), "{error}");
        assert!(files(directory.path()) == before);
    }

    #[tokio::test]
    async fn a_refused_start_changes_no_byte_and_names_the_file_and_the_way_out() {
        let pristine = TempDir::new().unwrap();
        let store = open(pristine.path()).unwrap();
        put(&store, 0..40).await;
        close(store).await;
        let length = std::fs::metadata(pristine.path().join("sled/db")).unwrap().len();
        type FileChange = fn(&Path, u64);
        let changes: [(&str, FileChange); 8] = [
            ("`db`", |sled, length| truncate(&sled.join("db"), length / 2)),
            ("`db`", |sled, _| truncate(&sled.join("db"), 1000)),
            ("`db`", |sled, _| overwrite(&sled.join("db"), 400, &[0xff; 16])),
            ("`db`", |sled, _| overwrite(&sled.join("db"), 40_000, &[0; 4096])),
            ("`db`", |sled, _| std::fs::remove_file(sled.join("db")).unwrap()),
            ("`conf`", |sled, _| overwrite(&sled.join("conf"), 3, b"x")),
            ("`format`", |sled, _| std::fs::remove_file(sled.join("format")).unwrap()),
            ("`mark`", |sled, _| std::fs::write(sled.join("mark"), "00000000000000009999\n").unwrap()),
        ];
        for (number, (file, change)) in changes.into_iter().enumerate() {
            let copy = TempDir::new().unwrap();
            let mut copied = std::process::Command::new("cp");
            copied.arg("-r").arg(pristine.path().join("sled")).arg(copy.path());
            assert!(copied.status().unwrap().success());
            change(&copy.path().join("sled"), length);
            let before = files(copy.path());
            let Err(error) = open(copy.path()) else { panic!("change {number} was not noticed") };
            assert!(matches!(error, StoreOpenError::Damaged { .. }), "{number}: {error}");
            let text = error.to_string();
            let named = text.contains(file) || file == "`mark`" && text.contains("write 9999");
            assert!(named && text.contains("svc store salvage") && text.contains("svc restore"), "{number}: {text}");
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(files(copy.path()) == before, "change {number}: the refused start wrote something");
        }
    }

    fn truncate(file: &Path, length: u64) {
        File::options().write(true).open(file).unwrap().set_len(length).unwrap();
    }

    fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        File::options().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
    }

    /// Opens the database behind the store's back, as sled would serve it after a loss that it does not notice.
    fn with_sled(directory: &Path, change: impl Fn(&sled::Db)) {
        let path = database::path(directory);
        let tree = database::open(&path).unwrap();
        change(&tree);
        tree.flush().unwrap();
        drop(tree);
        database::wait_until_closed(&path).unwrap();
    }

    #[tokio::test]
    async fn a_database_with_missing_or_outdated_rows_is_refused_though_each_row_is_sound() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, 0..5).await;
        close(store).await;
        let key = keys::key(keys::KV, &[&3_u32.to_be_bytes()]);
        let old = std::cell::RefCell::new(None);
        with_sled(directory.path(), |tree| *old.borrow_mut() = tree.get(&key).unwrap());
        let store = open(directory.path()).unwrap();
        let changed = key.clone();
        store.write(move |batch| batch.put(changed, b"newer")).await.unwrap();
        close(store).await;
        let newer = std::cell::RefCell::new(None);
        with_sled(directory.path(), |tree| *newer.borrow_mut() = tree.get(&key).unwrap());
        let refusal = || open(directory.path()).err().expect("it opened").to_string();
        with_sled(directory.path(), |tree| drop(tree.insert(&key, old.borrow().clone().unwrap()).unwrap()));
        assert!(refusal().contains("some records in `db` are older"), "{}", refusal());
        with_sled(directory.path(), |tree| drop(tree.remove(&key).unwrap()));
        assert!(refusal().contains("`db` holds 4 records, and 5 had been written"), "{}", refusal());
        with_sled(directory.path(), |tree| drop(tree.insert(&key, newer.borrow().clone().unwrap()).unwrap()));
        close(open(directory.path()).unwrap()).await;
    }

    #[tokio::test]
    async fn a_database_of_format_2_to_4_becomes_one_of_format_5_without_a_rewrite() {
        for older in [2, 3, 4] {
            let directory = TempDir::new().unwrap();
            let store = open(directory.path()).unwrap();
            put(&store, 0..3).await;
            let expected = rows(&store);
            close(store).await;
            // Formats before the fourth had each event as a row of sled, which it still may be.
            let event = |n: u8| (vec![keys::EVENT, n], chunked::whole(&[keys::EVENT, n], &[n; 40]));
            with_sled(directory.path(), |sled| {
                let commit = sled.get([keys::COMMIT]).unwrap().as_ref().and_then(Commit::of_row).unwrap();
                let Commit { number, mut digest } = commit;
                for (key, raw) in (0..40).map(event) {
                    digest.add(&key, &raw);
                    sled.insert(key, raw).unwrap();
                }
                let (key, row) = Commit { number, digest }.row();
                sled.insert(key, row).unwrap();
            });
            let format = directory.path().join("sled/format");
            std::fs::write(&format, format!("{older}\n")).unwrap();
            let refused = StoreOptions { migration: Migration::Refused, ..StoreOptions::default() };
            let Err(error) = Store::open_with(directory.path(), &refused, Arc::default()) else { panic!("it opened") };
            assert!(matches!(error, StoreOpenError::OlderFormat { found, known: 5, .. } if found == older), "{error}");
            let offline = copy_of(directory.path());
            compact_offline(offline.path(), &mut |_| ()).unwrap();
            for directory in [directory.path(), offline.path()] {
                let store = open(directory).unwrap();
                assert_eq!(rows(&store), expected);
                assert_eq!(store.get(&[keys::EVENT, 7]).unwrap().as_deref(), Some(&[7; 40][..]));
                store.write(|batch| batch.delete([keys::EVENT, 7])).await.unwrap();
                store.write(|batch| batch.put([keys::EVENT, 8], b"newer")).await.unwrap();
                close(store).await;
                let store = open(directory).unwrap();
                let events: Vec<_> = store.scan(&[keys::EVENT]).map(|row| row.unwrap().0[1]).collect();
                assert_eq!(events, (0..40).filter(|n| *n != 7).collect::<Vec<_>>());
                assert_eq!(store.get(&[keys::EVENT, 8]).unwrap().as_deref(), Some(&b"newer"[..]));
                close(store).await;
                assert_eq!(std::fs::read_to_string(directory.join("sled/format")).unwrap(), "5\n");
            }
            assert!(!directory.path().join(format!("sled.format-{older}")).exists());
        }
    }

    /// A copy of the directory of an open store: what a process leaves that is killed at this moment. It must not be in the middle of
    /// a checkpoint, because the files are copied one after the other.
    fn killed(store: &Store) -> TempDir {
        while !store.state().tree.is_checkpointed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        copy_of(store.directory())
    }

    fn copy_of(directory: &Path) -> TempDir {
        let copy = TempDir::new().unwrap();
        let mut copied = std::process::Command::new("cp");
        copied.arg("-r").arg(directory.join("sled")).arg(copy.path());
        assert!(copied.status().unwrap().success());
        copy
    }

    #[tokio::test]
    async fn a_killed_process_leaves_every_answered_write_in_sled_or_in_the_journal() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        // Rounds of a megabyte use each file of the journal several times.
        for round in 0..20_u32 {
            put(&store, round * 10..round * 10 + 10).await;
            let filler = keys::key(keys::KV, &[b"filler"]);
            store.write(move |batch| batch.put(filler, noise(round.into(), 1 << 20))).await.unwrap();
            let expected = rows(&store);
            let copy = killed(&store);
            let mut seen = 0;
            let inspection = crate::platform::store::inspect(copy.path(), |_, _, _| {
                seen += 1;
                Ok(())
            });
            assert!(inspection.as_ref().unwrap().is_sound(), "{:?}", inspection.unwrap().damages);
            assert_eq!(seen, expected.len(), "round {round}");
            let again = open(copy.path()).unwrap();
            assert!(rows(&again) == expected, "round {round}");
            close(again).await;
        }
        close(store).await;
        assert!(!directory.path().join("sled/journal.0").exists() && !directory.path().join("sled/journal.1").exists());
        let store = open(directory.path()).unwrap();
        assert_eq!(rows(&store).len(), 201);
        close(store).await;
    }

    #[tokio::test]
    async fn a_journal_that_a_killed_process_of_an_older_format_left_is_read_and_written_over() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, 0..40).await;
        let expected = rows(&store);
        let older = killed(&store);
        close(store).await;
        for name in ["journal.0", "journal.1"] {
            let path = older.path().join("sled").join(name);
            let records = journal_record::read_all(&std::fs::read(&path).unwrap());
            std::fs::write(&path, journal_record::in_older_form(&records)).unwrap();
        }
        std::fs::write(older.path().join("sled/format"), "4\n").unwrap();
        let store = open(older.path()).unwrap();
        assert!(rows(&store) == expected);
        put(&store, 40..41).await;
        let expected = rows(&store);
        let newer = killed(&store);
        close(store).await;
        let store = open(newer.path()).unwrap();
        assert!(rows(&store) == expected);
        close(store).await;
    }

    #[tokio::test]
    async fn a_journal_that_lost_an_answered_write_refuses_the_start_and_one_without_the_last_write_does_not() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, 0..5).await;
        let copy = killed(&store);
        let journal = copy.path().join("sled/journal.0");
        let records = std::fs::read(&journal).unwrap();
        let last = records.iter().rposition(|byte| *byte != 0).unwrap();
        overwrite(&journal, last as u64, &[!records[last]]);
        let before = files(copy.path());
        let Err(error) = open(copy.path()) else { panic!("it opened") };
        assert!(error.to_string().contains("and write 6 had been made"), "{error}");
        assert!(files(copy.path()) == before, "the refused start wrote something");
        // The number of a write that was not answered is not noted.
        std::fs::write(copy.path().join("sled/mark"), commit_mark::text(5)).unwrap();
        let again = open(copy.path()).unwrap();
        assert_eq!(rows(&again).len(), 4);
        close(again).await;
        close(store).await;
    }

    #[tokio::test]
    async fn an_older_file_of_the_journal_that_is_left_alone_is_not_taken_for_the_newest_state() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        // The newest records are in the first file.
        for round in 0..8_u32 {
            let filler = keys::key(keys::KV, &[b"filler"]);
            store.write(move |batch| batch.put(filler, noise(round.into(), 1 << 20))).await.unwrap();
        }
        put(&store, 0..3).await;
        let expected = rows(&store);
        let before = killed(&store);
        close(store).await;
        for name in ["journal.0", "journal.1"] {
            assert!(std::fs::metadata(before.path().join("sled").join(name)).unwrap().len() > 0, "both were used");
            // Killed between the deletions of the two files.
            let copy = copy_of(directory.path());
            std::fs::copy(before.path().join("sled").join(name), copy.path().join("sled").join(name)).unwrap();
            let inspection = crate::platform::store::inspect(copy.path(), |_, _, _| Ok(())).unwrap();
            assert!(inspection.is_sound(), "{name}: {:?}", inspection.damages);
            let again = open(copy.path()).unwrap();
            assert!(rows(&again) == expected, "{name}");
            close(again).await;
        }
        // The first write after a restart is torn, over the newest records of the journal.
        let again = open(before.path()).unwrap();
        put(&again, 3..4).await;
        let copy = killed(&again);
        close(again).await;
        overwrite(&copy.path().join("sled/journal.0"), 0, &[0xff; 8]);
        let last = commit_mark::noted(&copy.path().join("sled/mark")).unwrap();
        std::fs::write(copy.path().join("sled/mark"), commit_mark::text(last - 1)).unwrap();
        let again = open(copy.path()).unwrap();
        assert!(rows(&again) == expected);
        close(again).await;
    }

    #[tokio::test]
    async fn an_unfinished_snapshot_of_a_killed_start_is_not_in_the_way() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        put(&store, 0..3).await;
        let expected = rows(&store);
        close(store).await;
        let unfinished = directory.path().join("sled/snap.00000000FFFFFFFF.generating");
        std::fs::write(&unfinished, b"half a snapshot").unwrap();
        let store = open(directory.path()).unwrap();
        assert_eq!(rows(&store), expected);
        assert!(!unfinished.exists());
        close(store).await;
    }

    #[tokio::test]
    async fn a_replacement_that_was_broken_off_leaves_the_old_database_or_the_new_one() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let store = open(directory.path()).unwrap();
        put(&store, 0..3).await;
        let expected = rows(&store);
        close(store).await;
        // Broken off while the new one was built.
        std::fs::create_dir(path("sled.new")).unwrap();
        std::fs::write(path("sled.new/db"), b"half a database").unwrap();
        let store = open(directory.path()).unwrap();
        assert_eq!(rows(&store), expected);
        close(store).await;
        assert!(!path("sled.new").exists());
        // Broken off between the two renames.
        std::fs::rename(path("sled"), path("sled.old")).unwrap();
        let store = open(directory.path()).unwrap();
        assert_eq!(rows(&store), expected);
        close(store).await;
        // Broken off before the old one was deleted.
        std::fs::create_dir(path("sled.old")).unwrap();
        std::fs::write(path("sled.old/format"), "3\n").unwrap();
        let store = open(directory.path()).unwrap();
        assert_eq!(rows(&store), expected);
        close(store).await;
        assert!(!path("sled.old").exists());
    }

    #[tokio::test]
    async fn a_database_far_larger_than_its_data_is_compacted_at_the_next_start() {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        for round in 0..16 {
            store
                .write(move |batch| {
                    for n in 0..1000_u32 {
                        batch.put(keys::key(keys::KV, &[&[round], &n.to_be_bytes()]), vec![round; 3000]);
                    }
                })
                .await
                .unwrap();
        }
        store.write(|batch| batch.delete_prefix(&[keys::KV])).await.unwrap().unwrap();
        put(&store, 0..20).await;
        let expected = rows(&store);
        close(store).await;
        let size = || rewrite::size(&database::path(directory.path())).unwrap();
        let before = size();
        assert!(before > COMPACT_FROM, "{before}");
        let never = StoreOptions { compact_at: 0, ..StoreOptions::default() };
        close(Store::open_with(directory.path(), &never, Arc::default()).unwrap()).await;
        assert!(size() > COMPACT_FROM, "it was told not to");
        // A disk with less room than is kept free, as the server itself leaves it.
        let short = StoreOptions { keep_free: u64::MAX, ..StoreOptions::default() };
        let store = Store::open_with(directory.path(), &short, Arc::default()).unwrap();
        assert_eq!(rows(&store), expected);
        put(&store, 20..30).await;
        close(store).await;
        assert!(size() < before / 8, "{} of {before}", size());
        let store = open(directory.path()).unwrap();
        assert_eq!(rows(&store).len(), 30);
        close(store).await;
    }
}
