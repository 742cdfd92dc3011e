//! A method's result inside the answer of rmcp, byte for byte: rmcp keeps it as a value, in which long numbers lose
//! digits and fields their order. So a mark goes through rmcp in its place, and the result takes the place of the mark.

use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use std::sync::OnceLock;
use uuid::Uuid;

/// The place for one result.
pub struct Inlay {
    /// A string that nobody can have foreseen, and so have put anywhere else.
    mark: String,
    value: OnceLock<Box<RawValue>>,
}

impl Inlay {
    pub fn new() -> Self {
        Self { mark: Uuid::new_v4().to_string(), value: OnceLock::new() }
    }

    /// Keeps the result, and gives what is to stand for it.
    pub fn put(&self, value: &RawValue) -> Value {
        // There is one result to a call.
        let _ = self.value.set(value.to_owned());
        Value::String(self.mark.clone())
    }

    /// Whether there is something to fill in.
    pub fn is_put(&self) -> bool {
        self.value.get().is_some()
    }

    /// The answer with the result in its place.
    pub fn fill(&self, answer: Bytes) -> Bytes {
        let Some(value) = self.value.get() else { return answer };
        let mark = format!("\"{}\"", self.mark);
        let Some(at) = answer.windows(mark.len()).position(|bytes| bytes == mark.as_bytes()) else { return answer };
        [&answer[..at], value.get().as_bytes(), &answer[at + mark.len()..]].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_in_the_answer_as_it_came() {
        let inlay = Inlay::new();
        let answer = Bytes::from_static(b"{\"result\":7}");
        assert!(!inlay.is_put());
        assert_eq!(inlay.fill(answer.clone()), answer);
        let value = RawValue::from_string(r#"{ "z":1.0, "b":18446744073709551616 }"#.to_owned()).unwrap();
        let text = json!({"text": value.get(), "structured": inlay.put(&value)}).to_string();
        let filled = inlay.fill(text.into());
        let expected = r#"{"structured":{ "z":1.0, "b":18446744073709551616 },"text":"{ \"z\":1.0, \"b\":18446744073709551616 }"}"#;
        assert_eq!(filled, expected);
    }
}
