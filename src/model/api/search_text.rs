//! A text to search for, of bounded length.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// A text of at most [`SearchText::MAX`] characters. An empty one searches for nothing.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub struct SearchText(#[schemars(length(max = 256))] String);

impl SearchText {
    pub const MAX: usize = 256;

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text; `None` if it is empty.
    pub fn into_text(self) -> Option<String> {
        Some(self.0).filter(|text| !text.is_empty())
    }
}

impl<'de> Deserialize<'de> for SearchText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.chars().nth(Self::MAX) {
            None => Ok(Self(text)),
            Some(_) => Err(de::Error::custom(format!("must be at most {} characters", Self::MAX))),
        }
    }
}
