//! Reading an archive, and checking all of it: its versions, each line, the counts and the hash of its end, and that
//! nothing follows. Memory is bounded by the longest line.

use super::{
    ArchiveError, Manifest,
    kinds::KindCounts,
    manifest::{ArchiveEnd, EndLine, digits},
    record::{self, ArchiveRecord},
    write::LINE_LIMIT,
};
use sha2::{Digest as _, Sha256};
use std::io::{self, BufRead, BufReader, Read};

/// The beginning of the last line.
const END: &[u8] = b"{\"end\":";

/// Bytes that are decompressed at once.
const BUFFER: usize = 256 << 10;

/// An archive that is being read.
pub struct ArchiveReader<R: Read> {
    /// Taken when the stream has ended.
    lines: Option<BufReader<zstd::Decoder<'static, BufReader<R>>>>,
    line: Vec<u8>,
    hash: Sha256,
    rows: u64,
    counts: KindCounts,
    bytes: u64,
    manifest: Manifest,
    end: Option<ArchiveEnd>,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the manifest.
    ///
    /// # Errors
    ///
    /// Fails if this is no archive, or one of a newer version.
    pub fn new(input: R) -> Result<Self, ArchiveError> {
        let mut input = BufReader::with_capacity(BUFFER, input);
        let magic = input.fill_buf().map_err(ArchiveError::Unreadable)?;
        if !magic.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
            let why = if magic.is_empty() { "it is empty" } else { "it is not compressed with zstd" };
            return Err(ArchiveError::Foreign(why.to_owned()));
        }
        let decoder = zstd::Decoder::with_buffer(input).map_err(ArchiveError::Unreadable)?;
        let mut reader = Self {
            lines: Some(BufReader::with_capacity(BUFFER, decoder)),
            line: Vec::new(),
            hash: Sha256::new(),
            rows: 0,
            counts: KindCounts::default(),
            bytes: 0,
            manifest: Manifest::new(0),
            end: None,
        };
        reader.read_line()?;
        reader.manifest = Manifest::read(&reader.line)?;
        reader.hash_line();
        Ok(reader)
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes of the lines that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records that were read.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The last line, once everything was read and found right.
    pub fn end(&self) -> Option<&ArchiveEnd> {
        self.end.as_ref()
    }

    /// The next record; `None` once the whole archive was read and found right.
    ///
    /// # Errors
    ///
    /// Fails if the archive is damaged or incomplete. The records before are of no use then.
    pub fn next_record(&mut self) -> Result<Option<ArchiveRecord<'_>>, ArchiveError> {
        if self.end.is_some() {
            return Ok(None);
        }
        self.read_line()?;
        if self.line.starts_with(END) {
            let end = self.read_end()?;
            if end.by_kind != self.counts.by_name() {
                return Err(self.wrong_count(&end));
            }
            self.check_end(end)?;
            return Ok(None);
        }
        self.hash_line();
        let rows = self.rows;
        let record = record::read(&self.line).map_err(|why| ArchiveError::Damaged { rows, why })?;
        self.rows += 1;
        self.counts.add(match &record {
            ArchiveRecord::Row { key, .. } => key.first().copied(),
            ArchiveRecord::File { .. } => None,
        });
        Ok(Some(record))
    }

    /// Reads everything that is left, and returns the first and the last line. The hash is checked, and no record is
    /// looked at. `progress` gets bytes and records.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::next_record`] does.
    pub fn check_hash(mut self, mut progress: impl FnMut(u64, u64)) -> Result<(Manifest, ArchiveEnd), ArchiveError> {
        loop {
            self.read_line()?;
            if self.line.starts_with(END) {
                let end = self.read_end()?;
                self.check_end(end.clone())?;
                return Ok((self.manifest, end));
            }
            self.hash_line();
            self.rows += 1;
            progress(self.bytes, self.rows);
        }
    }

    /// Reads a line into `self.line`, with its line feed.
    fn read_line(&mut self) -> Result<(), ArchiveError> {
        let rows = self.rows();
        let incomplete = ArchiveError::Incomplete { rows };
        let Some(lines) = &mut self.lines else { return Err(incomplete) };
        self.line.clear();
        let limit = LINE_LIMIT as u64 + 1;
        match lines.take(limit).read_until(b'\n', &mut self.line) {
            Err(error) => return Err(of_stream(error, rows)),
            Ok(0) => return Err(incomplete),
            Ok(_) => {}
        }
        if self.line.last() == Some(&b'\n') {
            self.bytes += self.line.len() as u64;
            return Ok(());
        }
        match self.line.len() > LINE_LIMIT {
            true => Err(ArchiveError::Damaged { rows, why: format!("a line has more than {} MiB", LINE_LIMIT >> 20) }),
            false => Err(incomplete),
        }
    }

    fn hash_line(&mut self) {
        self.hash.update(&self.line);
    }

    fn read_end(&self) -> Result<ArchiveEnd, ArchiveError> {
        let read: Result<EndLine, _> = serde_json::from_slice(&self.line);
        let EndLine { end } = read.map_err(|error| self.damaged(format!("its last line is wrong: {error}")))?;
        if end.rows == self.rows { Ok(end) } else { Err(self.wrong_count(&end)) }
    }

    /// Compares the hash of the last line with what was read, and checks that the file ends there.
    fn check_end(&mut self, end: ArchiveEnd) -> Result<(), ArchiveError> {
        let rows = self.rows;
        let damaged = |why: String| ArchiveError::Damaged { rows, why };
        if end.sha256 != digits(self.hash.clone()) {
            return Err(damaged("its content does not have the SHA-256 that its last line tells".to_owned()));
        }
        let Some(mut lines) = self.lines.take() else { return Err(ArchiveError::Incomplete { rows }) };
        // Reading on also makes the decoder check the end of its frame. Bytes that are no frame are an error to it.
        match lines.fill_buf().map(<[u8]>::is_empty) {
            Ok(true) => {}
            Err(error) if error.raw_os_error().is_some() => return Err(ArchiveError::Unreadable(error)),
            Ok(false) | Err(_) => return Err(damaged("there is more after its last line".to_owned())),
        }
        self.end = Some(end);
        Ok(())
    }

    fn wrong_count(&self, end: &ArchiveEnd) -> ArchiveError {
        self.damaged(format!("its last line tells of {} records", end.rows))
    }

    fn damaged(&self, why: String) -> ArchiveError {
        ArchiveError::Damaged { rows: self.rows, why }
    }
}

