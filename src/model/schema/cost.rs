//! The cost of applying a schema: the most times that validation visits one place of a value.
//!
//! Validation cannot be interrupted, so a schema that could keep it busy without end is rejected before it is applied.
//!
//! A schema visits its value itself and through the schemas beside it (`allOf`, `$ref`, …), and the values within through the
//! schemas below it (`properties`, `items`, …). Both are followed, level by level of the value. A schema that is reached
//! along two paths counts twice, since that is how a short schema can take long.
//!
//! Uncertain cases are overestimated: a reference whose base is unknown counts for every place it could lead to.

use super::error::{MAX_VISITS, SchemaError};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The deepest nesting of schema applications for a value of [`LEVELS`]. Each takes a part of the thread's stack.
const MAX_DEPTH: u64 = 1000;

/// The most levels of a value that arguments may have.
const LEVELS: usize = 64;

/// The most edges between schemas.
const MAX_EDGES: usize = 100_000;

/// Keywords that apply another schema to the same value.
const BESIDE: [&str; 4] = ["not", "if", "then", "else"];
const ALL_BESIDE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const NAMED_BESIDE: [&str; 2] = ["dependentSchemas", "dependencies"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The number of a schema in the graph.
type Number = usize;

/// One schema and its edges.
#[derive(Default)]
struct SchemaNode {
    /// Schemas for the same value. One of each list applies.
    beside: Vec<Vec<Number>>,
    /// Schemas for a field by name.
    properties: Vec<Number>,
    /// Schemas for fields by pattern.
    patterns: Vec<Number>,
    /// Schemas for the other fields.
    additional: Vec<Number>,
    /// Schemas for every field.
    fields: Vec<Number>,
    /// Schemas for the item at one position.
    places: Vec<Number>,
    /// Schemas for every item.
    items: Vec<Number>,
    /// Applies the schemas beside it a second time (`unevaluated…`).
    revisits: bool,
}

/// The schemas reached from the root, which is the first.
struct Graph<'s> {
    root: &'s Value,
    /// The `$id`s of schemas.
    ids: Vec<&'s str>,
    /// The schemas that a base could mean.
    bases: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    numbers: HashMap<*const Value, Number>,
    found: Vec<&'s Value>,
    edges: usize,
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

/// Computes the most visits to one place, or fails if there could be too many.
pub fn measure(schema: &Value) -> Result<u64, SchemaError> {
    let nodes = Graph::of(schema).nodes()?;
    let order = order(&nodes)?;
    let (mut below, mut most) = (vec![Cost::default(); nodes.len()], 0);
    for level in 0..=LEVELS {
        let mut now = vec![Cost::default(); nodes.len()];
        for &number in &order {
            now[number] = nodes[number].cost(&now, &below, if level == 0 { 1 } else { 0 });
        }
        if now[0].visits > MAX_VISITS {
            return Err(SchemaError::TooMuch);
        }
        if now[0].path > MAX_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        most = most.max(now[0].visits);
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

impl<'s> Graph<'s> {
    fn of(root: &'s Value) -> Self {
        let (mut ids, mut bases, mut anchors) = (Vec::new(), vec![root], HashMap::<_, Vec<_>>::new());
        let mut left = vec![root];
        while let Some(value) = left.pop() {
            match value {
                Value::Array(items) => left.extend(items),
                Value::Object(fields) => {
                    left.extend(fields.values());
                    let text = |name: &str| fields.get(name).and_then(Value::as_str);
                    for id in ["$id", "id"].into_iter().filter_map(text) {
                        match id.strip_prefix('#') {
                            // Older drafts write an anchor this way.
                            Some(anchor) => anchors.entry(anchor).or_default().push(value),
                            None => {
                                ids.push(id.trim_end_matches('#'));
                                bases.push(value);
                            }
                        }
                    }
                    for anchor in ["$anchor", "$dynamicAnchor"].into_iter().filter_map(text) {
                        anchors.entry(anchor).or_default().push(value);
                    }
                }
                _ => {}
            }
        }
        bases.dedup_by_key(|base| std::ptr::from_ref(*base));
        Self { root, ids, bases, anchors, numbers: HashMap::new(), found: Vec::new(), edges: 0 }
    }

    fn nodes(mut self) -> Result<Vec<SchemaNode>, SchemaError> {
        self.number(self.root);
        let mut nodes = Vec::new();
        while let Some(schema) = self.found.get(nodes.len()).copied() {
            // The other schemas are `true` and `false`.
            let node = schema.as_object().map_or_else(|| Ok(SchemaNode::default()), |schema| self.node(schema))?;
            nodes.push(node);
            if self.edges > MAX_EDGES {
                return Err(SchemaError::TooMuch);
            }
        }
        Ok(nodes)
    }

    fn node(&mut self, schema: &'s Map<String, Value>) -> Result<SchemaNode, SchemaError> {
        let one = |name: &str| schema.get(name).filter(|value| !value.is_array());
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        let named = |name: &str| schema.get(name).and_then(Value::as_object).into_iter().flat_map(Map::values);
        let mut node = SchemaNode::default();
        let beside = BESIDE.into_iter().filter_map(one);
        let beside = beside.chain(ALL_BESIDE.into_iter().flat_map(list));
        for schema in beside.chain(NAMED_BESIDE.into_iter().flat_map(named)) {
            node.beside.push(vec![self.number(schema)]);
        }
        for name in REFERENCES {
            if let Some(reference) = schema.get(name).and_then(Value::as_str) {
                node.beside.push(self.follow(reference)?);
            }
        }
        node.properties = self.numbers(named("properties"));
        node.patterns = self.numbers(named("patternProperties"));
        node.additional = self.numbers(one("additionalProperties"));
        node.fields = self.numbers(["unevaluatedProperties", "propertyNames"].into_iter().filter_map(one));
        let places = ["items", "additionalItems"].into_iter().filter_map(one);
        node.places = self.numbers(places.chain(["items", "prefixItems"].into_iter().flat_map(list)));
        node.items = self.numbers(["contains", "unevaluatedItems"].into_iter().filter_map(one));
        node.revisits = ["unevaluatedProperties", "unevaluatedItems"].into_iter().any(|name| one(name).is_some());
        Ok(node)
    }

    /// The schemas that a reference could lead to.
    fn follow(&mut self, reference: &str) -> Result<Vec<Number>, SchemaError> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = decode(fragment);
        let to: Vec<_> = if fragment.is_empty() || fragment.starts_with('/') {
            self.bases.iter().filter_map(|base| base.pointer(&fragment)).collect()
        } else {
            self.anchors.get(&*fragment).cloned().unwrap_or_default()
        };
        // The base may be a well-known schema outside this one, whose cost is unknown.
        if !base.is_empty() && !self.ids.contains(&base) {
            return Err(SchemaError::Outside(reference.to_owned()));
        }
        Ok(self.numbers(to))
    }

    fn numbers(&mut self, schemas: impl IntoIterator<Item = &'s Value>) -> Vec<Number> {
        schemas.into_iter().map(|schema| self.number(schema)).collect()
    }

    fn number(&mut self, schema: &'s Value) -> Number {
        self.edges += 1;
        *self.numbers.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            self.found.push(schema);
            self.found.len() - 1
        })
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

/// Percent-decodes a fragment.
fn decode(fragment: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), fragment.as_bytes());
    while let [first, more @ ..] = rest {
        let digits = more.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        for (schema, visits) in [(json!({}), 1), (flat, 1), (tree, 4), (named, 2)] {
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
