//! How often a schema can have one place of a value looked at. What applies schemas cannot be interrupted, so a schema
//! that could keep it busy for ever is told before it is applied.
//!
//! A schema looks at the value it is given by itself and by the schemas beside it (`allOf`, `$ref`, …), and at the values
//! within by those below it (`properties`, `items`, …). Both are followed, level by level of the value, and where one
//! schema is reached by two ways it counts twice: that is how a short schema comes to a long time.
//!
//! What cannot be told for certain counts for more, never for less: a reference whose base is not known leads to wherever
//! it could.

use super::SchemaError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Looks at one place.
pub const MAX_LOOKS: u64 = 10_000;

/// Schemas within schemas at any one moment, in a value of [`LEVELS`]. Each takes its part of a thread's stack.
const MAX_PATH: u64 = 1000;

/// Levels of a value: those that arguments may have.
const LEVELS: usize = 64;

/// Ways between schemas.
const MAX_WAYS: usize = 100_000;

/// Keywords by which a schema asks another one about the same value.
const BESIDE: [&str; 4] = ["not", "if", "then", "else"];
const ALL_BESIDE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const NAMED_BESIDE: [&str; 2] = ["dependentSchemas", "dependencies"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// A schema by its number.
type Number = usize;

/// One schema, and where it leads.
#[derive(Default)]
struct Node {
    /// To schemas about the same value. Of each list, one is meant.
    beside: Vec<Vec<Number>>,
    /// About a field of this name.
    properties: Vec<Number>,
    /// About every field that has such a name.
    patterns: Vec<Number>,
    /// About the fields that neither is about.
    additional: Vec<Number>,
    /// About every field.
    fields: Vec<Number>,
    /// About the item in some place.
    places: Vec<Number>,
    /// About every item.
    items: Vec<Number>,
    /// Asks again what the schemas beside it have looked at.
    asks_again: bool,
}

/// The schemas that are reached from the whole, which is the first.
struct Graph<'s> {
    root: &'s Value,
    /// The names that schemas have.
    ids: Vec<&'s str>,
    /// Whatever a name could mean.
    bases: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    numbers: HashMap<*const Value, Number>,
    found: Vec<&'s Value>,
    ways: usize,
}

/// What a schema comes to for a value of so many levels.
#[derive(Clone, Copy, Default, PartialEq)]
struct Effort {
    /// At one place of the lowest level.
    looks: u64,
    /// The same, if what was found is asked for again.
    again: u64,
    path: u64,
}

/// The most looks at one place.
///
/// # Errors
///
/// Fails if there could be too many.
pub fn measure(schema: &Value) -> Result<u64, SchemaError> {
    let nodes = Graph::of(schema).nodes()?;
    let order = order(&nodes)?;
    let (mut below, mut most) = (vec![Effort::default(); nodes.len()], 0);
    for level in 0..=LEVELS {
        let mut now = vec![Effort::default(); nodes.len()];
        for &number in &order {
            now[number] = nodes[number].effort(&now, &below, if level == 0 { 1 } else { 0 });
        }
        if now[0].looks > MAX_LOOKS {
            return Err(SchemaError::TooMuch);
        }
        if now[0].path > MAX_PATH {
            return Err(SchemaError::TooDeep);
        }
        most = most.max(now[0].looks);
        if level > 0 && now == below {
            break;
        }
        below = now;
    }
    Ok(most)
}

