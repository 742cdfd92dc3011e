//! What happened to a record that others follow.

use std::sync::Arc;

/// A change, told to whoever listens once it is on disk.
#[derive(Clone, Debug)]
pub enum Change<T> {
    Created(Arc<T>),
    Updated { before: Arc<T>, after: Arc<T> },
    Deleted(Arc<T>),
}

impl<T> Change<T> {
    /// What was there before, and what is there now.
    pub fn sides(&self) -> (Option<&T>, Option<&T>) {
        match self {
            Self::Created(new) => (None, Some(new)),
            Self::Updated { before, after } => (Some(before), Some(after)),
            Self::Deleted(old) => (Some(old), None),
        }
    }
}
