//! The user's event spool: events that are being sent or that no server took for now, in `$XDG_STATE_HOME/svc/events`
//! (`~/.local/state/svc/events`).
//!
//! Each event is a file of its own, named by its number and by the receiver it is for, so that the events of one
//! receiver are found in order without being opened. Locks make it safe with concurrent commands: `append.lock` is held
//! while a file is added or the files are listed, the `send-….lock` of a receiver while its events are sent. A sender
//! that finds nothing left lets go of its lock before `append.lock`: an event that is added later finds nobody sending,
//! and is sent by its own command.
//!
//! An event keeps its id, so one that is sent twice, after a crash between the answer and the deletion, is stored once.

use super::receiver::SpoolKey;
use crate::{
    cli::failure::Failure,
    model::{event::EventType, id::EventId, timestamp::Timestamp},
    platform::backoff::Backoff,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The most events that are kept, for all receivers, and the most bytes.
const MAX_EVENTS: usize = 10_000;
const MAX_BYTES: u64 = 64 << 20;

/// The most refused events that are set aside; the oldest are deleted.
const MAX_REFUSED: usize = 100;

/// The longest wait for another command that sends.
const PATIENCE: Duration = Duration::from_secs(30);

const WAITING: &str = "json";
const REFUSED: &str = "refused";
const DRAFT: &str = "draft";

/// The spool's directory.
pub struct EventSpool {
    directory: PathBuf,
}

/// One event, as its file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptEvent {
    /// The address of its receiver, for people.
    pub to: String,
    pub id: EventId,
    /// The type as the user wrote it, without `custom.`.
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: Box<RawValue>,
    /// The time of the command, for people: the server stamps the event when it accepts it.
    pub raised_at: Timestamp,
}

/// The end of a flush before the spool is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlushEnd {
    /// The event of the command itself, which is not kept if the receiver refuses it for now.
    pub own: Option<EventId>,
    /// The time after which nothing more is sent. The rest stays in the spool.
    pub until: Option<Instant>,
}

/// The right to send to a receiver, held by one command at a time.
pub struct SendLock {
    _file: File,
}

/// The way to get the right to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// If no other command sends now.
    AtOnce,
    /// After waiting for one that does.
    Patiently,
}

/// The outcome of sending.
#[derive(Debug, Default)]
pub struct Flushed {
    pub sent: usize,
    /// Events that the server refused for good, with their files and the reasons.
    pub refused: Vec<RefusedEvent>,
    /// The failure that ended it early.
    pub stopped: Option<StoppedFlush>,
}

/// The first event that could not be sent for now. It and those behind it are still there.
#[derive(Debug)]
pub struct StoppedFlush {
    pub id: Option<EventId>,
    pub failure: Failure,
}

#[derive(Debug)]
pub struct RefusedEvent {
    /// Unknown if its file cannot be read.
    pub id: Option<EventId>,
    pub path: PathBuf,
    pub reason: String,
}

/// A file of the spool.
struct SpoolFile {
    number: u64,
    path: PathBuf,
}

