//! Schemas and values made to cost much: each is refused, or checked in bounded time and memory.

use super::*;
use error::{MAX_AUTOMATA, MAX_KEY_AUTOMATA, MAX_PATTERN, MAX_PATTERNS};
use serde_json::{Map, json};
use std::time::{Duration, Instant};

/// The time that a check may take. Generous, because the machine may be busy.
const MAX_TIME: Duration = Duration::from_secs(20);

fn numbered(count: usize, schema: impl Fn(usize) -> Value) -> Value {
    let properties: Map<_, _> = (0..count).map(|number| (format!("p{number}"), schema(number))).collect();
    json!({ "properties": properties })
}

/// The message of a refusal, which is the same for tools and methods.
fn refusal(schema: &Value) -> String {
    let tool = SchemaValidator::new(schema).err().expect("a tool's schema is refused");
    assert_eq!(check(schema).unwrap_err(), tool, "a method's schema is refused in the same way");
    tool.to_string()
}

#[test]
fn a_pattern_of_many_large_classes_is_refused_with_its_place_before_it_takes_memory() {
    let started = Instant::now();
    let schema = numbered(500, |number| json!({"pattern": format!("\\pL{{200}}{number}")}));
    let error = refusal(&schema);
    assert!(
        error.starts_with("at `/properties/p0/pattern`: the pattern `\\pL{200}0` compiles to more than 262144 bytes"),
        "{error}"
    );
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
}

#[test]
fn the_patterns_of_a_schema_are_bounded_in_number_length_and_together() {
    let many = numbered(MAX_PATTERNS + 1, |_| json!({"pattern": "a"}));
    assert!(refusal(&many).ends_with("a schema has at most 100 patterns"), "{}", refusal(&many));
    let keys: Map<_, _> = (0..=MAX_PATTERNS).map(|number| (format!("k{number}"), json!({}))).collect();
    assert!(refusal(&json!({ "patternProperties": keys })).ends_with("a schema has at most 100 patterns"));
    let long = json!({"items": {"pattern": "a".repeat(MAX_PATTERN + 1)}});
    assert!(refusal(&long).starts_with("at `/items/pattern`: the pattern `aaa"));
    assert!(refusal(&long).ends_with("has 1025 bytes; at most 1024 are allowed"));

    let large = numbered(50, |number| json!({"pattern": format!("\\pL{{1,4}}{number}")}));
    let limit = format!("more than {MAX_AUTOMATA} bytes: use fewer or simpler ones");
    assert!(refusal(&large).ends_with(&limit), "{}", refusal(&large));
    let keys: Map<_, _> = (0..50).map(|number| (format!("\\pL{number}"), json!({}))).collect();
    let limit = format!("more than {MAX_KEY_AUTOMATA} bytes: use fewer or simpler ones");
    assert!(refusal(&json!({ "patternProperties": keys })).ends_with(&limit));

    let one = json!({"pattern": "\\pL{1,4}"});
    let mut checker = SchemaChecker::new(1 << 20);
    let refused = (0..100).find_map(|_| checker.check(&one).err());
    assert_eq!(refused, Some(SchemaError::PatternsTogether { limit: 1 << 20 }));
}

#[test]
fn a_pattern_that_no_linear_engine_matches_is_refused() {
    for (pattern, place) in
        [("(?=a)b", "pattern"), ("(?<!a)b", "pattern"), ("(a)\\1", "pattern"), ("(?!x)", "patternProperties")]
    {
        let schema = if place == "pattern" {
            json!({ "pattern": pattern })
        } else {
            json!({"patternProperties": {pattern: {}}})
        };
        let error = refusal(&schema);
        assert!(error.starts_with(&format!("at `/{place}")), "{error}");
        assert!(error.contains("has a look-around or a back-reference"), "{error}");
    }
    let error = refusal(&json!({"$defs": {"a": {"pattern": "("}}, "$ref": "#/$defs/a"}));
    assert!(error.starts_with("at `/$defs/a/pattern`: the pattern `(` is no regular expression"), "{error}");
}

