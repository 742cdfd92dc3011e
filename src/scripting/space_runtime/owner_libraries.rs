//! The libraries of the space's owner, fetched from the space's agent as a zip archive.
//!
//! They are fetched when one is first required. After that a run that requires one asks the agent from time to time
//! whether they have changed; other runs use the known ones meanwhile, and so does the asking run if no answer comes in
//! time. An unchanged library stays the same program, so that states that have loaded it need not load it again.

use super::source_file::compile_module;
use crate::scripting::lua::{MAX_SPACE_FILE, Program};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io::{self, Cursor, Read as _},
    sync::Arc,
    time::{Duration, Instant},
};
use zip::ZipArchive;

/// The time after an answer in which the agent is not asked again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The time after a failure in which the agent is not asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The timeout of the first fetch, without which there are no libraries.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a later fetch, for which a run waits although it has libraries.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// The most files, and the most bytes of their sources, that are read from an archive.
const MAX_FILES: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;

/// The source of the libraries of the space's owner.
pub trait LibrarySource: Send + Sync {
    /// Fetches all libraries, unless they are still those with the tag `known`.
    ///
    /// It is called on the thread of a run, and only if a library is required; an answer that takes longer than
    /// `timeout` is a failure. The message of a failure is shown to the program if nothing was fetched before.
    fn libraries(&self, known: Option<&str>, timeout: Duration) -> Result<FetchedLibraries, String>;
}

/// The answer of a [`LibrarySource`].
pub enum FetchedLibraries {
    /// The source has no libraries.
    Absent,
    /// The libraries have not changed.
    Unchanged,
    /// A zip archive, and the tag for the next request.
    Archive { bytes: Vec<u8>, tag: Option<String> },
}

/// The libraries that were fetched last.
pub struct OwnerLibraries {
    source: Arc<dyn LibrarySource>,
    intervals: RefreshIntervals,
    cache: Mutex<LibraryCache>,
    /// Held while the source is asked.
    fetching: Mutex<()>,
}

#[derive(Clone, Copy)]
struct RefreshIntervals {
    after_answer: Duration,
    after_failure: Duration,
}

#[derive(Default)]
struct LibraryCache {
    /// The time of the next fetch; `None` if there was no answer yet.
    due: Option<Instant>,
    tag: Option<String>,
    /// By path.
    libraries: HashMap<String, CachedLibrary>,
}

struct CachedLibrary {
    source: String,
    /// Compiled when it is first required.
    program: Option<Result<Program, String>>,
}

impl OwnerLibraries {
    pub fn new(source: Arc<dyn LibrarySource>) -> Self {
        Self::with_intervals(source, RefreshIntervals { after_answer: REFRESH_INTERVAL, after_failure: RETRY_INTERVAL })
    }

    fn with_intervals(source: Arc<dyn LibrarySource>, intervals: RefreshIntervals) -> Self {
        Self { source, intervals, cache: Mutex::default(), fetching: Mutex::default() }
    }

    /// The first of these files that exists, compiled.
    ///
    /// # Errors
    ///
    /// Fails if the file does not compile, or if nothing could be fetched yet.
    pub fn find(&self, paths: &[String]) -> Result<Option<Program>, String> {
        self.refresh()?;
        let mut cache = self.cache.lock();
        let Some(path) = paths.iter().find(|path| cache.libraries.contains_key(*path)) else { return Ok(None) };
        let library = cache.libraries.get_mut(path).expect("the path was found above");
        library.program.get_or_insert_with(|| compile_module(path, &library.source)).clone().map(Some)
    }