impl Node {
    /// `below` is what schemas come to one level further down.
    fn effort(&self, now: &[Effort], below: &[Effort], own: u64) -> Effort {
        let sum = |list: &[Number]| list.iter().fold(0, |sum: u64, &one| sum.saturating_add(below[one].looks));
        let most = |list: &[Number]| list.iter().map(|&one| below[one].looks).max().unwrap_or(0);
        let named = most(&self.properties).saturating_add(sum(&self.patterns)).max(sum(&self.additional));
        let fields = named.saturating_add(sum(&self.fields));
        let within = fields.max(most(&self.places).saturating_add(sum(&self.items)));

        let beside = |of: fn(&Effort) -> u64| {
            let each = self.beside.iter().map(|list| list.iter().map(|&one| of(&now[one])).max().unwrap_or(0));
            each.fold(0, u64::saturating_add)
        };
        let once = own.saturating_add(within).saturating_add(beside(|one| one.looks));
        let again = once.saturating_add(beside(|one| one.again));
        let looks = if self.asks_again { once.saturating_add(again) } else { once };

        let lists = [&self.properties, &self.patterns, &self.additional, &self.fields, &self.places, &self.items];
        let down = lists.into_iter().flatten().map(|&one| below[one].path);
        let path = down.chain(self.beside.iter().flatten().map(|&one| now[one].path)).max().unwrap_or(0);
        Effort { looks, again, path: path + 1 }
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
                            // So older drafts name an anchor.
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
        Self { root, ids, bases, anchors, numbers: HashMap::new(), found: Vec::new(), ways: 0 }
    }

    fn nodes(mut self) -> Result<Vec<Node>, SchemaError> {
        self.number(self.root);
        let mut nodes = Vec::new();
        while let Some(schema) = self.found.get(nodes.len()).copied() {
            // The others are `true` and `false`.
            let node = schema.as_object().map_or_else(|| Ok(Node::default()), |schema| self.node(schema))?;
            nodes.push(node);
            if self.ways > MAX_WAYS {
                return Err(SchemaError::TooMuch);
            }
        }
        Ok(nodes)
    }

    fn node(&mut self, schema: &'s Map<String, Value>) -> Result<Node, SchemaError> {
        let one = |name: &str| schema.get(name).filter(|value| !value.is_array());
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        let named = |name: &str| schema.get(name).and_then(Value::as_object).into_iter().flat_map(Map::values);
        let mut node = Node::default();
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
        node.asks_again = ["unevaluatedProperties", "unevaluatedItems"].into_iter().any(|name| one(name).is_some());
        Ok(node)
    }

    /// Wherever a reference could lead to.
    fn follow(&mut self, reference: &str) -> Result<Vec<Number>, SchemaError> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = decode(fragment);
        let to: Vec<_> = if fragment.is_empty() || fragment.starts_with('/') {
            self.bases.iter().filter_map(|base| base.pointer(&fragment)).collect()
        } else {
            self.anchors.get(&*fragment).cloned().unwrap_or_default()
        };
        // Schemas that everybody knows can be meant as well, and nothing is known of those here.
        if !base.is_empty() && !self.ids.contains(&base) {
            return Err(SchemaError::Outside(reference.to_owned()));
        }
        Ok(self.numbers(to))
    }

    fn numbers(&mut self, schemas: impl IntoIterator<Item = &'s Value>) -> Vec<Number> {
        schemas.into_iter().map(|schema| self.number(schema)).collect()
    }

    fn number(&mut self, schema: &'s Value) -> Number {
        self.ways += 1;
        *self.numbers.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            self.found.push(schema);
            self.found.len() - 1
        })
    }
}

/// The schemas, each after those beside it.
fn order(nodes: &[Node]) -> Result<Vec<Number>, SchemaError> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Unseen,
        Open,
        Done,
    }
    let (mut states, mut order) = (vec![State::Unseen; nodes.len()], Vec::with_capacity(nodes.len()));
    for first in 0..nodes.len() {
        let mut left = vec![first];
        while let Some(&number) = left.last() {
            if states[number] != State::Unseen {
                left.pop();
                if states[number] == State::Open {
                    states[number] = State::Done;
                    order.push(number);
                }
                continue;
            }
            states[number] = State::Open;
            for &next in nodes[number].beside.iter().flatten() {
                match states[next] {
                    State::Unseen => left.push(next),
                    State::Open => return Err(SchemaError::Circular),
                    State::Done => {}
                }
            }
        }
    }
    Ok(order)
}

/// A fragment without its percent signs.
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
        for (schema, looks) in [(json!({}), 1), (flat, 1), (tree, 4), (named, 2)] {
            assert_eq!(measure(&schema), Ok(looks), "{schema}");
        }
        assert!(measure(&doubling(8, |next: Value| json!({"allOf": [next, next]}))).is_ok());
    }

    #[test]
    fn what_could_take_for_ever_is_refused() {
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
