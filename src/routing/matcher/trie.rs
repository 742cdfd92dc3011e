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

use super::segment_map::SegmentMap;
use crate::model::{
    id::UserId,
    id_map::IdMap,
    owner::Owner,
    pattern::{Pattern, Patterns},
};

/// Maps patterns to values of type `T`. A value found by two of its patterns is yielded once.
pub struct Trie<T> {
    root: TrieNode<T>,
}

/// Most nodes have one of the three parts, and there is a node or more for every sink: a part that is absent takes no
/// room.
struct TrieNode<T> {
    children: Option<Box<SegmentMap<TrieNode<T>>>>,
    /// Values for exactly the type that ends here.
    exact: Option<Box<OwnedValues<T>>>,
    /// Values for every longer type that starts with the path to here.
    below: Option<Box<OwnedValues<T>>>,
}

struct OwnedValues<T> {
    global: Vec<T>,
    /// Boxed, because an absent map takes 8 bytes then, not 32.
    owned: Option<Box<IdMap<UserId, Vec<T>>>>,
}

impl<T: Clone + Ord> Trie<T> {
    pub fn new() -> Self {
        Self { root: TrieNode::new() }
    }

    /// Adds a value under each of the patterns.
    pub fn insert(&mut self, patterns: &Patterns, owner: Owner, value: &T) {
        for pattern in patterns.iter() {
            let node = segments(pattern).fold(&mut self.root, |node, segment| {
                let children = node.children.get_or_insert_default();
                if children.get(segment).is_none() {
                    children.insert(segment, TrieNode::new());
                }
                children.get_mut(segment).expect("the segment was inserted above")
            });
            node.values(pattern).get_or_insert_default().add(owner, value.clone());
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
        if let Some(values) = &self.root.below {
            values.collect(user, &mut found);
            found.retain(in_all);
        }
        let mut node = &self.root;
        let mut walked_all = true;
        for (depth, segment) in segments.enumerate() {
            if depth > 0
                && let Some(values) = &node.below
            {
                values.collect(user, &mut found);
            }
            match node.children.as_ref().and_then(|children| children.get(segment)) {
                Some(child) => node = child,
                None => {
                    walked_all = false;
                    break;
                }
            }
        }
        if let Some(values) = node.exact.as_ref().filter(|_| walked_all) {
            values.collect(user, &mut found);
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
        Self { children: None, exact: None, below: None }
    }

    fn values(&mut self, pattern: Pattern<'_>) -> &mut Option<Box<OwnedValues<T>>> {
        match pattern {
            Pattern::Exact(_) => &mut self.exact,
            Pattern::All | Pattern::Prefix(_) => &mut self.below,
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_none() && self.exact.is_none() && self.below.is_none()
    }

    fn remove(&mut self, path: &mut dyn Iterator<Item = &str>, pattern: Pattern<'_>, owner: Owner, value: &T) {
        let Some(segment) = path.next() else {
            let values = self.values(pattern);
            if let Some(present) = values {
                present.remove(owner, value);
                if present.is_empty() {
                    *values = None;
                }
            }
            return;
        };
        let Some(children) = &mut self.children else { return };
        let Some(child) = children.get_mut(segment) else { return };
        child.remove(path, pattern, owner, value);
        if child.is_empty() {
            children.remove(segment);
            if children.is_empty() {
                self.children = None;
            }
        }
    }
}

impl<T> Default for OwnedValues<T> {
    fn default() -> Self {
        Self { global: Vec::new(), owned: None }
    }
}

impl<T: Clone + Ord> OwnedValues<T> {
    fn is_empty(&self) -> bool {
        self.global.is_empty() && self.owned.is_none()
    }

    fn add(&mut self, owner: Owner, value: T) {
        let list = match owner {
            Owner::Global => &mut self.global,
            Owner::User(user) => self.owned.get_or_insert_default().entry(user).or_default(),
        };
        if list.is_empty() {
            // Most lists stay that short.
            list.reserve_exact(1);
        }
        list.push(value);
    }

    fn remove(&mut self, owner: Owner, value: &T) {
        match owner {
            Owner::Global => self.global.retain(|other| other != value),
            Owner::User(user) => {
                let Some(owned) = &mut self.owned else { return };
                let Some(list) = owned.get_mut(&user) else { return };
                list.retain(|other| other != value);
                if list.is_empty() {
                    owned.remove(&user);
                    if owned.is_empty() {
                        self.owned = None;
                    }
                }
            }
        }
    }

    fn collect(&self, user: UserId, found: &mut Vec<T>) {
        found.extend_from_slice(&self.global);
        if let Some(list) = self.owned.as_ref().and_then(|owned| owned.get(&user)) {
            found.extend_from_slice(list);
        }
    }
}

/// Returns the path of a pattern from the root; empty for `*`.
fn segments(pattern: Pattern<'_>) -> impl Iterator<Item = &str> {
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
