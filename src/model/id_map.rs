//! A hash map by ids or times that the server itself made.
//!
//! Its hash takes a few instructions, and resists nobody who chooses the keys. A key that a user chooses belongs in the
//! standard library's map.

use rustc_hash::FxBuildHasher;
use std::collections::HashMap;

pub type IdMap<K, V> = HashMap<K, V, FxBuildHasher>;
