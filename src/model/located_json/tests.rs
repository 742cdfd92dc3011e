//! A text is read as serde_json reads it, and every fault has its path.

use super::*;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct TestOrder {
    name: String,
    #[serde(default)]
    items: Vec<TestOrderItem>,
    #[serde(default)]
    labels: BTreeMap<TestName, Option<u8>>,
    #[serde(default)]
    action: Option<TestAction>,
    #[serde(default)]
    either: Option<TestEither>,
    #[serde(default)]
    any: Value,
}

#[derive(Debug, Deserialize, PartialEq)]
struct TestOrderItem {
    count: u32,
    #[serde(default)]
    pair: (bool, f64),
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct TestName(String);

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum TestAction {
    Stop,
    Wait(u8),
    Move(u8, u8),
    Call { method: String },
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum TestEither {
    Number(u8),
    Item(TestOrderItem),
}

fn fault(json: &Value) -> (String, String) {
    let fault = read::<TestOrder>(&json.to_string()).unwrap_err();
    (fault.path(), fault.message)
}

#[test]
fn a_text_is_read_as_serde_json_reads_it() {
    for text in [
        r#" { "name" : "a" } "#,
        r#"{"name":"é\u0041\n","items":[{"count":1,"pair":[true,0.5]},{"count":2,"extra":[{}]}]}"#,
        r#"{"n\u0061me":"a","labels":{"x":1,"y":null},"any":{"deep":[[[{"a":[1,-1,1.5,null]}]]]}}"#,
        r#"{"name":"a","action":"stop","any":[[],{}]}"#,
        r#"{"name":"a","action":{"stop":null}}"#,
        r#"{"name":"a","action":{"wait":3},"either":7}"#,
        r#"{"name":"a","action":{"move":[1,2]},"either":{"count":4}}"#,
        r#"{"name":"a","action":{"call":{"method":"m"}},"either":null}"#,
    ] {
        assert_eq!(read::<TestOrder>(text).unwrap(), serde_json::from_str(text).unwrap(), "{text}");
    }
    let numbered = read::<BTreeMap<u64, bool>>(r#"{"1":true,"20":false}"#).unwrap();
    assert_eq!(numbered, BTreeMap::from([(1, true), (20, false)]));
    let raw = read::<BTreeMap<String, Box<RawValue>>>(r#"{"a": {"b" : 1.0}, "c":[ 1 ]}"#).unwrap();
    assert_eq!((raw["a"].get(), raw["c"].get()), (r#"{"b" : 1.0}"#, "[ 1 ]"));
}

#[test]
fn a_fault_has_the_path_of_its_value_and_no_position() {
    for (json, path, message) in [
        (json!({"name": 7}), "name", "invalid type: integer `7`, expected a string"),
        (json!({"name": {}}), "name", "invalid type: map, expected a string"),
        (
            json!({"name": "a", "items": [{"count": 1}, {"count": -1}]}),
            "items[1].count",
            "invalid value: integer `-1`, expected u32",
        ),
        (json!({"name": "a", "items": [{}]}), "items[0]", "missing field `count`"),
        (
            json!({"name": "a", "items": [{"count": 1, "pair": [true]}]}),
            "items[0].pair",
            "invalid length 1, expected a tuple of size 2",
        ),
        (
            json!({"name": "a", "items": [{"count": 1, "pair": [true, 1, 2]}]}),
            "items[0].pair",
            "invalid length 3, expected fewer elements in array",
        ),
        (json!({"name": "a", "items": {"count": 1}}), "items", "invalid type: map, expected a sequence"),
        (json!({"name": "a", "items": 1.5}), "items", "invalid type: floating point `1.5`, expected a sequence"),
        (json!({"name": "a", "labels": {"x": 1, "y": "z"}}), "labels.y", "invalid type: string \"z\", expected u8"),
        (json!({"name": "a", "labels": []}), "labels", "invalid type: sequence, expected a map"),
        (
            json!({"name": "a", "action": "go"}),
            "action",
            "unknown variant `go`, expected one of `stop`, `wait`, `move`, `call`",
        ),
        (
            json!({"name": "a", "action": null, "extra": 1}),
            "extra",
            "unknown field `extra`, expected one of `name`, `items`, `labels`, `action`, `either`, `any`",
        ),
        (json!({"name": "a", "action": 5}), "action", "invalid type: integer `5`, expected string or map"),
        (json!({"name": "a", "action": {}}), "action", "invalid value: map, expected map with a single key"),
        (
            json!({"name": "a", "action": {"call": {"method": []}}}),
            "action.call.method",
            "invalid type: sequence, expected a string",
        ),
        (json!({"name": "a", "action": {"call": ["m"]}}), "action.call", "invalid type: sequence, expected an object"),
        (json!({"name": "a", "action": {"stop": 1}}), "action.stop", "invalid type: integer `1`, expected unit"),
        (json!({"name": "a", "action": {"wait": 300}}), "action.wait", "invalid value: integer `300`, expected u8"),
        (json!({"name": "a", "either": "x"}), "either", "data did not match any variant of untagged enum TestEither"),
        (json!(["a"]), "", "invalid type: sequence, expected an object"),
        (json!(null), "", "invalid type: null, expected an object"),
        (json!({}), "", "missing field `name`"),
    ] {
        assert_eq!(fault(&json), (path.to_owned(), message.to_owned()), "{json}");
    }
}

#[test]
fn a_text_that_is_not_json_is_refused_with_its_position() {
    let message = |text| read::<TestOrder>(text).unwrap_err().message;
    assert_eq!(message("{\"name\":\n \"a\",,}"), "key must be a string at line 2 column 6");
    assert_eq!(message("{\"name\":\"a\"}}"), "the JSON goes on after its end: trailing characters at line 1 column 13");
    assert_eq!(message(""), "EOF while parsing a value at line 1 column 0");
    assert_eq!(message("{\"name\":\"a\",\"items\":[{\"count\":1]}"), "expected `,` or `}` at line 1 column 32");
}

#[test]
fn a_fault_of_syntax_that_only_its_type_finds_has_its_path_and_position() {
    for (text, path, message) in [
        (r#"{"name":"\ud800"}"#, "name", "unexpected end of hex escape at line 1 column 16"),
        ("{\"name\":\"a\",\n\"any\":{\"b\":[{\"c\":1e999}]}}", "any.b", "number out of range at line 2 column 22"),
    ] {
        let fault = read::<TestOrder>(text).unwrap_err();
        assert_eq!((fault.path().as_str(), fault.message.as_str()), (path, message));
    }
}

#[test]
fn fields_that_a_type_leaves_unread_are_refused() {
    let text = r#"{"name":"a","any":{"$serde_json::private::RawValue":"1","b":2}}"#;
    let fault = read::<TestOrder>(text).unwrap_err();
    assert_eq!(
        (fault.path().as_str(), fault.message.as_str()),
        ("any", "invalid length 2, expected fewer elements in map")
    );
}

#[test]
fn a_number_is_read_exactly() {
    for number in ["12.088995980580641", "2.3442686221772252e-202", "0.1", "18446744073709551615", "1e308"] {
        let value: Value = serde_json::from_str(number).unwrap();
        assert_eq!(read::<Value>(&value.to_string()).unwrap(), value);
        assert_eq!(value.to_string().parse::<f64>().unwrap(), number.parse::<f64>().unwrap());
    }
}

#[test]
fn space_around_a_text_is_not_part_of_its_value() {
    assert_eq!(read::<Option<u8>>(" null\n").unwrap(), None);
    assert_eq!(read::<Box<RawValue>>("\t{ }\r\n").unwrap().get(), "{ }");
}

#[test]
fn a_value_of_any_type_may_be_as_deep_as_serde_json_allows() {
    let deep = |levels: usize| format!(r#"{{"name":"a","any":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
    assert!(read::<TestOrder>(&deep(120)).is_ok());
    let refused = read::<TestOrder>(&deep(100_000)).unwrap_err();
    assert_eq!(
        (refused.path().as_str(), refused.message.as_str()),
        ("any[0]", "recursion limit exceeded at line 1 column 145")
    );
}
