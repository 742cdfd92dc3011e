//! Values of more than [`PIECE`] bytes are compressed, and kept in pieces under keys of their own.
//!
//! sled writes a page that grows past an eighth of a megabyte to a file beside its database, and never syncs that
//! file, so that the values in such a page would not survive a power cut. A page holds at most seventeen keys, so values of
//! a few KiB keep every page below that.
//!
//! The layout byte of the [`frame`] says whether the content is the value itself (`0`) or a head (`1`, or `4` if the pieces are those of
//! the compressed value): generation, and length of all pieces. A new value under the same key has a new generation, so a reader that
//! comes between the two finds pieces missing, never mixed, and reads again.

pub use super::frame::Value;

use super::{StoreError, compression, frame, keys};
use crate::model::timestamp::Timestamp;
use std::{
    borrow::Cow,
    cell::RefCell,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most bytes of a value that one key holds.
pub const PIECE: usize = 4096;

/// The length of the largest value. A head that promises more is damaged.
const MAX_LENGTH: u64 = 4 << 30;

/// Bytes in the key of a piece around the key of its value.
const PIECE_KEY: usize = 1 + size_of::<u64>() + size_of::<u32>();

pub const WHOLE: u8 = 0;
pub const HEAD: u8 = 1;
pub const HEAD_OF_COMPRESSED: u8 = 4;

/// Starts beyond every generation that an earlier process of this directory can have used.
static GENERATION: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(u64::try_from(Timestamp::now().micros()).unwrap_or(0)));

/// The value under a key, before any pieces are read.
pub enum Framed {
    Whole(Value),
    Pieces(Head),
}

/// Generation and number of the pieces of a value, from which their keys are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    generation: u64,
    /// Bytes of all pieces.
    length: u64,
    is_compressed: bool,
}

/// The bytes under `key` for a value that is not in pieces.
pub fn whole(key: &[u8], value: &[u8]) -> Vec<u8> {
    frame::seal(key, WHOLE, value)
}

/// The writes that put `value` under `key`.
pub fn writes(key: Vec<u8>, value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    if value.len() <= PIECE {
        let framed = whole(&key, value);
        return vec![(key, framed)];
    }
    let (stored, is_compressed) = compressed(value);
    let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
    let head = Head { generation, length: stored.len() as u64, is_compressed };
    let mut writes: Vec<_> = head
        .keys(&key)
        .zip(stored.chunks(PIECE))
        .map(|(key, piece)| {
            let framed = whole(&key, piece);
            (key, framed)
        })
        .collect();
    let layout = if is_compressed { HEAD_OF_COMPRESSED } else { HEAD };
    let framed = frame::seal(&key, layout, &[head.generation.to_be_bytes(), head.length.to_be_bytes()].concat());
    writes.push((key, framed));
    writes
}

/// The value compressed, and true; or as it is, if that takes no less.
fn compressed(value: &[u8]) -> (Cow<'_, [u8]>, bool) {
    thread_local! {
        static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    }
    let compressed = COMPRESSOR.with_borrow_mut(|compressor| {
        let compressor = match compressor {
            Some(compressor) => compressor,
            none => none.insert(compression::compressor().ok()?),
        };
        compressor.compress(value).ok().filter(|compressed| compressed.len() < value.len())
    });
    match compressed {
        Some(compressed) => (compressed.into(), true),
        None => (value.into(), false),
    }
}

/// Tells a whole value from the head of one in pieces.
pub fn read(key: &[u8], raw: &Value) -> Result<Framed, StoreError> {
    let (layout, content) = frame::open(key, raw)?;
    match layout {
        WHOLE => Ok(Framed::Whole(content)),
        HEAD | HEAD_OF_COMPRESSED => match (keys::number(&content, 0), keys::number(&content, 8)) {
            (Some(generation), Some(length)) if length <= MAX_LENGTH => {
                Ok(Framed::Pieces(Head { generation, length, is_compressed: layout == HEAD_OF_COMPRESSED }))
            }
            _ => Err(StoreError::damaged(key, "its head names no pieces")),
        },
        _ => Err(StoreError::damaged(key, "its layout is unknown")),
    }
}

/// True if `piece` is the key of a piece of the value under `key`, of any generation.
pub fn is_piece_of(key: &[u8], piece: &[u8]) -> bool {
    piece.len() == key.len() + PIECE_KEY && piece[0] == keys::PIECE && piece[1..].starts_with(key)
}

/// The key of the value that the piece under this key belongs to.
pub fn value_of_piece(piece: &[u8]) -> Option<&[u8]> {
    let key = piece.get(1..piece.len().checked_sub(size_of::<u64>() + size_of::<u32>())?)?;
    (!key.is_empty()).then_some(key)
}

