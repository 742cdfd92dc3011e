//! JSON Schema: checks that a schema is well-formed, and validates values against one.
//!
//! Schemas of methods are checked when they are published and never applied: the method server validates its own params and
//! results. Tools run in the daemon, which validates their arguments with a [`SchemaValidator`].

mod cost;
mod error;

pub use error::{MAX_BYTES, SchemaError};

use serde_json::Value;

/// The most visits to all places of one validated value.
const MAX_TOTAL_VISITS: u64 = 20_000_000;

/// Checks a schema against the rules of JSON Schema (2020-12, unless it names another draft). A reference must stay within
/// the schema: nothing is fetched.
pub fn check(schema: &Value) -> Result<(), SchemaError> {
    check_size(schema)?;
    compile(schema).map(drop)
}

fn check_size(schema: &Value) -> Result<(), SchemaError> {
    if !schema.is_object() {
        return Err(SchemaError::NotObject);
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_BYTES { Err(SchemaError::TooLarge(bytes)) } else { Ok(()) }
}

fn compile(schema: &Value) -> Result<jsonschema::Validator, SchemaError> {
    jsonschema::validator_for(schema).map_err(|error| SchemaError::Malformed {
        at: error.instance_path().to_string(),
        reason: error.masked().to_string(),
    })
}

/// A compiled schema whose validation time is bounded.
pub struct SchemaValidator {
    validator: jsonschema::Validator,
    /// The most visits to one place of a value.
    visits: u64,
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
        let visits = cost::measure(schema)?;
        Ok(Self { validator: compile(schema)?, visits })
    }

    /// Validates a value. A value that would take too long is rejected.
    ///
    /// The error does not repeat the value, which may be long or secret.
    pub fn check(&self, value: &Value) -> Result<(), ValidationError> {
        let most = usize::try_from(MAX_TOTAL_VISITS / self.visits.max(1)).unwrap_or(usize::MAX);
        if has_more(value, most) {
            let reason = format!("there are more than {most} values, too many for this schema");
            return Err(ValidationError { at: String::new(), reason });
        }
        self.validator.validate(value).map_err(|error| ValidationError {
            at: error.instance_path().to_string(),
            reason: error.masked().to_string(),
        })
    }
}

/// Returns true if the value contains more than `most` values, itself included.
fn has_more(value: &Value, most: usize) -> bool {
    let (mut left, mut count) = (vec![value], 0);
    while let Some(value) = left.pop() {
        count += 1;
        match value {
            _ if count > most => return true,
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => left.extend(fields.values()),
            _ => {}
        }
    }
    false
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
        for schema in [json!({"pattern": "("}), json!({"$ref": "#/$defs/none"}), json!({"$ref": "https://a.example/s"})]
        {
            assert!(matches!(check(&schema), Err(SchemaError::Malformed { .. })), "{schema}");
        }
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
