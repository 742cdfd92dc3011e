//! The graph of schemas: each schema that is reached from the root, and the schemas it applies.
//!
//! Uncertain cases are overestimated: a reference whose base is unknown leads to every place it could mean.

use super::error::SchemaError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The most edges between schemas.
const MAX_EDGES: usize = 100_000;

/// Keywords that apply another schema to the same value.
const BESIDE: [&str; 4] = ["not", "if", "then", "else"];
const ALL_BESIDE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const NAMED_BESIDE: [&str; 2] = ["dependentSchemas", "dependencies"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Bytes of a compared text that take as long as comparing a value.
const BYTES_PER_VISIT: usize = 64;

/// The number of a schema in the graph.
pub type Number = usize;

/// One schema and its edges.
#[derive(Default)]
pub struct SchemaNode {
    /// Schemas for the same value. One of each list applies.
    pub beside: Vec<Vec<Number>>,
    /// Schemas for a field by name.
    pub properties: Vec<Number>,
    /// Schemas for fields by pattern.
    pub patterns: Vec<Number>,
    /// Schemas for the other fields.
    pub additional: Vec<Number>,
    /// Schemas for every field.
    pub fields: Vec<Number>,
    /// Schemas for the item at one position.
    pub places: Vec<Number>,
    /// Schemas for every item.
    pub items: Vec<Number>,
    /// Applies the schemas beside it a second time (`unevaluated…`).
    pub revisits: bool,
    /// Compares all values within with each other (`uniqueItems`).
    pub unique: bool,
    /// The cost of the keywords that apply no schema, in visits; at least one.
    pub own: u64,
    /// States of the automata that each key of an object is matched with. [`super::patterns`] sets it.
    pub key_states: u64,
}

/// The schemas reached from the root, which is the first, and their nodes.
pub struct SchemaGraph<'s> {
    pub root: &'s Value,
    pub schemas: Vec<&'s Value>,
    pub nodes: Vec<SchemaNode>,
    /// The first reference that leads out of the schema.
    pub outside: Option<String>,
}

/// A graph under construction.
struct Explorer<'s> {
    root: &'s Value,
    /// The `$id`s of schemas.
    ids: Vec<&'s str>,
    /// The schemas that a base could mean.
    bases: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    numbers: HashMap<*const Value, Number>,
    found: Vec<&'s Value>,
    edges: usize,
    outside: Option<String>,
}

impl<'s> SchemaGraph<'s> {
    /// Follows every keyword that applies a schema. Fails if there are too many edges.
    pub fn of(root: &'s Value) -> Result<Self, SchemaError> {
        let mut explorer = Explorer::of(root);
        let nodes = explorer.nodes()?;
        Ok(Self { root, schemas: explorer.found, nodes, outside: explorer.outside })
    }

    /// The JSON pointer to one of the schemas.
    pub fn pointer(&self, schema: &Value) -> String {
        // Values that are still to be searched, each with its pointer.
        let mut left = vec![(self.root, String::new())];
        while let Some((value, at)) = left.pop() {
            if std::ptr::eq(value, schema) {
                return at;
            }
            match value {
                Value::Array(items) => {
                    left.extend(items.iter().enumerate().map(|(index, item)| (item, format!("{at}/{index}"))));
                }
                Value::Object(fields) => {
                    left.extend(fields.iter().map(|(key, field)| (field, format!("{at}/{}", escape(key)))));
                }
                _ => {}
            }
        }
        String::new()
    }
}

/// Escapes a key for a JSON pointer.
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl<'s> Explorer<'s> {
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
        Self { root, ids, bases, anchors, numbers: HashMap::new(), found: Vec::new(), edges: 0, outside: None }
    }

    fn nodes(&mut self) -> Result<Vec<SchemaNode>, SchemaError> {
        self.number(self.root);
        let mut nodes = Vec::new();
        while let Some(schema) = self.found.get(nodes.len()).copied() {
            // The other schemas are `true` and `false`.
            let trivial = || SchemaNode { own: 1, ..SchemaNode::default() };
            nodes.push(schema.as_object().map_or_else(trivial, |schema| self.node(schema)));
            if self.edges > MAX_EDGES {
                return Err(SchemaError::TooMuch);
            }
        }
        Ok(nodes)
    }

    fn node(&mut self, schema: &'s Map<String, Value>) -> SchemaNode {
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
                node.beside.push(self.follow(reference));
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
        node.unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        node.own = own_cost(schema);
        node
    }

    /// The schemas that a reference could lead to.
    fn follow(&mut self, reference: &str) -> Vec<Number> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = decode(fragment);
        let to: Vec<_> = if fragment.is_empty() || fragment.starts_with('/') {
            self.bases.iter().filter_map(|base| base.pointer(&fragment)).collect()
        } else {
            self.anchors.get(&*fragment).cloned().unwrap_or_default()
        };
        // The base may be a well-known schema outside this one, whose cost is unknown.
        if !base.is_empty() && !self.ids.contains(&base) {
            self.outside.get_or_insert_with(|| reference.to_owned());
        }
        self.numbers(to)
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

/// The cost of comparing a value with the values that the keywords of a schema list.
fn own_cost(schema: &Map<String, Value>) -> u64 {
    // Texts alone are looked up by their hash.
    let hashed = |value: &&Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    let listed = ["const", "required", "dependentRequired"].into_iter().filter_map(|name| schema.get(name));
    let listed = listed.chain(schema.get("enum").filter(|value| !hashed(value)));
    let (mut left, mut cost): (Vec<_>, u64) = (listed.collect(), 1);
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => {
                cost += fields.len() as u64;
                left.extend(fields.values());
            }
            Value::String(text) => cost += 1 + (text.len() / BYTES_PER_VISIT) as u64,
            _ => cost += 1,
        }
    }
    cost
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
