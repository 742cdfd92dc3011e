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
    /// The code for programs, which does not change.
    pub code: Cow<'static, str>,
    /// The fault and the way out, for people.
    pub message: String,
}
