//! The files beside the log: sled's settings, and the snapshot of the page table that it writes when it opens.

use super::{
    damage::Damages,
    decode::{Decoder, Undecodable},
    messages::SEGMENT,
    page_table::{PageEntry, PageRef, PageTable},
};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// The end of the name of a snapshot until sled renames it.
const GENERATING: &str = ".generating";

/// The page table as of a log sequence number.
#[derive(Default)]
pub(super) struct PageSnapshot {
    /// Messages below this number are in the table.
    pub stable: u64,
    /// The offset of the segment that is being filled; `None` if the next message begins a new one.
    pub active: Option<u64>,
    pub table: PageTable,
}

/// Checks the file `conf`. A database without it has sled's defaults, which are ours too.
pub(super) fn check_settings(directory: &Path, damages: &mut Damages) -> io::Result<()> {
    let bytes = match fs::read(directory.join("conf")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // sled writes a file this short anew.
    if bytes.len() <= 8 {
        return Ok(());
    }
    let (text, crc) = bytes.split_at(bytes.len() - 4);
    if Decoder(crc).u32() != Ok(crc32fast::hash(text)) {
        damages.add("conf", None, "its checksum is wrong");
    } else if !is_ours(text) {
        damages.add("conf", None, "it belongs to a database of another kind or version");
    }
    Ok(())
}

fn is_ours(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let segment = SEGMENT.to_string();
    value("segment_size") == Some(&segment)
        && value("use_compression") == Some("false")
        && value("version") == Some("0.34")
}

/// Reads the newest snapshot that was written to its end. Returns `None` if there is none or it is damaged.
pub(super) fn read(directory: &Path, damages: &mut Damages) -> io::Result<Option<PageSnapshot>> {
    let Some((name, path)) = newest(directory)? else { return Ok(None) };
    match body(&fs::read(path)?).and_then(|body| decode(body).map_err(|Undecodable| "it cannot be decoded")) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(why) => {
            damages.add(&name, None, why);
            Ok(None)
        }
    }
}

/// True if a snapshot was written to its end.
pub(super) fn exists(directory: &Path) -> io::Result<bool> {
    match newest(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.is_some()),
    }
}

/// Renames whole snapshots that sled did not come to rename, and deletes the others, which sled would take for its newest.
///
/// A snapshot counts once it is whole, because sled may have gone on: it clears the segments that the snapshot makes obsolete, and
/// after a power cut they can be gone while the snapshot has its first name again.
pub fn settle_snapshots(directory: &Path) -> io::Result<()> {
    let mut is_changed = false;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let Some(name) = final_name(&path) else { continue };
        is_changed = true;
        if is_whole(&path)? {
            // The one who wrote it may have been killed before this.
            File::open(&path)?.sync_all()?;
            fs::rename(&path, path.with_file_name(name))?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    if is_changed { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// The name and the path of the snapshot that sled takes once [`settle_snapshots`] has been called.
fn newest(directory: &Path) -> io::Result<Option<(String, PathBuf)>> {
    let mut newest: Option<(String, PathBuf)> = None;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = match final_name(&path) {
            Some(name) if is_whole(&path)? => name.to_owned(),
            Some(_) => continue,
            None => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let is_snapshot = name.starts_with("snap.") && !name.ends_with(".in___motion");
        if is_snapshot && newest.as_ref().is_none_or(|(other, _)| *other < name) {
            newest = Some((name, path));
        }
    }
    Ok(newest)
}

/// The name that sled gives a snapshot in the end; `None` for one that has it, and for other files.
fn final_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(GENERATING).filter(|name| name.starts_with("snap."))
}

fn is_whole(path: &Path) -> io::Result<bool> {
    Ok(body(&fs::read(path)?).is_ok())
}

/// The content of a snapshot before its length and checksum, or its fault.
fn body(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let length = bytes.len().checked_sub(12).filter(|length| *length > 0).ok_or("it is too short")?;
    let (body, mut end) = (&bytes[..length], Decoder(&bytes[length..]));
    let is_whole = end.lsn() == Ok(length as u64) && end.u32() == Ok(crc32fast::hash(body));
    if is_whole { Ok(body) } else { Err("its checksum is wrong") }
}

fn decode(bytes: &[u8]) -> Result<PageSnapshot, Undecodable> {
    let mut from = Decoder(bytes);
    // Both are kept one higher, and 0 means none.
    let stable = from.lsn()?.checked_sub(1).ok_or(Undecodable)?;
    let active = from.varint()?.checked_sub(1);
    let mut table = PageTable::default();
    let mut pid = 0;
    while !from.is_empty() {
        let entry = match from.byte()? {
            0 => PageEntry::Free(page_ref(&mut from)?),
            parts => {
                let base = sized_ref(&mut from)?;
                let links = (1..parts).map(|_| sized_ref(&mut from)).collect::<Result<_, _>>()?;
                PageEntry::Present { base, links }
            }
        };
        table.insert(pid, entry);
        pid += 1;
    }
    Ok(PageSnapshot { stable, active, table })
}

fn sized_ref(from: &mut Decoder<'_>) -> Result<PageRef, Undecodable> {
    let found = page_ref(from)?;
    from.varint()?;
    Ok(found)
}

fn page_ref(from: &mut Decoder<'_>) -> Result<PageRef, Undecodable> {
    let lsn = from.lsn()?;
    let kind = from.byte()?;
    let offset = from.varint()?;
    match kind {
        0 => {}
        1 => _ = from.i64()?,
        _ => return Err(Undecodable),
    }
    Ok(PageRef { lsn, offset, hidden: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a snapshot with an empty table.
    fn snapshot(stable: u64) -> Vec<u8> {
        let body = [(stable + 1).to_le_bytes().as_slice(), &[0]].concat();
        [body.as_slice(), &(body.len() as u64).to_le_bytes(), &crc32fast::hash(&body).to_le_bytes()].concat()
    }

    fn stable(directory: &Path) -> u64 {
        let mut damages = Damages::default();
        let read = read(directory, &mut damages).unwrap().unwrap();
        assert_eq!(damages.count, 0);
        read.stable
    }

    #[test]
    fn a_snapshot_counts_once_it_is_whole_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("snap.0001"), directory.path().join("snap.0002"));
        let generating = directory.path().join("snap.0002.generating");
        let whole = snapshot(2);
        for length in 0..whole.len() {
            fs::write(&old, snapshot(1)).unwrap();
            fs::write(&generating, &whole[..length]).unwrap();
            assert_eq!(stable(directory.path()), 1, "{length} bytes");
            settle_snapshots(directory.path()).unwrap();
            assert!(!generating.exists() && !new.exists() && stable(directory.path()) == 1, "{length} bytes");
        }
        fs::write(&generating, &whole).unwrap();
        assert_eq!(stable(directory.path()), 2);
        settle_snapshots(directory.path()).unwrap();
        assert!(!generating.exists() && new.exists() && stable(directory.path()) == 2);
    }
}
