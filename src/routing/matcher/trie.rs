//! A trie over the segments of event types.
//!
//! Each node keeps its values by owner, so that an event of one user touches the global values and that user's, and
//! never another user's. The cost of a match is the depth of the type plus the values found; sinks that do not match
//! cost nothing, however many there are.
//!
//! ```text
//! `*`              root.below          `custom.app.*`   root → custom → app .below
//! `space.created`  root → space → created .exact
//! ```

use crate::model::{
    id::UserId,
    owner::Owner,
    pattern::{Pattern, Patterns},
};
use std::collections::HashMap;

/// Maps patterns to values of type `T`. A value found by two of its patterns is yielded once.
pub struct Trie<T> {
    root: TrieNode<T>,
}

struct TrieNode<T> {
    children: HashMap<Box<str>, TrieNode<T>>,
    /// Values for exactly the type that ends here.
    exact: OwnedValues<T>,
    /// Values for every longer type that starts with the path to here.
    below: OwnedValues<T>,
}

struct OwnedValues<T> {
    global: Vec<T>,
    owned: HashMap<UserId, Vec<T>>,
}

impl<T: Clone + Ord> Trie<T> {
    pub fn new() -> Self {
        Self { root: TrieNode::new() }
    }

    /// Adds a value under each of the patterns.
    pub fn insert(&mut self, patterns: &Patterns, owner: Owner, value: &T) {
        for pattern in patterns.iter() {
            let node = segments(pattern).fold(&mut self.root, |node, segment| {
                if !node.children.contains_key(segment) {
                    node.children.insert(segment.into(), TrieNode::new());
                }
                node.children.get_mut(segment).expect("the segment was inserted above")
            });
            node.values(pattern).add(owner, value.clone());
        }
    }

    /// Removes a value from each of the patterns, and every node that this leaves empty.
    pub fn remove(&mut self, patterns: &Patterns, owner: Owner, value: &T) {
        for pattern in patterns.iter() {
            self.root.remove(&mut segments(pattern), pattern, owner, value);
        }
    }

