//! The `pattern` keyword, whose matches count against the budget of the check that makes them.

use super::{match_budget, patterns::BoundedPattern};
use serde_json::Value;
use std::sync::Arc;

/// The keyword with its compiled pattern.
pub struct PatternKeyword(pub Arc<BoundedPattern>);

impl<'i> jsonschema::Keyword<'i> for PatternKeyword {
    fn validate(&self, value: &'i Value) -> Result<(), jsonschema::ValidationError<'i>> {
        if self.is_valid(value) {
            return Ok(());
        }
        Err(jsonschema::ValidationError::custom(format!("value does not match \"{}\"", self.0.source())))
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        value.as_str().is_none_or(|text| match_budget::is_match(&self.0, text))
    }
}
