//! The libraries of the space's owner, as a program of the space has them from its agent.
//!
//! They are fetched when one is first needed. After that the agent is asked now and then whether they have changed, by
//! whoever requires one; everybody else goes on with what there is, and so does the asker if no answer comes in time.
//! What has not changed stays the program it was, so that states that have loaded it need not load it again.

use super::modules::{compiled, lock};
use crate::scripting::lua::{MAX_SPACE_FILE, Program};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io::{self, Cursor, Read as _},
    sync::Arc,
    time::{Duration, Instant},
};
use zip::ZipArchive;

/// How old what is known may be. After an agent gave no answer, it is left alone for longer.
const FRESH: Duration = Duration::from_secs(1);
const AWAY: Duration = Duration::from_secs(5);

/// How long the first answer may take, and how long a later one, since a run waits for it.
const FIRST: Duration = Duration::from_secs(10);
const LATER: Duration = Duration::from_secs(2);

/// The most files that are taken from a package, and the most bytes of all of them.
const MAX_FILES: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;

/// Who has the libraries of the space's owner.
pub trait LibrarySource: Send + Sync {
    /// All of them, unless they are still those with the tag `known`. It is asked on the thread of a run, and only if
    /// one of them is needed; an answer that takes longer than `limit` is a failure. The message of a failure is shown
    /// to the program if it is the first.
    fn libraries(&self, known: Option<&str>, limit: Duration) -> Result<FetchedLibraries, String>;
}

/// What an agent says of its libraries.
pub enum FetchedLibraries {
    /// There is nothing to have.
    Absent,
    /// They have not changed.
    Unchanged,
    /// A zip archive, and the tag to ask with next time.
    Archive { bytes: Vec<u8>, tag: Option<String> },
}

/// What was fetched.
pub struct Packed {
    source: Arc<dyn LibrarySource>,
    pace: Pace,
    state: Mutex<State>,
    /// Held while the agent is asked.
    asking: Mutex<()>,
}

/// When to ask again.
#[derive(Clone, Copy)]
struct Pace {
    fresh: Duration,
    away: Duration,
}

#[derive(Default)]
struct State {
    /// When to ask again; `None` if nobody has answered yet.
    due: Option<Instant>,
    tag: Option<String>,
    /// By their paths.
    libraries: HashMap<String, Library>,
}

struct Library {
    source: String,
    /// Compiled when it is first needed.
    program: Option<Result<Program, String>>,
}

impl Packed {
    pub fn new(source: Arc<dyn LibrarySource>) -> Self {
        Self::paced(source, Pace { fresh: FRESH, away: AWAY })
    }

    fn paced(source: Arc<dyn LibrarySource>, pace: Pace) -> Self {
        Self { source, pace, state: Mutex::default(), asking: Mutex::default() }
    }

    /// The first of these files that there is.
    ///
    /// # Errors
    ///
    /// Fails if it does not compile, or if nothing could be fetched yet.
    pub fn find(&self, paths: &[String]) -> Result<Option<Program>, String> {
        self.refresh()?;
        let mut state = lock(&self.state);
        let Some(path) = paths.iter().find(|path| state.libraries.contains_key(*path)) else { return Ok(None) };
        let library = state.libraries.get_mut(path).expect("it was just there");
        library.program.get_or_insert_with(|| compiled(path, &library.source)).clone().map(Some)
    }

    fn refresh(&self) -> Result<(), String> {
        let due = lock(&self.state).due;
        let _asking = match due {
            Some(due) if Instant::now() < due => return Ok(()),
            // Somebody asks already, and what there is will do meanwhile.
            Some(_) => match self.asking.try_lock() {
                Some(asking) => asking,
                None => return Ok(()),
            },
            // Without anything, everybody waits for the same.
            None => lock(&self.asking),
        };
        let (known, due) = {
            let state = lock(&self.state);
            (state.tag.clone(), state.due)
        };
        // It may have been asked while this one waited.
        if due.is_some_and(|due| Instant::now() < due) {
            return Ok(());
        }
        let limit = if due.is_some() { LATER } else { FIRST };
        let supplied = self.source.libraries(known.as_deref(), limit).and_then(|supply| match supply {
            FetchedLibraries::Archive { bytes, tag } => match unpacked(bytes) {
                Ok(sources) => Ok(Some((sources, tag))),
                Err(error) => Err(format!("the agent's libraries: {error}")),
            },
            FetchedLibraries::Absent | FetchedLibraries::Unchanged => Ok(None),
        });
        let mut state = lock(&self.state);
        match supplied {
            Ok(supplied) => {
                if let Some((sources, tag)) = supplied {
                    state.replace(sources, tag);
                }
                state.due = Some(Instant::now() + self.pace.fresh);
                Ok(())
            }
            Err(_) if due.is_some() => {
                state.due = Some(Instant::now() + self.pace.away);
                Ok(())
            }
            Err(message) => Err(message),
        }
    }
}

