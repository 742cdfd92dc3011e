//! Values in answers whose set may grow with the server.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{borrow::Cow, fmt};

/// A value of an answer that a newer server may write in a form this version does not know, such as a new state.
///
/// The server always writes [`Self::Known`]. The command line shows an unknown value as it came instead of failing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Lenient<T> {
    Known(T),
    Unknown(Value),
}

impl<T> Lenient<T> {
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> From<T> for Lenient<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match T::deserialize(&value) {
            Ok(known) => Ok(Self::Known(known)),
            Err(_) => Ok(Self::Unknown(value)),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Lenient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => value.fmt(f),
            Self::Unknown(Value::String(text)) => f.write_str(text),
            Self::Unknown(value) => value.fmt(f),
        }
    }
}

/// The schema describes what this version writes.
impl<T: JsonSchema> JsonSchema for Lenient<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::permission::Permission;

    #[test]
    fn an_unknown_value_is_kept_and_shown_as_it_came() {
        let read: Vec<Lenient<Permission>> = serde_json::from_str(r#"["use_spaces", "fly"]"#).unwrap();
        assert_eq!(read[0], Lenient::Known(Permission::UseSpaces));
        assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), ["use_spaces", "fly"]);
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"["use_spaces","fly"]"#);
    }
}
