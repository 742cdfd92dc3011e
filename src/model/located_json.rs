//! A deserializer of the JSON that users send. Its errors have the path of the field at fault, and it reads a struct from an
//! object only: serde also accepts a list, field by field in declaration order, which callers must not come to rely on.
//!
//! [`read`] splits an object into its fields, each with the text of its value, and reads those one by one in the same way.
//! So a type is compiled for one deserializer, and not for each layer around another one. The path costs nothing until an
//! error passes outwards through the fields.

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
    value::{BorrowedStrDeserializer, CowStrDeserializer, MapDeserializer},
};
use serde_json::{Error, de::StrRead, value::RawValue};
use std::{borrow::Cow, cell::RefCell, convert::Infallible, fmt, iter, slice, vec};

/// The error for a value that does not fit its type.
#[derive(Debug)]
pub struct JsonFault {
    /// The way to the value, outermost step first.
    pub path: Vec<PathStep>,
    /// The fault; its position too if the text is not JSON.
    pub message: String,
}

/// A step on the way to a value.
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
    let whole = Whole::split(text).map_err(|error| JsonFault { path: Vec::new(), message: error.to_string() })?;
    let path = FaultPath::default();
    T::deserialize(LocatedJson { text, split: Some(whole), inside_any: false, path: &path }).map_err(|error| {
        let mut path = path.0.into_inner();
        path.reverse();
        JsonFault { path, message: without_position(&error) }
    })
}

impl JsonFault {
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

/// The way to the value at fault, innermost step first, filled while its error passes outwards.
#[derive(Default)]
struct FaultPath(RefCell<Vec<PathStep>>);

impl FaultPath {
    fn below<T>(&self, result: Result<T, Error>, step: impl FnOnce() -> PathStep) -> Result<T, Error> {
        result.inspect_err(|_| self.0.borrow_mut().push(step()))
    }
}

/// A value that is one level deep: fields and items are texts.
enum Whole<'de> {
    Object(Vec<Field<'de>>),
    Array(Vec<&'de RawValue>),
    Scalar,
}

struct Field<'de> {
    key: Cow<'de, str>,
    value: &'de RawValue,
}

impl<'de> Whole<'de> {
    /// Splits a text that must be one value and nothing else.
    fn split(text: &'de str) -> Result<Self, Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let whole = match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => Self::Object(fields(&mut json)?),
            Some(b'[') => Self::Array(de::Deserialize::deserialize(&mut json)?),
            _ => <&RawValue as de::Deserialize>::deserialize(&mut json).map(|_| Self::Scalar)?,
        };
        json.end().map_err(|error| Error::custom(format_args!("the JSON goes on after its end: {error}")))?;
        Ok(whole)
    }
}

fn fields<'de>(json: &mut serde_json::Deserializer<StrRead<'de>>) -> Result<Vec<Field<'de>>, Error> {
    struct FieldsVisitor;

    impl<'de> Visitor<'de> for FieldsVisitor {
        type Value = Vec<Field<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(Key(key)) = object.next_key()? {
                fields.push(Field { key, value: object.next_value()? });
            }
            Ok(fields)
        }
    }

    #[derive(serde::Deserialize)]
    struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

    json.deserialize_map(FieldsVisitor)
}

/// A value to read.
struct LocatedJson<'de, 'p> {
    text: &'de str,
    /// The value, if it has been split already.
    split: Option<Whole<'de>>,
    /// Whether it is part of a value that may have any type, which is not split at each of its levels: a deep value would be
    /// gone through once for each of them.
    inside_any: bool,
    path: &'p FaultPath,
}

impl<'de, 'p> LocatedJson<'de, 'p> {
    fn of(value: &'de RawValue, inside_any: bool, path: &'p FaultPath) -> Self {
        Self { text: value.get(), split: None, inside_any, path }
    }

