//! One name, one meaning: a struct, enum or trait name is defined once in the whole crate, test code included.

mod source;

use regex::Regex;
use source::library_files;
use std::collections::BTreeMap;

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
    assert!(places.is_empty(), "defined more than once: {places:#?}");
}
