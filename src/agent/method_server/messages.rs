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
    Unexpected(UnexpectedLine),
    Blank,
}

/// A line that is no answer, or one that cannot be read.
#[derive(Debug)]
pub struct UnexpectedLine {
    /// The line, described for the log.
    pub what: String,
    /// The answer that it was meant to be. Its call fails at once and does not wait for its timeout.
    pub answer: Option<ServerAnswer>,
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
        return unreadable(line, "a line that is not UTF-8", "it is not UTF-8");
    };
    let text = text.trim_ascii();
    if text.is_empty() {
        return ServerLine::Blank;
    }
    // Serde would also read the members from an array, by position.
    if !text.starts_with('{') {
        return no_answer(line, "a line that is no JSON object");
    }
    let members: ResponseMembers<'_> = match serde_json::from_str(text) {
        Ok(members) => members,
        Err(error) => {
            return match serde_json::from_str::<AnswerId>(text) {
                Ok(AnswerId { id }) => ServerLine::Answer(ServerAnswer { id, outcome: Err(error.to_string()) }),
                Err(_) => {
                    unreadable(line, &format!("a line that is not JSON ({error})"), &format!("it is not JSON: {error}"))
                }
            };
        }
    };
    if members.method.is_some() {
        return no_answer(line, "a request of its own, which nobody here answers");
    }
    let Some(id) = members.id.and_then(|id| id.get().parse().ok()) else {
        return no_answer(line, "an answer without an id of a call");
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

/// A line of `length` bytes, over `limit`, of which only the beginning was kept.
pub fn too_long(beginning: &[u8], length: usize, limit: usize) -> ServerLine {
    let fault = format!("it has {length} bytes, over {limit}");
    unreadable(beginning, &format!("a line of {length} bytes, over {limit}"), &fault)
}

fn no_answer(line: &[u8], kind: &str) -> ServerLine {
    ServerLine::Unexpected(UnexpectedLine { what: format!("{kind}: {}", quoted(line)), answer: None })
}

/// A line that cannot be read, with the fault of its answer if it shows the id of a call.
fn unreadable(line: &[u8], kind: &str, fault: &str) -> ServerLine {
    let answer = id_in_unreadable(line).map(|id| ServerAnswer { id, outcome: Err(fault.to_owned()) });
    ServerLine::Unexpected(UnexpectedLine { what: format!("{kind}: {}", quoted(line)), answer })
}

/// The id in a line that is no valid JSON, such as a result with `NaN`: the one member `id` of the object that the line
/// begins with. `None` for a request, and for an id that may be cut off or come from a text of a caller: it has to be the
/// first member, but for `jsonrpc`, or the object has to end with the line.
fn id_in_unreadable(line: &[u8]) -> Option<u64> {
    let mut rest = line.trim_ascii_start().strip_prefix(b"{")?;
    let (mut depth, mut id, mut is_first, mut others) = (1_usize, None, false, false);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let Some((text, after)) = split_string(rest) else { break };
                rest = after;
                let value = after.trim_ascii_start().strip_prefix(b":").filter(|_| depth == 1);
                match (text, value) {
                    (b"method", Some(_)) => return None,
                    (b"id", Some(_)) if id.is_some() => return None,
                    (b"id", Some(value)) => {
                        is_first = !others;
                        id = Some(leading_id(value));
                    }
                    (b"jsonrpc", Some(_)) | (_, None) => {}
                    (_, Some(_)) => others = true,
                }
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    let is_whole = depth == 0 && rest.trim_ascii().is_empty();
    id.flatten().filter(|_| is_first || is_whole)
}

/// Splits a string, whose opening quote was read, from the bytes after it.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => return Some((&bytes[..at], &bytes[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The whole number that a member's value begins with, and that ends before a separator.
fn leading_id(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = value.split_at(digits);
    let is_whole = matches!(after.first(), Some(b',' | b'}' | b' ' | b'\t' | b'\r'));
    std::str::from_utf8(number).ok().filter(|_| is_whole)?.parse().ok()
}

/// The beginning of a line, for the log, which escapes control characters.
fn quoted(line: &[u8]) -> String {
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
            (b"{\"id\":7", "not JSON"),
            (b"\xff", "not UTF-8"),
            (b"{\"id\":7,\"method\":\"m\",\"result\":1}", "request"),
            (b"{\"id\":\"7\",\"result\":1}", "without an id"),
            (b"{\"id\":7.0,\"result\":1}", "without an id"),
            (b"{\"id\":-7,\"result\":1}", "without an id"),
            (b"{\"id\":99999999999999999999,\"result\":1}", "without an id"),
            (b"{\"id\":null,\"error\":{\"code\":-32700,\"message\":\"?\"}}", "without an id"),
            (b"{\"result\":1}", "without an id"),
        ] {
            assert!(
                matches!(parse_line(line), ServerLine::Unexpected(UnexpectedLine { what, answer: None }) if what.contains(part)),
                "{}",
                String::from_utf8_lossy(line)
            );
        }
        assert!(matches!(parse_line(b" \r"), ServerLine::Blank));
        let ServerLine::Unexpected(line) = parse_line("ä".repeat(1 << 20).as_bytes()) else { panic!("no answer") };
        assert!(line.what.len() < 3 * QUOTE, "{}", line.what.len());
    }

    #[test]
    fn an_unreadable_line_is_the_answer_to_the_call_whose_id_its_object_has() {
        let id = |line: &[u8]| match parse_line(line) {
            ServerLine::Unexpected(UnexpectedLine { answer, .. }) => answer.map(|answer| answer.id),
            other => panic!("{}: {other:?}", String::from_utf8_lossy(line)),
        };
        for line in [
            &b"{\"id\":7,\"result\":1"[..],
            b"{\"id\":7,\"result\":1} x",
            b"{\"id\":7,\"result\":\"\xff\"}",
            b" { \"result\" : {\"id\":8,\"a\":[{\"id\":9}, NaN]}, \"id\" : 7 }",
            b"{\"result\":\"}\\\"id\\\":8,\",\"text\":\"id\",\"x\":NaN,\"id\":7}",
            b"{\"id\":7,\"result\":1}{\"id\":8,\"result\":1}",
        ] {
            assert_eq!(id(line), Some(7), "{}", String::from_utf8_lossy(line));
        }
        for line in [
            &b"{\"id\":7"[..],
            b"{\"id\":7,\"result\":-Infinity,\"id\":8}",
            b"{\"result\":\"\",\"id\":8,\"y\":\"\",\"id\":7}",
            b"{\"result\":\"\",\"id\":8,\"x\":\",\"id\":7}",
            b"{\"result\":\"\",\"id\":8}\",\"id\":7}",
            b"{\"result\":\"\",\"id\":8,\"x\":{\"y\":\"\",\"id\":7}",
            b"{\"result\":\"\",\"id\":8.5,\"y\":\"\",\"id\":8}",
            b"{\"id\":7,\"result\":\"\",\"id\":8",
            b"{\"id\":7.5,\"result\":NaN}",
            b"{\"id\":\"7\",\"result\":NaN}",
            b"{\"id\":-7,\"result\":NaN}",
            b"{\"id\":99999999999999999999,\"result\":NaN}",
            b"{\"id\":7,\"method\":\"m\",\"params\":[NaN]}",
            b"{\"result\":{\"id\":7},\"x\":NaN}",
            b"{\"result\":NaN}{\"id\":7,\"result\":1}",
            b"{\"result\":\"\\",
            b"}{\"id\":7,\"result\":NaN}",
            b"\xff{\"id\":7,\"result\":1}",
        ] {
            assert_eq!(id(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn an_answer_over_the_limit_carries_its_id_and_its_length() {
        let line = too_long(b"{\"id\":7,\"result\":\"xxxx", 100, 20);
        let ServerLine::Unexpected(UnexpectedLine { what, answer: Some(answer) }) = line else { panic!("{line:?}") };
        assert_eq!(what, "a line of 100 bytes, over 20: {\"id\":7,\"result\":\"xxxx");
        assert_eq!((answer.id, answer.outcome.unwrap_err().as_str()), (7, "it has 100 bytes, over 20"));
    }
}
