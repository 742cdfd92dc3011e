//! The routes of a zone: a [`Trie`] behind a lock, so that emits match while sinks change.

use super::trie::Trie;
use crate::model::{id::UserId, owner::Owner, pattern::Patterns};
use parking_lot::RwLock;

/// The routes of a zone.
///
/// Emits share the lock. An edit holds it for as long as one path through the trie takes, so an emit never waits
/// longer than that.
pub struct Routes<T>(RwLock<Trie<T>>);

/// One entry of the routes: patterns, the owner whose events they match, and the value that a match yields.
pub type RouteEntry<'a, T> = (&'a Patterns, Owner, &'a T);

impl<T: Clone + Ord> Routes<T> {
    pub fn new() -> Self {
        Self(RwLock::new(Trie::new()))
    }

    /// Returns the value of every route that matches an event of this type of `user`, in order of `T`.
    pub fn matches<'a>(&self, segments: impl Iterator<Item = &'a str>, user: UserId) -> Vec<T> {
        self.0.read().matches(segments, user)
    }

    /// Returns the same as [`Routes::matches`], without the routes that only the pattern `*` finds and `in_all` denies.
    pub fn matches_report<'a>(
        &self,
        segments: impl Iterator<Item = &'a str>,
        user: UserId,
        in_all: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        self.0.read().matches_if(segments, user, in_all)
    }

    /// Removes `old` and adds `new` in one step, so that no event matches both or neither.
    pub fn replace(&self, old: Option<RouteEntry<'_, T>>, new: Option<RouteEntry<'_, T>>) {
        let mut trie = self.0.write();
        if let Some((patterns, owner, value)) = old {
            trie.remove(patterns, owner, value);
        }
        if let Some((patterns, owner, value)) = new {
            trie.insert(patterns, owner, value);
        }
    }
}

impl<T: Clone + Ord> Default for Routes<T> {
    fn default() -> Self {
        Self::new()
    }
}
