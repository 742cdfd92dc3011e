//! Typed records in memory over the store: sinks, scripts, subscriptions, spaces and templates.
//!
//! A [`Collection`] holds every record of one kind in memory, in the order of their ids, and writes through to the
//! store. Its contract:
//!
//! - A change ([`Changes`]) is a set of puts and deletes, each with a [`Precondition`] on the record. All of it is
//!   made, on disk and in memory, or none of it. A record that is not as expected refuses the change.
//! - Names are unique within a namespace (an owner, or one namespace for all). A name is taken from the moment a change
//!   begins, so that two changes at once cannot take one name, and is free again if the change is not written.
//! - A namespace has a quota of records. Rules of one kind of record ([`CollectionRecord::check`]) see the records that
//!   are being written by others too.
//! - Changes to one record are made one after the other; changes to different records share the store's flushes.
//! - A change made of the present state of a record goes through [`Collection::edit`], which decides again if another
//!   writer came in between, so that no update is lost.
//! - Writes that belong to a change, such as its audit entry, go into the same batch.
//! - Every listener is called with every [`Change`], no matter who made it: after it is on disk and in memory, in order
//!   for each record, and before the caller of the change returns. A listener that panics is logged; the others are
//!   still called.
//! - A change runs to its end even if its caller goes away.
//! - [`Collection::commit_soon`] alone does not wait for the disk, for bookkeeping that a crash may undo.
//!
//! Revisions are kept in memory and start anew when the store is opened. A storage engine with several writers has
//! revisions of its own, and feeds the changes of other writers into the same index and to the same listeners.

mod change;
mod handle;
mod index;
#[cfg(test)]
mod tests;

pub use change::{Change, Changes, CollectionError, CollectionRecord, Edit, Precondition, Revision};
pub use handle::{ATTEMPTS, Collection};
