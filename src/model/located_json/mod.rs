//! A deserializer of the JSON that users send. Its errors have the path of the field at fault, and it reads a struct
//! from an object only: serde also accepts a list, field by field in declaration order, which callers must not come to
//! rely on. (Serde reads the parts of an untagged type itself, and accepts one there. Types of users have
//! `text_or_object` instead.)
//!
//! [`read`] splits an object into its fields, each with the text of its value, and reads those one by one in the same
//! way. So a type is compiled for one deserializer, and not for each layer around another one. The path is built only
//! when an error is returned. Each level of a type goes through the text below it once more, and holds its fields at
//! once, so no type may contain itself.

use super::text_value::TextValue;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
    value::{BorrowedStrDeserializer, MapDeserializer},
};
use serde_json::{Error, Value, de::StrRead, value::RawValue};
use std::{borrow::Cow, cell::RefCell, collections::HashSet, convert::Infallible, fmt, iter, slice, vec};

/// The error for a value that does not fit its type.
#[derive(Debug)]
pub struct JsonFault {
    /// The path to the value, outermost step first.
    pub path: Vec<PathStep>,
    /// The fault; its position too if the text is not JSON.
    pub message: String,
}

/// A step of a path.
#[derive(Debug, PartialEq, Eq)]
pub enum PathStep {
    Key(String),
    Index(usize),
}

/// Reads a text that is one JSON value.
///
/// # Errors
///
/// Fails if the text is not JSON, or the value does not fit `T`.
pub fn read<'de, T: de::Deserialize<'de>>(text: &'de str) -> Result<T, JsonFault> {
    let parts = SplitValue::of(text).map_err(|error| JsonFault { path: Vec::new(), message: error.to_string() })?;
    let path = FaultPath::default();
    let value = text.trim_matches([' ', '\t', '\n', '\r']);
    T::deserialize(LocatedJson { text: value, split: Some(parts), inside_any: false, path: &path }).map_err(|error| {
        let mut path = path.0.into_inner();
        path.reverse();
        JsonFault { path, message: message(text, &error) }
    })
}

impl JsonFault {
    /// The fault of a text that its sender has not seen.
    pub fn without_position(mut self) -> Self {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some((fault, position)) = self.message.rsplit_once(" at line ")
            && let Some((line, column)) = position.split_once(" column ")
            && is_number(line)
            && is_number(column)
        {
            self.message.truncate(fault.len());
        }
        self
    }

    /// The path as text, such as `items[1].count`. Empty for the whole value.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                PathStep::Key(key) if path.is_empty() => path.push_str(key),
                PathStep::Key(key) => path.extend([".", key]),
                PathStep::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }
}

/// The path to the value at fault, innermost step first. Each level adds its step when it returns the error.
#[derive(Default)]
struct FaultPath(RefCell<Vec<PathStep>>);

impl FaultPath {
    fn add_on_error<T>(&self, result: Result<T, Error>, step: impl FnOnce() -> PathStep) -> Result<T, Error> {
        result.inspect_err(|_| self.0.borrow_mut().push(step()))
    }
}

/// A value whose fields or items are texts.
enum SplitValue<'de> {
    Object(Vec<SplitField<'de>>),
    Array(Vec<&'de RawValue>),
    Scalar,
}

struct SplitField<'de> {
    key: Cow<'de, str>,
    value: &'de RawValue,
}

impl<'de> SplitValue<'de> {
    /// Splits a text that must be one value and nothing else.
    fn of(text: &'de str) -> Result<Self, Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let split = match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => Self::Object(fields(&mut json)?),
            Some(b'[') => Self::Array(de::Deserialize::deserialize(&mut json)?),
            _ => <&RawValue as de::Deserialize>::deserialize(&mut json).map(|_| Self::Scalar)?,
        };
        json.end().map_err(|error| Error::custom(format_args!("the JSON goes on after its end: {error}")))?;
        if let Self::Object(fields) = &split
            && let Some(key) = repeated_key(fields)
        {
            return Err(Error::custom(format_args!("duplicate field `{key}`")));
        }
        Ok(split)
    }
}

