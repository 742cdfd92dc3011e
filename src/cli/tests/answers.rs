//! Answers that are not those of an svc server, or do not come in time.

use super::{FakeApi, emitted, error, event, run_with};
use serde_json::{Value, json};

#[test]
fn a_page_is_no_stream_of_events() {
    let fake = FakeApi::always(200, "<html>".into());
    let ran = fake.run(&["event", "tail"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("check that it is an svc server"), "{}", ran.err);
}

#[test]
fn a_refusal_of_a_proxy_is_code_4() {
    for status in [401, 403] {
        let ran = FakeApi::always(status, "<html>".into()).run(&["whoami"]);
        assert_eq!(ran.code, 4, "{}", ran.err);
        assert!(ran.err.contains(&format!("status {status}")), "{}", ran.err);
    }
    assert_eq!(FakeApi::always(500, "<html>".into()).run(&["whoami"]).code, 1);
}

#[test]
fn a_wait_that_takes_too_long_prints_what_is_known() {
    let fake = FakeApi::new(|line, _| match line {
        "POST /api/events/emit" => (202, emitted()),
        _ => (200, event("queued")),
    });
    let ran = fake.run(&["event", "a", "--wait", "--timeout", "10ms", "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let printed: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&printed["id"], &printed["deliveries"][0]["state"]), (&emitted()["event_id"], &json!("queued")));
    assert!(ran.err.contains("still queued for slack"), "{}", ran.err);
}

#[test]
fn a_reason_for_keeping_an_event_is_one_line_without_control_characters() {
    let home = tempfile::tempdir().unwrap();
    let fake = FakeApi::always(503, error("busy", "later\u{1b}[2J\nagain"));
    let environment = |name: &str| match name {
        "SVC_SERVER" => Some(fake.url.clone()),
        "SVC_TOKEN" => Some("svc_test".to_owned()),
        "HOME" => Some(home.path().to_str().unwrap().to_owned()),
        _ => None,
    };
    let ran = run_with(&["event", "a", "--spool"], "", &environment);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{}", ran.out);
    assert!(ran.out.contains("kept: later\\u{1b}[2J\\nagain"), "{}", ran.out);
}

#[test]
fn an_answer_without_result_and_error_is_no_answer_to_a_call() {
    for answer in [json!({}), json!({"jsonrpc": "2.0", "id": 1})] {
        let ran = FakeApi::always(200, answer).run(&["method", "call", "x.echo", "[1]"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    }
    let ran = FakeApi::always(200, json!([{}])).run(&["method", "call", "x.echo", "--batch", "[[1]]"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    let ran = FakeApi::always(200, json!([])).run(&["method", "call", "x.echo", "--batch", "[[1]]"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
}
