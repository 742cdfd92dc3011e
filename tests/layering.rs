//! Structure that a machine checks: a folder uses only folders of lower levels.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The folders of `src`, from the ground up. Folders on one level do not use each other.
const LEVELS: &[&[&str]] = &[
    &["model"],
    &["platform"],
    &["identity"],
    &["calls", "routing"],
    &["scripting", "spaces"],
    &["delivery"],
    &["agent", "server"],
    &["cli"],
];

#[test]
fn a_folder_uses_only_folders_of_lower_levels() {
    let levels: BTreeMap<&str, usize> =
        LEVELS.iter().enumerate().flat_map(|(level, names)| names.iter().map(move |name| (*name, level))).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut upward = Vec::new();
    for file in rust_files(&source) {
        let inside = file.strip_prefix(&source).expect("it was found below the source");
        let first = inside.components().next().expect("a file has a name").as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let level = *levels.get(module).unwrap_or_else(|| panic!("`{module}` is on no level: add it in LEVELS"));
        for used in used_modules(&fs::read_to_string(&file).expect("a source file is readable")) {
            match levels.get(used.as_str()) {
                Some(other) if used == module || *other < level => {}
                Some(_) => upward.push(format!("{} uses crate::{used}", inside.display())),
                None => upward.push(format!("{} uses crate::{used}, which is on no level", inside.display())),
            }
        }
    }
    assert!(upward.is_empty(), "upward uses:\n{}", upward.join("\n"));
}

#[test]
fn every_level_names_folders_that_exist() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for name in LEVELS.iter().copied().flatten() {
        let exists = source.join(format!("{name}.rs")).exists() || source.join(name).join("mod.rs").exists();
        assert!(exists, "`{name}` is on a level but not in src");
    }
}

#[test]
fn grouped_nested_and_inline_uses_are_all_seen() {
    let text = "use crate::{\n    audit::{self, Audit},\n    id::{EventId, SinkId},\n};\nfn f() { crate::sink::x(); }\n\
                // crate::cli in a comment\n/// [`crate::daemon`]\npub use crate::queue;";
    assert_eq!(used_modules(text), ["audit", "id", "queue", "sink"]);
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("the source directory is readable") {
        let path = entry.expect("its entries are readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The modules named directly after `crate::`, in groups too; comments do not count.
fn used_modules(text: &str) -> Vec<String> {
    let code: String =
        text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => found.push(first_name(rest)),
            Some(group) => found.extend(group_heads(group)),
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The first name of each entry of a `{…}` group, up to its closing brace.
fn group_heads(group: &str) -> Vec<String> {
    let (mut heads, mut depth, mut start) = (Vec::new(), 0, true);
    for (at, found) in group.char_indices() {
        match found {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                heads.push(first_name(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    heads
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}
