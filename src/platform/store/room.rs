//! Room for new records: on the disk, and in the space that deleted records have left in the database file.

use super::{block_tree::BlockSizes, row_block};

/// Bytes of sled's file that a byte of stored rows takes at most before freed space is used again.
const USED_PER_STORED: u64 = 3;

/// Bytes that are free on the disk itself before a record is added, if `keep_free` is not less: sled may extend its file
/// although there is unused space in it.
const FREE: u64 = 16 << 20;

/// Sizes of the data, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoreSizes {
    pub live: LiveBytes,
    /// The blocks of sled's file, as of the last checkpoint.
    pub blocks: BlockSizes,
    /// sled's file.
    pub file: u64,
}

/// Bytes of all rows, nearly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveBytes {
    pub all: u64,
    /// Those of the rows that are kept in blocks.
    pub in_blocks: u64,
}

/// Bytes of rows that a group adds, less those that it removes.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveGrowth {
    pub all: i64,
    pub in_blocks: i64,
}

impl LiveGrowth {
    pub fn add(&mut self, key: &[u8], value: usize) {
        self.change(key, (key.len() + value) as i64);
    }

    pub fn remove(&mut self, key: &[u8], value: usize) {
        self.change(key, -((key.len() + value) as i64));
    }

    fn change(&mut self, key: &[u8], bytes: i64) {
        self.all += bytes;
        if row_block::is_in_blocks(key) {
            self.in_blocks += bytes;
        }
    }
}

impl LiveBytes {
    pub fn add(&mut self, key: &[u8], raw: &[u8]) {
        let mut growth = LiveGrowth::default();
        growth.add(key, raw.len());
        self.grow(growth);
    }

    pub const fn grow(&mut self, growth: LiveGrowth) {
        self.all = self.all.saturating_add_signed(growth.all);
        self.in_blocks = self.in_blocks.saturating_add_signed(growth.in_blocks);
    }
}

impl StoreSizes {
    /// The bytes that the rows take in sled, those in blocks compressed as those of the last checkpoint.
    fn stored(self) -> u64 {
        let BlockSizes { content, sealed } = self.blocks;
        let in_blocks = self.live.in_blocks.min(self.live.all);
        let compressed = if content > 0 {
            u128::from(in_blocks) * u128::from(sealed) / u128::from(content)
        } else {
            in_blocks.into()
        };
        (self.live.all - in_blocks).saturating_add(u64::try_from(compressed).unwrap_or(in_blocks))
    }
}

/// The room of a store at one moment.
#[derive(Clone, Copy, Debug)]
pub struct StoreRoom {
    /// Bytes that are free on the disk.
    pub free: u64,
    /// Bytes to leave free.
    pub keep_free: u64,
    pub sizes: StoreSizes,
}

impl StoreRoom {
    /// True if no record should be added.
    pub fn is_short(self) -> bool {
        self.free < self.keep_free.min(FREE) || self.free.saturating_add(self.reusable()) < self.keep_free
    }

    /// True if there is room once this many bytes of records are deleted. The file does not shrink, so the space that they
    /// leave in it must be enough.
    pub fn is_enough_without(self, deleted: u64) -> bool {
        let LiveBytes { all, in_blocks } = self.sizes.live;
        // Events and deliveries, which are in blocks, unless they are too large.
        let live = LiveBytes { all: all.saturating_sub(deleted), in_blocks: in_blocks.saturating_sub(deleted) };
        let sizes = StoreSizes { live, ..self.sizes };
        !Self { sizes, ..self }.is_short()
    }

    /// Bytes of sled's file that deleted rows have left for new ones. sled does not tell, but lets a file grow only if
    /// less than half of what it holds is unused, so what is beyond a multiple of the stored rows is.
    fn reusable(self) -> u64 {
        self.sizes.file.saturating_sub(self.sizes.stored().saturating_mul(USED_PER_STORED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(free: u64, keep_free: u64, live: u64, file: u64) -> StoreRoom {
        let sizes = StoreSizes {
            live: LiveBytes { all: live * MIB, in_blocks: 0 },
            blocks: BlockSizes::default(),
            file: file * MIB,
        };
        StoreRoom { free: free * MIB, keep_free: keep_free * MIB, sizes }
    }

    #[test]
    fn rows_in_blocks_count_as_they_are_compressed_and_others_as_they_are() {
        let sizes = |all: u64, in_blocks: u64| StoreSizes {
            live: LiveBytes { all: all * MIB, in_blocks: in_blocks * MIB },
            blocks: BlockSizes { content: 400 * MIB, sealed: 100 * MIB },
            file: 700 * MIB,
        };
        assert_eq!(sizes(1000, 800).stored(), 400 * MIB);
        assert_eq!(sizes(300, 800).stored(), 75 * MIB, "never more in blocks than there are");
        let room = |all, in_blocks| StoreRoom { free: 20 * MIB, keep_free: 64 * MIB, sizes: sizes(all, in_blocks) };
        // The deleted rows leave as much as they took: 3 * 200 MiB of the file stay in use.
        assert!(room(1000, 800).is_short() && room(1000, 800).is_enough_without(800 * MIB));
        assert!(!room(1030, 800).is_enough_without(800 * MIB));
        assert!(!room(1000, 800).is_enough_without(700 * MIB));
    }

    #[test]
    fn space_that_deleted_records_have_left_in_the_file_counts_as_room() {
        assert!(!room(20, 64, 7, 224).is_short());
        assert!(room(20, 64, 7, 64).is_short());
        assert!(!room(64, 64, 7, 20).is_short());
    }

    #[test]
    fn some_of_the_room_is_free_on_the_disk_itself() {
        assert!(room(15, 64, 7, 1000).is_short());
        assert!(!room(16, 64, 7, 1000).is_short());
        assert!(!room(1, 1, 7, 1000).is_short());
        assert!(!room(0, 0, 7, 7).is_short());
    }

    #[test]
    fn deleting_records_is_enough_only_if_the_space_they_leave_is() {
        // The server's own records filled the disk.
        assert!(room(60, 64, 300, 600).is_short());
        assert!(room(60, 64, 300, 600).is_enough_without(150 * MIB));
        assert!(!room(60, 64, 300, 600).is_enough_without(50 * MIB));
        // Something else did.
        assert!(!room(20, 64, 10, 30).is_enough_without(9 * MIB));
        assert!(!room(5, 64, 300, 900).is_enough_without(299 * MIB));
    }
}
