//! Everything durable, in one sled tree with one-byte key prefixes ([`keys`]). Only this folder uses the sled crate.
//!
//! [`Store`] is the handle. Reads go straight to the tree (`buffered_tree`). Writes are jobs for one writer thread (`writer`),
//! which gathers the jobs that wait into one [`Batch`], puts it on disk (`journal`), and only then answers. A job runs alone, after every job before
//! it and with their writes in sight, so that check-then-write needs no lock. [`Table`] reads and writes typed records;
//! [`crate::platform::collection`] keeps them in memory.
//!
//! A failed write is final, because sled cannot be trusted after one: the store refuses every further write
//! ([`StoreError::Stopped`]) until a restart reopens it. A disk that is merely getting full is noticed before that, and
//! refused only until there is room again. A damaged record fails only its own readers: it can be replaced and deleted. A damaged block of
//! records (`block_tree`) stops the store; a start checks them all.
//!
//! | concern | files |
//! |---|---|
//! | a write | [`handle`], [`inbox`], [`writer`], [`batch`], [`row_changes`], [`journal`], [`commit_mark`], [`buffered_tree`] |
//! | the journal's files | [`journal`], [`journal_record`], [`journal_file`] |
//! | rows in sled | [`block_tree`], [`block_changes`], [`row_block`], [`chunked`], [`frame`], [`compression`], [`sled_sync`] |
//! | a read | [`handle`], [`scan`], [`table`]; of the whole store at one moment, [`snapshot_read`], [`snapshot_slot`] |
//! | opening a data directory | [`open`], [`private_directory`], [`directory_lock`], [`format`](self::format), [`check`], [`digest`], [`database`] |
//! | another database in place of the present one | [`rewrite`], [`format1`], [`new_database`], [`replacement`] |
//! | without a server | [`inspect`], [`log_file`], [`offline`], [`restore_marker`] |
//! | the room on disk | [`room`], [`disk`] |

mod batch;
mod block_changes;
mod block_tree;
mod buffered_tree;
mod check;
mod chunked;
mod commit_mark;
mod compression;
mod database;
mod digest;
mod directory_lock;
mod disk;
mod error;
mod format;
mod format1;
mod frame;
mod handle;
mod inbox;
mod inspect;
mod journal;
mod journal_file;
mod journal_record;
pub mod keys;
mod log_file;
mod new_database;
mod offline;
mod open;
mod private_directory;
mod replacement;
mod restore_marker;
mod rewrite;
mod room;
mod row_block;
mod row_changes;
mod scan;
mod sled_sync;
mod snapshot_read;
mod snapshot_slot;
mod state;
mod table;
#[cfg(test)]
pub(crate) mod test_support;
mod writer;

pub use batch::Batch;
pub use block_tree::BlockSizes;
pub use chunked::Value;
pub use error::{StoreError, StoreOpenError, readable};
pub use format::CURRENT as FORMAT;
pub use handle::Store;
pub use inspect::{Inspection, LostRows, inspect};
pub use log_file::{Damage, LogFile, RowsRead};
pub use new_database::{FinishedDatabase, NewDatabase};
pub use offline::OfflineDirectory;
pub use open::{Migration, StoreOptions, compact_offline};
pub use replacement::Previous;
pub use rewrite::{Compaction, RewriteProgress};
pub use room::{LiveBytes, StoreRoom, StoreSizes};
pub use snapshot_read::{Snapshot, SnapshotError, SnapshotRow};
pub use table::Table;
