//! Reads query strings, with errors that name the parameter.

use super::error::ApiError;
use crate::model::json_input::describe;
use serde::de::{
    DeserializeOwned, Deserializer, IntoDeserializer, Visitor,
    value::{CowStrDeserializer, Error, MapDeserializer},
};
use std::{borrow::Cow, cell::RefCell, fmt, iter, str::FromStr};

/// Parses a query string. The error names the parameter that is unknown, repeated, missing or wrong.
pub fn parse<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    let current_name = RefCell::new(Cow::Borrowed(""));
    let pairs = form_urlencoded::parse(query.as_bytes()).map(|(name, value)| {
        current_name.replace(name.clone());
        (name, QueryValue(value))
    });
    // A missing parameter is found after the last one.
    let end = iter::from_fn(|| {
        current_name.take();
        None
    });
    T::deserialize(MapDeserializer::new(pairs.chain(end)))
        .map_err(|error: Error| ApiError::BadRequest(describe(&current_name.borrow(), &error.to_string())))
}

/// The text of a parameter, read as the type that is asked for.
struct QueryValue<'a>(Cow<'a, str>);

impl QueryValue<'_> {
    fn parsed<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, Error> {
        self.0.parse().map_err(serde::de::Error::custom)
    }
}

/// Methods for types that are parsed from text.
macro_rules! parsed {
    ($($method:ident $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parsed()?)
        }
    )*};
}

impl<'de> Deserializer<'de> for QueryValue<'de> {
    type Error = Error;

    parsed! {
        deserialize_bool visit_bool
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
        deserialize_f32 visit_f32 deserialize_f64 visit_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        CowStrDeserializer::new(self.0).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        CowStrDeserializer::new(self.0).deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de> for QueryValue<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
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