#[test]
fn usual_patterns_are_matched_as_ecmascript_does() {
    for (pattern, fits, misfits) in [
        ("^[a-z][a-z0-9_-]{0,62}$", "a-1", "1a"),
        ("^\\d{4}-\\d{2}-\\d{2}$", "2026-11-15", "٤٤٤٤-11-15"),
        ("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "0188bb2a-1111-7000-8000-000000000000", "0188"),
        ("^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$", "a@b.example", "a b@c.example"),
        ("^data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+$", "data:image/png;base64,AAAA", "data:image/gif;base64,AAAA"),
        ("^\\p{L}{1,3}$", "äß", "1"),
        ("^.{1,200}$", "x", ""),
        ("\\bword\\b", "a word.", "sword"),
        ("^\\S*$", "a", "a b"),
        ("^(get|put)$", "get", "got"),
    ] {
        let validator = SchemaValidator::new(&json!({ "pattern": pattern })).unwrap();
        assert_eq!(validator.check(&json!(fits)), Ok(()), "{pattern}");
        let error = validator.check(&json!(misfits)).unwrap_err();
        assert!(error.reason.contains("does not match"), "{pattern}: {error}");
        assert_eq!(validator.check(&json!(1)), Ok(()), "only texts are matched");
    }
    let keys =
        SchemaValidator::new(&json!({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false}));
    let keys = keys.unwrap();
    assert_eq!(keys.check(&json!({"x-a": "1"})), Ok(()));
    assert!(keys.check(&json!({"a": "1"})).is_err() && keys.check(&json!({"x-a": 1})).is_err());
}

#[test]
fn a_pattern_that_backtracking_engines_take_for_ever_on_is_matched_at_once() {
    let validator = SchemaValidator::new(&json!({"items": {"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}})).unwrap();
    let started = Instant::now();
    let error = validator.check(&json!(vec!["a".repeat(5_000); 20])).unwrap_err();
    assert_eq!(error.at, "/0");
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
}

#[test]
fn texts_that_are_too_long_for_the_patterns_do_not_fit_and_take_bounded_time() {
    // Each byte of the text makes another state of the automaton.
    let validator = SchemaValidator::new(&json!({"items": {"pattern": "(a|b)*a(a|b){600}c"}})).unwrap();
    let letter = |n: u64| if n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { 'a' } else { 'b' };
    let text = |length: u64| (0..length).map(letter).collect::<String>();
    let started = Instant::now();
    let error = validator.check(&json!([text(40_000)])).unwrap_err();
    assert!(error.reason.contains("does not match"), "{error}");
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
    let error = validator.check(&json!([text(1 << 20)])).unwrap_err();
    assert_eq!(error.to_string(), "its texts are too long for the patterns of this schema");

    let keys = SchemaValidator::new(&json!({"patternProperties": {"(a|b)*a(a|b){300}c": {}}})).unwrap();
    let error = keys.check(&json!({"a".repeat(1 << 19): 1})).unwrap_err();
    assert!(error.reason.contains("too long for the `patternProperties`"), "{error}");
    assert_eq!(keys.check(&json!({"a": 1})), Ok(()));
}

#[test]
fn a_check_ends_when_its_caller_is_gone() {
    let validator = SchemaValidator::new(&json!({"items": {"pattern": "^a+$"}})).unwrap();
    let error = validator.check_unless(&json!(["a"]), &Arc::new(AtomicBool::new(true))).unwrap_err();
    assert_eq!(error.to_string(), "the check was cancelled");
    assert_eq!(validator.check(&json!(["a"])), Ok(()), "the flag is that of one check");
}

#[test]
fn a_value_that_fails_in_many_branches_takes_little_memory() {
    let branches = vec![json!({"items": {"type": "string"}}); 40];
    let validator = SchemaValidator::new(&json!({ "anyOf": branches })).unwrap();
    let error = validator.check(&json!(vec![1; 100_000])).unwrap_err();
    assert_eq!(error.to_string(), "it does not fit the schema, and is too large to say where");
    assert!(validator.check(&json!([1])).unwrap_err().reason.contains("anyOf"), "a small value gets the reason");
}

#[test]
fn long_lists_of_values_and_of_unique_items_count() {
    let numbers: Vec<_> = (0..9_000).map(Value::from).collect();
    let listed = SchemaValidator::new(&json!({"items": {"enum": numbers}})).unwrap();
    assert_eq!(listed.check(&json!([8_999])), Ok(()));
    let error = listed.check(&json!(vec![8_999; 100_000])).unwrap_err();
    assert!(error.reason.contains("too many for this schema"), "{error}");
    let numbers: Vec<_> = (0..10_001).map(Value::from).collect();
    assert!(matches!(SchemaValidator::new(&json!({"items": {"enum": numbers}})), Err(SchemaError::TooMuch)));

    let unique = SchemaValidator::new(&json!({"uniqueItems": true, "items": {"$ref": "#"}})).unwrap();
    let started = Instant::now();
    let items: Vec<_> = (0..10_000).map(|n| json!([[n], [n, n + 1]])).collect();
    assert_eq!(unique.check(&json!(items)), Ok(()));
    let deep = (0..60).fold(json!([1]), |inner, _| json!([inner, inner.is_array()]));
    assert_eq!(unique.check(&deep), Ok(()));
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
}

#[test]
fn a_nested_schema_and_a_nested_value_are_refused() {
    let schema = (0..40).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    assert_eq!(refusal(&schema), "a schema is nested at most 64 levels deep: move parts of it to `$defs`");
    let value = (0..70).fold(json!({}), |inner, _| json!({ "a": inner }));
    let lax = SchemaValidator::new(&json!({})).unwrap();
    assert_eq!(lax.check(&value).unwrap_err().to_string(), "it is nested more than 64 levels deep");
}

#[test]
fn formats_and_numbers_of_extreme_size_take_bounded_time() {
    let draft7 = "http://json-schema.org/draft-07/schema#";
    let format = SchemaValidator::new(&json!({"$schema": draft7, "format": "regex"})).unwrap();
    let started = Instant::now();
    let groups: String = (0..50_000).map(|number| format!("(?<a{number}>)")).collect();
    assert_eq!(format.check(&json!(groups)), Ok(()), "`format` is an annotation");
    let multiple = SchemaValidator::new(&json!({"items": {"multipleOf": 1e-300}})).unwrap();
    assert_eq!(multiple.check(&json!(vec![1.7e308; 50_000])), Ok(()));
    let names: String = (0..6_000).map(|number| format!("(?<a{number}>)")).collect();
    assert!(check(&json!({"$defs": {"unused": {"pattern": names}}})).is_ok());
    assert!(started.elapsed() < MAX_TIME, "{:?}", started.elapsed());
}
