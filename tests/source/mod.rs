//! The source files as text, for the tests of its structure (`tests/layering.rs`, `tests/names.rs`).
//!
//! [`text`] removes comments, strings and test code, [`uses`] finds out which file uses which, [`circles`] finds the
//! circles among them. All of it works on text: the tests need no compiler internals, and the code that they read is
//! formatted by rustfmt.
#![allow(dead_code, reason = "each test binary uses only some of these items")]

pub mod circles;
pub mod text;
pub mod uses;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A module's path below the crate: `["model", "event"]` for `src/model/event.rs` and `src/model/event/mod.rs`.
pub type ModulePath = Vec<String>;

/// One file of `src`, without comments and the contents of strings.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The path below `src`, with `/`.
    pub path: String,
    pub module: ModulePath,
    pub code: String,
}

impl SourceFile {
    pub fn new(path: &str, text: &str) -> Self {
        let mut module: ModulePath = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        if module == ["lib"] {
            module.clear();
        }
        Self { path: path.to_owned(), module, code: text::without_comments_and_strings(text) }
    }

    /// True if the file is the map of its folder; `pub use` re-exports there and does not count as a use.
    pub fn is_map(&self) -> bool {
        self.path.ends_with("mod.rs")
    }
}

/// All files of `src` but `main.rs`. Those of `model/schema` are a crate of their own, which is judged as a folder.
pub fn library_files() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect_rust_files(&root, &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        let inside = path.strip_prefix(&root).expect("the file is below the root").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a source file is readable");
        (inside != "main.rs").then(|| SourceFile::new(&inside, &text))
    };
    paths.into_iter().filter_map(read).collect()
}

fn collect_rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the source directory is readable") {
        let path = entry.expect("its entries are readable").path();
        if path.is_dir() {
            collect_rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
