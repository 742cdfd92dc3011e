//! Writing an archive. Lines are gathered and hashed here; a thread of its own compresses and writes them, so that
//! reading the store and compressing it share the processors.

use super::{
    Manifest,
    kinds::KindCounts,
    manifest::{ArchiveEnd, EndLine, digits},
    record,
};
use sha2::{Digest as _, Sha256};
use std::{
    io::{self, Write},
    sync::mpsc,
    thread::JoinHandle,
};

/// The longest line. Readers refuse a longer one, so that a damaged archive does not fill their memory.
pub const LINE_LIMIT: usize = 256 << 20;

/// Bytes of lines that are handed to the thread at once, and the number of such buffers that may wait for it.
const BUFFER: usize = 1 << 20;
const BUFFERS: usize = 2;

/// Little compression: the disk and the store should be the bottleneck.
const LEVEL: i32 = 1;

/// An archive that is being written. One that is dropped unfinished is incomplete.
pub struct ArchiveWriter<W: Write> {
    lines: Vec<u8>,
    hash: Sha256,
    counts: KindCounts,
    lost: u64,
    lost_pages: u64,
    lost_unknown: bool,
    damaged: bool,
    /// `None` once the archive is finished or has failed.
    full: Option<mpsc::SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<Compressor<W>>>>,
}

/// The end that compresses and writes. Each buffer becomes a frame of its own, which is faster than one frame for all:
/// the compressor then need not look back over two pieces of memory.
struct Compressor<W: Write> {
    zstd: zstd::bulk::Compressor<'static>,
    out: W,
}

impl<W: Write> Compressor<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.out.write_all(&self.zstd.compress(lines)?)
    }
}

impl<W: Write + Send + 'static> ArchiveWriter<W> {
    /// Begins an archive with its manifest.
    ///
    /// # Errors
    ///
    /// Fails if no thread or no compressor can be had.
    pub fn new(out: W, manifest: &Manifest) -> io::Result<Self> {
        let mut compressor = Compressor { zstd: zstd::bulk::Compressor::new(LEVEL)?, out };
        let (full, filled) = mpsc::sync_channel::<Vec<u8>>(BUFFERS);
        let thread = std::thread::Builder::new().name("archive".to_owned()).spawn(move || {
            for lines in filled {
                compressor.write(&lines)?;
            }
            Ok(compressor)
        })?;
        let mut lines = serde_json::to_vec(manifest)?;
        lines.push(b'\n');
        Ok(Self {
            lines,
            hash: Sha256::new(),
            counts: KindCounts::default(),
            lost: 0,
            lost_pages: 0,
            lost_unknown: false,
            damaged: false,
            full: Some(full),
            thread: Some(thread),
        })
    }

    /// Adds a record of the store.
    ///
    /// # Errors
    ///
    /// Fails if the archive cannot be written. It is of no use then.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let start = self.lines.len();
        record::write_row(&mut self.lines, key, value);
        if self.lines.len() - start > LINE_LIMIT {
            return Err(io::Error::other(format!("a record of {} bytes is too large for an archive", value.len())));
        }
        self.counts.add(key.first().copied());
        self.flush_full()
    }

    /// Adds a file of the data directory.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::row`] does.
    pub fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        record::write_file(&mut self.lines, name, content);
        self.counts.add(None);
        self.flush_full()
    }

    /// Counts records that are lost, and so are not in the archive.
    pub const fn lose_rows(&mut self, count: u64) {
        self.lost += count;
    }

    /// Counts pages of a database that cannot be read, each with some records.
    pub const fn lose_pages(&mut self, count: u64) {
        self.lost_pages += count;
    }

    /// Notes that nothing tells how many records are lost.
    pub const fn lose_unknown_rows(&mut self) {
        self.lost_unknown = true;
    }

    /// Notes that the database is damaged.
    pub const fn note_damage(&mut self) {
        self.damaged = true;
    }

    /// Writes the last line, and returns it with the output, which is not flushed.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::row`] does.
    pub fn finish(mut self) -> io::Result<(W, ArchiveEnd)> {
        self.flush()?;
        let mut compressor = self.join()?;
        let (rows, by_kind) = (self.counts.total(), self.counts.by_name());
        let end = ArchiveEnd {
            rows,
            by_kind,
            lost: self.lost,
            lost_pages: self.lost_pages,
            lost_unknown: self.lost_unknown,
            damaged: self.damaged,
            sha256: digits(self.hash.clone()),
        };
        let mut line = serde_json::to_vec(&EndLine { end: end.clone() })?;
        line.push(b'\n');
        compressor.write(&line)?;
        Ok((compressor.out, end))
    }

    fn flush_full(&mut self) -> io::Result<()> {
        if self.lines.len() < BUFFER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hash.update(&self.lines);
        let lines = std::mem::replace(&mut self.lines, Vec::with_capacity(BUFFER + (BUFFER >> 3)));
        let sent = self.full.as_ref().is_some_and(|full| full.send(lines).is_ok());
        if sent {
            return Ok(());
        }
        // The thread has ended early, with the error of its write.
        self.join().and(Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Ends the thread.
    fn join(&mut self) -> io::Result<Compressor<W>> {
        self.full = None;
        let joined = self.thread.take().map(JoinHandle::join);
        joined
            .unwrap_or_else(|| Ok(Err(io::ErrorKind::BrokenPipe.into())))
            .unwrap_or_else(|_| Err(io::Error::other("the compressor panicked")))
    }
}