fn fields<'de>(json: &mut serde_json::Deserializer<StrRead<'de>>) -> Result<Vec<SplitField<'de>>, Error> {
    struct FieldsVisitor;

    impl<'de> Visitor<'de> for FieldsVisitor {
        type Value = Vec<SplitField<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(Key(key)) = object.next_key()? {
                fields.push(SplitField { key, value: object.next_value()? });
            }
            Ok(fields)
        }
    }

    #[derive(serde::Deserialize)]
    struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

    json.deserialize_map(FieldsVisitor)
}

/// The first key that an object has twice. Serde reads the last of them into a map, and its sender may have meant the
/// first.
fn repeated_key<'a>(fields: &'a [SplitField<'_>]) -> Option<&'a str> {
    /// The number of fields up to which comparing each with those before it is faster than a set.
    const FEW: usize = 16;
    let keys = || fields.iter().map(|field| &*field.key);
    if fields.len() <= FEW {
        return keys().enumerate().find_map(|(at, key)| keys().take(at).any(|earlier| earlier == key).then_some(key));
    }
    let mut seen = HashSet::with_capacity(fields.len());
    keys().find(|key| !seen.insert(*key))
}

/// The text of a value, and its parts if it is split already.
struct LocatedJson<'de, 'p> {
    text: &'de str,
    split: Option<SplitValue<'de>>,
    /// Whether it is part of a value that may have any type. Such a part is not split: a deep value would be scanned
    /// once for each level.
    inside_any: bool,
    path: &'p FaultPath,
}

impl<'de, 'p> LocatedJson<'de, 'p> {
    fn of(value: &'de RawValue, inside_any: bool, path: &'p FaultPath) -> Self {
        Self { text: value.get(), split: None, inside_any, path }
    }

    fn take_split(&mut self) -> Result<SplitValue<'de>, Error> {
        self.split.take().map_or_else(|| SplitValue::of(self.text), Ok)
    }

    fn starts_with(&self, byte: u8) -> bool {
        self.text.as_bytes().first() == Some(&byte)
    }

    fn json(&self) -> serde_json::Deserializer<StrRead<'de>> {
        serde_json::Deserializer::from_str(self.text)
    }

    fn visit_object<V: Visitor<'de>>(
        mut self,
        inside_any: bool,
        visitor: V,
        expected: Option<&dyn Expected>,
    ) -> Result<V::Value, Error> {
        let SplitValue::Object(fields) = self.take_split()? else {
            return Err(invalid_type(self.text, expected.unwrap_or(&visitor)));
        };
        let count = fields.len();
        let mut object = LocatedObject { fields: fields.into_iter(), current: None, inside_any, path: self.path };
        let value = visitor.visit_map(&mut object)?;
        match object.fields.len() {
            0 => Ok(value),
            _ => Err(Error::invalid_length(count, &"fewer elements in map")),
        }
    }

    /// Reads a struct. The expectation is the JSON that the sender must write, not the Rust type.
    fn visit_struct<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_object(false, visitor, Some(&"an object"))
    }

    fn visit_array<V: Visitor<'de>>(mut self, inside_any: bool, visitor: V) -> Result<V::Value, Error> {
        let SplitValue::Array(items) = self.take_split()? else { return Err(invalid_type(self.text, &visitor)) };
        let mut array = LocatedArray { items: items.iter(), index: 0, inside_any, path: self.path };
        let value = visitor.visit_seq(&mut array)?;
        match array.items.len() {
            0 => Ok(value),
            _ => Err(Error::invalid_length(items.len(), &"fewer elements in array")),
        }
    }
}

