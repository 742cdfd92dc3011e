//! Finds the sinks that an event is for. [`Routes`] is the shared table, [`Trie`] the structure behind it;
//! [`crate::delivery::deliver::sync_routes`] keeps the table in line with the sinks.

mod routes;
mod segment_map;
mod trie;

pub use routes::{RouteEntry, Routes};
pub use trie::Trie;