impl State {
    fn replace(&mut self, sources: HashMap<String, String>, tag: Option<String>) {
        let mut before = std::mem::take(&mut self.libraries);
        let keep = |(path, source): (String, String)| {
            let kept = before.remove(&path).filter(|library| library.source == source);
            (path, kept.unwrap_or(Library { source, program: None }))
        };
        self.libraries = sources.into_iter().map(keep).collect();
        self.tag = tag;
    }
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

    const ALWAYS: Pace = Pace { fresh: Duration::ZERO, away: Duration::ZERO };
    const NEVER: Pace = Pace { fresh: Duration::from_secs(3600), away: Duration::from_secs(3600) };

    /// Gives these answers, and notes the tags it is asked with.
    #[derive(Default)]
    struct Agent {
        answers: Mutex<VecDeque<Result<FetchedLibraries, String>>>,
        asked: Mutex<Vec<(Option<String>, Duration)>>,
    }

    impl Agent {
        fn with(answers: impl IntoIterator<Item = Result<FetchedLibraries, String>>) -> Arc<Self> {
            Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
        }

        fn asked(&self) -> Vec<Option<String>> {
            lock(&self.asked).iter().map(|(tag, _)| tag.clone()).collect()
        }
    }

    impl LibrarySource for Agent {
        fn libraries(&self, known: Option<&str>, limit: Duration) -> Result<FetchedLibraries, String> {
            lock(&self.asked).push((known.map(str::to_owned), limit));
            lock(&self.answers).pop_front().unwrap_or_else(|| Err("away".to_owned()))
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

    /// What tells the program from every other.
    fn found(packed: &Packed, path: &str) -> Option<String> {
        packed.find(&[path.to_owned()]).unwrap().map(|program| format!("{program:?}"))
    }

    #[test]
    fn only_what_changed_is_compiled_again() {
        let agent = Agent::with([
            archive("1", &[("a.lua", "return 1"), ("b.lua", "return 1"), ("c.lua", "return 1")]),
            Ok(FetchedLibraries::Unchanged),
            Ok(FetchedLibraries::Unchanged),
            archive("2", &[("a.lua", "return 1"), ("b.lua", "return 2")]),
            Ok(FetchedLibraries::Unchanged),
            Ok(FetchedLibraries::Unchanged),
        ]);
        let packed = Packed::paced(agent.clone(), ALWAYS);
        let before = ["a.lua", "b.lua", "c.lua"].map(|path| found(&packed, path));
        let after = ["a.lua", "b.lua", "c.lua"].map(|path| found(&packed, path));
        assert!(before.iter().all(Option::is_some));
        assert_eq!(before[0], after[0]);
        assert_ne!(before[1], after[1]);
        assert!(after[1].is_some() && after[2].is_none());
        let tags = [None, Some("1"), Some("1"), Some("1"), Some("2"), Some("2")];
        assert_eq!(agent.asked(), tags.map(|tag| tag.map(str::to_owned)));
    }

    #[test]
    fn while_the_agent_is_away_what_there_was_is_used() {
        let broken = Ok(FetchedLibraries::Archive { bytes: b"no zip".to_vec(), tag: Some("2".to_owned()) });
        let first = archive("1", &[("a.lua", "return 1")]);
        let agent =
            Agent::with([Err("away".to_owned()), first, Err("away".to_owned()), broken, Ok(FetchedLibraries::Absent)]);
        let packed = Packed::paced(agent.clone(), ALWAYS);
        assert_eq!(packed.find(&["a.lua".to_owned()]).unwrap_err(), "away", "there is nothing yet");
        let before = found(&packed, "a.lua");
        assert!(before.is_some());
        for _ in 0..4 {
            assert_eq!(found(&packed, "a.lua"), before);
        }
        assert_eq!(agent.asked()[2..], [(); 4].map(|()| Some("1".to_owned())));
        let limits: Vec<Duration> = lock(&agent.asked).iter().map(|(_, limit)| *limit).collect();
        assert_eq!(limits, [FIRST, FIRST, LATER, LATER, LATER, LATER]);
    }

    #[test]
    fn nobody_asks_again_soon_or_while_another_does() {
        let agent = Agent::with([archive("1", &[("a.lua", "return 1")])]);
        let packed = Packed::paced(agent.clone(), NEVER);
        assert!(found(&packed, "a.lua").is_some() && found(&packed, "a.lua").is_some());
        assert_eq!(agent.asked().len(), 1);
        lock(&packed.state).due = Some(Instant::now());
        let asking = lock(&packed.asking);
        assert!(found(&packed, "a.lua").is_some());
        assert_eq!(agent.asked().len(), 1);
        drop(asking);
        assert!(found(&packed, "a.lua").is_some() && found(&packed, "a.lua").is_some());
        assert_eq!(agent.asked().len(), 2, "the agent is away, and left alone");
    }

    #[test]
    fn the_lua_of_a_package_is_read() {
        let sources = unpacked(zip(&[("acme/text.lua", "return 1"), ("acme/text.py", "x = 1")])).unwrap();
        assert_eq!(sources, HashMap::from([("acme/text.lua".to_owned(), "return 1".to_owned())]));
        assert!(unpacked(b"no zip".to_vec()).is_err());
    }
}
