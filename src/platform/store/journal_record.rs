//! A record of the journal: the changes of one group.
//!
//! | bytes | record |
//! |---|---|
//! | 4 | length of all that follows the checksum |
//! | 4 | checksum of all that follows it |
//! | 8 | number of the group, with [`COMPRESSED`] if the changes are |
//! | … | each change: length of the key, length of the value or [`DELETED`], key, value |
//! | … | zeros up to the next sector |
//!
//! No two records share a sector, so that a torn write damages no record before it. Records of formats before the fifth follow each other
//! without zeros.

use super::{compression::compressor, row_changes::RowChanges};
use std::{collections::BTreeMap, io};

/// The smallest unit that most disks accept.
pub const SECTOR: usize = 512;

/// Bytes in front of the changes.
const HEAD: usize = 16;

/// In place of the length of a value: the key is deleted.
const DELETED: u32 = u32::MAX;

/// A bit in the number of a group.
const COMPRESSED: u64 = 1 << 63;

/// Bytes of changes from which they are compressed. Those of one event alone would seldom take fewer sectors.
const WORTH_COMPRESSING: usize = 2 * SECTOR;

/// Bytes that are kept for the next record.
const KEPT: usize = 1 << 20;

/// Makes records.
pub struct RecordWriter {
    compressor: zstd::bulk::Compressor<'static>,
    changes: Vec<u8>,
    record: Vec<u8>,
}

impl RecordWriter {
    pub fn new() -> io::Result<Self> {
        Ok(Self { compressor: compressor()?, changes: Vec::new(), record: Vec::new() })
    }

    /// Makes the record of a group, and returns the bytes of its changes.
    pub fn write(&mut self, number: u64, changes: &RowChanges) -> io::Result<usize> {
        self.clear();
        let Self { compressor, changes: content, record } = self;
        encode(content, changes)?;
        record.resize(HEAD, 0);
        let flag = if content.len() >= WORTH_COMPRESSING {
            record.resize(HEAD + zstd::zstd_safe::compress_bound(content.len()), 0);
            let length = compressor.compress_to_buffer(content, &mut record[HEAD..])?;
            record.truncate(HEAD + length);
            COMPRESSED
        } else {
            record.extend_from_slice(content);
            0
        };
        record[8..HEAD].copy_from_slice(&(number | flag).to_be_bytes());
        let (body, checksum) = (length(&record[8..])?, crc32fast::hash(&record[8..]));
        record[..4].copy_from_slice(&body.to_be_bytes());
        record[4..8].copy_from_slice(&checksum.to_be_bytes());
        record.resize(record.len().next_multiple_of(SECTOR), 0);
        Ok(content.len())
    }

    /// The last record, whole sectors of it.
    pub fn bytes(&self) -> &[u8] {
        &self.record
    }

    /// Forgets the last record. A large one is rare, and its memory is not kept.
    pub fn clear(&mut self) {
        for buffer in [&mut self.changes, &mut self.record] {
            buffer.clear();
            buffer.shrink_to(KEPT);
        }
    }
}

fn encode(content: &mut Vec<u8>, changes: &RowChanges) -> io::Result<()> {
    for (key, value) in changes {
        let value_length = match value {
            Some(value) => length(value)?,
            None => DELETED,
        };
        content.extend_from_slice(&length(key)?.to_be_bytes());
        content.extend_from_slice(&value_length.to_be_bytes());
        content.extend_from_slice(key);
        content.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    Ok(())
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length < DELETED);
    length.ok_or_else(|| io::Error::other("a write is too large"))
}

/// The records from the beginning of a file, as long as each is whole and has the next number.
pub fn read_all(bytes: &[u8]) -> BTreeMap<u64, RowChanges> {
    let mut records = BTreeMap::<u64, RowChanges>::new();
    let mut at = 0;
    // The next record begins where the last one ends, or at the next sector.
    while let Some((number, changes, end)) = read(bytes, at).or_else(|| read(bytes, at.next_multiple_of(SECTOR))) {
        if records.last_key_value().is_some_and(|(last, _)| last + 1 != number) {
            break;
        }
        records.insert(number, changes);
        at = end;
    }
    records
}

/// The record at this place, and its end; `None` if there is none, or it is not whole.
fn read(bytes: &[u8], at: usize) -> Option<(u64, RowChanges, usize)> {
    let (length, rest) = take_length(bytes.get(at..)?)?;
    let (checksum, rest) = take_length(rest)?;
    let (body, _) = rest.split_at_checked(length as usize)?;
    let (number, content) = body.split_first_chunk()?;
    if crc32fast::hash(body) != checksum {
        return None;
    }
    let number = u64::from_be_bytes(*number);
    let changes = match number & COMPRESSED {
        0 => decode(content)?,
        _ => decode(&zstd::decode_all(content).ok()?)?,
    };
    Some((number & !COMPRESSED, changes, at + 8 + body.len()))
}