/// The error of a read. zstd reports damage and a missing end as errors of the input.
fn of_stream(error: io::Error, rows: u64) -> ArchiveError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::Incomplete { rows },
        // The decoder has no error codes of the system.
        _ if error.raw_os_error().is_none() => ArchiveError::Damaged { rows, why: error.to_string() },
        _ => ArchiveError::Unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{archive::ArchiveWriter, store::keys};

    fn archive(rows: u8) -> Vec<u8> {
        let mut writer = ArchiveWriter::new(Vec::new(), &Manifest::new(7)).unwrap();
        writer.file("admin.token", b"svc_secret\n").unwrap();
        for n in 0..rows {
            let key = keys::key(keys::SINKS, &[&[n; 16]]);
            writer.row(&key, format!("{{\"name\":\"s{n}\"}}").as_bytes()).unwrap();
        }
        writer.row(&[keys::HISTORY], &5_u64.to_be_bytes()).unwrap();
        writer.finish().unwrap().0
    }

    /// Reads an archive record by record, and by its hash alone, which finds no fault in what is found right.
    fn check(archive: &[u8]) -> Result<ArchiveEnd, ArchiveError> {
        let mut reader = ArchiveReader::new(archive)?;
        let read = loop {
            match reader.next_record() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(reader.end().unwrap().clone()),
                Err(error) => break Err(error),
            }
        };
        let hashed = ArchiveReader::new(archive)?.check_hash(|_, _| ());
        assert!(hashed.is_ok() || read.is_err(), "{hashed:?}");
        read
    }

    /// The lines of an archive, changed, as an archive.
    fn edited(archive: &[u8], edit: impl FnOnce(String) -> String) -> Vec<u8> {
        let text = String::from_utf8(zstd::decode_all(archive).unwrap()).unwrap();
        zstd::encode_all(edit(text).as_bytes(), 1).unwrap()
    }

    #[test]
    fn an_archive_reads_back_as_it_was_written() {
        let archive = archive(2);
        let mut reader = ArchiveReader::new(&*archive).unwrap();
        assert_eq!((reader.manifest().svc_backup, reader.manifest().bytes_estimate), (1, 7));
        let mut found = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            found.push(match record {
                ArchiveRecord::File { name, content } => (name.as_bytes().to_vec(), content),
                ArchiveRecord::Row { key, value } => (key, value.into_owned()),
            });
        }
        let row = |n: u8| (keys::key(keys::SINKS, &[&[n; 16]]), format!("{{\"name\":\"s{n}\"}}").into_bytes());
        let token = (b"admin.token".to_vec(), b"svc_secret\n".to_vec());
        assert_eq!(found, [token, row(0), row(1), (vec![keys::HISTORY], 5_u64.to_be_bytes().to_vec())]);
        let end = reader.end().unwrap();
        assert_eq!((end.rows, end.by_kind["sink"], end.by_kind["file"], end.lost), (4, 2, 1, 0));
    }

    #[test]
    fn an_archive_cut_off_at_any_byte_is_incomplete() {
        let archive = archive(20);
        for length in 0..archive.len() {
            let error = check(&archive[..length]).unwrap_err();
            let cut = matches!(error, ArchiveError::Incomplete { .. });
            let headless = length < 20 && matches!(error, ArchiveError::Foreign(_) | ArchiveError::Damaged { .. });
            assert!(cut || headless, "{length}: {error:?}");
        }
    }

    #[test]
    fn an_archive_with_any_byte_changed_is_never_taken_for_a_whole_one_with_other_content() {
        let archive = archive(20);
        let whole = zstd::decode_all(&*archive).unwrap();
        for at in 0..archive.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = archive.clone();
                damaged[at] ^= change;
                if check(&damaged).is_ok() {
                    // A bit of zstd's header may change without a change of what it says.
                    assert_eq!(zstd::decode_all(&*damaged).unwrap(), whole, "byte {at} changed by {change:#x}");
                }
            }
        }
    }

    #[test]
    fn an_archive_whose_lines_were_edited_is_refused_with_the_fault() {
        let archive = archive(3);
        let fault = |edit: &dyn Fn(String) -> String| check(&edited(&archive, edit)).unwrap_err().to_string();
        let unchanged = edited(&archive, |text| text);
        assert!(check(&unchanged).is_ok());
        let other_value = fault(&|text| text.replace("\"s1\"", "\"s9\""));
        assert!(other_value.contains("SHA-256"), "{other_value}");
        let missing_line = fault(&|text| {
            let kept: Vec<_> = text.lines().filter(|line| !line.contains("\"s1\"")).collect();
            kept.join("\n") + "\n"
        });
        assert!(missing_line.contains("tells of 5 records"), "{missing_line}");
        let other_kind = fault(&|text| text.replacen("\"kind\":\"sink\"", "\"kind\":\"user\"", 1));
        assert!(other_kind.contains("tells of 5 records"), "{other_kind}");
        let no_end = fault(&|text| text.split("{\"end\"").next().unwrap().to_owned());
        assert!(no_end.contains("incomplete") && no_end.contains("5 records"), "{no_end}");
        let no_line_feed = fault(&|text| text.trim_end().to_owned());
        assert!(no_line_feed.contains("incomplete"), "{no_line_feed}");
        let more = fault(&|text| text + "{}\n");
        assert!(more.contains("more after its last line"), "{more}");
        let garbage = check(&[&archive[..], b"x"].concat()).unwrap_err().to_string();
        assert!(garbage.contains("more after its last line"), "{garbage}");
        let twice = check(&[&archive[..], &archive[..]].concat()).unwrap_err().to_string();
        assert!(twice.contains("more after its last line"), "{twice}");
    }

    #[test]
    fn a_newer_archive_or_newer_data_is_refused_with_both_versions() {
        let archive = archive(1);
        let newer = |field: &'static str| {
            edited(&archive, move |text| {
                let end = text.find(',').unwrap();
                match field {
                    "svc_backup" => format!("{{\"svc_backup\":9{}", &text[end..]),
                    _ => text.replacen("\"format\":5", "\"format\":17", 1),
                }
                .replacen(
                    concat!("\"version\":\"", env!("CARGO_PKG_VERSION")),
                    "\"version\":\"9.8.7",
                    1,
                )
            })
        };
        let error = check(&newer("svc_backup")).unwrap_err().to_string();
        assert!(error.contains("archive format has version 9") && error.contains("up to version 1"), "{error}");
        assert!(error.contains("svc 9.8.7 or later"), "{error}");
        let error = check(&newer("format")).unwrap_err().to_string();
        assert!(error.contains("data format has version 17") && error.contains("up to version 5"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_archive_is_named_as_such() {
        for (bytes, why) in [
            (&b""[..], "it is empty"),
            (b"{\"svc_backup\":1}\n", "not compressed"),
            (&zstd::encode_all(&b"hello\n"[..], 1).unwrap(), "no manifest"),
        ] {
            let error = check(bytes).unwrap_err().to_string();
            assert!(error.contains("no backup of svc") && error.contains(why), "{error}");
        }
    }
}
