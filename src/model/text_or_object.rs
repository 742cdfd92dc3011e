//! A value that users write in one of two ways, as a text or as an object.
//!
//! Serde's untagged types would read an object from a list too, and their errors name no field.

use serde::{
    Deserialize, Deserializer,
    de::{self, value::MapAccessDeserializer},
};
use std::{fmt, marker::PhantomData};

/// A text, or the object that stands in its place.
pub enum TextOrObject<T> {
    Text(String),
    Object(T),
}

/// Reads either of the two.
///
/// # Errors
///
/// Fails if the value is neither, which the error says with `expected`, or if the object does not fit `T`.
pub fn read<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<TextOrObject<T>, D::Error> {
    deserializer.deserialize_any(TextOrObjectVisitor { expected, object: PhantomData })
}

struct TextOrObjectVisitor<T> {
    expected: &'static str,
    object: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for TextOrObjectVisitor<T> {
    type Value = TextOrObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrObject::Text(text.to_owned()))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(TextOrObject::Object)
    }
}
