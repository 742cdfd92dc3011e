//! A digest of all rows that does not depend on their order. It is kept with the number of the last group.
//!
//! If the newest state of a page is lost in a way that sled does not notice, sled serves the page as it once was: rows are
//! missing or old, and each of them has a right checksum. Then the digest does not match. Pieces of large values are not
//! part of it, because a value whose pieces are not those that its head names cannot be read.

use super::keys;

/// The number of rows, and the sum of a hash of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    pub rows: u64,
    sum: u64,
}

impl Digest {
    /// Counts a row as it is stored.
    pub fn add(&mut self, key: &[u8], raw: &[u8]) {
        if is_counted(key) {
            self.rows = self.rows.wrapping_add(1);
            self.sum = self.sum.wrapping_add(hash(key, raw));
        }
    }

    /// Takes back a row that was counted.
    pub fn remove(&mut self, key: &[u8], raw: &[u8]) {
        if is_counted(key) {
            self.rows = self.rows.wrapping_sub(1);
            self.sum = self.sum.wrapping_sub(hash(key, raw));
        }
    }

    /// Counts what another digest has counted, rows taken back included.
    pub fn merge(&mut self, change: Self) {
        self.rows = self.rows.wrapping_add(change.rows);
        self.sum = self.sum.wrapping_add(change.sum);
    }

    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.rows.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sum.to_be_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self { rows: keys::number(bytes, 0)?, sum: keys::number(bytes, 8)? })
    }
}

fn is_counted(key: &[u8]) -> bool {
    !matches!(key.first(), Some(&(keys::COMMIT | keys::PIECE)))
}

/// A stored value begins with a checksum of key and content, so a few bytes stand for the whole row. The rest of the
/// function spreads them over the sum.
fn hash(key: &[u8], raw: &[u8]) -> u64 {
    let mut hash = raw.len() as u64 ^ (key.len() as u64) << 32;
    for byte in raw.iter().take(4) {
        hash = hash << 8 ^ hash >> 56 ^ u64::from(*byte);
    }
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_rows_does_not_matter_and_every_row_does() {
        let rows: Vec<(Vec<u8>, Vec<u8>)> = (0..100_u8).map(|n| (vec![b'K', n], vec![n, n ^ 7, 3, 4, 5])).collect();
        let (mut forward, mut backward) = (Digest::default(), Digest::default());
        rows.iter().for_each(|(key, raw)| forward.add(key, raw));
        rows.iter().rev().for_each(|(key, raw)| backward.add(key, raw));
        assert_eq!(forward, backward);
        assert_eq!(Digest::from_bytes(&forward.to_bytes()), Some(forward));
        for (key, raw) in &rows {
            let mut less = forward;
            less.remove(key, raw);
            assert_ne!(less, forward);
            less.add(key, &[raw[0], raw[1], 9, 4, 5]);
            assert_ne!(less, forward);
        }
    }
}
