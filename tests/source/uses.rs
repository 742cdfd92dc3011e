//! Finds out which file uses which: `use` declarations and inline paths, resolved through re-exports to the file that
//! defines the item.

use super::{ModulePath, SourceFile, text};
use regex::Regex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// The folder that is a crate of its own.
const SCHEMA_CRATE: [&str; 2] = ["model", "schema"];

/// The treatment of code behind `#[cfg(test)]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestCode {
    Included,
    Excluded,
}

/// One file's use of an item that another file defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub from: ModulePath,
    pub to: ModulePath,
    /// The last name of the path.
    pub item: String,
}

/// One leaf of a `use` declaration: `crate::a::{b as c}` is the path `crate a b` under the name `c`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// The modules of a crate with their imports and definitions.
pub struct Modules {
    modules: BTreeMap<ModulePath, Module>,
}

struct Module {
    file: SourceFile,
    imports: Vec<Import>,
    definitions: BTreeSet<String>,
}

/// The file that a path leads to.
struct Resolved {
    module: ModulePath,
    /// True if the path names the module itself and not an item of it.
    is_module: bool,
}

static USE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]*);").expect("a valid pattern"));
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:struct|enum|trait|fn|const|static|type|union|macro_rules!)\s+(\w+)").expect("a valid pattern")
});
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(^|[^\w:.])(\w+(?:::\w+)+)").expect("a valid pattern"));

impl Modules {
    pub fn new(files: Vec<SourceFile>, tests: TestCode) -> Self {
        let test_modules: Vec<ModulePath> = files
            .iter()
            .flat_map(|file| {
                let names = text::test_modules(&file.code).into_iter();
                names.map(|name| [&file.module[..], &[name]].concat())
            })
            .collect();
        let is_test_file = |module: &ModulePath| test_modules.iter().any(|test| module.starts_with(test));
        let counted = |file: &&SourceFile| tests == TestCode::Included || !is_test_file(&file.module);
        let modules = files.iter().filter(counted).map(|file| {
            let mut file = file.clone();
            if tests == TestCode::Excluded {
                file.code = text::without_tests(&file.code);
            }
            let imports = imports(&file.code);
            let definitions = DEFINITION.captures_iter(&file.code).map(|found| found[1].to_owned()).collect();
            (file.module.clone(), Module { file, imports, definitions })
        });
        Self { modules: modules.collect() }
    }

    pub fn path_of(&self, module: &ModulePath) -> &str {
        &self.modules[module].file.path
    }

    /// All uses of one file by another. The crate's root only lists the folders and is left out.
    pub fn uses(&self) -> BTreeSet<Use> {
        let files = self.modules.iter().filter(|(module, _)| !module.is_empty());
        files.flat_map(|(from, module)| self.uses_of(from, module)).collect()
    }

    fn uses_of(&self, from: &ModulePath, module: &Module) -> Vec<Use> {
        let mut uses = Vec::new();
        let mut add = |to: Resolved, item: &str| {
            if to.module != *from && !to.module.is_empty() {
                uses.push(Use { from: from.clone(), to: to.module, item: item.to_owned() });
            }
        };
        // Modules that this file imports, so that a path may begin with their name.
        let mut imported = BTreeMap::new();
        for import in &module.imports {
            let Some(path) = self.absolute(from, &import.path) else { continue };
            let resolved = self.resolve(&path, &mut BTreeSet::new());
            if resolved.is_module {
                imported.insert(import.name.clone(), resolved.module);
            } else if !(import.is_public && module.file.is_map()) {
                add(resolved, &import.name);
            }
        }
        for found in PATH.captures_iter(&USE.replace_all(&module.file.code, "")) {
            let names: Vec<String> = found[2].split("::").map(str::to_owned).collect();
            let path = match (self.absolute(from, &names), imported.get(&names[0])) {
                (Some(path), _) => path,
                (None, Some(module)) => [&module[..], &names[1..]].concat(),
                (None, None) => continue,
            };
            add(self.resolve(&path, &mut BTreeSet::new()), names.last().map_or("", String::as_str));
        }
        uses
    }

    /// A path from the crate's root; none if it leads to another crate or begins with an imported name.
    fn absolute(&self, from: &ModulePath, path: &[String]) -> Option<Vec<String>> {
        match path.first()?.as_str() {
            "crate" => {
                let root = if from.starts_with(&SCHEMA_CRATE.map(str::to_owned)) { &SCHEMA_CRATE[..] } else { &[] };
                Some(root.iter().map(|name| (*name).to_owned()).chain(path[1..].iter().cloned()).collect())
            }
            "self" | "super" => {
                let relative = path.iter().take_while(|name| ["self", "super"].contains(&name.as_str()));
                let (leading, up) =
                    relative.fold((0, 0), |(all, up), name| (all + 1, up + usize::from(name == "super")));
                let base = &from[..from.len().saturating_sub(up)];
                Some([base, &path[leading..]].concat())
            }
            child => {
                let inside = [&from[..], &[child.to_owned()]].concat();
                self.modules.contains_key(&inside).then(|| [&from[..], path].concat())
            }
        }
    }

