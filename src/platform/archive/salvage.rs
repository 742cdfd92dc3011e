//! Verifies a store that no server uses, and saves what is readable of it as an archive.

use super::{
    ARCHIVED_FILES, ArchiveEnd, ArchiveWriter, Manifest,
    kinds::{self, ValueForm},
};
use crate::platform::store::{Inspection, LostRows, StoreError, StoreOpenError, inspect, keys};
use serde::de::IgnoredAny;
use std::{
    io::{self, Write},
    path::Path,
};

/// Reason for which a store could not be saved.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error("the archive cannot be written: {0}")]
    Write(#[from] io::Error),
}

/// Reads everything in a store, and checks it as far as that can be told without its users: checksums, and that records
/// are JSON where they should be. `progress` gets the records read.
///
/// # Errors
///
/// Fails if the store cannot be read at all. Damage is no error.
pub fn verify(directory: &Path, progress: &mut dyn FnMut(u64)) -> Result<Inspection, StoreOpenError> {
    inspect(directory, |inspection, key, value| {
        let form = key.first().and_then(|byte| kinds::of_byte(*byte)).map(|kind| kind.value);
        let fault = match form {
            None => Some(StoreError::damaged(key, "records of this kind are unknown")),
            Some(ValueForm::Bytes) => None,
            Some(ValueForm::JsonOrBytes) if value.first() != Some(&b'{') => None,
            Some(ValueForm::Json | ValueForm::JsonOrBytes) => {
                serde_json::from_slice::<IgnoredAny>(value).err().map(|error| StoreError::damaged(key, error))
            }
        };
        if let Some(fault) = fault {
            inspection.add_damage(fault);
        }
        progress(inspection.rows);
        Ok(())
    })
}

