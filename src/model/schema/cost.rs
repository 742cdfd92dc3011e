//! The cost of applying a schema: the most times that validation visits one place of a value.
//!
//! Validation cannot be interrupted, so a schema that could keep it busy without end is rejected before it is applied.
//!
//! A schema visits its value itself and through the schemas beside it (`allOf`, `$ref`, …), and the values within
//! through the schemas below it (`properties`, `items`, …). Both are followed, level by level of the value. A schema
//! that is reached along two paths counts twice, since that is how a short schema can take long.

use super::{
    error::{MAX_VISITS, SchemaError},
    graph::{Number, SchemaGraph, SchemaNode},
};

/// The deepest nesting of schema applications for a value of [`LEVELS`]. Each takes a part of the thread's stack.
const MAX_DEPTH: u64 = 1000;

/// The most levels of a value that is validated.
pub const LEVELS: usize = 64;

/// Comparisons of a place with others that `uniqueItems` makes: the library compares up to 15 items pairwise.
const UNIQUE_COMPARISONS: u64 = 8;

/// The cost of a schema for each part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaCost {
    /// The most visits to one place of a value, by the levels of the value below its first.
    visits: Vec<u64>,
    /// The most states of automata entered for one byte of an object's key.
    pub key_states: u64,
}

impl SchemaCost {
    /// The most visits to one place of a value of this depth; at least one.
    pub fn visits(&self, depth: usize) -> u64 {
        let visits = self.visits.get(depth.saturating_sub(1)).or(self.visits.last());
        visits.copied().unwrap_or(1).max(1)
    }
}

/// The cost of one schema for a value of some number of levels.
#[derive(Clone, Copy, Default, PartialEq)]
struct Cost {
    /// Visits to one place of the lowest level.
    visits: u64,
    /// The same for a second application.
    again: u64,
    path: u64,
}

/// Computes the cost of a schema, or fails if it could be too high.
pub fn measure(graph: &SchemaGraph<'_>) -> Result<SchemaCost, SchemaError> {
    if let Some(reference) = &graph.outside {
        return Err(SchemaError::Outside(reference.clone()));
    }
    let order = order(&graph.nodes)?;
    let visits = most(&graph.nodes, &order, |node, level| match level {
        0 => node.own,
        _ if node.unique => UNIQUE_COMPARISONS,
        _ => 0,
    })?;
    if visits.last().is_some_and(|most| *most > MAX_VISITS) {
        return Err(SchemaError::TooMuch);
    }
    let has_key_patterns = graph.nodes.iter().any(|node| node.key_states > 0);
    let key_states = if has_key_patterns {
        let states = most(&graph.nodes, &order, |node, level| if level == 0 { node.key_states } else { 0 })?;
        states.last().copied().unwrap_or(0)
    } else {
        0
    };
    Ok(SchemaCost { visits, key_states })
}

/// The highest cost at one place of a value, for values of more and more levels; the last holds for all others. `own`
/// is the cost of a schema by itself, that many levels further down.
fn most(
    nodes: &[SchemaNode],
    order: &[Number],
    own: impl Fn(&SchemaNode, usize) -> u64,
) -> Result<Vec<u64>, SchemaError> {
    let (mut below, mut most) = (vec![Cost::default(); nodes.len()], Vec::new());
    for level in 0..=LEVELS {
        let mut now = vec![Cost::default(); nodes.len()];
        for &number in order {
            now[number] = nodes[number].cost(&now, &below, own(&nodes[number], level));
        }
        if now[0].path > MAX_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        most.push(now[0].visits.max(most.last().copied().unwrap_or(0)));
        if level > 0 && now == below {
            break;
        }
        below = now;
    }
    Ok(most)
}

impl SchemaNode {
    /// `below` is the cost of each schema one level further down.
    fn cost(&self, now: &[Cost], below: &[Cost], own: u64) -> Cost {
        let sum = |list: &[Number]| list.iter().fold(0, |sum: u64, &one| sum.saturating_add(below[one].visits));
        let most = |list: &[Number]| list.iter().map(|&one| below[one].visits).max().unwrap_or(0);
        let named = most(&self.properties).saturating_add(sum(&self.patterns)).max(sum(&self.additional));
        let fields = named.saturating_add(sum(&self.fields));
        let within = fields.max(most(&self.places).saturating_add(sum(&self.items)));

        let beside = |of: fn(&Cost) -> u64| {
            let each = self.beside.iter().map(|list| list.iter().map(|&one| of(&now[one])).max().unwrap_or(0));
            each.fold(0, u64::saturating_add)
        };
        let once = own.saturating_add(within).saturating_add(beside(|one| one.visits));
        let again = once.saturating_add(beside(|one| one.again));
        let visits = if self.revisits { once.saturating_add(again) } else { once };

        let lists = [&self.properties, &self.patterns, &self.additional, &self.fields, &self.places, &self.items];
        let down = lists.into_iter().flatten().map(|&one| below[one].path);
        let path = down.chain(self.beside.iter().flatten().map(|&one| now[one].path)).max().unwrap_or(0);
        Cost { visits, again, path: path + 1 }
    }
}