    fn whole(&mut self) -> Result<Whole<'de>, Error> {
        self.split.take().map_or_else(|| Whole::split(self.text), Ok)
    }

    fn starts_with(&self, byte: u8) -> bool {
        self.text.trim_ascii_start().as_bytes().first() == Some(&byte)
    }

    fn json(&self) -> serde_json::Deserializer<StrRead<'de>> {
        serde_json::Deserializer::from_str(self.text)
    }

    fn object(mut self, inside_any: bool, expected: &dyn Expected) -> Result<LocatedObject<'de, 'p>, Error> {
        match self.whole()? {
            Whole::Object(fields) => {
                Ok(LocatedObject { fields: fields.into_iter(), current: None, inside_any, path: self.path })
            }
            _ => Err(invalid_type(self.text, expected)),
        }
    }

    fn visit_array<V: Visitor<'de>>(mut self, inside_any: bool, visitor: V) -> Result<V::Value, Error> {
        let Whole::Array(items) = self.whole()? else { return Err(invalid_type(self.text, &visitor)) };
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
            false if self.starts_with(b'{') => visitor.visit_map(self.object(true, &"an object")?),
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
        // The JSON that the sender must write, not the Rust type.
        visitor.visit_map(self.object(false, &"an object")?)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let object = self.object(false, &visitor)?;
        visitor.visit_map(object)
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
        match self.whole()? {
            Whole::Object(fields) => match <[Field<'_>; 1]>::try_from(fields) {
                Ok([Field { key, value }]) => visitor.visit_enum(LocatedVariant { key, value, path: self.path }),
                Err(_) => Err(Error::invalid_value(Unexpected::Map, &"map with a single key")),
            },
            Whole::Scalar if self.starts_with(b'"') => {
                FieldKey(serde_json::from_str::<String>(self.text)?.into()).deserialize_enum(name, variants, visitor)
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
    fields: vec::IntoIter<Field<'de>>,
    /// The field whose key has been read.
    current: Option<Field<'de>>,
    inside_any: bool,
    path: &'p FaultPath,
}

impl<'de> MapAccess<'de> for LocatedObject<'de, '_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(Field { key, value }) = self.fields.next() else { return Ok(None) };
        let read = seed.deserialize(FieldKey(key.clone()));
        let read = self.path.below(read, || PathStep::Key(key.clone().into_owned()))?;
        self.current = Some(Field { key, value });
        Ok(Some(read))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Field { key, value } = self.current.take().expect("a visitor reads a key before its value");
        let read = seed.deserialize(LocatedJson::of(value, self.inside_any, self.path));
        self.path.below(read, || PathStep::Key(key.into_owned()))
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
        self.path.below(read, || PathStep::Index(index)).map(Some)
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
        self.path.below(content, || PathStep::Key(self.key.into_owned()))
    }
}

impl<'de> EnumAccess<'de> for LocatedVariant<'de, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(FieldKey(self.key.clone()))?, self))
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
        self.content(|content| visitor.visit_map(content.object(false, &"an object")?))
    }
}

/// The key of a field.
struct FieldKey<'de>(Cow<'de, str>);

impl<'de> Deserializer<'de> for FieldKey<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Cow::Borrowed(key) => visitor.visit_borrowed_str(key),
            Cow::Owned(key) => visitor.visit_string(key),
        }
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
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The error for a value of the wrong type.
fn invalid_type(text: &str, expected: &dyn Expected) -> Error {
    struct Refusal<'a>(&'a dyn Expected);

    impl Visitor<'_> for Refusal<'_> {
        type Value = Infallible;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    let Err(error) = serde_json::Deserializer::from_str(text).deserialize_any(Refusal(expected));
    error
}

