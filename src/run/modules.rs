//! Where `require` looks, for a program of a space: what comes with us, then beside the program, each dot a directory,
//! then in the libraries of the space's owner, which the agent hands out.
//!
//! What was found is kept for as long as the program runs, so that all its requests see the same.

use super::read;
use crate::{
    library::{Language, LibraryName},
    owner::Owner,
    script::{MAX_FILE, Modules, Program},
};
use std::{
    collections::HashMap,
    io::{self, Cursor, Read as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use zip::ZipArchive;

/// The most files that are taken from a package, and the most bytes of all of them.
const MAX_FILES: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;

/// The libraries that come with us, by name. No other can have their names.
const OURS: &[(&str, &str)] = &[
    ("svc.methods", include_str!("../../lua/svc/methods.lua")),
    ("svc.methods.schema", include_str!("../../lua/svc/methods/schema.lua")),
];

/// Who has the libraries of the space's owner.
pub trait Package: Send + Sync {
    /// All of them, as a zip archive; `None` if there is nothing to have. It is asked once for each program, on the thread
    /// of a run, and only if one of them is needed. The message of a failure is shown to the program.
    fn libraries(&self) -> Result<Option<Vec<u8>>, String>;
}

/// Everything that can be found.
pub struct Found {
    /// Where the program is.
    beside: PathBuf,
    source: Arc<dyn Package>,
    kept: Mutex<HashMap<String, Program>>,
    /// The sources of the owner's libraries by their paths, once they were fetched.
    package: Mutex<Option<HashMap<String, String>>>,
}

impl Found {
    pub fn new(beside: PathBuf, source: Arc<dyn Package>) -> Self {
        Self { beside, source, kept: Mutex::default(), package: Mutex::default() }
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

    /// The same among the libraries of the space's owner.
    fn packed(&self, paths: &[String]) -> Result<Option<Program>, String> {
        // Whoever needs it meanwhile waits here for the same.
        let mut package = lock(&self.package);
        if package.is_none() {
            *package = Some(match self.source.libraries()? {
                Some(archive) => unpacked(archive).map_err(|error| format!("the agent's libraries: {error}"))?,
                None => HashMap::new(),
            });
        }
        let package = package.as_ref().expect("it is there now");
        let found = paths.iter().find_map(|path| Some((path, package.get(path)?)));
        found.map(|(path, source)| compiled(path, source)).transpose()
    }
}

impl Modules for Found {
    fn find(&self, _: Owner, name: &str) -> Result<Option<Program>, String> {
        if let Some(program) = lock(&self.kept).get(name) {
            return Ok(Some(program.clone()));
        }
        let Some(paths) = paths_of(name) else { return Ok(None) };
        let found = if let Some((_, source)) = OURS.iter().find(|(ours, _)| *ours == name) {
            Some(compiled(name, source)?)
        } else if let Some(program) = self.beside(&paths)? {
            Some(program)
        } else if LibraryName::parse(name).is_ok() {
            self.packed(&paths)?
        } else {
            None
        };
        // Whoever was first has the program that states have loaded.
        Ok(found.map(|program| lock(&self.kept).entry(name.to_owned()).or_insert(program).clone()))
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

fn compiled(name: &str, source: &str) -> Result<Program, String> {
    Program::file(name, source).map_err(|error| format!("{name}:{}: {}", error.line, error.message))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

/// The Lua in a package.
fn unpacked(archive: Vec<u8>) -> io::Result<HashMap<String, String>> {
    let mut archive = ZipArchive::new(Cursor::new(archive))?;
    let too_much = || io::Error::other("there is more in them than is taken");
    if archive.len() > MAX_FILES {
        return Err(too_much());
    }
    let (mut sources, mut bytes) = (HashMap::new(), 0);
    for index in 0..archive.len() {
        let file = archive.by_index(index)?;
        let path = file.name()?.into_owned();
        if !path.ends_with(".lua") {
            continue;
        }
        let mut source = String::new();
        file.take(MAX_FILE as u64 + 1).read_to_string(&mut source)?;
        bytes += source.len();
        if bytes > MAX_BYTES {
            return Err(too_much());
        }
        sources.insert(path, source);
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::NearAgent;
    use std::{fs, io::Write as _};
    use zip::{ZipWriter, write::SimpleFileOptions};

    /// A directory that is gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("svc-run-{}", uuid::Uuid::now_v7()));
            fs::create_dir_all(path.join("acme")).unwrap();
            Self(path)
        }

        fn found(&self) -> Found {
            Found::new(self.0.clone(), Arc::new(NearAgent::new(None)))
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

    #[test]
    fn the_lua_of_a_package_is_read() {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (path, source) in [("acme/text.lua", "return 1"), ("acme/text.py", "x = 1")] {
            zip.start_file(path, SimpleFileOptions::default()).unwrap();
            zip.write_all(source.as_bytes()).unwrap();
        }
        let sources = unpacked(zip.finish().unwrap().into_inner()).unwrap();
        assert_eq!(sources, HashMap::from([("acme/text.lua".to_owned(), "return 1".to_owned())]));
        assert!(unpacked(b"no zip".to_vec()).is_err());
    }
}
