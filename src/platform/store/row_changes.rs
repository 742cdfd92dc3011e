//! The changes of a group.

use std::collections::HashMap;

/// Rows as they are stored, by key. A key without a value is deleted.
pub type RowChanges = HashMap<Vec<u8>, Option<Vec<u8>>>;
