//! The division of all keys among the leaves of a broken tree, whose bounds may overlap or leave gaps.

use std::{collections::BTreeMap, ops::Bound};

/// The leaf that counts for each key, as intervals without overlap: first key to the key behind the last, where empty means
/// no end, and the number of the leaf.
#[derive(Default)]
pub(super) struct Owners(BTreeMap<Vec<u8>, (Vec<u8>, usize)>);

/// Keys from the first one to the one behind the last, where empty means no end.
pub(super) type Interval = (Vec<u8>, Vec<u8>);

impl Owners {
    pub fn of(&self, key: &[u8]) -> Option<usize> {
        let (_, (hi, leaf)) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (hi.is_empty() || *key < **hi).then_some(*leaf)
    }

    /// The end of the interval that begins at `lo` and has this leaf.
    pub fn end(&self, lo: &[u8], leaf: usize) -> Option<&[u8]> {
        self.0.get(lo).filter(|(_, owner)| *owner == leaf).map(|(hi, _)| hi.as_slice())
    }

    /// The keys that no leaf has.
    pub fn gaps(&self) -> Vec<Interval> {
        let mut gaps = Vec::new();
        let mut at: &[u8] = &[];
        for (lo, (hi, _)) in &self.0 {
            if *at != **lo {
                gaps.push((at.to_vec(), lo.clone()));
            }
            if hi.is_empty() {
                return gaps;
            }
            at = hi;
        }
        gaps.push((at.to_vec(), Vec::new()));
        gaps
    }

    /// Gives the leaf those keys of its interval that no leaf has yet. Returns false if there are none.
    pub fn add(&mut self, lo: Vec<u8>, hi: Vec<u8>, leaf: usize) -> bool {
        let mut is_owner = false;
        let is_before_end = |key: &[u8]| hi.is_empty() || *key < *hi;
        let mut at = lo;
        if let Some((_, (end, _))) = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(&at[..]))).next_back() {
            if end.is_empty() {
                return false;
            }
            if *at < **end {
                at = end.clone();
            }
        }
        while is_before_end(&at) {
            let next = self.0.range::<[u8], _>((Bound::Included(&at[..]), Bound::Unbounded)).next();
            let next = next.filter(|(lo, _)| is_before_end(lo)).map(|(lo, (end, _))| (lo.clone(), end.clone()));
            let (end, after) = next.map_or_else(|| (hi.clone(), None), |(lo, end)| (lo, Some(end)));
            if at != end {
                is_owner = true;
                self.0.insert(at, (end, leaf));
            }
            match after {
                Some(after) if !after.is_empty() => at = after,
                _ => return is_owner,
            }
        }
        is_owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_first_leaf_that_covers_it() {
        let mut owners = Owners::default();
        for (lo, hi, leaf) in [("c", "e", 1), ("g", "i", 2), ("a", "h", 3), ("d", "", 4), ("", "b", 5), ("", "", 6)] {
            assert_eq!(owners.add(lo.into(), hi.into(), leaf), leaf != 6);
        }
        let of = |key: &str| owners.of(key.as_bytes());
        let found: Vec<_> =
            ["", "a", "b", "c", "d", "e", "f", "g", "h", "i", "z"].map(of).into_iter().flatten().collect();
        assert_eq!(found, [5, 3, 3, 1, 1, 3, 3, 2, 2, 4, 4]);
        assert_eq!(owners.gaps(), []);
        let mut owners = Owners::default();
        assert!(owners.add(b"b".to_vec(), b"d".to_vec(), 1) && !owners.add(b"c".to_vec(), b"d".to_vec(), 2));
        assert_eq!(owners.gaps(), [(vec![], b"b".to_vec()), (b"d".to_vec(), vec![])]);
        assert_eq!((owners.end(b"b", 1), owners.end(b"b", 2)), (Some(&b"d"[..]), None));
        assert_eq!([&b"a"[..], b"b", b"d"].map(|key| owners.of(key)), [None, Some(1), None]);
    }
}
