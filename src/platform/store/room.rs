//! Room for new records: on the disk, and in the space that deleted records have left in the database file.

/// Bytes of sled's file that a byte of stored rows takes at most before freed space is used again.
const USED_PER_STORED: u64 = 3;

/// Bytes that are free on the disk itself before a record is added, if `keep_free` is not less: sled may extend its file
/// although there is unused space in it.
const FREE: u64 = 16 << 20;

/// Sizes of the data, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoreSizes {
    /// All rows, nearly.
    pub live: u64,
    /// The rows as sled has them, in blocks.
    pub stored: u64,
    /// sled's file.
    pub file: u64,
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
        let StoreSizes { live, stored, .. } = self.sizes;
        let left = live.saturating_sub(deleted);
        // The rows that go are compressed as well as those that stay.
        let stored = u128::from(stored) * u128::from(left) / u128::from(live.max(1));
        let sizes = StoreSizes { live: left, stored: stored as u64, ..self.sizes };
        !Self { sizes, ..self }.is_short()
    }

    /// Bytes of sled's file that deleted rows have left for new ones. sled does not tell, but lets a file grow only if
    /// less than half of what it holds is unused, so what is beyond a multiple of the stored rows is.
    const fn reusable(self) -> u64 {
        self.sizes.file.saturating_sub(self.sizes.stored.saturating_mul(USED_PER_STORED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(free: u64, keep_free: u64, live: u64, file: u64) -> StoreRoom {
        let sizes = StoreSizes { live: live * MIB, stored: live * MIB, file: file * MIB };
        StoreRoom { free: free * MIB, keep_free: keep_free * MIB, sizes }
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
