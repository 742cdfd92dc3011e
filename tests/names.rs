//! One name, one meaning: a struct, enum or trait name is defined once in the whole crate, test code included.

mod source;

use regex::Regex;
use source::library_files;
use std::collections::{BTreeMap, BTreeSet};

/// Names that are still defined more than once. The list only shrinks.
const DEFINED_TWICE: &[&str] = &[
    "Change",
    "Delivery",
    "Egress",
    "Engine",
    "Entry",
    "FakeServer",
    "History",
    "Object",
    "Paint",
    "Record",
    "Request",
    "Scratch",
    "Script",
    "Shared",
    "Shelf",
    "SpooledEvent",
    "Table",
    "Webhook",
];

#[test]
fn a_type_name_is_defined_once() {
    let definition =
        Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait)\s+([A-Z]\w*)").expect("a valid pattern");
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for file in library_files() {
        for found in definition.captures_iter(&file.code) {
            let name = found.get(1).expect("the pattern has one group");
            let line = file.code[..name.start()].matches('\n').count() + 1;
            places.entry(name.as_str().to_owned()).or_default().push(format!("src/{}:{line}", file.path));
        }
    }
    places.retain(|_, places| places.len() > 1);
    let listed: BTreeSet<&str> = DEFINED_TWICE.iter().copied().collect();
    let new: Vec<_> = places.iter().filter(|(name, _)| !listed.contains(name.as_str())).collect();
    assert!(new.is_empty(), "defined more than once: {new:#?}");
    for name in listed.into_iter().filter(|name| !places.contains_key(*name)) {
        println!("`{name}` is defined once by now: remove it from DEFINED_TWICE");
    }
}
