//! Answers that cannot be read, and lines that are no answers.

use super::{LONG, call, python};
use crate::{
    agent::method_server::fault::CallFault,
    model::method::{MethodServerHealth, ServerMode},
};
use serde_json::json;

#[tokio::test]
async fn malformed_and_huge_lines_are_skipped() {
    let server = python(&["malformed_lines.py"], ServerMode::Concurrent, LONG).await;
    for number in 0..2 {
        assert_eq!(call(&server, "m", json!([number])).await, Ok(json!([number])));
    }
    assert_eq!(*server.health().borrow(), MethodServerHealth::Running);
}

#[tokio::test]
async fn a_malformed_answer_fails_its_call() {
    let server = python(&["any_response.py"], ServerMode::Serial, LONG).await;
    for faulty in [json!({}), json!({"result": 1, "error": null}), json!({"error": "no"})] {
        let fault = call(&server, "m", faulty.clone()).await.unwrap_err();
        assert!(matches!(fault, CallFault::Garbled(_)), "{faulty}: {fault}");
    }
    assert_eq!(call(&server, "m", json!({"result": 1})).await, Ok(json!(1)));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_call_at_once_and_frees_a_serial_server() {
    for mode in [ServerMode::Concurrent, ServerMode::Serial] {
        let server = python(&["any_line.py"], mode, LONG).await;
        for (line, reason) in [
            (r#"{"jsonrpc":"2.0","id":ID,"result":NaN}"#, "it is not JSON: expected value"),
            (r#"{"result":{"id":1,"x":[Infinity]},"id": ID }"#, "it is not JSON: expected value"),
            (r#"{"id":ID,"result":1}{"id":ID,"result":2}"#, "it is not JSON: trailing characters"),
            ("{\"id\":ID,\"result\":\"\u{e4}\"}", "it is not UTF-8"),
            (r#"{"id":ID,"result":"LONG"}"#, "bytes, over 16777216"),
        ] {
            let fault = call(&server, "m", json!({ "line": line })).await.unwrap_err();
            assert!(matches!(&fault, CallFault::Garbled(why) if why.contains(reason)), "{line}: {fault}");
        }
        assert_eq!(call(&server, "m", json!({"line": r#"{"id":ID,"result":1}"#})).await, Ok(json!(1)));
        assert_eq!(*server.health().borrow(), MethodServerHealth::Running);
    }
}
