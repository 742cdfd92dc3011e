//! JSON Schema: checks that a schema is well-formed, and validates values against one.
//!
//! Schemas of methods are checked when they are published and never applied: the method server validates its own params
//! and results. Tools run in the daemon, which validates their arguments with a [`SchemaValidator`].
//!
//! Users and agents write schemas, so that both are bounded: compiling by the size of the schema ([`error`]) and of its
//! patterns ([`patterns`]), validation by the visits to a value ([`cost`]) and the states that patterns enter
//! ([`match_budget`]).

mod cost;
mod error;
mod graph;
#[cfg(test)]
mod hostile_tests;
mod match_budget;
mod pattern_keyword;
mod patterns;

pub use error::{MAX_BYTES, PatternFault, SchemaError};

use cost::SchemaCost;
use error::{MAX_AUTOMATON, MAX_NESTING};
use graph::SchemaGraph;
use jsonschema::PatternOptions;
use match_budget::{MAX_STATES, MatchStop};
use pattern_keyword::PatternKeyword;
use patterns::{BoundedPattern, CompiledPatterns, LAZY_AUTOMATON};
use serde_json::Value;
use std::sync::{Arc, atomic::AtomicBool};

/// The most visits to all places of one validated value: about half a second in an unoptimised build.
const MAX_TOTAL_VISITS: u64 = 5_000_000;

/// The most visits after which a mismatch is located: the library builds an error for each branch that failed.
const MAX_LOCATED_VISITS: u64 = 50_000;

/// Bytes of text that take as long as a visit to a value.
const BYTES_PER_VISIT: usize = 64;

/// Checks a schema against the rules of JSON Schema (2020-12, unless it names another draft). A reference must stay
/// within the schema: nothing is fetched.
pub fn check(schema: &Value) -> Result<(), SchemaError> {
    SchemaChecker::new(usize::MAX).check(schema)
}

/// Checks several schemas of one origin, whose patterns have a common limit beside that of each schema.
pub struct SchemaChecker {
    /// Bytes that the automata of patterns may still take.
    left: usize,
    limit: usize,
}

impl SchemaChecker {
    /// The patterns of all schemas compile to at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Does the same as [`check`].
    pub fn check(&mut self, schema: &Value) -> Result<(), SchemaError> {
        check_size(schema)?;
        let patterns = patterns::compile(&mut SchemaGraph::of(schema)?)?;
        let bytes = patterns.values().map(|pattern| pattern.memory()).sum();
        self.left = self.left.checked_sub(bytes).ok_or(SchemaError::PatternsTogether { limit: self.limit })?;
        compile(schema, patterns).map(drop)
    }
}

fn check_size(schema: &Value) -> Result<(), SchemaError> {
    if !schema.is_object() {
        return Err(SchemaError::NotObject);
    }
    if Extent::of(schema, usize::MAX).depth > MAX_NESTING {
        return Err(SchemaError::TooNested);
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES { Err(SchemaError::TooLarge(bytes)) } else { Ok(()) }
}

fn compile(schema: &Value, patterns: CompiledPatterns) -> Result<jsonschema::Validator, SchemaError> {
    // A pattern that is not among these belongs to a well-known schema that this one refers to.
    let find =
        move |source: &str| patterns.get(source).cloned().map_or_else(|| BoundedPattern::new(source).map(Arc::new), Ok);
    let options = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_AUTOMATON).dfa_size_limit(LAZY_AUTOMATON))
        // An annotation in 2020-12. The check for `regex` takes time quadratic in the text.
        .should_validate_formats(false)
        .with_keyword("pattern", move |_, value, _| {
            let found = find(value.as_str().unwrap_or_default());
            let pattern = found.map_err(|fault| jsonschema::ValidationError::custom(fault.to_string()))?;
            Ok(Box::new(PatternKeyword(pattern)))
        });
    options.build(schema).map_err(|error| SchemaError::Malformed {
        at: error.instance_path().to_string(),
        reason: error.masked().to_string(),
    })
}

/// A compiled schema whose validation time is bounded.
pub struct SchemaValidator {
    validator: jsonschema::Validator,
    cost: SchemaCost,
}

/// The first mismatch between a value and a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if at.is_empty() { String::new() } else { format!("at `{at}`: ") })]
pub struct ValidationError {
    /// A JSON pointer into the value; empty for the whole.
    pub at: String,
    pub reason: String,
}

