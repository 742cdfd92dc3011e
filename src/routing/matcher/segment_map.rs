//! The children of a trie's node, by their segment.
//!
//! Most nodes have few children, which are compared one by one: that is faster than the hash of a segment, and takes
//! less memory than a map. A node with many children uses the standard library's map, because users choose the
//! segments.

use std::{collections::HashMap, mem};

/// The most children that are compared one by one.
const FEW: usize = 8;

pub(super) struct SegmentMap<V>(Segments<V>);

enum Segments<V> {
    Few(Vec<(Box<str>, V)>),
    /// Stays a map when there are few again.
    #[expect(clippy::box_collection, reason = "the common case takes 24 bytes, not 48")]
    Many(Box<HashMap<Box<str>, V>>),
}

impl<V> SegmentMap<V> {
    pub fn get(&self, segment: &str) -> Option<&V> {
        match &self.0 {
            Segments::Few(few) => few.iter().find(|(other, _)| **other == *segment).map(|(_, value)| value),
            Segments::Many(many) => many.get(segment),
        }
    }

    pub fn get_mut(&mut self, segment: &str) -> Option<&mut V> {
        match &mut self.0 {
            Segments::Few(few) => few.iter_mut().find(|(other, _)| **other == *segment).map(|(_, value)| value),
            Segments::Many(many) => many.get_mut(segment),
        }
    }

    /// Adds the value of a segment that has none.
    pub fn insert(&mut self, segment: &str, value: V) {
        if let Segments::Few(few) = &mut self.0
            && few.len() == FEW
        {
            self.0 = Segments::Many(Box::new(mem::take(few).into_iter().collect()));
        }
        match &mut self.0 {
            Segments::Few(few) => {
                // Most nodes have one child.
                few.reserve_exact(1);
                few.push((segment.into(), value));
            }
            Segments::Many(many) => {
                many.insert(segment.into(), value);
            }
        }
    }

    pub fn remove(&mut self, segment: &str) {
        match &mut self.0 {
            Segments::Few(few) => few.retain(|(other, _)| **other != *segment),
            Segments::Many(many) => drop(many.remove(segment)),
        }
    }

    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Segments::Few(few) => few.is_empty(),
            Segments::Many(many) => many.is_empty(),
        }
    }
}

impl<V> Default for SegmentMap<V> {
    fn default() -> Self {
        Self(Segments::Few(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_segments_and_many_are_found_changed_and_removed() {
        for count in [1, FEW, FEW + 1, 100] {
            let names: Vec<String> = (0..count).map(|number| format!("a{number}")).collect();
            let mut map = SegmentMap::default();
            for (number, name) in names.iter().enumerate() {
                assert_eq!(map.get(name), None);
                map.insert(name, number);
            }
            for (number, name) in names.iter().enumerate() {
                assert_eq!(map.get(name), Some(&number));
                *map.get_mut(name).unwrap() += 1;
                assert_eq!(map.get(name), Some(&(number + 1)));
            }
            assert_eq!(map.get("a"), None);
            map.remove("a");
            for (number, name) in names.iter().enumerate() {
                assert!(!map.is_empty());
                map.remove(name);
                assert_eq!(map.get(name), None);
                assert!(names[number + 1..].iter().all(|left| map.get(left).is_some()));
            }
            assert!(map.is_empty());
        }
    }
}