impl Head {
    /// The keys of the pieces of the value under `key`.
    pub fn keys<'a>(self, key: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + use<'a> {
        (0..self.count())
            .map(move |index| keys::key(keys::PIECE, &[key, &self.generation.to_be_bytes(), &index.to_be_bytes()]))
    }

    /// The bytes of all rows that hold pieces of the value under `key`.
    pub fn size(self, key: &[u8]) -> u64 {
        let around = key.len() + PIECE_KEY + frame::LENGTH;
        u64::from(self.count()) * around as u64 + self.length
    }

    fn count(self) -> u32 {
        u32::try_from(self.length.div_ceil(PIECE as u64)).expect("a length is checked before")
    }

    /// The value, or `None` if a piece is gone because the value has changed since its head was read.
    pub fn join(
        self,
        key: &[u8],
        get: impl Fn(&[u8]) -> Result<Option<Value>, StoreError>,
    ) -> Result<Option<Value>, StoreError> {
        // A damaged head may name any number of pieces, so only so much is allotted on its word.
        let mut value = Vec::with_capacity((self.length as usize).min(256 * PIECE));
        for piece in self.keys(key) {
            let Some(raw) = get(&piece)? else { return Ok(None) };
            let (_, content) = frame::open(&piece, &raw)
                .map_err(|_| StoreError::damaged(key, "the checksum of one of its pieces does not match"))?;
            value.extend_from_slice(&content);
        }
        if self.is_compressed {
            let decompressed = zstd::decode_all(value.as_slice());
            value = decompressed.map_err(|_| StoreError::damaged(key, "its pieces cannot be decompressed"))?;
        }
        Ok(Some(value.into()))
    }
}

/// The value under `key`, by a reader that may see it change.
pub fn get(key: &[u8], get: impl Fn(&[u8]) -> Result<Option<Value>, StoreError>) -> Result<Option<Value>, StoreError> {
    let mut seen = None;
    loop {
        let Some(raw) = get(key)? else { return Ok(None) };
        match read(key, &raw)? {
            Framed::Whole(value) => return Ok(Some(value)),
            Framed::Pieces(head) => {
                if let Some(value) = head.join(key, &get)? {
                    return Ok(Some(value));
                }
                if seen == Some(head) {
                    return Err(StoreError::damaged(key, "some of its pieces are missing"));
                }
                seen = Some(head);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::store::test_support::noise;
    use std::collections::HashMap;

    fn written(value: &[u8]) -> HashMap<Vec<u8>, Vec<u8>> {
        writes(b"key".to_vec(), value).into_iter().collect()
    }

    fn joined(rows: &HashMap<Vec<u8>, Vec<u8>>) -> Result<Option<Value>, StoreError> {
        get(b"key", |key| Ok(rows.get(key).map(|raw| raw.as_slice().into())))
    }

    #[test]
    fn values_of_every_size_come_back_as_they_were_written() {
        for value in [0, 1, PIECE, PIECE + 1, 3 * PIECE, 50 * PIECE + 7].map(|length| vec![b'x'; length]) {
            assert_eq!(joined(&written(&value)).unwrap().as_deref(), Some(&value[..]));
        }
        for value in [PIECE + 1, 3 * PIECE, 50 * PIECE + 7].map(|length| noise(1, length)) {
            let rows = written(&value);
            assert_eq!(rows.len(), 1 + value.len().div_ceil(PIECE));
            assert_eq!(joined(&rows).unwrap().as_deref(), Some(&value[..]));
        }
    }

    #[test]
    fn a_large_value_that_repeats_itself_takes_few_pieces() {
        assert_eq!(written(&b"the same again, ".repeat(10_000)).len(), 2);
    }

    #[test]
    fn pieces_of_formats_before_the_fifth_are_read_as_they_are() {
        let value = b"the same again, ".repeat(1000);
        let head = Head { generation: 7, length: value.len() as u64, is_compressed: false };
        let mut rows: HashMap<_, _> =
            head.keys(b"key").zip(value.chunks(PIECE)).map(|(key, piece)| (key.clone(), whole(&key, piece))).collect();
        let content = [7_u64.to_be_bytes(), head.length.to_be_bytes()].concat();
        rows.insert(b"key".to_vec(), frame::seal(b"key", HEAD, &content));
        assert_eq!(joined(&rows).unwrap().as_deref(), Some(&value[..]));
    }

    #[test]
    fn a_value_with_a_changed_or_missing_piece_is_damaged() {
        let rows = written(&noise(1, 3 * PIECE));
        for key in rows.keys() {
            let mut changed = rows.clone();
            changed.get_mut(key).unwrap()[10] ^= 1;
            assert!(matches!(joined(&changed), Err(StoreError::Damaged { .. })));
            if key != b"key" {
                changed.remove(key);
                assert!(matches!(joined(&changed), Err(StoreError::Damaged { .. })));
            }
        }
    }
}