/// The message of an error, without its position, which is one in the text of a part.
fn without_position(error: &Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&position).map_or(message.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct TestOrder {
        name: String,
        #[serde(default)]
        items: Vec<TestItem>,
        #[serde(default)]
        labels: BTreeMap<TestName, Option<u8>>,
        #[serde(default)]
        action: Option<TestAction>,
        #[serde(default)]
        either: Option<TestEither>,
        #[serde(default)]
        any: Value,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct TestItem {
        count: u32,
        #[serde(default)]
        pair: (bool, f64),
    }

    #[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct TestName(String);

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum TestAction {
        Stop,
        Wait(u8),
        Move(u8, u8),
        Call { method: String },
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum TestEither {
        Number(u8),
        Item(TestItem),
    }

    fn fault(json: &Value) -> (String, String) {
        let fault = read::<TestOrder>(&json.to_string()).unwrap_err();
        (fault.path(), fault.message)
    }

    #[test]
    fn a_text_is_read_as_serde_json_reads_it() {
        for text in [
            r#" { "name" : "a" } "#,
            r#"{"name":"é\u0041\n","items":[{"count":1,"pair":[true,0.5]},{"count":2,"extra":[{}]}]}"#,
            r#"{"n\u0061me":"a","labels":{"x":1,"y":null},"any":{"deep":[[[{"a":[1,-1,1.5,null]}]]]}}"#,
            r#"{"name":"a","action":"stop","any":[[],{}]}"#,
            r#"{"name":"a","action":{"wait":3},"either":7}"#,
            r#"{"name":"a","action":{"move":[1,2]},"either":{"count":4}}"#,
            r#"{"name":"a","action":{"call":{"method":"m"}},"either":null}"#,
        ] {
            assert_eq!(read::<TestOrder>(text).unwrap(), serde_json::from_str(text).unwrap(), "{text}");
        }
        let raw = read::<BTreeMap<String, Box<RawValue>>>(r#"{"a": {"b" : 1.0}, "c":[ 1 ]}"#).unwrap();
        assert_eq!((raw["a"].get(), raw["c"].get()), (r#"{"b" : 1.0}"#, "[ 1 ]"));
    }

    #[test]
    fn a_fault_has_the_path_of_its_value_and_no_position() {
        for (json, path, message) in [
            (json!({"name": 7}), "name", "invalid type: integer `7`, expected a string"),
            (json!({"name": {}}), "name", "invalid type: map, expected a string"),
            (
                json!({"name": "a", "items": [{"count": 1}, {"count": -1}]}),
                "items[1].count",
                "invalid value: integer `-1`, expected u32",
            ),
            (json!({"name": "a", "items": [{}]}), "items[0]", "missing field `count`"),
            (
                json!({"name": "a", "items": [{"count": 1, "pair": [true]}]}),
                "items[0].pair",
                "invalid length 1, expected a tuple of size 2",
            ),
            (
                json!({"name": "a", "items": [{"count": 1, "pair": [true, 1, 2]}]}),
                "items[0].pair",
                "invalid length 3, expected fewer elements in array",
            ),
            (json!({"name": "a", "items": {"count": 1}}), "items", "invalid type: map, expected a sequence"),
            (json!({"name": "a", "items": 1.5}), "items", "invalid type: floating point `1.5`, expected a sequence"),
            (json!({"name": "a", "labels": {"x": 1, "y": "z"}}), "labels.y", "invalid type: string \"z\", expected u8"),
            (json!({"name": "a", "labels": []}), "labels", "invalid type: sequence, expected a map"),
            (
                json!({"name": "a", "action": "go"}),
                "action",
                "unknown variant `go`, expected one of `stop`, `wait`, `move`, `call`",
            ),
            (
                json!({"name": "a", "action": null, "extra": 1}),
                "extra",
                "unknown field `extra`, expected one of `name`, `items`, `labels`, `action`, `either`, `any`",
            ),
            (json!({"name": "a", "action": 5}), "action", "invalid type: integer `5`, expected string or map"),
            (json!({"name": "a", "action": {}}), "action", "invalid value: map, expected map with a single key"),
            (
                json!({"name": "a", "action": {"call": {"method": []}}}),
                "action.call.method",
                "invalid type: sequence, expected a string",
            ),
            (
                json!({"name": "a", "action": {"call": ["m"]}}),
                "action.call",
                "invalid type: sequence, expected an object",
            ),
            (json!({"name": "a", "action": {"wait": 300}}), "action.wait", "invalid value: integer `300`, expected u8"),
            (
                json!({"name": "a", "either": "x"}),
                "either",
                "data did not match any variant of untagged enum TestEither",
            ),
            (json!(["a"]), "", "invalid type: sequence, expected an object"),
            (json!(null), "", "invalid type: null, expected an object"),
            (json!({}), "", "missing field `name`"),
        ] {
            assert_eq!(fault(&json), (path.to_owned(), message.to_owned()), "{json}");
        }
    }

    #[test]
    fn a_text_that_is_not_json_is_refused_with_its_position() {
        let message = |text| read::<TestOrder>(text).unwrap_err().message;
        assert_eq!(message("{\"name\":\n \"a\",,}"), "key must be a string at line 2 column 6");
        assert_eq!(
            message("{\"name\":\"a\"}}"),
            "the JSON goes on after its end: trailing characters at line 1 column 13"
        );
        assert_eq!(message(""), "EOF while parsing a value at line 1 column 0");
        assert_eq!(message("{\"name\":\"a\",\"items\":[{\"count\":1]}"), "expected `,` or `}` at line 1 column 32");
        assert_eq!(message(r#"{"name":"\ud800"}"#), "unexpected end of hex escape");
    }

    #[test]
    fn a_value_of_any_type_may_be_as_deep_as_serde_json_allows() {
        let deep = |levels: usize| format!(r#"{{"name":"a","any":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(read::<TestOrder>(&deep(120)).is_ok());
        let refused = read::<TestOrder>(&deep(100_000)).unwrap_err();
        assert_eq!((refused.path().as_str(), refused.message.as_str()), ("any[0]", "recursion limit exceeded"));
    }
}