/// Writes everything that is readable in a store as an archive. `progress` gets the records written.
///
/// Sessions are left out: a page that can be read only as it once was may have some that were ended since.
///
/// # Errors
///
/// Fails if the store cannot be read at all, or the archive cannot be written. Damage is no error.
pub fn salvage<W: Write + Send + 'static>(
    directory: &Path,
    out: W,
    progress: &mut dyn FnMut(u64),
) -> Result<(W, ArchiveEnd, Inspection), SalvageError> {
    let manifest = Manifest { salvaged: true, ..Manifest::new(0) };
    let mut archive = ArchiveWriter::new(out, &manifest)?;
    for name in ARCHIVED_FILES {
        // A file that cannot be read is lost, like a record.
        match std::fs::read(directory.join(name)) {
            Ok(content) => archive.file(name, &content)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => archive.lose_rows(1),
        }
    }
    let mut failure = None;
    let inspected = inspect(directory, |inspection, key, value| {
        progress(inspection.rows);
        if key.first() == Some(&keys::SESSIONS) {
            return Ok(());
        }
        archive.row(key, value).map_err(|error| {
            let kind = error.kind();
            failure = Some(error);
            kind.into()
        })
    });
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let inspection = inspected?;
    match inspection.lost {
        LostRows::Exactly(lost) | LostRows::AtLeast(lost) => archive.lose_rows(lost),
        LostRows::Unknown => archive.lose_unknown_rows(),
    }
    archive.lose_pages(inspection.lost_pages);
    if !inspection.is_sound() {
        archive.note_damage();
    }
    let (out, end) = archive.finish()?;
    Ok((out, end, inspection))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{
        archive::{
            ArchiveReader, ArchiveRecord,
            restore::{ExistingDatabase, restore},
        },
        store::{
            Store, compact_offline, keys,
            test_support::{files, noise},
        },
    };
    use std::{
        collections::BTreeMap,
        fs::File,
        sync::Arc,
        time::{Duration, Instant},
    };
    use tempfile::TempDir;

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A store with small and large records, closed.
    async fn store() -> (TempDir, Rows) {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let mut rows = Rows::new();
        for n in 0..400_u64 {
            let id = uuid::Uuid::from_u64_pair(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
            let key = keys::key(keys::SINKS, &[id.as_bytes()]);
            let noise: String =
                noise(n, n as usize % 50 * 300).iter().map(|byte| char::from(b'#' + byte % 80)).collect();
            let value = serde_json::json!({"n": n, "x": noise}).to_string().into_bytes();
            rows.insert(key.clone(), value.clone());
            store.write(move |batch| batch.put(key, value)).await.unwrap();
        }
        let session = keys::key(keys::SESSIONS, &[&[7; 16]]);
        rows.insert(session.clone(), b"{}".to_vec());
        store.write(move |batch| batch.put(session, b"{}")).await.unwrap();
        rows.insert(vec![keys::HISTORY], 0_u64.to_be_bytes().to_vec());
        rows.insert(vec![keys::AUDIT_BYTES], 0_u64.to_be_bytes().to_vec());
        store
            .write(|batch| {
                batch.put([keys::HISTORY], 0_u64.to_be_bytes());
                batch.put([keys::AUDIT_BYTES], 0_u64.to_be_bytes());
            })
            .await
            .unwrap();
        store.close().await;
        drop(store);
        wait_until_unlocked(&File::open(directory.path().join("sled/db")).unwrap());
        std::fs::write(directory.path().join("admin.token"), "svc_token\n").unwrap();
        (directory, rows)
    }

    fn rows_of(archive: &[u8]) -> Rows {
        let mut reader = ArchiveReader::new(archive).unwrap();
        assert!(reader.manifest().salvaged);
        let mut rows = Rows::new();
        while let Some(record) = reader.next_record().unwrap() {
            if let ArchiveRecord::Row { key, value } = record {
                assert!(rows.insert(key, value.into_owned()).is_none(), "a record comes once");
            }
        }
        rows
    }

    /// Makes stores whose log has one segment, all with the same records: one that was opened and closed several times,
    /// one that was restored, and one that was compacted. Returns their names and the records.
    async fn small_stores(directory: &Path) -> (Vec<&'static str>, Rows) {
        let live = directory.join("live");
        let mut rows = Rows::new();
        for half in 0..2_u64 {
            let store = Store::open(&live, 0, Arc::default()).unwrap();
            for n in half * 120..(half + 1) * 120 {
                let id = uuid::Uuid::from_u64_pair(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
                let key = match n % 4 {
                    0 => keys::key(keys::USERS, &[id.as_bytes()]),
                    1 => keys::key(keys::SINKS, &[id.as_bytes()]),
                    _ => keys::key(keys::EVENT, &[&n.to_be_bytes(), id.as_bytes()]),
                };
                let noise: String = noise(n, 60).iter().map(|byte| char::from(b'#' + byte % 50)).collect();
                let value = serde_json::json!({"n": n, "x": noise}).to_string().into_bytes();
                rows.insert(key.clone(), value.clone());
                store.write(move |batch| batch.put(key, value)).await.unwrap();
            }
            close(store).await;
        }
        // A restore makes these itself.
        let store = Store::open(&live, 0, Arc::default()).unwrap();
        for kind in [keys::HISTORY, keys::AUDIT_BYTES] {
            rows.insert(vec![kind], 0_u64.to_be_bytes().to_vec());
            store.write(move |batch| batch.put([kind], 0_u64.to_be_bytes())).await.unwrap();
        }
        close(store).await;
        let (archive, ..) = salvage(&live, Vec::new(), &mut |_| ()).unwrap();
        std::fs::write(directory.join("saved"), archive).unwrap();
        for name in ["restored", "compacted"] {
            let data = directory.join(name);
            restore(&directory.join("saved"), &data, ExistingDatabase::Refuse, &mut |_| ()).unwrap();
        }
        compact_offline(&directory.join("compacted"), &mut |_| ()).unwrap();
        (vec!["live", "restored", "compacted"], rows)
    }

    async fn close(store: Store) {
        let database = File::open(store.directory().join("sled/db")).unwrap();
        store.close().await;
        drop(store);
        wait_until_unlocked(&database);
    }

    /// Waits for sled's threads, which end a moment after its handle.
    fn wait_until_unlocked(database: &File) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while database.try_lock().is_err() {
            assert!(Instant::now() < deadline, "the database is still open");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[tokio::test]
    async fn a_flipped_byte_in_a_small_store_costs_few_records_and_each_is_told() {
        let directory = TempDir::new().unwrap();
        let (names, rows) = small_stores(directory.path()).await;
        for name in names {
            let data = directory.path().join(name);
            let log = data.join("sled/db");
            let whole = std::fs::read(&log).unwrap();
            let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            assert!(used < 500_000, "{name}: {used} bytes are one segment");
            for step in 0..40 {
                let at = used * step / 40;
                let what = format!("{name}, byte {at} of {used}");
                let mut bytes = whole.clone();
                bytes[at] ^= 0x10;
                std::fs::write(&log, &bytes).unwrap();
                let before = files(&data);
                let (archive, end, found) = salvage(&data, Vec::new(), &mut |_| ()).unwrap();
                let saved = rows_of(&archive);
                assert!(saved.iter().all(|(key, value)| rows.get(key) == Some(value)), "{what}: other content");
                let lost = rows.len() - saved.len();
                match found.lost {
                    LostRows::Exactly(told) => assert_eq!(told, lost as u64, "{what}: {found:?}"),
                    LostRows::AtLeast(told) => assert_eq!((told, end.lost), (lost as u64, lost as u64), "{what}"),
                    LostRows::Unknown => assert!(end.lost_unknown && found.lost_writes.is_none(), "{what}: {found:?}"),
                }
                assert!(lost * 10 < rows.len(), "{what}: {lost} records are lost");
                let verified = verify(&data, &mut |_| ()).unwrap();
                assert!(!verified.is_sound() && verified.lost == found.lost, "{what}: {verified:?}");
                let Err(error) = Store::open(&data, 0, Arc::default()) else { panic!("{what}: it opened") };
                assert!(matches!(error, StoreOpenError::Damaged { .. }), "{what}: {error}");
                assert!(files(&data) == before, "{what}: a file was changed");
            }
        }
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_written_is_verified_and_saved() {
        let (directory, rows) = store().await;
        std::fs::remove_file(directory.path().join("lock")).unwrap();
        assert_eq!(verify(directory.path(), &mut |_| ()).unwrap().rows, rows.len() as u64);
        salvage(directory.path(), Vec::new(), &mut |_| ()).unwrap();
        assert!(!directory.path().join("lock").exists());
    }

    #[tokio::test]
    async fn writes_of_which_nothing_is_left_are_counted() {
        let (directory, _) = store().await;
        let mark = directory.path().join("sled/mark");
        let made: u64 = std::fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
        std::fs::write(&mark, format!("{:020}\n", made + 7)).unwrap();
        let found = verify(directory.path(), &mut |_| ()).unwrap();
        assert_eq!((found.lost_writes, found.lost, found.damage_count), (Some(7), LostRows::Unknown, 1), "{found:?}");
    }

    #[tokio::test]
    async fn a_sound_store_is_verified_and_saved_whole_without_changing_a_byte() {
        let (directory, rows) = store().await;
        let before = files(&directory.path().join("sled"));
        let found = verify(directory.path(), &mut |_| ()).unwrap();
        assert_eq!((found.damages.as_slice(), found.rows, found.format), (&[][..], rows.len() as u64, 5));
        assert!(found.live > 0 && found.size >= found.live, "{found:?}");
        let (archive, end, _) = salvage(directory.path(), Vec::new(), &mut |_| ()).unwrap();
        let rows: Rows = rows.into_iter().filter(|(key, _)| key[0] != keys::SESSIONS).collect();
        assert_eq!((rows_of(&archive), end.lost, end.by_kind["file"]), (rows.clone(), 0, 1), "all but the session");
        assert_eq!(files(&directory.path().join("sled")), before);

        let file = directory.path().join("saved");
        std::fs::write(&file, &archive).unwrap();
        let copy = directory.path().join("copy");
        restore(&file, &copy, ExistingDatabase::Refuse, &mut |_| ()).unwrap();
        assert_eq!(std::fs::read_to_string(copy.join("admin.token")).unwrap(), "svc_token\n");
        let store = Store::open(&copy, 0, Arc::default()).unwrap();
        for (key, value) in rows {
            assert_eq!(store.get(&key).unwrap().as_deref(), Some(&*value));
        }
        store.close().await;
    }

    #[tokio::test]
    async fn a_damaged_store_is_told_as_such_and_what_is_saved_of_it_is_never_other_content() {
        let (directory, rows) = store().await;
        let log = directory.path().join("sled/db");
        let whole = std::fs::read(&log).unwrap();
        let mut kept = 0;
        for round in 0..24 {
            let mut damaged = whole.clone();
            let at = damaged.len() * round / 24;
            let end = (at + 700).min(damaged.len());
            match round % 3 {
                0 => damaged[at..end].fill(0),
                1 => damaged[at..end].iter_mut().for_each(|byte| *byte ^= 0x55),
                _ => damaged.truncate(at),
            }
            std::fs::write(&log, &damaged).unwrap();
            let before = files(&directory.path().join("sled"));
            let found = verify(directory.path(), &mut |_| ()).unwrap();
            let (archive, end, _) = salvage(directory.path(), Vec::new(), &mut |_| ()).unwrap();
            assert_eq!(files(&directory.path().join("sled")), before, "no byte is changed");
            let saved = rows_of(&archive);
            for (key, value) in &saved {
                assert_eq!(Some(value), rows.get(key), "round {round}: {}", key.escape_ascii());
            }
            assert!(!found.is_sound() || saved.len() + 1 == rows.len(), "round {round}: a loss that nobody is told of");
            assert!(found.damages.iter().all(|damage| damage.lines().count() == 1), "{found:?}");
            assert_eq!(end.rows, saved.len() as u64 + 1);
            let missing_writes = found.lost_writes.unwrap_or(0) as usize;
            assert!(saved.len() + missing_writes <= rows.len(), "round {round}: nothing is left of a missing write");
            kept += saved.len();
        }
        assert!(kept > 24 * rows.len() / 4, "{kept} of {}", 24 * rows.len());
    }
}