    /// Returns every value that matches an event of this type of `user`, once each, in order of `T`.
    pub fn matches<'a>(&self, segments: impl Iterator<Item = &'a str>, user: UserId) -> Vec<T> {
        self.matches_if(segments, user, |_| true)
    }

    /// Returns the same as [`Trie::matches`], without the values that only the pattern `*` finds and `in_all` denies.
    pub fn matches_if<'a>(
        &self,
        segments: impl Iterator<Item = &'a str>,
        user: UserId,
        in_all: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        let mut found = Vec::new();
        self.root.below.collect(user, &mut found);
        found.retain(in_all);
        let mut node = &self.root;
        let mut walked_all = true;
        for (depth, segment) in segments.enumerate() {
            if depth > 0 {
                node.below.collect(user, &mut found);
            }
            match node.children.get(segment) {
                Some(child) => node = child,
                None => {
                    walked_all = false;
                    break;
                }
            }
        }
        if walked_all {
            node.exact.collect(user, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl<T: Clone + Ord> Default for Trie<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Ord> TrieNode<T> {
    fn new() -> Self {
        Self { children: HashMap::new(), exact: OwnedValues::new(), below: OwnedValues::new() }
    }

    fn values(&mut self, pattern: &Pattern) -> &mut OwnedValues<T> {
        match pattern {
            Pattern::Exact(_) => &mut self.exact,
            Pattern::All | Pattern::Prefix(_) => &mut self.below,
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.exact.is_empty() && self.below.is_empty()
    }

    fn remove(&mut self, path: &mut dyn Iterator<Item = &str>, pattern: &Pattern, owner: Owner, value: &T) {
        let Some(segment) = path.next() else {
            self.values(pattern).remove(owner, value);
            return;
        };
        let Some(child) = self.children.get_mut(segment) else { return };
        child.remove(path, pattern, owner, value);
        if child.is_empty() {
            self.children.remove(segment);
        }
    }
}

impl<T: Clone + Ord> OwnedValues<T> {
    fn new() -> Self {
        Self { global: Vec::new(), owned: HashMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.global.is_empty() && self.owned.is_empty()
    }

    fn add(&mut self, owner: Owner, value: T) {
        match owner {
            Owner::Global => self.global.push(value),
            Owner::User(user) => self.owned.entry(user).or_default().push(value),
        }
    }

    fn remove(&mut self, owner: Owner, value: &T) {
        match owner {
            Owner::Global => self.global.retain(|other| other != value),
            Owner::User(user) => {
                if let Some(list) = self.owned.get_mut(&user) {
                    list.retain(|other| other != value);
                    if list.is_empty() {
                        self.owned.remove(&user);
                    }
                }
            }
        }
    }

    fn collect(&self, user: UserId, found: &mut Vec<T>) {
        found.extend_from_slice(&self.global);
        if let Some(list) = self.owned.get(&user) {
            found.extend_from_slice(list);
        }
    }
}

/// Returns the path of a pattern from the root; empty for `*`.
fn segments(pattern: &Pattern) -> impl Iterator<Item = &str> {
    let path = match pattern {
        Pattern::All => None,
        Pattern::Prefix(path) | Pattern::Exact(path) => Some(path.split('.')),
    };
    path.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::select};

    fn user(n: u8) -> UserId {
        UserId::from_slice(&[n; 16]).unwrap()
    }

    fn matched(trie: &Trie<u32>, kind: &str, who: u8) -> Vec<u32> {
        trie.matches(kind.split('.'), user(who))
    }

    #[test]
    fn an_event_reaches_its_users_sinks_and_the_global_ones() {
        let mut trie = Trie::new();
        let patterns: Patterns = "custom.a.*".parse().unwrap();
        trie.insert(&patterns, Owner::Global, &1);
        trie.insert(&patterns, Owner::User(user(1)), &2);
        trie.insert(&patterns, Owner::User(user(2)), &3);
        assert_eq!(matched(&trie, "custom.a.b", 1), [1, 2]);
        assert_eq!(matched(&trie, "custom.a.b", 9), [1]);
        assert_eq!(matched(&trie, "custom.a", 1), [0; 0]);
    }

    #[test]
    fn a_value_that_only_the_star_finds_can_be_denied() {
        let mut trie = Trie::new();
        for (patterns, value) in [("*", 1), ("sink.*", 2), ("*, sink.failing", 3), ("*", 4)] {
            trie.insert(&patterns.parse().unwrap(), Owner::Global, &value);
        }
        let found = |kind: &str| trie.matches_if(kind.split('.'), user(1), |value| *value == 4);
        assert_eq!(found("sink.failing"), [2, 3, 4]);
        assert_eq!(found("sink.held"), [2, 4]);
        assert_eq!(found("agent.lost"), [4]);
    }

    #[test]
    fn a_sink_that_two_of_its_patterns_match_is_found_once() {
        let mut trie = Trie::new();
        trie.insert(&"*, custom.*, custom.a".parse().unwrap(), Owner::Global, &7);
        assert_eq!(matched(&trie, "custom.a", 1), [7]);
    }

    #[test]
    fn removing_the_last_sink_leaves_no_node_behind() {
        let mut trie = Trie::new();
        let patterns: Patterns = "a.b.c, a.*".parse().unwrap();
        trie.insert(&patterns, Owner::User(user(1)), &1);
        trie.remove(&patterns, Owner::User(user(1)), &1);
        assert!(trie.root.is_empty());
    }

    fn pattern() -> impl Strategy<Value = String> {
        let segment = select(vec!["a", "b", "ab"]);
        prop_oneof![
            Just("*".to_owned()),
            vec(segment.clone(), 1..4).prop_map(|parts| parts.join(".")),
            vec(segment, 1..3).prop_map(|parts| parts.join(".") + ".*"),
        ]
    }

    proptest! {
        #[test]
        fn the_trie_agrees_with_matching_every_sink_by_its_patterns(
            sinks in vec((vec(pattern(), 1..4), 0_u8..4, any::<bool>()), 0..40),
            kinds in vec(vec(select(vec!["a", "b", "ab", "c"]), 1..5), 1..10),
        ) {
            let sinks: Vec<(Patterns, Owner, bool)> = sinks
                .into_iter()
                .map(|(list, owner, stays)| {
                    let owner = if owner == 0 { Owner::Global } else { Owner::User(user(owner)) };
                    (list.join(" , ").parse().unwrap(), owner, stays)
                })
                .collect();
            let mut trie = Trie::new();
            for (id, (patterns, owner, _)) in sinks.iter().enumerate() {
                trie.insert(patterns, *owner, &id);
            }
            for (id, (patterns, owner, _)) in sinks.iter().enumerate().filter(|(_, (_, _, stays))| !stays) {
                trie.remove(patterns, *owner, &id);
            }
            for kind in kinds {
                let kind = kind.join(".");
                for who in 1..4 {
                    let naive: Vec<usize> = sinks
                        .iter()
                        .enumerate()
                        .filter(|(_, (patterns, owner, stays))| {
                            *stays && owner.receives_events_of(user(who)) && patterns.matches(&kind)
                        })
                        .map(|(id, _)| id)
                        .collect();
                    prop_assert_eq!(trie.matches(kind.split('.'), user(who)), naive);
                }
            }
        }
    }
}
