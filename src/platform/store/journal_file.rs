//! A file of the journal: whole sectors, written past the cache of the system if the file system supports that.
//!
//! Through the cache each sync writes whole pages, which are eight sectors for a record of one.

use super::journal_record::SECTOR;
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Bytes by which a file grows. The sync of a write within the file leaves the file's length alone, which is cheaper.
const GROWTH: u64 = 256 << 10;

/// The most bytes of one write.
const PIECE: usize = 64 << 10;

/// Bytes of a page of the system's memory, and of one write through its cache when a file grows: the system keeps what is written at once as
/// one large page, all of which a later small write would make it write again.
const PAGE: usize = 4096;

pub struct JournalFile {
    path: PathBuf,
    file: File,
    /// True if the file is open for writes past the cache.
    is_direct: bool,
    piece: AlignedPiece,
    /// The end of the last record.
    end: u64,
    length: u64,
}

impl JournalFile {
    /// Opens a file, and creates it if need be, to write it from its beginning.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let (file, is_direct) = match open_direct(&path) {
            Ok(file) => (file, true),
            // Not every file system has such writes.
            Err(_) => (writing().open(&path)?, false),
        };
        let length = file.metadata()?.len();
        Ok(Self { path, file, is_direct, piece: AlignedPiece::default(), end: 0, length })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The end of the last record.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Lets the next record be the first one.
    pub const fn begin_again(&mut self) {
        self.end = 0;
    }

    /// Puts a record on disk, which has whole sectors.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let end = self.end + record.len() as u64;
        if end > self.length {
            self.grow(end.next_multiple_of(GROWTH))?;
        }
        self.write(record, self.end)?;
        self.file.sync_data()?;
        self.end = end;
        Ok(())
    }

    fn grow(&mut self, length: u64) -> io::Result<()> {
        let step = if self.is_direct { PIECE } else { PAGE };
        // A growth that was broken off, or another version, may have left a part of a sector.
        let mut at = self.length.next_multiple_of(SECTOR as u64);
        let zeros = vec![0; step];
        while at < length {
            let bytes = step.min((length - at) as usize);
            self.write(&zeros[..bytes], at)?;
            at += bytes as u64;
        }
        self.length = length;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], mut at: u64) -> io::Result<()> {
        for part in bytes.chunks(PIECE) {
            let piece = self.piece.fill(part);
            match self.file.write_all_at(piece, at) {
                // The disk has larger sectors, or the file system refuses only now.
                Err(error) if self.is_direct && is_refusal(&error) => {
                    self.file = writing().open(&self.path)?;
                    self.is_direct = false;
                    self.file.write_all_at(piece, at)?;
                }
                result => result?,
            }
            at += part.len() as u64;
        }
        Ok(())
    }
}

/// True for the error of a write that could be made through the cache.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

fn writing() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    options
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    writing().custom_flags(libc::O_DIRECT).open(path)
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The bytes of a write past the cache, which must begin at a multiple of a page in memory.
struct AlignedPiece(Vec<u8>);

impl Default for AlignedPiece {
    fn default() -> Self {
        Self(vec![0; PIECE + PAGE])
    }
}

impl AlignedPiece {
    fn fill(&mut self, bytes: &[u8]) -> &[u8] {
        let begin = self.0.as_ptr().align_offset(PAGE);
        let piece = &mut self.0[begin..begin + bytes.len()];
        piece.copy_from_slice(bytes);
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this many sectors.
    fn record(sectors: usize) -> Vec<u8> {
        (0..sectors * SECTOR).map(|n| (n % 251) as u8 + 1).collect()
    }

    #[test]
    fn records_are_in_the_file_as_they_were_appended_past_the_cache_and_through_it() {
        for through_the_cache in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("journal.0");
            let mut file = JournalFile::open(path.clone()).unwrap();
            if through_the_cache {
                (file.file, file.is_direct) = (writing().open(&path).unwrap(), false);
            }
            let mut expected = Vec::new();
            // The last ones take several writes, and the file grows.
            for sectors in [1, 3, 1, 130, 1000] {
                file.append(&record(sectors)).unwrap();
                expected.extend(record(sectors));
                assert_eq!(file.end(), expected.len() as u64);
            }
            let found = std::fs::read(&path).unwrap();
            assert!(found.starts_with(&expected) && found[expected.len()..].iter().all(|byte| *byte == 0));
            assert!((found.len() as u64).is_multiple_of(GROWTH));
            file.begin_again();
            file.append(&record(2)).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), found.len() as u64, "it keeps its length");
        }
    }

    #[test]
    fn a_write_that_the_disk_refuses_for_its_place_goes_through_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.0");
        let mut file = JournalFile::open(path.clone()).unwrap();
        file.append(&record(1)).unwrap();
        // Some file systems accept it.
        let is_refused = open_direct(&path).is_ok_and(|direct| direct.write_at(b"between sectors", 700).is_err());
        file.write(b"between sectors", 700).unwrap();
        assert!(!is_refused || !file.is_direct);
        let found = std::fs::read(&path).unwrap();
        assert_eq!(&found[700..715], b"between sectors");
        file.append(&record(2)).unwrap();
        let found = std::fs::read(&path).unwrap();
        assert_eq!(&found[..3 * SECTOR], [record(1), record(2)].concat());
    }
}