    /// The module that defines a path's item, through re-exports. `seen` stops at imports that lead to each other.
    fn resolve(&self, path: &[String], seen: &mut BTreeSet<(ModulePath, String)>) -> Resolved {
        let path: Vec<String> = path.iter().filter(|name| *name != "self").cloned().collect();
        let known = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]));
        let module: ModulePath = path[..known.unwrap_or(0)].to_vec();
        let Some(item) = path.get(module.len()) else { return Resolved { module, is_module: true } };
        let Some(found) = self.modules.get(&module) else { return Resolved { module, is_module: false } };
        if found.definitions.contains(item) {
            return Resolved { module, is_module: false };
        }
        for import in &found.imports {
            let is_glob = import.path.last().is_some_and(|last| last == "*");
            if import.name != *item && !is_glob {
                continue;
            }
            let Some(mut target) = self.absolute(&module, &import.path) else { continue };
            if is_glob {
                target.pop();
                let globbed = self.resolve(&target, seen);
                if self.modules.get(&globbed.module).is_some_and(|module| module.definitions.contains(item)) {
                    return Resolved { is_module: false, ..globbed };
                }
            } else if seen.insert((module.clone(), item.clone())) {
                target.extend_from_slice(&path[module.len() + 1..]);
                return self.resolve(&target, seen);
            }
        }
        Resolved { module, is_module: false }
    }
}

fn imports(code: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for found in USE.captures_iter(code) {
        let is_public = found.get(1).is_some();
        let leaves = use_leaves(&found[2]);
        imports.extend(leaves.into_iter().map(|(path, name)| Import { path, name, is_public }));
    }
    imports
}

/// The leaves of a use tree, each with the name it is imported under.
fn use_leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let prefix: Vec<String> = names(prefix);
        let group = group.trim_end().trim_end_matches('}');
        let leaves = split_at_commas(group).into_iter().flat_map(use_leaves);
        return leaves
            .map(|(path, name)| match path.as_slice() {
                [only] if only == "self" => {
                    let name = if name == "self" { prefix.last().cloned().unwrap_or_default() } else { name };
                    (prefix.clone(), name)
                }
                _ => ([&prefix[..], &path].concat(), name),
            })
            .collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let path = names(path);
    let last = path.last().cloned();
    last.map(|last| (path, alias.map_or(last, str::to_owned))).into_iter().collect()
}

fn names(path: &str) -> Vec<String> {
    path.split("::")
        .map(|name| name.trim().trim_start_matches("r#"))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Splits at the commas that are in no inner group.
fn split_at_commas(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, found) in group.char_indices() {
        match found {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(&str, &str)], tests: TestCode) -> Vec<String> {
        let files = files.iter().map(|(path, text)| SourceFile::new(path, text)).collect();
        let uses = Modules::new(files, tests).uses();
        uses.into_iter()
            .map(|found| format!("{} {} {}", found.from.join("/"), found.to.join("/"), found.item))
            .collect()
    }

    #[test]
    fn nested_groups_aliases_and_self_are_taken_apart() {
        let leaf = |path: &str, name: &str| (names(path), name.to_owned());
        assert_eq!(
            use_leaves("crate::{\n    a::{self, B as C},\n    d::*,\n    e,\n}"),
            [leaf("crate::a", "a"), leaf("crate::a::B", "C"), leaf("crate::d::*", "*"), leaf("crate::e", "e")]
        );
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "pub mod low; pub mod high;"),
            ("low/mod.rs", "mod part;\npub use part::{Thing, other as renamed};"),
            ("low/part.rs", "pub struct Thing; pub fn other() {}"),
            ("high/mod.rs", "use crate::low::{self, Thing};\nfn f() { low::renamed(); }"),
        ];
        assert_eq!(uses(&files, TestCode::Excluded), ["high low/part Thing", "high low/part renamed"]);
    }

    #[test]
    fn paths_of_siblings_children_and_parents_are_found() {
        let files = [
            ("lib.rs", "pub mod a;"),
            ("a/mod.rs", "mod b;\nmod c;\nfn root() { b::run() }"),
            ("a/b.rs", "pub fn run() { super::c::walk(); super::root(); std::mem::take(x); }"),
            ("a/c.rs", "use super::b as neighbor;\npub fn walk() { neighbor::run() }"),
        ];
        let expected = ["a a/b run", "a/b a root", "a/b a/c walk", "a/c a/b run"];
        assert_eq!(uses(&files, TestCode::Excluded), expected);
    }

    #[test]
    fn test_code_counts_only_if_it_is_asked_for() {
        let files = [
            ("lib.rs", "pub mod a; pub mod b;"),
            ("a.rs", "#[cfg(test)]\nmod fake;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
            ("a/fake.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B;"),
        ];
        assert_eq!(uses(&files, TestCode::Excluded), [""; 0]);
        assert_eq!(uses(&files, TestCode::Included), ["a b B", "a/fake b B"]);
    }
}
