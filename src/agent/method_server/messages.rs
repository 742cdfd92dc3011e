//! The JSON-RPC lines of a method server: encodes requests, and parses the lines that the process writes.

use crate::model::jsonrpc::{NO_ERROR_OBJECT, ResponseMembers, RpcResponse, is_error_object};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Write as _;

/// Bytes of a line that are quoted in the log.
const QUOTE: usize = 160;

/// An answer, under an id that may be one of the queue's.
#[derive(Debug)]
pub struct ServerAnswer {
    pub id: u64,
    /// The outcome, or the fault in the answer.
    pub outcome: Result<RpcResponse, String>,
}

/// A parsed line.
#[derive(Debug)]
pub enum ServerLine {
    Answer(ServerAnswer),
    /// A line that is not an answer, described for the log.
    Unexpected(String),
    Blank,
}

/// The id alone, for an answer whose other members are faulty.
#[derive(Deserialize)]
struct AnswerId {
    id: u64,
}

/// Encodes a request as one line; without an id it is a notification.
pub fn encode_request(id: Option<u64>, method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let params = params.map_or("", RawValue::get);
    let mut line = Vec::with_capacity(method.len() + params.len() + 80);
    line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        write!(line, "\"id\":{id},").expect("a vector takes everything");
    }
    line.extend_from_slice(b"\"method\":");
    serde_json::to_writer(&mut line, method).expect("a string is JSON");
    if !params.is_empty() {
        line.extend_from_slice(b",\"params\":");
        let start = line.len();
        line.extend_from_slice(params.as_bytes());
        // Line ends can only stand between tokens, where a space means the same: within strings they are escaped.
        for byte in &mut line[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    line.extend_from_slice(b"}\n");
    line
}

/// Parses a line that the process wrote.
pub fn parse_line(line: &[u8]) -> ServerLine {
    let Ok(text) = std::str::from_utf8(line) else {
        return ServerLine::Unexpected(format!("a line that is not UTF-8: {}", quoted(line)));
    };
    let text = text.trim_ascii();
    if text.is_empty() {
        return ServerLine::Blank;
    }
    // Serde would also read the members from an array, by position.
    if !text.starts_with('{') {
        return ServerLine::Unexpected(format!("a line that is no JSON object: {}", quoted(line)));
    }
    let members: ResponseMembers<'_> = match serde_json::from_str(text) {
        Ok(members) => members,
        Err(error) => {
            return match serde_json::from_str::<AnswerId>(text) {
                Ok(AnswerId { id }) => ServerLine::Answer(ServerAnswer { id, outcome: Err(error.to_string()) }),
                Err(_) => ServerLine::Unexpected(format!("a line that is not JSON ({error}): {}", quoted(line))),
            };
        }
    };
    if members.method.is_some() {
        return ServerLine::Unexpected(format!("a request of its own, which nobody here answers: {}", quoted(line)));
    }
    let Some(id) = members.id.and_then(|id| id.get().parse().ok()) else {
        return ServerLine::Unexpected(format!("an answer without an id of a call: {}", quoted(line)));
    };
    let outcome = match (members.result, members.error) {
        (Some(result), None) => Ok(RpcResponse::Result(result.to_owned())),
        (None, Some(error)) if is_error_object(error) => Ok(RpcResponse::Error(error.to_owned())),
        (None, Some(_)) => Err(NO_ERROR_OBJECT.to_owned()),
        (Some(_), Some(_)) => Err("it has both `result` and `error`".to_owned()),
        (None, None) => Err("it has neither `result` nor `error`".to_owned()),
    };
    ServerLine::Answer(ServerAnswer { id, outcome })
}

/// The beginning of a line, for the log, which escapes control characters.
pub fn quoted(line: &[u8]) -> String {
    let more = if line.len() > QUOTE { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(&line[..line.len().min(QUOTE)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> (u64, Result<RpcResponse, String>) {
        match parse_line(line.as_bytes()) {
            ServerLine::Answer(ServerAnswer { id, outcome }) => (id, outcome),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn results_and_errors_pass_unchanged() {
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
    fn a_faulty_answer_carries_its_id_and_its_fault() {
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
    fn every_other_line_is_unexpected() {
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
            assert!(
                matches!(parse_line(line), ServerLine::Unexpected(why) if why.contains(part)),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
        assert!(matches!(parse_line(b" \r"), ServerLine::Blank));
        let ServerLine::Unexpected(why) = parse_line("ä".repeat(1 << 20).as_bytes()) else { panic!("no answer") };
        assert!(why.len() < 3 * QUOTE, "{}", why.len());
    }
}
