//! The body of every error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The body of every error.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody {
    pub error: ErrorText,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorText {
    /// For programs: does not change.
    pub code: Cow<'static, str>,
    /// For people: what is wrong and what to do.
    pub message: String,
}
