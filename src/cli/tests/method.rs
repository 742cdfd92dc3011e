//! Calls of methods: errors of the server, and errors of a program.

use super::FakeApi;
use serde_json::{Value, json};

fn failed(id: Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "error": {"code": code, "message": message}, "id": id})
}

#[test]
fn a_program_that_does_not_know_its_method_is_told_from_a_name_that_nobody_publishes() {
    let unknown = FakeApi::always(200, failed(json!(1), -32601, "no method named `notes.search`"));
    let ran = unknown.run(&["method", "call", "notes.search"]);
    let advice = "svc: no method is named `notes.search`: `svc method list` lists those you can call\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, advice));
    let program = FakeApi::always(200, failed(json!(1), -32601, "Method not found: serch"));
    let ran = program.run(&["method", "call", "notes.search"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "svc: Method not found: serch (-32601)\n"));
}

#[test]
fn a_batch_that_the_server_refuses_as_a_whole_fails_with_its_reason() {
    let refusal = "a batch has at most 3 requests; this one has 4: split it";
    let fake = FakeApi::always(200, failed(Value::Null, -32600, refusal));
    for flags in [&[][..], &["--notify"], &["--json"]] {
        let ran = fake.run(&[&["method", "call", "x", "--batch", "[{},{},{},{}]"], flags].concat());
        let expected = (1, String::new(), format!("svc: {refusal} (-32600)\n"));
        assert_eq!((ran.code, ran.out, ran.err), expected, "{flags:?}");
    }
}

#[test]
fn an_error_of_a_notification_has_no_number_of_a_call() {
    // Only the second one is answered, and a response to a notification does not say which one it is for.
    let fake = FakeApi::always(200, json!([failed(Value::Null, -32600, "`params` must be an object or an array")]));
    let ran = fake.run(&["method", "call", "x", "--batch", "[{},5]", "--notify"]);
    let expected = "svc: `params` must be an object or an array (-32600)\nsvc: 1 of 2 calls of `x` failed\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, expected));
}
