//! A read-only reader of sled's own files. It decides whether a database is sound before sled may open it, and saves what can
//! be read of a broken one.
//!
//! sled must not be asked: it panics over most damage, it changes the files of the database while it opens it, and it passes
//! over some damaged messages as if they had never been written. This reader changes no byte, and bytes that mean nothing
//! make it neither panic nor allot memory without bound. [`settle_snapshots`] alone changes names, right before sled opens the database.
//!
//! # The files, as sled 0.34 writes them
//!
//! * `conf`: segment size, compression and version as text, then a checksum.
//! * `snap.X`: the page table as of log sequence number X, its length and a checksum. Written when sled opens, under
//!   another name until it is complete ([`settle_snapshots`]).
//! * `db`: the log. Its slots of 512 KiB hold one segment each, in any order, because a segment whose messages are all
//!   outdated is freed and its slot used again. A segment begins with a header: checksum, the log sequence number of its
//!   first byte, and the number up to which the log was complete when the segment was begun. Messages follow without gaps:
//!   checksum, kind, length, segment number, page id, body. A message belongs to the segment whose number it bears.
//!
//! A page of the tree is its newest whole state in the log and the changes after it. The page table of the snapshot and the
//! messages since then tell where those are (`recovery`). Messages between the opening of a batch and the number
//! that the opening names count together or not at all.
//!
//! # What is checked
//!
//! 1. `conf` and the snapshot have the right checksums.
//! 2. Nothing between the snapshot and the end of the log is passed over because of damage (`recovery`).
//! 3. Every message that the page table refers to can be read and decoded (`pages`).
//! 4. The pages form one tree without a gap (`tree`).
//!
//! # What cannot be told
//!
//! The end of the log is the first place that cannot be read, so damage in the newest segments looks like changes that were
//! never completed, and a log that was cut off looks like a younger one. The number of the last group, noted outside the
//! database, and the digest of all rows in that group tell them apart; a caller who has found the log damaged reads on behind
//! that place ([`LogEnd::LastReadable`]). A whole segment that is replaced by zeros looks like a free one, if no page of
//! the snapshot was in it and the changes in it fit the rest of the tree. On the other hand, a damaged message that was
//! outdated is reported like any other if it was written after the snapshot, because nothing tells which page it belonged to.

mod damage;
mod decode;
mod messages;
mod owners;
mod page_table;
mod pages;
mod reader;
mod recovery;
mod rows;
mod salvage;
mod segments;
mod snapshot;
#[cfg(test)]
mod tests;
mod tree;

pub use damage::Damage;
pub use reader::LogFile;
pub use recovery::LogEnd;
pub use rows::RowsRead;
pub use snapshot::settle_snapshots;
