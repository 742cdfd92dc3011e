//! The frame of every stored value: a checksum over key and content, one byte that tells the layout, then the content.
//!
//! The checksum includes the key, so that a value that turns up under another key is as damaged as a changed one. A value
//! whose checksum does not hold is never returned.

use super::StoreError;

/// A value as the store holds it.
pub type Value = sled::IVec;

/// Bytes in front of the content.
pub const LENGTH: usize = 5;

const CHECKSUM: usize = 4;

/// Returns the stored form of `content` under `key`.
pub fn seal(key: &[u8], layout: u8, content: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(LENGTH + content.len());
    framed.extend_from_slice(&[0; CHECKSUM]);
    framed.push(layout);
    framed.extend_from_slice(content);
    let checksum = checksum(key, &framed[CHECKSUM..]);
    framed[..CHECKSUM].copy_from_slice(&checksum);
    framed
}

/// Returns layout and content of the value stored under `key`.
///
/// # Errors
///
/// [`StoreError::Damaged`].
pub fn open(key: &[u8], raw: &Value) -> Result<(u8, Value), StoreError> {
    if raw.len() < LENGTH {
        return Err(StoreError::damaged(key, "it is too short"));
    }
    if raw[..CHECKSUM] != checksum(key, &raw[CHECKSUM..]) {
        return Err(StoreError::damaged(key, "its checksum does not match"));
    }
    Ok((raw[CHECKSUM], raw.subslice(LENGTH, raw.len() - LENGTH)))
}

fn checksum(key: &[u8], rest: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = crc32fast::Hasher::new();
    // The length keeps a byte from wandering between key and content.
    hasher.update(&(key.len() as u32).to_be_bytes());
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was_put() {
        for content in [&b""[..], b"x", &[7; 5000]] {
            let raw = Value::from(seal(b"key", 3, content));
            assert_eq!(open(b"key", &raw).unwrap(), (3, Value::from(content)));
        }
    }

    #[test]
    fn any_changed_bit_is_noticed_and_so_is_another_key() {
        let sealed = seal(b"key", 0, b"content");
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(open(b"key", &changed.into()).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(open(b"key", &sealed[..length].into()).is_err(), "{length} bytes");
        }
        assert!(open(b"kex", &sealed.into()).is_err());
    }
}
