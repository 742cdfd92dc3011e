//! A block: neighbouring rows of one kind that sled keeps as one row, compressed.
//!
//! sled holds at most sixteen rows in a page and writes a page about three times while rows come to its end. Rows of events, deliveries and
//! queues come by the thousand, look alike, and mostly come and go with their neighbours, so that they are kept together.
//!
//! A block is a value in a [`frame`] under a key that is not behind the first of its rows. Its content is row after row: length of the key,
//! length of the value, key, and value with its own frame. A row that is alone is kept as it is.

use super::{
    StoreError, chunked,
    compression::compressor,
    frame::{self, Value},
    keys,
};
use std::ops::{
    Bound::{self, Unbounded},
    RangeBounds,
};

/// The most bytes that sled has for a block of several rows, because up to twenty may be in one page, and a page must not grow past an
/// eighth of a megabyte (see [`chunked`]).
pub const MAX_SEALED: usize = 4096;

/// About the most bytes of rows in a block, however well they are compressed: a reader of one row decompresses all of them.
pub const MAX_CONTENT: usize = 16 << 10;

/// Bytes in front of a row.
const LENGTHS: usize = size_of::<u16>() + size_of::<u32>();

/// Bytes of rows from which a block is compressed.
const WORTH_COMPRESSING: usize = 256;

/// The most bytes of rows that a damaged block may claim to have.
const MAX_CLAIMED: usize = 1 << 20;

const PLAIN: u8 = 2;
const COMPRESSED: u8 = 3;

/// The kinds of rows that are kept in blocks.
pub const KINDS: [u8; 3] = [keys::EVENT, keys::DELIVERY, keys::QUEUE];

/// True if rows under such a key are kept in blocks.
pub fn is_in_blocks(key: &[u8]) -> bool {
    key.first().is_some_and(|kind| KINDS.contains(kind))
}

/// A row: key and value.
pub type Row = (Value, Value);

/// Bytes that a row takes in a block before it is compressed.
pub fn size((key, value): &Row) -> usize {
    LENGTHS + key.len() + value.len()
}

/// Bytes that several rows take so.
pub fn bytes(rows: &[Row]) -> usize {
    rows.iter().map(size).sum()
}

/// The number of rows from the first one on that fit into so many bytes of a block.
pub fn fitting_rows(rows: &[Row], mut room: usize) -> usize {
    rows.iter()
        .take_while(|row| {
            let rest = room.checked_sub(size(row));
            room = rest.unwrap_or(0);
            rest.is_some()
        })
        .count()
}

/// Makes blocks.
pub struct BlockWriter {
    compressor: zstd::bulk::Compressor<'static>,
    content: Vec<u8>,
}

impl BlockWriter {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { compressor: compressor()?, content: Vec::new() })
    }

    /// The value that sled has for these rows under the key `start`.
    pub fn seal(&mut self, start: &[u8], rows: &[Row]) -> std::io::Result<Vec<u8>> {
        if let [(key, value)] = rows
            && **key == *start
            && matches!(
                value.get(frame::LENGTH - 1),
                Some(&(chunked::WHOLE | chunked::HEAD | chunked::HEAD_OF_COMPRESSED))
            )
        {
            return Ok(value.to_vec());
        }
        self.content.clear();
        for (key, value) in rows {
            self.content.extend_from_slice(&(key.len() as u16).to_be_bytes());
            self.content.extend_from_slice(&(value.len() as u32).to_be_bytes());
            self.content.extend_from_slice(key);
            self.content.extend_from_slice(value);
        }
        if self.content.len() >= WORTH_COMPRESSING {
            let compressed = self.compressor.compress(&self.content)?;
            if compressed.len() < self.content.len() {
                return Ok(frame::seal(start, COMPRESSED, &compressed));
            }
        }
        Ok(frame::seal(start, PLAIN, &self.content))
    }
}

/// Reads blocks.
pub struct BlockReader(zstd::bulk::Decompressor<'static>);

impl BlockReader {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(zstd::bulk::Decompressor::new()?))
    }

    /// The rows that sled has as this value under the key `start`. A value that is no block is a row itself.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`].
    pub fn open(&mut self, start: &[u8], sealed: &Value) -> Result<RowBlock, StoreError> {
        let layout = sealed.get(frame::LENGTH - 1).copied();
        if !is_in_blocks(start) || !matches!(layout, Some(PLAIN | COMPRESSED)) {
            return Ok(RowBlock::One((start.into(), sealed.clone())));
        }
        let damaged = |reason| StoreError::damaged(start, reason);
        let (layout, content) = frame::open(start, sealed)?;
        let content = match layout {
            COMPRESSED => {
                let length = zstd::zstd_safe::get_frame_content_size(&content).ok().flatten().unwrap_or(u64::MAX);
                let length = usize::try_from(length).ok().filter(|length| *length <= MAX_CLAIMED);
                let length = length.ok_or_else(|| damaged("its block has no sensible length"))?;
                let content = self.0.decompress(&content, length);
                content.map_err(|_| damaged("its block cannot be decompressed"))?.into()
            }
            _ => content,
        };
        let block = RowBlock::Several(content);
        // Every row is looked at once, so that readers of the block need not expect a torn one.
        if block.iter().map(|(key, value)| LENGTHS + key.len() + value.len()).sum::<usize>() != block.content().len() {
            return Err(damaged("its block ends within a row"));
        }
        Ok(block)
    }
}

