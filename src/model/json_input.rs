//! Reads JSON that users send, with errors that name the field: bodies of requests, and records with fields changed.

use super::located_json::{self, JsonFault};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use serde_json::{Value, value::RawValue};
use std::collections::BTreeMap;

/// The error for a JSON text: the field and its fault, or the position at which the text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidJson(String);

impl From<JsonFault> for InvalidJson {
    fn from(fault: JsonFault) -> Self {
        Self(describe(&fault.path(), &fault.message))
    }
}

/// Reads a JSON object.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, InvalidJson> {
    let text = std::str::from_utf8(body)
        .map_err(|error| InvalidJson(format!("the body is not UTF-8 at byte {}", error.valid_up_to())))?;
    if !text.trim_ascii_start().starts_with('{') {
        return Err(InvalidJson("the body must be a JSON object".to_owned()));
    }
    Ok(located_json::read(text)?)
}

/// Reads a JSON value that is parsed already.
pub fn interpret<T: DeserializeOwned>(json: &Value) -> Result<T, InvalidJson> {
    Ok(locate(json)?)
}

/// Like [`interpret`], for a caller that words the error itself.
pub fn locate<T: DeserializeOwned>(json: &Value) -> Result<T, JsonFault> {
    located_json::read(&json.to_string())
}

/// The fields of an object that a user sends, each with the text of its value: an absent field differs from one that is
/// set to its default, and what a value holds is checked when the whole record is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct JsonFields(BTreeMap<String, Box<RawValue>>);

impl JsonFields {
    fn of(record: &impl Serialize) -> Self {
        let text = serde_json::to_string(record).expect("records have string keys and no failing serializers");
        serde_json::from_str(&text).expect("records are structs, which serialize to objects")
    }