/// Methods for values without parts.
macro_rules! scalars {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.json().$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for LocatedJson<'de, '_> {
    type Error = Error;

    scalars! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.inside_any {
            false if self.starts_with(b'{') => self.visit_object(true, visitor, None),
            false if self.starts_with(b'[') => self.visit_array(true, visitor),
            _ => self.json().deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.text == "null" { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.visit_struct(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_object(false, visitor, None)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_array(false, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.visit_array(false, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.visit_array(false, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match name {
            // A `RawValue` asks for its text under this name.
            "$serde_json::private::RawValue" => {
                let text = (name, BorrowedStrDeserializer::new(self.text));
                visitor.visit_map(MapDeserializer::new(iter::once(text)))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        self.json().deserialize_unit_struct(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.take_split()? {
            SplitValue::Object(fields) => match <[SplitField<'_>; 1]>::try_from(fields) {
                Ok([SplitField { key, value }]) => visitor.visit_enum(LocatedVariant { key, value, path: self.path }),
                Err(_) => Err(Error::invalid_value(Unexpected::Map, &"map with a single key")),
            },
            SplitValue::Scalar if self.starts_with(b'"') => {
                let variant = serde_json::from_str::<String>(self.text)?;
                TextValue(variant.into()).deserialize_enum(name, variants, visitor)
            }
            _ => Err(invalid_type(self.text, &"string or map")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// The fields of an object.
struct LocatedObject<'de, 'p> {
    fields: vec::IntoIter<SplitField<'de>>,
    /// The field whose key has been read.
    current: Option<SplitField<'de>>,
    inside_any: bool,
    path: &'p FaultPath,
}

impl<'de> MapAccess<'de> for LocatedObject<'de, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(SplitField { key, value }) = self.fields.next() else { return Ok(None) };
        let read = seed.deserialize(TextValue(key.clone()));
        let read = self.path.add_on_error(read, || PathStep::Key(key.clone().into_owned()))?;
        self.current = Some(SplitField { key, value });
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let SplitField { key, value } = self.current.take().expect("a visitor reads a key before its value");
        let read = seed.deserialize(LocatedJson::of(value, self.inside_any, self.path));
        self.path.add_on_error(read, || PathStep::Key(key.into_owned()))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// The items of a list.
struct LocatedArray<'i, 'de, 'p> {
    items: slice::Iter<'i, &'de RawValue>,
    index: usize,
    inside_any: bool,
    path: &'p FaultPath,
}

impl<'de> SeqAccess<'de> for LocatedArray<'_, 'de, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let index = self.index;
        self.index += 1;
        let read = seed.deserialize(LocatedJson::of(item, self.inside_any, self.path));
        self.path.add_on_error(read, || PathStep::Index(index)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// A variant with content: an object with one field.
struct LocatedVariant<'de, 'p> {
    key: Cow<'de, str>,
    value: &'de RawValue,
    path: &'p FaultPath,
}

impl<'de, 'p> LocatedVariant<'de, 'p> {
    fn content<T>(self, read: impl FnOnce(LocatedJson<'de, 'p>) -> Result<T, Error>) -> Result<T, Error> {
        let content = read(LocatedJson::of(self.value, false, self.path));
        self.path.add_on_error(content, || PathStep::Key(self.key.into_owned()))
    }
}

impl<'de> EnumAccess<'de> for LocatedVariant<'de, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(TextValue(self.key.clone()))?, self))
    }
}

impl<'de> VariantAccess<'de> for LocatedVariant<'de, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.content(de::Deserialize::deserialize)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        self.content(|content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.content(|content| content.visit_array(false, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.content(|content| content.visit_struct(visitor))
    }
}

/// The error for a value of the wrong type.
fn invalid_type(text: &str, expected: &dyn Expected) -> Error {
    struct RefusingVisitor<'a>(&'a dyn Expected);

    impl Visitor<'_> for RefusingVisitor<'_> {
        type Value = Infallible;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    let Err(error) = serde_json::Deserializer::from_str(text).deserialize_any(RefusingVisitor(expected));
    error
}

/// The message of an error that was found in a part of the text. A position in that part is removed; if the part is not
/// JSON (a number is out of range, say), the message has the position in the whole text.
fn message(text: &str, error: &Error) -> String {
    if !error.is_data()
        && let Err(whole) = serde_json::from_str::<Value>(text)
    {
        return whole.to_string();
    }
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&position).map_or(message.clone(), str::to_owned)
}

#[cfg(test)]
mod tests;
