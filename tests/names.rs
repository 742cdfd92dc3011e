//! One name, one meaning: the name of a struct, enum, trait or type alias is defined once in `src`, test code
//! included. Associated types do not count: their trait names them.

mod source;

use regex::Regex;
use source::library_files;
use std::collections::BTreeMap;

#[test]
fn a_type_name_is_defined_once() {
    let definition =
        Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(struct|enum|trait|type)\s+([A-Z]\w*)").expect("a valid pattern");
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for file in library_files() {
        for found in definition.captures_iter(&file.code) {
            let name = found.get(2).expect("the pattern has two groups");
            if &found[1] == "type" && is_associated(&file.code[..name.start()]) {
                continue;
            }
            let line = file.code[..name.start()].matches('\n').count() + 1;
            places.entry(name.as_str().to_owned()).or_default().push(format!("src/{}:{line}", file.path));
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "defined more than once: {places:#?}");
}

/// Whether the code ends directly inside an `impl` or a `trait`, where `type` defines an associated type.
fn is_associated(code_before: &str) -> bool {
    let mut depth = 0;
    let opening = code_before.char_indices().rev().find(|(_, c)| {
        depth += match c {
            '}' => 1,
            '{' => -1,
            _ => 0,
        };
        depth < 0
    });
    let Some((opening, _)) = opening else { return false };
    let header = code_before[..opening].rsplit(['{', '}', ';']).next().unwrap_or_default();
    Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:impl|trait)\b")
        .expect("a valid pattern")
        .is_match(header)
}

#[test]
fn an_associated_type_is_told_from_an_alias() {
    for (before, associated) in [
        ("", false),
        ("impl Iterator for Pages {\n    fn a() { b(); }\n    ", true),
        ("pub trait Record: Clone\nwhere\n    Self: Sized,\n{\n    ", true),
        ("impl A for B {\n}\n", false),
        ("mod tests {\n    ", false),
        ("impl A {\n    fn b(c: impl D) -> E {\n        ", false),
    ] {
        assert_eq!(is_associated(before), associated, "{before}");
    }
}