    /// Fetches the libraries if that is due.
    fn refresh(&self) -> Result<(), String> {
        let due = self.cache.lock().due;
        let _fetching = match due {
            Some(due) if Instant::now() < due => return Ok(()),
            // Another run is fetching; this one uses the known libraries meanwhile.
            Some(_) => match self.fetching.try_lock() {
                Some(fetching) => fetching,
                None => return Ok(()),
            },
            // Without any libraries, all runs wait for the first fetch.
            None => self.fetching.lock(),
        };
        let (known, due) = {
            let cache = self.cache.lock();
            (cache.tag.clone(), cache.due)
        };
        // Another run may have fetched them while this one waited for the lock.
        if due.is_some_and(|due| Instant::now() < due) {
            return Ok(());
        }
        let timeout = if due.is_some() { REFRESH_TIMEOUT } else { FIRST_TIMEOUT };
        let fetched = self.source.libraries(known.as_deref(), timeout).and_then(|fetched| match fetched {
            FetchedLibraries::Archive { bytes, tag } => match read_archive(bytes) {
                Ok(sources) => Ok(Some((sources, tag))),
                Err(error) => Err(format!("the agent's libraries: {error}")),
            },
            FetchedLibraries::Absent | FetchedLibraries::Unchanged => Ok(None),
        });
        let mut cache = self.cache.lock();
        match fetched {
            Ok(fetched) => {
                if let Some((sources, tag)) = fetched {
                    cache.replace(sources, tag);
                }
                cache.due = Some(Instant::now() + self.intervals.after_answer);
                Ok(())
            }
            Err(_) if due.is_some() => {
                cache.due = Some(Instant::now() + self.intervals.after_failure);
                Ok(())
            }
            Err(message) => Err(message),
        }
    }
}

impl LibraryCache {
    /// Replaces the libraries and keeps the programs of unchanged ones.
    fn replace(&mut self, sources: HashMap<String, String>, tag: Option<String>) {
        let mut before = std::mem::take(&mut self.libraries);
        let keep = |(path, source): (String, String)| {
            let kept = before.remove(&path).filter(|library| library.source == source);
            (path, kept.unwrap_or(CachedLibrary { source, program: None }))
        };
        self.libraries = sources.into_iter().map(keep).collect();
        self.tag = tag;
    }
}

