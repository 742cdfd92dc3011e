//! The files beside the log: sled's settings, and the snapshot of the page table that it writes when it opens.

use super::{
    damage::Damages,
    decode::{Decoder, Undecodable},
    messages::SEGMENT,
    page_table::{PageEntry, PageRef, PageTable},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

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
    let bytes = fs::read(path)?;
    let snapshot = match bytes.len().checked_sub(12) {
        None | Some(0) => Err("it is too short"),
        Some(length) => {
            let (body, mut end) = (&bytes[..length], Decoder(&bytes[length..]));
            if end.lsn() != Ok(length as u64) || end.u32() != Ok(crc32fast::hash(body)) {
                Err("its checksum is wrong")
            } else {
                decode(body).map_err(|Undecodable| "it cannot be decoded")
            }
        }
    };
    match snapshot {
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

/// The name and the path of the snapshot that sled would take. One that is still being written has a longer name.
fn newest(directory: &Path) -> io::Result<Option<(String, PathBuf)>> {
    let mut newest = None;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let unfinished = name.ends_with(".generating") || name.ends_with(".in___motion");
        if name.starts_with("snap.") && !unfinished && newest.as_ref().is_none_or(|(other, _)| *other < name) {
            newest = Some((name, entry.path()));
        }
    }
    Ok(newest)
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
