//! Whether a JSON Schema is well-formed, and whether a value fits one. Those of methods are checked where they are
//! published and never applied: validating params and results is the method server's business (SPEC 2.1). Tools run
//! here, and so their arguments are checked here.

mod cost;

use serde_json::Value;

/// The largest schema, as compact JSON, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// Looks at all values of one that is checked.
const MAX_LOOKS: u64 = 20_000_000;

/// Why a value is no usable schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("a schema is an object, such as {{\"type\": \"object\"}}")]
    NotObject,
    #[error("a schema has at most {MAX_BYTES} bytes; this one has {0}")]
    TooLarge(usize),
    /// Where in the schema, as a JSON pointer; empty for the whole.
    #[error("{}{reason}", if at.is_empty() { String::new() } else { format!("at `{at}`: ") })]
    Malformed { at: String, reason: String },
    #[error("a schema must not have a value looked at more than {} times; make it simpler", cost::MAX_LOOKS)]
    TooMuch,
    #[error("too many schemas refer to others, one after the other; make it simpler")]
    TooDeep,
    #[error("a schema must not refer to itself for the same value, only for values within it")]
    Circular,
    #[error("`{0}` leads out of the schema: copy what is meant into `$defs`")]
    Outside(String),
}

/// Checks a schema against the rules of JSON Schema (2020-12, unless it names another draft). A reference must lead
/// to somewhere within the schema: nothing is fetched.
///
/// # Errors
///
/// Says where it is wrong.
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

/// A schema ready to be applied, which takes its time and not more.
pub struct SchemaValidator {
    validator: jsonschema::Validator,
    /// At most so often it looks at one value.
    looks: u64,
}

/// Why a value does not fit: the first thing that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if at.is_empty() { String::new() } else { format!("at `{at}`: ") })]
pub struct ValidationError {
    /// Where in the value, as a JSON pointer; empty for the whole.
    pub at: String,
    pub reason: String,
}

impl SchemaValidator {
    /// # Errors
    ///
    /// As [`check`], and if applying it could take very long.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        check_size(schema)?;
        let looks = cost::measure(schema)?;
        Ok(Self { validator: compile(schema)?, looks })
    }

    /// Whether the value fits. One that would take too long does not.
    ///
    /// # Errors
    ///
    /// Says what does not, and where. The value itself is not repeated, since it may be long or secret.
    pub fn check(&self, value: &Value) -> Result<(), ValidationError> {
        let most = usize::try_from(MAX_LOOKS / self.looks.max(1)).unwrap_or(usize::MAX);
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

/// Whether there are more than so many values in this one.
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
