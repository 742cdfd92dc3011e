//! Where `require` looks, for a program of a space: what comes with us, then beside the program, each dot a directory,
//! then in the libraries of the space's owner, which the agent hands out ([`super::packages`]).
//!
//! What was found beside the program is kept for as long as it runs, so that all its requests see the same. The owner's
//! libraries change when the owner changes them.

use super::{
    packages::{LibrarySource, Packed},
    read,
};
use crate::{
    model::{
        library::{Language, LibraryName},
        owner::Owner,
    },
    scripting::lua::{ModuleSource, Program},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
};

/// The libraries that come with us, by name. No other can have their names.
const OURS: &[(&str, &str)] = &[
    ("svc.methods", include_str!("../../../lua/svc/methods.lua")),
    ("svc.methods.schema", include_str!("../../../lua/svc/methods/schema.lua")),
];

/// Everything that can be found.
pub struct SpaceModules {
    /// Where the program is.
    beside: PathBuf,
    kept: Mutex<HashMap<String, Program>>,
    /// The libraries of the owner, and which names were last found there.
    packed: Packed,
    theirs: Mutex<HashSet<String>>,
}

impl SpaceModules {
    pub fn new(beside: PathBuf, source: Arc<dyn LibrarySource>) -> Self {
        Self { beside, kept: Mutex::default(), packed: Packed::new(source), theirs: Mutex::default() }
    }

    /// Whoever was first has the program that states have loaded.
    fn keep(&self, name: &str, program: Program) -> Program {
        lock(&self.kept).entry(name.to_owned()).or_insert(program).clone()
    }

    /// The first of the files that a name may mean, if there is one beside the program.
    fn beside(&self, paths: &[String]) -> Result<Option<Program>, String> {
        for path in paths {
            let path = self.beside.join(path);
            let source = match read(&path) {
                Ok(source) => source,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(format!("{}: {error}", path.display())),
            };
            return compiled(&path.display().to_string(), &source).map(Some);
        }
        Ok(None)
    }
}

impl ModuleSource for SpaceModules {
    fn find(&self, _: Owner, name: &str) -> Result<Option<Program>, String> {
        if let Some(program) = lock(&self.kept).get(name) {
            return Ok(Some(program.clone()));
        }
        let Some(paths) = paths_of(name) else { return Ok(None) };
        if let Some((_, source)) = OURS.iter().find(|(ours, _)| *ours == name) {
            return Ok(Some(self.keep(name, compiled(name, source)?)));
        }
        // What was a library of the owner is not looked for beside the program as long as it is one.
        let was_theirs = lock(&self.theirs).contains(name);
        if was_theirs && let Some(program) = self.packed.find(&paths)? {
            return Ok(Some(program));
        }
        if let Some(program) = self.beside(&paths)? {
            return Ok(Some(self.keep(name, program)));
        }
        let found = match LibraryName::parse(name) {
            Ok(_) => self.packed.find(&paths)?,
            Err(_) => None,
        };
        match found {
            Some(_) => lock(&self.theirs).insert(name.to_owned()),
            None => lock(&self.theirs).remove(name),
        };
        Ok(found)
    }
}

/// The files that a name may mean: `acme.text` is `acme/text.lua` or `acme/text/init.lua`. `None` if it is no name.
fn paths_of(name: &str) -> Option<[String; 2]> {
    let is_word = |word: &str| !word.is_empty() && !word.contains(['/', '\\', '\0']);
    if !name.split('.').all(is_word) {
        return None;
    }
    let (path, extension) = (name.replace('.', "/"), Language::Lua.extension());
    Some([format!("{path}.{extension}"), format!("{path}/init.{extension}")])
}

pub fn compiled(name: &str, source: &str) -> Result<Program, String> {
    Program::space_module(name, source).map_err(|error| format!("{name}:{}: {}", error.line, error.message))
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripting::space_runtime::AgentClient;
    use std::fs;

    /// A directory that is gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("svc-run-{}", uuid::Uuid::now_v7()));
            fs::create_dir_all(path.join("acme")).unwrap();
            Self(path)
        }

        fn found(&self) -> SpaceModules {
            SpaceModules::new(self.0.clone(), Arc::new(AgentClient::new(None)))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn dots_are_directories() {
        let paths = |name| paths_of(name).map(|paths| paths.join(" "));
        assert_eq!(paths("acme.text").unwrap(), "acme/text.lua acme/text/init.lua");
        for name in ["", ".", "..", "...secret", "a..b", "a/b", "../a", "a.", "a\0b"] {
            assert_eq!(paths(name), None, "{name}");
        }
    }

    #[test]
    fn a_file_beside_the_program_is_found_once() {
        let scratch = Scratch::new();
        let found = scratch.found();
        assert!(found.find(Owner::Global, "acme.text").unwrap().is_none());
        fs::write(scratch.0.join("acme/text.lua"), "return 1").unwrap();
        let first = found.find(Owner::Global, "acme.text").unwrap().unwrap();
        fs::write(scratch.0.join("acme/text.lua"), "return 2").unwrap();
        let second = found.find(Owner::Global, "acme.text").unwrap().unwrap();
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        fs::write(scratch.0.join("acme/init.lua"), "return 3").unwrap();
        assert!(found.find(Owner::Global, "acme").unwrap().is_some());
    }

    #[test]
    fn a_file_that_does_not_compile_is_told_with_its_line() {
        let scratch = Scratch::new();
        fs::write(scratch.0.join("bad.lua"), "local a = 1\nlocal b = = 2").unwrap();
        let error = scratch.found().find(Owner::Global, "bad").unwrap_err();
        assert!(error.contains("bad.lua:2: ") && error.contains("'='"), "{error}");
        fs::write(scratch.0.join("binary.lua"), [0xff, 0xfe]).unwrap();
        let error = scratch.found().find(Owner::Global, "binary").unwrap_err();
        assert!(error.contains("binary.lua: stream did not contain valid UTF-8"), "{error}");
    }
}
