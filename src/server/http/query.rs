//! Reads query strings, with errors that name the parameter.

use super::error::ApiError;
use crate::model::{json_input::describe, text_value::TextValue};
use serde::de::{DeserializeOwned, value::MapDeserializer};
use std::{borrow::Cow, cell::RefCell, iter};

/// Parses a query string. The error names the parameter that is unknown, repeated, missing or wrong.
pub fn parse<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    let current_name = RefCell::new(Cow::Borrowed(""));
    let pairs = form_urlencoded::parse(query.as_bytes()).map(|(name, value)| {
        current_name.replace(name.clone());
        (name, TextValue(value))
    });
    // A missing parameter is found after the last one.
    let end = iter::from_fn(|| {
        current_name.take();
        None
    });
    T::deserialize(MapDeserializer::new(pairs.chain(end)))
        .map_err(|error: serde_json::Error| ApiError::BadRequest(describe(&current_name.borrow(), &error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parse errors are checked")]
    struct LimitQuery {
        limit: Option<u8>,
        #[serde(default)]
        name: String,
    }

    #[test]
    fn a_query_string_is_checked_like_a_body() {
        let error = |query| parse::<LimitQuery>(query).unwrap_err().to_string();
        assert!(error("name=a&limit=x").starts_with("`limit`: "), "{}", error("limit=x"));
        assert!(error("lmit=1").contains("unknown field `lmit`"), "{}", error("lmit=1"));
        assert!(error("limit=1&limit=2").contains("duplicate field `limit`"));
        assert_eq!(parse::<LimitQuery>("").unwrap().limit, None);
        assert_eq!(parse::<LimitQuery>("limit=7").unwrap().limit, Some(7));
        assert!(error("limit=").starts_with("`limit`: "), "{}", error("limit="));
        assert_eq!(parse::<LimitQuery>("name=a%20b+c%ff&limit=7").unwrap().name, "a b c\u{fffd}");
    }

    #[test]
    fn a_missing_parameter_is_named_alone() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only parse errors are checked")]
        struct NameQuery {
            name: String,
            other: Option<bool>,
        }
        let error = |query| parse::<NameQuery>(query).unwrap_err().to_string();
        assert!(error("other=true").starts_with("missing field `name`"), "{}", error("other=true"));
        assert!(error("other=yes").starts_with("`other`: "), "{}", error("other=yes"));
    }
}