fn decode(mut content: &[u8]) -> Option<RowChanges> {
    let mut changes = RowChanges::new();
    while !content.is_empty() {
        let (key_length, rest) = take_length(content)?;
        let (value_length, rest) = take_length(rest)?;
        let (key, rest) = rest.split_at_checked(key_length as usize)?;
        let deleted = value_length == DELETED;
        let (value, rest) = rest.split_at_checked(if deleted { 0 } else { value_length as usize })?;
        changes.insert(key.to_vec(), (!deleted).then(|| value.to_vec()));
        content = rest;
    }
    Some(changes)
}

fn take_length(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*length), rest))
}

/// A file with these records.
#[cfg(test)]
pub fn in_present_form(records: &BTreeMap<u64, RowChanges>) -> Vec<u8> {
    let (mut file, mut record) = (Vec::new(), RecordWriter::new().unwrap());
    for (number, changes) in records {
        record.write(*number, changes).unwrap();
        file.extend_from_slice(record.bytes());
    }
    file
}

/// A file with these records as formats before the fifth had it.
#[cfg(test)]
pub fn in_older_form(records: &BTreeMap<u64, RowChanges>) -> Vec<u8> {
    let mut file = Vec::new();
    for (number, changes) in records {
        let mut body = number.to_be_bytes().to_vec();
        encode(&mut body, changes).unwrap();
        file.extend_from_slice(&(body.len() as u32).to_be_bytes());
        file.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        file.extend_from_slice(&body);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes of a few bytes up to some thousand, so that records are plain and compressed.
    fn changes(number: u64) -> RowChanges {
        let value = |number: u64| (!number.is_multiple_of(3)).then(|| vec![number as u8; number as usize % 50]);
        let rows = (0..number % 5 * 40).map(|row| (format!("row {row}").into_bytes(), value(number + row)));
        rows.chain([(b"last".to_vec(), Some(number.to_be_bytes().to_vec()))]).collect()
    }

    fn written(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        in_present_form(&numbers.into_iter().map(|number| (number, changes(number))).collect())
    }

    fn numbers(records: &BTreeMap<u64, RowChanges>) -> Vec<u64> {
        records.keys().copied().collect()
    }

    #[test]
    fn records_come_back_as_they_were_written_and_begin_at_sectors() {
        let bytes = written(7..40);
        assert!(bytes.len().is_multiple_of(SECTOR));
        let read = read_all(&bytes);
        assert_eq!(numbers(&read), (7..40).collect::<Vec<_>>());
        assert!(read.iter().all(|(number, read)| *read == changes(*number)));
    }

    #[test]
    fn a_group_of_many_changes_that_are_alike_takes_few_sectors() {
        let rows = (0..100_u8).map(|row| (vec![row], Some(b"the same value in every row".to_vec())));
        let mut record = RecordWriter::new().unwrap();
        let content = record.write(1, &rows.collect()).unwrap();
        assert_eq!(content, 100 * (8 + 1 + 27));
        assert!(record.bytes().len() <= 4 * SECTOR, "{} bytes", record.bytes().len());
    }

    #[test]
    fn records_of_the_formats_before_follow_each_other_without_zeros() {
        let mut bytes = in_older_form(&(1..6).map(|number| (number, changes(number))).collect());
        bytes.extend_from_slice(&[0; 1000]);
        let read = read_all(&bytes);
        assert_eq!(numbers(&read), [1, 2, 3, 4, 5]);
        assert!(read.iter().all(|(number, read)| *read == changes(*number)));
    }

    #[test]
    fn a_file_ends_at_a_record_that_is_not_whole() {
        for last in [5, 6] {
            let (whole, bytes) = (written(1..last).len(), written(1..=last));
            let before: Vec<_> = (1..last).collect();
            let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            for length in whole..end {
                assert_eq!(numbers(&read_all(&bytes[..length])), before, "{length} bytes");
            }
            for bit in whole * 8..end * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(numbers(&read_all(&changed)), before, "bit {bit}");
            }
            assert_eq!(numbers(&read_all(&[bytes, vec![0; 1000]].concat())), (1..=last).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_rest_of_a_file_that_is_written_over_is_not_read() {
        // All records have the same length, so that an old one begins where the last new one ends.
        let same = |numbers: std::ops::Range<u64>| {
            let change = |number: u64| [(b"key".to_vec(), Some(number.to_be_bytes().to_vec()))].into();
            in_present_form(&numbers.map(|number| (number, change(number))).collect())
        };
        let (mut file, new) = (same(1..10), same(20..23));
        file[..new.len()].copy_from_slice(&new);
        assert_eq!(numbers(&read_all(&file)), [20, 21, 22]);
    }
}