/// Sorts the schemas topologically: each comes after those beside it.
fn order(nodes: &[SchemaNode]) -> Result<Vec<Number>, SchemaError> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        Unseen,
        Open,
        Done,
    }
    let (mut states, mut order) = (vec![VisitState::Unseen; nodes.len()], Vec::with_capacity(nodes.len()));
    for first in 0..nodes.len() {
        let mut left = vec![first];
        while let Some(&number) = left.last() {
            if states[number] != VisitState::Unseen {
                left.pop();
                if states[number] == VisitState::Open {
                    states[number] = VisitState::Done;
                    order.push(number);
                }
                continue;
            }
            states[number] = VisitState::Open;
            for &next in nodes[number].beside.iter().flatten() {
                match states[next] {
                    VisitState::Unseen => left.push(next),
                    VisitState::Open => return Err(SchemaError::Circular),
                    VisitState::Done => {}
                }
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    fn measure(schema: &Value) -> Result<u64, SchemaError> {
        super::measure(&SchemaGraph::of(schema)?).map(|cost| cost.visits(LEVELS))
    }

    /// Definitions of which each asks the next one twice.
    fn doubling(levels: usize, twice: impl Fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for level in 0..levels {
            defs.insert(format!("d{level}"), twice(json!({"$ref": format!("#/$defs/d{}", level + 1)})));
        }
        defs.insert(format!("d{levels}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    }

    #[test]
    fn usual_schemas_are_measured_and_well_within_the_limit() {
        let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/node"}, "right": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            "more": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}});
        let flat = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": [1]}}});
        let named = json!({"$id": "https://a.example/s", "$anchor": "top", "properties": {
            "a": {"$ref": "#top"}, "b": {"$ref": "https://a.example/s"}, "c": {"$ref": "#/$defs/a%20b"}},
            "$defs": {"a b": {}}});
        for (schema, visits) in [(json!({}), 1), (flat, 2), (tree, 4), (named, 2)] {
            assert_eq!(measure(&schema), Ok(visits), "{schema}");
        }
        assert!(measure(&doubling(8, |next: Value| json!({"allOf": [next, next]}))).is_ok());
    }

    #[test]
    fn a_schema_without_a_bound_on_its_time_is_refused() {
        let both = |next: Value| json!({"allOf": [next, next]});
        let choice = |next: Value| json!({"anyOf": [next], "oneOf": [next]});
        let negated = |next: Value| json!({"not": next, "if": next});
        // It doubles with each level of the value.
        let within = json!({"additionalProperties": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}});
        let overlapping = json!({"patternProperties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}});
        let items = json!({"items": {"$ref": "#"}, "contains": {"$ref": "#"}});
        let again = (0..20).fold(json!({}), |inner, _| json!({"anyOf": [inner], "unevaluatedProperties": false}));
        for schema in [doubling(35, both), doubling(35, choice), doubling(35, negated)] {
            assert_eq!(measure(&schema), Err(SchemaError::TooMuch), "{schema}");
        }
        for schema in [within, overlapping, items, again] {
            assert_eq!(measure(&schema), Err(SchemaError::TooMuch), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_asks_itself_about_the_same_value_is_refused() {
        let anchored = json!({"$dynamicAnchor": "a", "anyOf": [{"type": "null"}, {"$dynamicRef": "#a"}]});
        for schema in [json!({"$ref": "#"}), json!({"allOf": [{"not": {"$ref": "#"}}]}), anchored] {
            assert_eq!(measure(&schema), Err(SchemaError::Circular), "{schema}");
        }
    }

    #[test]
    fn a_long_way_is_refused_and_one_below_the_limit_fits_a_stack() {
        let chain = |length: usize| {
            let mut schema = doubling(length, |next: Value| json!({ "allOf": [next] }));
            schema["$defs"][format!("d{length}")]["properties"] = json!({"a": {"$ref": "#"}});
            schema
        };
        assert_eq!(measure(&chain(500)), Err(SchemaError::TooDeep));
        let schema = chain(6);
        measure(&schema).unwrap();
        let mut value = json!(1);
        for _ in 0..LEVELS {
            value = json!({ "a": value });
        }
        assert!(super::super::SchemaValidator::new(&schema).unwrap().check(&value).is_err());
    }

    #[test]
    fn a_schema_of_somebody_else_is_not_followed() {
        let schema = json!({"properties": {"a": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}});
        assert!(matches!(measure(&schema), Err(SchemaError::Outside(_))));
    }
}