impl EventSpool {
    /// The spool of this user.
    ///
    /// # Errors
    ///
    /// Fails without a home directory.
    pub fn find(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        let state = state.ok_or_else(|| Failure::Bad("no home directory to keep events in: set HOME".to_owned()))?;
        Ok(Self { directory: state.join("svc/events") })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The number of events that wait for this receiver.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read. One that does not exist is empty.
    pub fn count(&self, key: &SpoolKey) -> Result<usize, Failure> {
        Ok(self.files(WAITING)?.iter().filter(|file| file.is_for(key)).count())
    }

    /// The number of events that wait for other receivers, or for this one as another user.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::count`] does.
    pub fn count_elsewhere(&self, key: &SpoolKey) -> Result<usize, Failure> {
        Ok(self.files(WAITING)?.iter().filter(|file| !file.is_for(key)).count())
    }

    /// Adds an event behind all others, and returns its file. It is on disk afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the spool is full or cannot be written. The event is not kept then.
    pub fn append(&self, key: &SpoolKey, event: &KeptEvent) -> Result<PathBuf, Failure> {
        self.create()?;
        let _append = self.lock_append()?;
        // Drafts are written under this lock, so one that is there now was left by a command that was killed.
        for draft in self.files(DRAFT)? {
            self.remove(&draft.path)?;
        }
        let waiting = self.files(WAITING)?;
        let bytes: u64 = waiting.iter().filter_map(|file| Some(file.path.metadata().ok()?.len())).sum();
        let text = serde_json::to_vec(event).expect("strings and JSON are JSON");
        if waiting.len() >= MAX_EVENTS || bytes + text.len() as u64 > MAX_BYTES {
            return Err(Failure::Bad(format!(
                "the event is not kept: {} events ({} MiB) wait in {} already, which is the most; send them with \
                 `svc event flush`",
                waiting.len(),
                bytes >> 20,
                self.directory.display()
            )));
        }
        let last = |files: &[SpoolFile]| files.last().map_or(0, |file| file.number);
        let number = last(&waiting).max(last(&self.files(REFUSED)?)).checked_add(1).ok_or_else(|| {
            let directory = self.directory.display();
            Failure::Bad(format!("the event is not kept: a file in {directory} has the last number; move it away"))
        })?;
        let name = format!("{number:016}-{}", key.tag());
        let (draft, path) = (self.file(&name, DRAFT), self.file(&name, WAITING));
        let written = write_synced(&draft, &text)
            .and_then(|()| std::fs::rename(&draft, &path))
            .and_then(|()| File::open(&self.directory)?.sync_all());
        written.map_err(|source| {
            // One that stayed would be sent although this command fails.
            let (_, _) = (std::fs::remove_file(&draft), std::fs::remove_file(&path));
            self.failure(source)
        })?;
        Ok(path)
    }

    /// Deletes an event that was set aside, if it is there.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be deleted.
    pub fn discard_refused(&self, refused: &RefusedEvent) -> Result<(), Failure> {
        self.remove(&refused.path)
    }

    /// The file of an event that was set aside, if the event with this file was.
    pub fn set_aside_as(&self, file: &Path) -> Option<PathBuf> {
        let refused = file.with_extension(REFUSED);
        refused.exists().then_some(refused)
    }

    /// The right to send to this receiver; `None` if another command has it, after as long a wait as `how` allows.
    ///
    /// # Errors
    ///
    /// Fails if the lock cannot be opened.
    pub fn lock_send(&self, key: &SpoolKey, how: Acquire) -> Result<Option<SendLock>, Failure> {
        self.create()?;
        let file = self.open_lock(&format!("send-{}.lock", key.tag()))?;
        let began = Instant::now();
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(SendLock { _file: file })),
                Err(TryLockError::WouldBlock) if how == Acquire::Patiently && began.elapsed() < PATIENCE => {
                    std::thread::sleep(backoff.next_wait());
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(source)) => return Err(self.failure(source)),
            }
        }
    }

    /// Sends the events of this receiver in order, those that are added meanwhile included, until none is left, one
    /// cannot be sent for now, or the time is up.
    ///
    /// # Errors
    ///
    /// Fails if the spool cannot be read or written.
    pub fn flush(
        &self,
        lock: SendLock,
        key: &SpoolKey,
        end: FlushEnd,
        mut send: impl FnMut(&KeptEvent) -> Result<(), Failure>,
    ) -> Result<Flushed, Failure> {
        let mut flushed = Flushed::default();
        loop {
            let append = self.lock_append()?;
            let files: Vec<_> = self.files(WAITING)?.into_iter().filter(|file| file.is_for(key)).collect();
            if files.is_empty() {
                // In this order: see the module's documentation.
                drop(lock);
                drop(append);
                return Ok(flushed);
            }
            drop(append);
            for file in files {
                if end.until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(flushed);
                }
                let (id, outcome) = match read(&file.path) {
                    Ok(event) => (Some(event.id), send(&event)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => (None, Err(Failure::Bad(format!("it cannot be read: {error}")))),
                };
                match outcome {
                    Ok(()) => {
                        self.remove(&file.path)?;
                        flushed.sent += 1;
                    }
                    Err(failure) if failure.is_final() => {
                        let path = self.set_aside(&file)?;
                        flushed.refused.push(RefusedEvent { id, path, reason: failure.to_string() });
                    }
                    Err(failure) => {
                        if id.is_some() && id == end.own && !failure.keeps_event() {
                            self.remove(&file.path)?;
                        }
                        flushed.stopped = Some(StoppedFlush { id, failure });
                        return Ok(flushed);
                    }
                }
            }
        }
    }

    /// Renames an event that no server will take, so that those behind it are sent.
    fn set_aside(&self, file: &SpoolFile) -> Result<PathBuf, Failure> {
        let path = file.path.with_extension(REFUSED);
        std::fs::rename(&file.path, &path).map_err(|source| self.failure(source))?;
        let refused = self.files(REFUSED)?;
        for old in refused.iter().take(refused.len().saturating_sub(MAX_REFUSED)) {
            self.remove(&old.path)?;
        }
        Ok(path)
    }

    /// The files with this extension, in the order of their numbers.
    fn files(&self, extension: &str) -> Result<Vec<SpoolFile>, Failure> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.failure(source)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| self.failure(source))?.path();
            let is_of_kind = path.extension().is_some_and(|found| found == extension);
            let number = path.file_stem().and_then(|stem| stem.to_str()?.split_once('-')?.0.parse().ok());
            if let (true, Some(number)) = (is_of_kind, number) {
                files.push(SpoolFile { number, path });
            }
        }
        files.sort_unstable_by_key(|file| file.number);
        Ok(files)
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{name}.{extension}"))
    }

    /// Makes the directory, accessible to this user alone whatever it was before.
    fn create(&self) -> Result<(), Failure> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.and_then(|()| std::fs::set_permissions(&self.directory, Permissions::from_mode(0o700)))
            .map_err(|source| self.failure(source))
    }

    fn lock_append(&self) -> Result<File, Failure> {
        let file = self.open_lock("append.lock")?;
        file.lock().map_err(|source| self.failure(source))?;
        Ok(file)
    }

    fn open_lock(&self, name: &str) -> Result<File, Failure> {
        let path = self.directory.join(name);
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        opened.map_err(|source| self.failure(source))
    }

    fn remove(&self, path: &Path) -> Result<(), Failure> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failure(error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, source: io::Error) -> Failure {
        Failure::File { path: self.directory.clone(), source }
    }
}

