//! A value in a definition: the text itself, or the place on the server where it is read when it is needed.
//!
//! A place is the server's environment, one of its files, or a systemd credential. Only definitions that belong to the
//! operator may name one: a user must not read the server's files through a sink of their own.

use super::text_or_object::{self, TextOrObject};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, path::Path};

/// The text shown in place of a value that is secret.
pub const MASK: &str = "****";

/// A text, or the place that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ConfiguredValue {
    Text(String),
    Reference(ValueReference),
}

impl<'de> Deserialize<'de> for ConfiguredValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected =
            r#"a text, or { env = "NAME" }, { file = "PATH" } or { credential = "NAME" } for one on the server"#;
        Ok(match text_or_object::read(deserializer, expected)? {
            TextOrObject::Text(text) => Self::Text(text),
            TextOrObject::Object(reference) => Self::Reference(reference),
        })
    }
}

/// A place on the server: exactly one of `env`, `file` and `credential`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueReference {
    /// A variable of the server's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The absolute path of a file on the server; a line break at its end does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The name of a systemd credential, a file in `$CREDENTIALS_DIRECTORY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Put in front of the value, such as `Bearer `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePlace<'a> {
    Environment(&'a str),
    File(&'a Path),
    Credential(&'a str),
}

/// The rule that a reference breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueReferenceError {
    #[error("must have exactly one of `env`, `file` and `credential`")]
    NotOne,
    #[error("must have an absolute path in `file`")]
    Path,
    #[error("must have the name of a variable in `env`")]
    Variable,
    #[error("must have a name without `/` in `credential`")]
    Credential,
    #[error("must have at most 64 printable ASCII characters in `prefix`")]
    Prefix,
}

impl ValueReference {
    /// The place, if the reference keeps every rule.
    pub fn place(&self) -> Result<ValuePlace<'_>, ValueReferenceError> {
        let is_name = |name: &str| !name.is_empty() && name.len() <= 255 && !name.contains(['\0', '/', '=']);
        if self.prefix.len() > 64 || !self.prefix.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            return Err(ValueReferenceError::Prefix);
        }
        match (&self.env, &self.file, &self.credential) {
            (Some(name), None, None) if is_name(name) => Ok(ValuePlace::Environment(name)),
            (Some(_), None, None) => Err(ValueReferenceError::Variable),
            (None, Some(path), None) if path.starts_with('/') && path.len() <= 4096 && !path.contains('\0') => {
                Ok(ValuePlace::File(Path::new(path)))
            }
            (None, Some(_), None) => Err(ValueReferenceError::Path),
            (None, None, Some(name)) if is_name(name) && name != "." && name != ".." => {
                Ok(ValuePlace::Credential(name))
            }
            (None, None, Some(_)) => Err(ValueReferenceError::Credential),
            _ => Err(ValueReferenceError::NotOne),
        }
    }
}

impl ConfiguredValue {
    /// The text, unless the value is kept elsewhere.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Reference(_) => None,
        }
    }

    /// Tells if it stands for a value that the definition has already.
    pub fn is_mask(&self) -> bool {
        self.text() == Some(MASK)
    }

    pub fn reference(&self) -> Option<&ValueReference> {
        match self {
            Self::Text(_) => None,
            Self::Reference(reference) => Some(reference),
        }
    }
}

impl From<String> for ConfiguredValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The text, or a description of its place.
impl fmt::Display for ConfiguredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Reference(reference) => match reference.place() {
                Ok(place) => write!(f, "{}(from {place})", reference.prefix),
                Err(error) => error.fmt(f),
            },
        }
    }
}

impl fmt::Display for ValuePlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "the environment variable {name} of the server"),
            Self::File(path) => write!(f, "the file {} on the server", path.display()),
            Self::Credential(name) => write!(f, "the credential {name} of the server"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reference_names_one_place() {
        let place = |value| {
            let value: ConfiguredValue = serde_json::from_value(value).unwrap();
            value.reference().unwrap().place().map(|place| place.to_string())
        };
        assert_eq!(place(json!({"env": "A"})).unwrap(), "the environment variable A of the server");
        assert_eq!(place(json!({"file": "/a"})).unwrap(), "the file /a on the server");
        assert_eq!(place(json!({"credential": "a"})).unwrap(), "the credential a of the server");
        for (value, error) in [
            (json!({}), ValueReferenceError::NotOne),
            (json!({"env": "A", "file": "/a"}), ValueReferenceError::NotOne),
            (json!({"env": "A=B"}), ValueReferenceError::Variable),
            (json!({"file": "a"}), ValueReferenceError::Path),
            (json!({"credential": "../a"}), ValueReferenceError::Credential),
            (json!({"credential": ".."}), ValueReferenceError::Credential),
            (json!({"env": "A", "prefix": "\n"}), ValueReferenceError::Prefix),
        ] {
            assert_eq!(place(value), Err(error));
        }
    }

    #[test]
    fn a_value_is_a_text_or_an_object_and_nothing_else() {
        let fault = |value| serde_json::from_value::<ConfiguredValue>(value).unwrap_err().to_string();
        let unknown = "unknown field `environment`, expected one of `env`, `file`, `credential`, `prefix`";
        assert_eq!(fault(json!({"environment": "A"})), unknown);
        let forms = r#"expected a text, or { env = "NAME" }, { file = "PATH" } or { credential = "NAME" } for one on the server"#;
        assert_eq!(fault(json!(["A"])), format!("invalid type: sequence, {forms}"));
        assert_eq!(fault(json!(5)), format!("invalid type: integer `5`, {forms}"));
        assert_eq!(fault(json!(null)), format!("invalid type: null, {forms}"));
    }
}
