//! What a line from the process says.

use crate::model::jsonrpc::{RpcResponse, present};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How much of a line is quoted in the log.
const QUOTE: usize = 160;

/// An answer under an id that may be one of ours.
#[derive(Debug)]
pub struct Answered {
    pub id: u64,
    /// Or what is wrong with it.
    pub outcome: Result<RpcResponse, String>,
}

/// A line, read.
#[derive(Debug)]
pub enum Said {
    Answered(Answered),
    /// Nothing that we know what to do with, and why.
    Odd(String),
    Nothing,
}

/// The members of an answer, each as it stands there: what is null is told from what is absent.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
}

/// Only what says whom a faulty answer is for.
#[derive(Deserialize)]
struct Address {
    id: u64,
}

/// What callers rely on in an error; the rest is between them and the method server.
#[derive(Deserialize)]
struct ErrorShape {
    #[serde(rename = "code")]
    _code: i64,
    #[serde(rename = "message")]
    _message: String,
}

/// Reads a line that the process wrote.
pub fn read(line: &[u8]) -> Said {
    let Ok(text) = std::str::from_utf8(line) else {
        return Said::Odd(format!("a line that is not UTF-8: {}", quoted(line)));
    };
    let text = text.trim_ascii();
    if text.is_empty() {
        return Said::Nothing;
    }
    // Serde would read the members from a list as well, by position.
    if !text.starts_with('{') {
        return Said::Odd(format!("a line that is no JSON object: {}", quoted(line)));
    }
    let members: Members<'_> = match serde_json::from_str(text) {
        Ok(members) => members,
        Err(error) => {
            return match serde_json::from_str::<Address>(text) {
                Ok(Address { id }) => Said::Answered(Answered { id, outcome: Err(error.to_string()) }),
                Err(_) => Said::Odd(format!("a line that is not JSON ({error}): {}", quoted(line))),
            };
        }
    };
    if members.method.is_some() {
        return Said::Odd(format!("a request of its own, which nobody here answers: {}", quoted(line)));
    }
    let Some(id) = members.id.and_then(|id| id.get().parse().ok()) else {
        return Said::Odd(format!("an answer without an id of ours: {}", quoted(line)));
    };
    let outcome = match (members.result, members.error) {
        (Some(result), None) => Ok(RpcResponse::Result(result.to_owned())),
        (None, Some(error)) if is_error(error) => Ok(RpcResponse::Error(error.to_owned())),
        (None, Some(_)) => Err("its `error` is no object with a whole `code` and a `message`".to_owned()),
        (Some(_), Some(_)) => Err("it has both `result` and `error`".to_owned()),
        (None, None) => Err("it has neither `result` nor `error`".to_owned()),
    };
    Said::Answered(Answered { id, outcome })
}

/// The beginning of a line, for the log, which makes control characters visible.
pub fn quoted(line: &[u8]) -> String {
    let more = if line.len() > QUOTE { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(&line[..line.len().min(QUOTE)]))
}

fn is_error(raw: &RawValue) -> bool {
    raw.get().starts_with('{') && serde_json::from_str::<ErrorShape>(raw.get()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> (u64, Result<RpcResponse, String>) {
        match read(line.as_bytes()) {
            Said::Answered(Answered { id, outcome }) => (id, outcome),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn results_and_errors_come_as_they_are() {
        let (id, outcome) =
            answered("{\"jsonrpc\":\"2.0\", \"id\": 7, \"result\": { \"n\": 1.50,\"s\":\"\\u0041\"} }\r\n");
        assert!(
            matches!((id, outcome), (7, Ok(RpcResponse::Result(raw))) if raw.get() == r#"{ "n": 1.50,"s":"\u0041"}"#)
        );
        let (_, outcome) = answered(r#"{"id":7,"result":null}"#);
        assert!(matches!(outcome, Ok(RpcResponse::Result(raw)) if raw.get() == "null"));
        let error = r#"{ "message":"no","code":-5,"data":[1e400],"more":1}"#;
        let (_, outcome) = answered(&format!(r#"{{"error":{error},"id":7}}"#));
        assert!(matches!(outcome, Ok(RpcResponse::Error(raw)) if raw.get() == error));
    }

    #[test]
    fn a_faulty_answer_says_whose_it_is_and_what_is_wrong() {
        for (line, part) in [
            (r#"{"id":7}"#, "neither"),
            (r#"{"id":7,"result":1,"error":null}"#, "both"),
            (r#"{"id":7,"error":"no"}"#, "no object"),
            (r#"{"id":7,"error":null}"#, "no object"),
            (r#"{"id":7,"error":[1,"no"]}"#, "no object"),
            (r#"{"id":7,"error":{"code":"x","message":"no"}}"#, "no object"),
            (r#"{"id":7,"error":{"code":1.5,"message":"no"}}"#, "no object"),
            (r#"{"id":7,"result":1,"result":2}"#, "duplicate"),
        ] {
            let (id, outcome) = answered(line);
            assert_eq!(id, 7);
            assert!(outcome.unwrap_err().contains(part), "{line}");
        }
    }

    #[test]
    fn whatever_else_is_odd() {
        for (line, part) in [
            (&b"hello"[..], "no JSON object"),
            (b"[7,1]", "no JSON object"),
            (b"{\"id\":7,\"result\":1", "not JSON"),
            (b"{\"id\":7,\"result\":1} x", "not JSON"),
            (b"{\"id\":7,\"result\":\"\xff\"}", "not UTF-8"),
            (b"{\"id\":7,\"method\":\"m\",\"result\":1}", "request"),
            (b"{\"id\":\"7\",\"result\":1}", "without an id"),
            (b"{\"id\":7.0,\"result\":1}", "without an id"),
            (b"{\"id\":-7,\"result\":1}", "without an id"),
            (b"{\"id\":99999999999999999999,\"result\":1}", "without an id"),
            (b"{\"id\":null,\"error\":{\"code\":-32700,\"message\":\"?\"}}", "without an id"),
            (b"{\"result\":1}", "without an id"),
        ] {
            assert!(matches!(read(line), Said::Odd(why) if why.contains(part)), "{}", String::from_utf8_lossy(line));
        }
        assert!(matches!(read(b" \r"), Said::Nothing));
        let Said::Odd(why) = read("ä".repeat(1 << 20).as_bytes()) else { panic!("no answer") };
        assert!(why.len() < 3 * QUOTE, "{}", why.len());
    }
}