    pub fn contains(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub fn is_null(&self, field: &str) -> bool {
        self.0.get(field).is_some_and(|value| value.get() == "null")
    }

    /// Puts the fields over those of a record and reads the result as `T`.
    pub fn over<T: DeserializeOwned>(&self, record: &impl Serialize) -> Result<T, InvalidJson> {
        let mut whole = Self::of(record);
        whole.0.extend(self.0.clone());
        whole.read()
    }

    /// Like [`Self::over`], except that null removes a field that the record has; a null for any other field is left
    /// for `T` to accept or refuse.
    pub fn patch<T: DeserializeOwned>(&self, record: &impl Serialize) -> Result<T, InvalidJson> {
        let mut whole = Self::of(record);
        for (field, value) in &self.0 {
            if value.get() != "null" || whole.0.remove(field).is_none() {
                whole.0.insert(field.clone(), value.clone());
            }
        }
        whole.read()
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, InvalidJson> {
        let text = serde_json::to_string(&self.0).expect("texts are written as they are");
        // A position would be one in this text, which nobody sent.
        located_json::read(&text).map_err(|fault: JsonFault| fault.without_position().into())
    }
}

/// Reads an event's payload. Null is refused: whoever wrote it had a value in mind, and it would pass for an absent
/// field.
///
/// # Errors
///
/// Null. That another value is no object is found when the event is emitted.
pub fn payload<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    let payload = Box::<RawValue>::deserialize(deserializer)?;
    match payload.get() {
        "null" => Err(D::Error::custom("null is no payload: give a JSON object, or leave the field out")),
        _ => Ok(Some(payload)),
    }
}

/// Joins the path of a field and its fault. At the top level there is no path, and serde's text names the missing
/// field.
pub fn describe(path: &str, reason: &str) -> String {
    if path.is_empty() { reason.to_owned() } else { format!("`{path}`: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct TestBody {
        name: String,
        #[serde(default)]
        items: Vec<TestItem>,
        #[serde(default, deserialize_with = "payload")]
        payload: Option<Box<RawValue>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are looked at")]
    struct TestItem {
        count: u32,
    }

    fn error(body: &[u8]) -> String {
        parse::<TestBody>(body).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_path_of_the_field() {
        assert!(error(br#"{"name":"a","items":[{"count":1},{"count":"x"}]}"#).starts_with("`items[1].count`: "));
        assert!(error(br#"{"name":7}"#).starts_with("`name`: invalid type"));
        assert!(error(br#"{"name":"a","extra":1}"#).contains("unknown field `extra`"));
        assert!(error(br#"{"items":[]}"#).contains("missing field `name`"));
        assert_eq!(error(br#"{"name":"a","name":"b"}"#), "duplicate field `name`");
    }

    #[test]
    fn a_key_that_comes_twice_is_refused_in_a_map_and_in_a_change_too() {
        let labels = parse::<BTreeMap<String, BTreeMap<String, u8>>>(br#"{"a":{"x":1,"y":2,"x":3}}"#);
        assert_eq!(labels.unwrap_err().to_string(), "`a`: duplicate field `x`");
        let many: Vec<_> = (0..20).chain([7]).map(|n| format!("\"{n}\":1")).collect();
        let many = parse::<BTreeMap<String, u8>>(format!("{{{}}}", many.join(",")).as_bytes());
        assert_eq!(many.unwrap_err().to_string(), "duplicate field `7`");
        let twice = parse::<JsonFields>(br#"{"name":"a","name":"b"}"#);
        assert_eq!(twice.unwrap_err().to_string(), "duplicate field `name`");
        let inside = parse::<JsonFields>(br#"{"items":[{"count":1,"count":2}]}"#).unwrap();
        let record = serde_json::json!({"name": "a"});
        let read = inside.over::<TestBody>(&record).unwrap_err().to_string();
        assert_eq!(read, "`items[0]`: duplicate field `count`");
        let read = |text: &str| {
            let fields = parse::<JsonFields>(text.as_bytes()).unwrap();
            fields.over::<TestBody>(&record).unwrap_err().to_string()
        };
        assert_eq!(read(r#"{"name":"\ud800"}"#), "`name`: unexpected end of hex escape", "without a position");
        assert!(read(r#"{" at line x":1}"#).contains("unknown field ` at line x`, expected"));
    }

    #[test]
    fn null_in_a_change_removes_a_field_that_the_record_has() {
        let record = serde_json::json!({"name": "a", "items": [{"count": 1}]});
        let fields = |text: &str| parse::<JsonFields>(text.as_bytes()).unwrap();
        let removed: TestBody = fields(r#"{"items":null}"#).patch(&record).unwrap();
        assert!(removed.items.is_empty() && fields(r#"{"items": null}"#).is_null("items"));
        assert!(fields(r#"{"items":null}"#).over::<TestBody>(&record).is_err(), "null is a value there");
        assert!(fields(r#"{"extra":null}"#).patch::<TestBody>(&record).unwrap_err().to_string().contains("`extra`"));
    }

    #[test]
    fn a_null_payload_is_refused_by_name_and_an_absent_one_is_none() {
        let refused = error(br#"{"name":"a","payload": null}"#);
        assert!(refused.starts_with("`payload`: null is no payload"), "{refused}");
        assert!(parse::<TestBody>(br#"{"name":"a"}"#).unwrap().payload.is_none());
        let given = parse::<TestBody>(br#"{"name":"a","payload": {"n": 1.0}}"#).unwrap().payload.unwrap();
        assert_eq!(given.get(), r#"{"n": 1.0}"#);
    }

    #[test]
    fn malformed_json_is_refused_with_its_position() {
        assert!(error(b"{\"name\":").contains("line 1"));
        assert!(error(b"{\"name\":\"a\"} x").contains("goes on after its end"));
        assert_eq!(error(b"{\"name\":\"\xff\"}"), "the body is not UTF-8 at byte 9");
        assert!(error(b"{").contains("EOF"));
    }

    #[test]
    fn only_an_object_is_read_as_one() {
        for body in ["", "  ", "[\"a\"]", "null", "7", "\"name\""] {
            assert_eq!(error(body.as_bytes()), "the body must be a JSON object", "{body}");
        }
        let said = "`items[0]`: invalid type: sequence, expected an object";
        assert!(error(br#"{"name":"a","items":[[7]]}"#).starts_with(said));
        assert!(error(br#"{"name":"a","items":[7]}"#).contains("expected an object"));
        assert_eq!(parse::<TestBody>(br#" {"name":"a","items":[{"count":7}]}"#).unwrap().items[0].count, 7);
    }
}