impl SchemaValidator {
    /// Compiles a schema. Fails as [`check`] does, and if validation with it could take very long.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        check_size(schema)?;
        let mut graph = SchemaGraph::of(schema)?;
        let patterns = patterns::compile(&mut graph)?;
        let cost = cost::measure(&graph)?;
        Ok(Self { validator: compile(schema, patterns)?, cost })
    }

    /// Validates a value. A value that would take too long is rejected.
    ///
    /// The error does not repeat the value, which may be long or secret.
    pub fn check(&self, value: &Value) -> Result<(), ValidationError> {
        self.check_unless(value, &Arc::default())
    }

    /// Validates a value until `cancelled` is set: patterns are not matched any more then, and the value is rejected.
    pub fn check_unless(&self, value: &Value, cancelled: &Arc<AtomicBool>) -> Result<(), ValidationError> {
        let whole = |reason: String| ValidationError { at: String::new(), reason };
        let most = |visits: u64| usize::try_from(MAX_TOTAL_VISITS / visits).unwrap_or(usize::MAX);
        let extent = Extent::of(value, most(self.cost.visits(1)));
        let visits = self.cost.visits(extent.depth);
        let most = most(visits);
        if extent.depth > cost::LEVELS {
            return Err(whole(format!("it is nested more than {} levels deep", cost::LEVELS)));
        }
        if extent.size > most {
            return Err(whole(format!("there are more than {most} values, too many for this schema")));
        }
        if self.cost.key_states.saturating_mul(extent.key_bytes as u64) > MAX_STATES {
            return Err(whole(
                "the names of its fields are too long for the `patternProperties` of this schema".to_owned(),
            ));
        }
        let located = visits.saturating_mul(extent.size as u64) <= MAX_LOCATED_VISITS;
        let checked = match_budget::run(cancelled, || {
            if self.validator.is_valid(value) {
                return Ok(());
            }
            let fault = if located { self.validator.validate(value).err() } else { None };
            Err(fault.map(|error| (error.instance_path().to_string(), error.masked().to_string())))
        });
        match checked {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Some((at, reason)))) => Err(ValidationError { at, reason }),
            Ok(Err(None)) => Err(whole("it does not fit the schema, and is too large to say where".to_owned())),
            Err(MatchStop::Exhausted) => {
                Err(whole("its texts are too long for the patterns of this schema".to_owned()))
            }
            Err(MatchStop::Cancelled) => Err(whole("the check was cancelled".to_owned())),
        }
    }
}

/// The size of a value.
#[derive(Default)]
struct Extent {
    /// The values, itself included, and the length of texts in units of [`BYTES_PER_VISIT`].
    size: usize,
    key_bytes: usize,
    depth: usize,
}

impl Extent {
    /// Measures a value, up to a size of `most` and a little more.
    fn of(value: &Value, most: usize) -> Self {
        let (mut left, mut extent) = (vec![(value, 1)], Self::default());
        while let Some((value, depth)) = left.pop() {
            extent.depth = extent.depth.max(depth);
            extent.size += 1;
            match value {
                _ if extent.size > most => break,
                Value::String(text) => extent.size += text.len() / BYTES_PER_VISIT,
                Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
                Value::Object(fields) => {
                    extent.key_bytes += fields.keys().map(|key| key.len() + 1).sum::<usize>();
                    left.extend(fields.values().map(|field| (field, depth + 1)));
                }
                _ => {}
            }
        }
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_type_of_the_specification_is_known() {
        for kind in ["object", "array", "string", "integer", "number", "boolean", "null"] {
            assert_eq!(check(&json!({ "type": kind })), Ok(()), "{kind}");
        }
        let nested = json!({"type": "object", "properties": {"a": {"type": ["string", "null"], "minLength": 1},
            "b": {"$ref": "#/$defs/b"}}, "required": ["a"], "$defs": {"b": {"enum": [1, 2]}}});
        assert_eq!(check(&nested), Ok(()));
    }

    #[test]
    fn a_malformed_schema_is_refused_with_its_place() {
        for (schema, place) in [
            (json!({"type": "objekt"}), "/type"),
            (json!({"properties": {"a": {"type": "text"}}}), "/properties/a/type"),
            (json!({"properties": {"a": {"minLength": -1}}}), "/properties/a/minLength"),
            (json!({"required": "a"}), "/required"),
        ] {
            let Err(SchemaError::Malformed { at, .. }) = check(&schema) else { panic!("{schema} is malformed") };
            assert_eq!(at, place);
        }
        for schema in [json!({"$ref": "#/$defs/none"}), json!({"$ref": "https://a.example/s"})] {
            assert!(matches!(check(&schema), Err(SchemaError::Malformed { .. })), "{schema}");
        }
        assert!(matches!(check(&json!({"pattern": "("})), Err(SchemaError::Pattern { .. })));
        assert_eq!(check(&json!(true)), Err(SchemaError::NotObject));
        assert!(matches!(check(&json!({"title": "x".repeat(MAX_BYTES)})), Err(SchemaError::TooLarge(_))));
    }

    #[test]
    fn a_value_that_would_take_too_long_does_not_fit() {
        let choices = vec![json!({}); 9000];
        let checker = SchemaValidator::new(&json!({"items": {"anyOf": choices}})).unwrap();
        assert_eq!(checker.check(&json!([null, null])), Ok(()));
        let error = checker.check(&json!(vec![Value::Null; 5000])).unwrap_err();
        assert!(error.to_string().contains("too many for this schema"), "{error}");
    }
}
