//! Reads JSON that users send, with errors that name the field: bodies of requests, and records with fields changed.

use super::located_json::{self, JsonFault};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error},
};
use serde_json::{Map, Value, value::RawValue};

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

/// Puts `fields` over a record and reads the result as `T`. Null removes a field that the record has; a null for any
/// other field is left for `T` to accept or refuse.
pub fn patched<T: DeserializeOwned>(record: &impl Serialize, fields: Map<String, Value>) -> Result<T, InvalidJson> {
    let Ok(Value::Object(mut kept)) = serde_json::to_value(record) else {
        unreachable!("records are structs, which serialize to objects")
    };
    for (field, value) in fields {
        if !value.is_null() || kept.remove(&field).is_none() {
            kept.insert(field, value);
        }
    }
    interpret(&Value::Object(kept))
}

/// Reads an event's payload. Null is refused: whoever wrote it had a value in mind, and it would pass for an absent field.
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

/// Joins the path of a field and its fault. At the top level there is no path, and serde's text names the missing field.
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
        assert!(error(br#"{"name":"a","name":"b"}"#).contains("duplicate field `name`"));
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
