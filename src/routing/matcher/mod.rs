//! Who hears an event: a trie over the segments of event types.
//!
//! Each node keeps its listeners by owner, so that an event of one user touches the global listeners
//! and that user's, and never anybody else's. The cost of a match is the depth of the type plus what
//! it finds; sinks that do not match cost nothing, however many there are.
//!
//! ```text
//! `*`            root.below          `custom.app.*`   root → custom → app .below
//! `space.created`  root → space → created .exact
//! ```

use crate::model::{
    id::UserId,
    owner::Owner,
    pattern::{Pattern, Patterns},
};
use parking_lot::RwLock;
use std::collections::HashMap;

/// The routes of a zone. Readers share; an edit takes the lock for as long as one path through the
/// trie takes, so an emit never waits for more than that.
pub struct Routes<T>(RwLock<Trie<T>>);

/// The trie itself. `T` is what a match yields; a listener found by two of its patterns is yielded once.
pub struct Trie<T> {
    root: Node<T>,
}

struct Node<T> {
    children: HashMap<Box<str>, Node<T>>,
    /// Listeners of exactly the type that ends here.
    exact: Listeners<T>,
    /// Listeners of every type that goes on below here.
    below: Listeners<T>,
}

struct Listeners<T> {
    global: Vec<T>,
    owned: HashMap<UserId, Vec<T>>,
}

impl<T: Clone + Ord> Routes<T> {
    /// No routes yet.
    pub fn new() -> Self {
        Self(RwLock::new(Trie::new()))
    }

    /// Every listener that an event of this type raised for `user` reaches, in order of `T`.
    pub fn matches<'a>(&self, segments: impl Iterator<Item = &'a str>, user: UserId) -> Vec<T> {
        self.0.read().matches(segments, user)
    }

    /// Puts `new` where its patterns say and takes `old` away, so that no event sees both or neither.
    pub fn replace(&self, old: Option<(&Patterns, Owner, &T)>, new: Option<(&Patterns, Owner, &T)>) {
        let mut trie = self.0.write();
        if let Some((patterns, owner, listener)) = old {
            trie.remove(patterns, owner, listener);
        }
        if let Some((patterns, owner, listener)) = new {
            trie.insert(patterns, owner, listener);
        }
    }
}

impl<T: Clone + Ord> Default for Routes<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Ord> Trie<T> {
    /// An empty trie.
    pub fn new() -> Self {
        Self { root: Node::new() }
    }

    /// Adds a listener under each of its patterns.
    pub fn insert(&mut self, patterns: &Patterns, owner: Owner, listener: &T) {
        for pattern in patterns.iter() {
            let node = segments(pattern).fold(&mut self.root, |node, segment| {
                if !node.children.contains_key(segment) {
                    node.children.insert(segment.into(), Node::new());
                }
                node.children.get_mut(segment).expect("it was just put there")
            });
            node.listeners(pattern).add(owner, listener.clone());
        }
    }

    /// Takes a listener away from each of its patterns, and every node that this leaves empty.
    pub fn remove(&mut self, patterns: &Patterns, owner: Owner, listener: &T) {
        for pattern in patterns.iter() {
            self.root.remove(&mut segments(pattern), pattern, owner, listener);
        }
    }

    /// Every listener that an event of this type raised for `user` reaches, once each, in order of `T`.
    pub fn matches<'a>(&self, segments: impl Iterator<Item = &'a str>, user: UserId) -> Vec<T> {
        let mut found = Vec::new();
        let mut node = &self.root;
        let mut walked_all = true;
        for segment in segments {
            node.below.hear(user, &mut found);
            match node.children.get(segment) {
                Some(child) => node = child,
                None => {
                    walked_all = false;
                    break;
                }
            }
        }
        if walked_all {
            node.exact.hear(user, &mut found);
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

impl<T: Clone + Ord> Node<T> {
    fn new() -> Self {
        Self { children: HashMap::new(), exact: Listeners::new(), below: Listeners::new() }
    }

    fn listeners(&mut self, pattern: &Pattern) -> &mut Listeners<T> {
        match pattern {
            Pattern::Exact(_) => &mut self.exact,
            Pattern::All | Pattern::Prefix(_) => &mut self.below,
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.exact.is_empty() && self.below.is_empty()
    }

    fn remove(&mut self, path: &mut dyn Iterator<Item = &str>, pattern: &Pattern, owner: Owner, listener: &T) {
        let Some(segment) = path.next() else {
            self.listeners(pattern).take(owner, listener);
            return;
        };
        let Some(child) = self.children.get_mut(segment) else { return };
        child.remove(path, pattern, owner, listener);
        if child.is_empty() {
            self.children.remove(segment);
        }
    }
}

impl<T: Clone + Ord> Listeners<T> {
    fn new() -> Self {
        Self { global: Vec::new(), owned: HashMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.global.is_empty() && self.owned.is_empty()
    }

    fn add(&mut self, owner: Owner, listener: T) {
        match owner {
            Owner::Global => self.global.push(listener),
            Owner::User(user) => self.owned.entry(user).or_default().push(listener),
        }
    }

    fn take(&mut self, owner: Owner, listener: &T) {
        match owner {
            Owner::Global => self.global.retain(|other| other != listener),
            Owner::User(user) => {
                if let Some(list) = self.owned.get_mut(&user) {
                    list.retain(|other| other != listener);
                    if list.is_empty() {
                        self.owned.remove(&user);
                    }
                }
            }
        }
    }

    fn hear(&self, user: UserId, found: &mut Vec<T>) {
        found.extend_from_slice(&self.global);
        if let Some(list) = self.owned.get(&user) {
            found.extend_from_slice(list);
        }
    }
}

/// The path of a pattern from the root; none for `*`.
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
        fn the_trie_agrees_with_asking_every_sink(
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
                            *stays && owner.hears(user(who)) && patterns.matches(&kind)
                        })
                        .map(|(id, _)| id)
                        .collect();
                    prop_assert_eq!(trie.matches(kind.split('.'), user(who)), naive);
                }
            }
        }
    }
}
