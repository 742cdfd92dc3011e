//! Circles in a directed graph: its strongly connected components of more than one node (Tarjan's algorithm).

use std::collections::{BTreeMap, BTreeSet};

/// The circles of a graph that maps each node to the nodes it points at, the largest first; each is sorted.
pub fn circles<N: Ord + Clone>(graph: &BTreeMap<N, BTreeSet<N>>) -> Vec<Vec<N>> {
    let mut search =
        Search { graph, index: BTreeMap::new(), low: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for node in graph.keys() {
        if !search.index.contains_key(node) {
            search.visit(node);
        }
    }
    search.found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    search.found
}

struct Search<'a, N> {
    graph: &'a BTreeMap<N, BTreeSet<N>>,
    /// The order in which nodes were first visited.
    index: BTreeMap<N, usize>,
    /// The smallest index that is reachable from a node through nodes on the stack.
    low: BTreeMap<N, usize>,
    stack: Vec<N>,
    found: Vec<Vec<N>>,
}

impl<N: Ord + Clone> Search<'_, N> {
    fn visit(&mut self, node: &N) {
        let index = self.index.len();
        self.index.insert(node.clone(), index);
        let (mut low, depth) = (index, self.stack.len());
        self.stack.push(node.clone());
        for next in self.graph.get(node).into_iter().flatten() {
            if !self.index.contains_key(next) {
                self.visit(next);
                low = low.min(self.low[next]);
            } else if self.stack.contains(next) {
                low = low.min(self.index[next]);
            }
        }
        self.low.insert(node.clone(), low);
        if low == index {
            let mut circle = self.stack.split_off(depth);
            circle.sort();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let graph = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "e")];
    let graph = graph.into_iter().fold(BTreeMap::<_, BTreeSet<_>>::new(), |mut graph, (from, to)| {
        graph.entry(from).or_default().insert(to);
        graph
    });
    assert_eq!(circles(&graph), [["b", "c"]]);
}