/// Reads the Lua sources of an archive, by path.
fn read_archive(archive: Vec<u8>) -> io::Result<HashMap<String, String>> {
    let mut archive = ZipArchive::new(Cursor::new(archive))?;
    let too_much = || io::Error::other("they are more or larger than allowed");
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
        file.take(MAX_SPACE_FILE as u64 + 1).read_to_string(&mut source)?;
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
    use std::{collections::VecDeque, io::Write as _};
    use zip::{ZipWriter, write::SimpleFileOptions};

    const ALWAYS: RefreshIntervals = RefreshIntervals { after_answer: Duration::ZERO, after_failure: Duration::ZERO };
    const NEVER: RefreshIntervals =
        RefreshIntervals { after_answer: Duration::from_secs(3600), after_failure: Duration::from_secs(3600) };

    /// Gives the scripted answers and records the requests.
    #[derive(Default)]
    struct ScriptedSource {
        answers: Mutex<VecDeque<Result<FetchedLibraries, String>>>,
        requests: Mutex<Vec<(Option<String>, Duration)>>,
    }

    impl ScriptedSource {
        fn with(answers: impl IntoIterator<Item = Result<FetchedLibraries, String>>) -> Arc<Self> {
            Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), requests: Mutex::default() })
        }

        fn tags(&self) -> Vec<Option<String>> {
            self.requests.lock().iter().map(|(tag, _)| tag.clone()).collect()
        }
    }

    impl LibrarySource for ScriptedSource {
        fn libraries(&self, known: Option<&str>, timeout: Duration) -> Result<FetchedLibraries, String> {
            self.requests.lock().push((known.map(str::to_owned), timeout));
            self.answers.lock().pop_front().unwrap_or_else(|| Err("away".to_owned()))
        }
    }

    fn zip(files: &[(&str, &str)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (path, source) in files {
            zip.start_file(*path, SimpleFileOptions::default()).unwrap();
            zip.write_all(source.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn archive(tag: &str, files: &[(&str, &str)]) -> Result<FetchedLibraries, String> {
        Ok(FetchedLibraries::Archive { bytes: zip(files), tag: Some(tag.to_owned()) })
    }

    /// The identity of the program at a path.
    fn program_at(libraries: &OwnerLibraries, path: &str) -> Option<String> {
        libraries.find(&[path.to_owned()]).unwrap().map(|program| format!("{program:?}"))
    }

    #[test]
    fn only_changed_libraries_are_compiled_again() {
        let source = ScriptedSource::with([
            archive("1", &[("a.lua", "return 1"), ("b.lua", "return 1"), ("c.lua", "return 1")]),
            Ok(FetchedLibraries::Unchanged),
            Ok(FetchedLibraries::Unchanged),
            archive("2", &[("a.lua", "return 1"), ("b.lua", "return 2")]),
            Ok(FetchedLibraries::Unchanged),
            Ok(FetchedLibraries::Unchanged),
        ]);
        let libraries = OwnerLibraries::with_intervals(source.clone(), ALWAYS);
        let before = ["a.lua", "b.lua", "c.lua"].map(|path| program_at(&libraries, path));
        let after = ["a.lua", "b.lua", "c.lua"].map(|path| program_at(&libraries, path));
        assert!(before.iter().all(Option::is_some));
        assert_eq!(before[0], after[0]);
        assert_ne!(before[1], after[1]);
        assert!(after[1].is_some() && after[2].is_none());
        let tags = [None, Some("1"), Some("1"), Some("1"), Some("2"), Some("2")];
        assert_eq!(source.tags(), tags.map(|tag| tag.map(str::to_owned)));
    }

    #[test]
    fn while_the_agent_fails_the_known_libraries_are_used() {
        let broken = Ok(FetchedLibraries::Archive { bytes: b"no zip".to_vec(), tag: Some("2".to_owned()) });
        let first = archive("1", &[("a.lua", "return 1")]);
        let source = ScriptedSource::with([
            Err("away".to_owned()),
            first,
            Err("away".to_owned()),
            broken,
            Ok(FetchedLibraries::Absent),
        ]);
        let libraries = OwnerLibraries::with_intervals(source.clone(), ALWAYS);
        assert_eq!(libraries.find(&["a.lua".to_owned()]).unwrap_err(), "away", "there is nothing yet");
        let before = program_at(&libraries, "a.lua");
        assert!(before.is_some());
        for _ in 0..4 {
            assert_eq!(program_at(&libraries, "a.lua"), before);
        }
        assert_eq!(source.tags()[2..], [(); 4].map(|()| Some("1".to_owned())));
        let timeouts: Vec<Duration> = source.requests.lock().iter().map(|(_, timeout)| *timeout).collect();
        assert_eq!(
            timeouts,
            [FIRST_TIMEOUT, FIRST_TIMEOUT, REFRESH_TIMEOUT, REFRESH_TIMEOUT, REFRESH_TIMEOUT, REFRESH_TIMEOUT]
        );
    }

    #[test]
    fn the_agent_is_not_asked_again_too_soon_or_twice_at_once() {
        let source = ScriptedSource::with([archive("1", &[("a.lua", "return 1")])]);
        let libraries = OwnerLibraries::with_intervals(source.clone(), NEVER);
        assert!(program_at(&libraries, "a.lua").is_some() && program_at(&libraries, "a.lua").is_some());
        assert_eq!(source.tags().len(), 1);
        libraries.cache.lock().due = Some(Instant::now());
        let fetching = libraries.fetching.lock();
        assert!(program_at(&libraries, "a.lua").is_some());
        assert_eq!(source.tags().len(), 1);
        drop(fetching);
        assert!(program_at(&libraries, "a.lua").is_some() && program_at(&libraries, "a.lua").is_some());
        assert_eq!(source.tags().len(), 2, "the agent failed and is not asked again yet");
    }

    #[test]
    fn only_the_lua_of_an_archive_is_read() {
        let sources = read_archive(zip(&[("acme/text.lua", "return 1"), ("acme/text.py", "x = 1")])).unwrap();
        assert_eq!(sources, HashMap::from([("acme/text.lua".to_owned(), "return 1".to_owned())]));
        assert!(read_archive(b"no zip".to_vec()).is_err());
    }
}
