//! A method's result, put into rmcp's reply byte for byte.
//!
//! rmcp keeps a result as a JSON value, in which long numbers lose digits and fields their order. So rmcp gets a
//! placeholder, and the result replaces the placeholder in the reply.

use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use std::sync::OnceLock;
use uuid::Uuid;

/// The result of one call.
pub struct RawResult {
    /// A random string, so that nothing else in the reply can equal it.
    placeholder: String,
    value: OnceLock<Box<RawValue>>,
}

impl RawResult {
    pub fn new() -> Self {
        Self { placeholder: Uuid::new_v4().to_string(), value: OnceLock::new() }
    }

    /// Keeps the result and returns its placeholder.
    pub fn set(&self, value: &RawValue) -> Value {
        // A call has one result.
        let _ = self.value.set(value.to_owned());
        Value::String(self.placeholder.clone())
    }

    pub fn is_set(&self) -> bool {
        self.value.get().is_some()
    }

    /// Replaces the placeholder in a reply by the result.
    pub fn insert_into(&self, reply: Bytes) -> Bytes {
        let Some(value) = self.value.get() else { return reply };
        let placeholder = format!("\"{}\"", self.placeholder);
        let Some(at) = reply.windows(placeholder.len()).position(|bytes| bytes == placeholder.as_bytes()) else {
            return reply;
        };
        [&reply[..at], value.get().as_bytes(), &reply[at + placeholder.len()..]].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_in_the_reply_byte_for_byte() {
        let result = RawResult::new();
        let reply = Bytes::from_static(b"{\"result\":7}");
        assert!(!result.is_set());
        assert_eq!(result.insert_into(reply.clone()), reply);
        let value = RawValue::from_string(r#"{ "z":1.0, "b":18446744073709551616 }"#.to_owned()).unwrap();
        let text = json!({"text": value.get(), "structured": result.set(&value)}).to_string();
        let filled = result.insert_into(text.into());
        let expected = r#"{"structured":{ "z":1.0, "b":18446744073709551616 },"text":"{ \"z\":1.0, \"b\":18446744073709551616 }"}"#;
        assert_eq!(filled, expected);
    }
}
