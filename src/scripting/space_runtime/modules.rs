//! The modules that a program of a space can `require`: the built-in ones, then files beside the program, each dot a
//! directory, then the libraries of the space's owner, which the agent serves ([`super::owner_libraries`]).
//!
//! A file found beside the program is kept for as long as the program runs, so that all its requests see the same. The
//! owner's libraries change when the owner changes them.

use super::{
    owner_libraries::{LibrarySource, OwnerLibraries},
    source_file::{compile_module, read},
};
use crate::{
    model::{
        library::{Language, LibraryName},
        owner::Owner,
    },
    scripting::lua::{ModuleSource, Program},
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
};

/// The built-in modules, by name. No other module can have their names.
const BUILT_IN: &[(&str, &str)] = &[
    ("svc.methods", include_str!("../../../lua/svc/methods.lua")),
    ("svc.methods.schema", include_str!("../../../lua/svc/methods/schema.lua")),
];

/// The modules of one program.
pub struct SpaceModules {
    /// The directory of the program's file.
    directory: PathBuf,
    /// Built-in modules and files beside the program that were required before.
    kept: Mutex<HashMap<String, Program>>,
    owner_libraries: OwnerLibraries,
    /// The names that were last found among the owner's libraries.
    found_in_libraries: Mutex<HashSet<String>>,
}

impl SpaceModules {
    pub fn new(directory: PathBuf, source: Arc<dyn LibrarySource>) -> Self {
        Self {
            directory,
            kept: Mutex::default(),
            owner_libraries: OwnerLibraries::new(source),
            found_in_libraries: Mutex::default(),
        }
    }

    /// Keeps a program, unless another run was first: states may have loaded that one.
    fn keep(&self, name: &str, program: Program) -> Program {
        self.kept.lock().entry(name.to_owned()).or_insert(program).clone()
    }

    /// Compiles the first of these files that exists beside the program.
    fn find_file(&self, paths: &[String]) -> Result<Option<Program>, String> {
        for path in paths {
            let path = self.directory.join(path);
            let source = match read(&path) {
                Ok(source) => source,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(format!("{}: {error}", path.display())),
            };
            return compile_module(&path.display().to_string(), &source).map(Some);
        }
        Ok(None)
    }
}

impl ModuleSource for SpaceModules {
    fn find(&self, _: Owner, name: &str) -> Result<Option<Program>, String> {
        if let Some(program) = self.kept.lock().get(name) {
            return Ok(Some(program.clone()));
        }
        let Some(paths) = paths_of(name) else { return Ok(None) };
        if let Some((_, source)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Ok(Some(self.keep(name, compile_module(name, source)?)));
        }
        // A name found among the owner's libraries before is not looked up beside the program while it is still there.
        let was_in_libraries = self.found_in_libraries.lock().contains(name);
        if was_in_libraries && let Some(program) = self.owner_libraries.find(&paths)? {
            return Ok(Some(program));
        }
        if let Some(program) = self.find_file(&paths)? {
            return Ok(Some(self.keep(name, program)));
        }
        let found = match LibraryName::parse(name) {
            Ok(_) => self.owner_libraries.find(&paths)?,
            Err(_) => None,
        };
        match found {
            Some(_) => self.found_in_libraries.lock().insert(name.to_owned()),
            None => self.found_in_libraries.lock().remove(name),
        };
        Ok(found)
    }
}

/// The possible files of a module: `acme/text.lua` or `acme/text/init.lua` for `acme.text`. `None` if the name is
/// invalid.
fn paths_of(name: &str) -> Option<[String; 2]> {
    let is_word = |word: &str| !word.is_empty() && !word.contains(['/', '\\', '\0']);
    if !name.split('.').all(is_word) {
        return None;
    }
    let (path, extension) = (name.replace('.', "/"), Language::Lua.extension());
    Some([format!("{path}.{extension}"), format!("{path}/init.{extension}")])
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripting::space_runtime::AgentClient;
    use std::fs;
    use tempfile::TempDir;

    fn directory() -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("acme")).unwrap();
        directory
    }

    fn modules_in(directory: &TempDir) -> SpaceModules {
        SpaceModules::new(directory.path().to_owned(), Arc::new(AgentClient::new(None)))
    }

    #[test]
    fn a_dot_in_a_name_is_a_directory() {
        let paths = |name| paths_of(name).map(|paths| paths.join(" "));
        assert_eq!(paths("acme.text").unwrap(), "acme/text.lua acme/text/init.lua");
        for name in ["", ".", "..", "...secret", "a..b", "a/b", "../a", "a.", "a\0b"] {
            assert_eq!(paths(name), None, "{name}");
        }
    }

    #[test]
    fn a_file_beside_the_program_is_read_once() {
        let directory = directory();
        let modules = modules_in(&directory);
        assert!(modules.find(Owner::Global, "acme.text").unwrap().is_none());
        fs::write(directory.path().join("acme/text.lua"), "return 1").unwrap();
        let first = modules.find(Owner::Global, "acme.text").unwrap().unwrap();
        fs::write(directory.path().join("acme/text.lua"), "return 2").unwrap();
        let second = modules.find(Owner::Global, "acme.text").unwrap().unwrap();
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        fs::write(directory.path().join("acme/init.lua"), "return 3").unwrap();
        assert!(modules.find(Owner::Global, "acme").unwrap().is_some());
    }

    #[test]
    fn a_file_that_does_not_compile_is_an_error_with_its_line() {
        let directory = directory();
        fs::write(directory.path().join("bad.lua"), "local a = 1\nlocal b = = 2").unwrap();
        let error = modules_in(&directory).find(Owner::Global, "bad").unwrap_err();
        assert!(error.contains("bad.lua:2: ") && error.contains("'='"), "{error}");
        fs::write(directory.path().join("binary.lua"), [0xff, 0xfe]).unwrap();
        let error = modules_in(&directory).find(Owner::Global, "binary").unwrap_err();
        assert!(error.contains("binary.lua: stream did not contain valid UTF-8"), "{error}");
    }
}