impl KeptEvent {
    /// The type as the server names it.
    pub fn event_type(&self) -> String {
        EventType::custom(&self.kind).map_or_else(|_| self.kind.clone(), |kind| kind.to_string())
    }
}

impl SpoolFile {
    fn is_for(&self, key: &SpoolKey) -> bool {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str());
        stem.and_then(|stem| stem.split_once('-')).is_some_and(|(_, tag)| tag == key.tag())
    }
}

fn read(path: &Path) -> io::Result<KeptEvent> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn spool(home: &tempfile::TempDir) -> EventSpool {
        let home = home.path().to_str().unwrap().to_owned();
        EventSpool::find(&move |name: &str| (name == "HOME").then(|| home.clone())).unwrap()
    }

    fn event(kind: &str) -> KeptEvent {
        KeptEvent {
            to: "http://127.0.0.1:9".to_owned(),
            id: EventId::new(),
            kind: kind.to_owned(),
            payload: RawValue::from_string("{\"a\":1}".to_owned()).unwrap(),
            raised_at: Timestamp::now(),
        }
    }

    fn key(text: &str) -> SpoolKey {
        SpoolKey::new(text, None)
    }

    fn flush(
        spool: &EventSpool,
        key: &SpoolKey,
        answer: impl Fn(&str) -> Result<(), Failure>,
    ) -> (Vec<String>, Flushed) {
        let sent = RefCell::new(Vec::new());
        let lock = spool.lock_send(key, Acquire::AtOnce).unwrap().unwrap();
        let flushed = spool
            .flush(lock, key, FlushEnd::default(), |event| {
                answer(&event.kind)?;
                sent.borrow_mut().push(event.kind.clone());
                Ok(())
            })
            .unwrap();
        (sent.into_inner(), flushed)
    }

    fn unreachable() -> Failure {
        Failure::Unreachable { server: "x".to_owned(), why: "down".to_owned() }
    }

    #[test]
    fn events_are_sent_in_order_and_only_to_their_own_receiver() {
        let home = tempfile::tempdir().unwrap();
        let spool = spool(&home);
        let (ours, other) = (key("http://a"), key("http://b"));
        assert_eq!(spool.count(&ours).unwrap(), 0);
        for kind in ["one", "two", "three"] {
            spool.append(&ours, &event(kind)).unwrap();
            spool.append(&other, &event("foreign")).unwrap();
        }
        let (sent, flushed) = flush(&spool, &ours, |_| Ok(()));
        assert_eq!((sent, flushed.sent), (vec!["one".to_owned(), "two".to_owned(), "three".to_owned()], 3));
        assert_eq!((spool.count(&ours).unwrap(), spool.count_elsewhere(&ours).unwrap()), (0, 3));
    }

    #[test]
    fn a_failure_that_may_pass_keeps_the_event_and_all_behind_it() {
        let home = tempfile::tempdir().unwrap();
        let spool = spool(&home);
        let ours = key("http://a");
        for kind in ["one", "two", "three"] {
            spool.append(&ours, &event(kind)).unwrap();
        }
        let (sent, flushed) = flush(&spool, &ours, |kind| if kind == "two" { Err(unreachable()) } else { Ok(()) });
        assert_eq!(sent, ["one"]);
        assert!(matches!(flushed.stopped.unwrap().failure, Failure::Unreachable { .. }));
        assert_eq!(flush(&spool, &ours, |_| Ok(())).0, ["two", "three"]);
    }

    #[test]
    fn an_event_that_is_refused_for_good_is_set_aside_and_does_not_hold_up_the_others() {
        let home = tempfile::tempdir().unwrap();
        let spool = spool(&home);
        let ours = key("http://a");
        for kind in ["bad", "good"] {
            spool.append(&ours, &event(kind)).unwrap();
        }
        let refuse = |kind: &str| match kind {
            "bad" => Err(Failure::Rejected { status: 413, code: "too_large".to_owned(), message: "large".to_owned() }),
            _ => Ok(()),
        };
        let (sent, flushed) = flush(&spool, &ours, refuse);
        assert_eq!(sent, ["good"]);
        let [RefusedEvent { path, reason, .. }] = &flushed.refused[..] else { panic!("{flushed:?}") };
        assert!(reason.contains("large") && read(path).unwrap().kind == "bad");
        // Its number is not used again while its file is there.
        spool.append(&ours, &event("later")).unwrap();
        assert_eq!(flush(&spool, &ours, |_| Ok(())).0, ["later"]);
    }

    #[test]
    fn files_and_directory_are_private_and_drafts_of_killed_commands_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let spool = spool(&home);
        spool.create().unwrap();
        std::fs::set_permissions(&spool.directory, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(spool.directory.join("0000000000000001-aa.draft"), "{").unwrap();
        spool.append(&key("http://a"), &event("one")).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&spool.directory), 0o700);
        for entry in spool.directory.read_dir().unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            assert!(path.extension().unwrap() != DRAFT, "{}", path.display());
        }
    }

    #[test]
    fn a_full_spool_refuses_the_event_and_says_how_to_empty_it() {
        let home = tempfile::tempdir().unwrap();
        let spool = spool(&home);
        spool.append(&key("http://a"), &event("one")).unwrap();
        // The bound is on the bytes of all files: one large file stands for many.
        let large = File::create(spool.directory.join("0000000000000002-aa.json")).unwrap();
        large.set_len(MAX_BYTES).unwrap();
        let failure = spool.append(&key("http://a"), &event("two")).unwrap_err();
        assert!(failure.to_string().contains("svc event flush"), "{failure}");
        assert_eq!(spool.count(&key("http://a")).unwrap(), 1);
    }

    #[test]
    fn one_command_sends_at_a_time_and_takes_along_what_is_added_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let spool = spool(&home);
        let (ours, theirs) = (key("http://a"), key("http://b"));
        spool.append(&ours, &event("one")).unwrap();
        let lock = spool.lock_send(&ours, Acquire::AtOnce).unwrap().unwrap();
        let mut sent = Vec::new();
        let flushed = spool
            .flush(lock, &ours, FlushEnd::default(), |event_to_send| {
                if sent.is_empty() {
                    assert!(spool.lock_send(&ours, Acquire::AtOnce).unwrap().is_none(), "two senders");
                    assert!(spool.lock_send(&theirs, Acquire::AtOnce).unwrap().is_some(), "another receiver waits");
                    spool.append(&ours, &event("two")).unwrap();
                }
                sent.push(event_to_send.kind.clone());
                Ok(())
            })
            .unwrap();
        assert_eq!((sent, flushed.sent), (vec!["one".to_owned(), "two".to_owned()], 2));
        assert!(spool.lock_send(&ours, Acquire::AtOnce).unwrap().is_some(), "the lock is free again");
    }
}