/// The rows of a block, in the order of their keys.
#[derive(Clone)]
pub enum RowBlock {
    One(Row),
    /// The content of a block.
    Several(Value),
}

impl RowBlock {
    /// The value of the row with this key.
    pub fn get(&self, wanted: &[u8]) -> Option<Value> {
        self.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.into())
    }

    /// All rows.
    pub fn rows(&self) -> Vec<Row> {
        self.rows_between(Unbounded, Unbounded)
    }

    /// The rows of a range, in memory of their own: one that is kept does not keep its neighbours.
    pub fn rows_between(&self, low: Bound<&[u8]>, high: Bound<&[u8]>) -> Vec<Row> {
        let is_between = |key: &[u8]| RangeBounds::<[u8]>::contains(&(low, high), key);
        match self {
            Self::One(row) => {
                if is_between(&row.0) {
                    vec![row.clone()]
                } else {
                    Vec::new()
                }
            }
            Self::Several(_) => {
                let rows = self.iter().filter(|(key, _)| is_between(key));
                rows.map(|(key, value)| (key.into(), value.into())).collect()
            }
        }
    }

    /// The rows, up to one that is torn.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let one = match self {
            Self::One((key, value)) => Some((&**key, &**value)),
            Self::Several(_) => None,
        };
        let mut rest = self.content();
        one.into_iter().chain(std::iter::from_fn(move || {
            let (row, after) = take_row(rest)?;
            rest = after;
            Some(row)
        }))
    }

    fn content(&self) -> &[u8] {
        match self {
            Self::One(_) => &[],
            Self::Several(content) => content,
        }
    }
}

/// The row at the beginning of a content: its key and its value; and the content behind it.
type TakenRow<'a> = ((&'a [u8], &'a [u8]), &'a [u8]);

fn take_row(content: &[u8]) -> Option<TakenRow<'_>> {
    let (key_length, rest) = content.split_first_chunk()?;
    let (value_length, rest) = rest.split_first_chunk()?;
    let (key, rest) = rest.split_at_checked(u16::from_be_bytes(*key_length).into())?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*value_length) as usize)?;
    Some(((key, value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u32, value: impl Fn(u32) -> Vec<u8>) -> Vec<Row> {
        (0..count)
            .map(|n| {
                let key = keys::key(keys::EVENT, &[&n.to_be_bytes()]);
                let framed = frame::seal(&key, chunked::WHOLE, &value(n));
                (key.into(), framed.into())
            })
            .collect()
    }

    fn read(start: &[u8], stored: Vec<u8>) -> Result<Vec<Row>, StoreError> {
        BlockReader::new().unwrap().open(start, &stored.into()).map(|block| block.rows())
    }

    #[test]
    fn rows_come_back_as_they_were_put() {
        let mut writer = BlockWriter::new().unwrap();
        let noise = |n: u32| n.to_be_bytes().repeat(9).iter().map(|byte| byte.wrapping_mul(n as u8 ^ 77)).collect();
        for rows in [rows(1, |_| vec![1; 10]), rows(2, |_| Vec::new()), rows(40, |_| vec![7; 500]), rows(30, noise)] {
            let start = rows[0].0.clone();
            assert_eq!(read(&start, writer.seal(&start, &rows).unwrap()).unwrap(), rows);
            let before = [keys::EVENT];
            assert_eq!(read(&before, writer.seal(&before, &rows).unwrap()).unwrap(), rows);
        }
    }

    #[test]
    fn like_rows_take_a_fraction_of_their_size_and_one_row_alone_is_kept_as_it_is() {
        let mut writer = BlockWriter::new().unwrap();
        let alike = rows(24, |n| format!(r#"{{"id":{n},"type":"deploy.finished","source":"build"}}"#).into());
        let stored = writer.seal(&alike[0].0, &alike).unwrap();
        assert!(stored.len() * 3 < alike.iter().map(size).sum(), "{}", stored.len());
        assert_eq!(writer.seal(&alike[0].0, &alike[..1]).unwrap(), &*alike[0].1);
    }

    #[test]
    fn a_row_that_looks_like_a_block_is_still_a_row() {
        let mut writer = BlockWriter::new().unwrap();
        let key = Value::from(&[keys::EVENT, 1][..]);
        for value in [&b""[..], b"1234", b"1234\x02", b"1234\x03rest"] {
            let row = vec![(key.clone(), Value::from(value))];
            assert_eq!(read(&key, writer.seal(&key, &row).unwrap()).unwrap(), row);
        }
    }

    #[test]
    fn a_changed_block_is_damaged_whatever_changed() {
        let rows = rows(20, |n| vec![n as u8; 40]);
        let start = &rows[0].0;
        let stored = BlockWriter::new().unwrap().seal(start, &rows).unwrap();
        for at in (0..stored.len()).filter(|at| *at != frame::LENGTH - 1) {
            let mut changed = stored.clone();
            changed[at] ^= 1;
            assert!(matches!(read(start, changed), Err(StoreError::Damaged { kind: "event", .. })), "byte {at}");
        }
        // With the right checksum too.
        for content in [&b"\0"[..], b"\0\x03\0\0\0\x01key", &[0xff; 40]] {
            assert!(read(start, frame::seal(start, PLAIN, content)).is_err());
            assert!(read(start, frame::seal(start, COMPRESSED, content)).is_err());
        }
        let huge = compressor().unwrap().compress(&vec![0; MAX_CLAIMED + 1]).unwrap();
        assert!(read(start, frame::seal(start, COMPRESSED, &huge)).is_err());
    }
}
