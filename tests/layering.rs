//! The structure of `src`: a folder uses only folders of lower levels, and the files inside a folder form no circle.
//!
//! `use` declarations and inline paths count, resolved through re-exports to the file that defines the item. A `mod`
//! or `pub use` line of a `mod.rs` is no use. Code behind `#[cfg(test)]` counts between folders, not inside one.

mod source;

use source::{
    circles::circles,
    library_files,
    uses::{Modules, TestCode, Use},
};
use std::collections::{BTreeMap, BTreeSet};

/// The folders of `src` from the lowest level up. Folders on one level do not use each other.
const LEVELS: &[&[&str]] = &[
    &["model"],
    &["platform"],
    &["identity"],
    &["calls", "routing"],
    &["scripting", "spaces"],
    &["delivery", "sources"],
    &["agent", "server"],
    &["cli"],
    &["fuzz_entry"],
];

#[test]
fn every_folder_is_on_exactly_one_level() {
    let folders: BTreeSet<_> = library_files().into_iter().filter_map(|file| file.module.first().cloned()).collect();
    let listed: Vec<_> = LEVELS.iter().copied().flatten().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a folder is listed twice");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), folders, "LEVELS on the left, src on the right");
}

#[test]
fn a_folder_uses_only_folders_of_lower_levels() {
    let modules = Modules::new(library_files(), TestCode::Included);
    let level = |folder: &str| LEVELS.iter().position(|level| level.contains(&folder));
    let is_upward = |found: &Use| found.from[0] != found.to[0] && level(&found.to[0]) >= level(&found.from[0]);
    let upward: Vec<_> = modules
        .uses()
        .into_iter()
        .filter(is_upward)
        .map(|found| format!("{} uses {} of {}", modules.path_of(&found.from), found.item, modules.path_of(&found.to)))
        .collect();
    assert!(upward.is_empty(), "upward uses:\n{}", upward.join("\n"));
}

#[test]
fn the_files_of_a_folder_form_no_circle() {
    let modules = Modules::new(library_files(), TestCode::Excluded);
    let mut graph = BTreeMap::<_, BTreeSet<_>>::new();
    let mut items = BTreeMap::<_, BTreeSet<_>>::new();
    for found in modules.uses().into_iter().filter(|found| found.from[0] == found.to[0]) {
        graph.entry(found.from.clone()).or_default().insert(found.to.clone());
        items.entry((found.from, found.to)).or_default().insert(found.item);
    }
    let describe = |circle: &Vec<_>| {
        let inside = items.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
        let lines = inside.map(|((from, to), items)| {
            let items = items.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("    {} uses {} ({items})\n", modules.path_of(from), modules.path_of(to))
        });
        format!("{} files:\n{}", circle.len(), lines.collect::<String>())
    };
    let circles: String = circles(&graph).iter().map(describe).collect();
    assert!(circles.is_empty(), "circles of {circles}");
}
