//! The two archives: kept in memory for the API and on disk for Python, and renewed when a server sends other
//! libraries.

use super::archive::{PackageArchive, archive, files_of};
use crate::{
    model::library::Library,
    platform::store::{Store, StoreError, Table, keys, readable},
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// Key of the user's libraries in the agent's table.
const LIBRARIES: &[u8] = b"libraries";
const SAVED: Table<Vec<Library>> = Table::new(keys::AGENT);

/// Time for which scripts at startup wait for the libraries, which a server sends after its welcome.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Versions of the user's archive that stay on disk, for the processes that use them.
const VERSIONS: usize = 16;

/// The bundled libraries: the Python package, and the Lua modules for set-up scripts.
const BUNDLED: [(&str, &str); 9] = [
    ("svc/__init__.py", include_str!("../../../contrib/python/svc/__init__.py")),
    ("svc/_agent.py", include_str!("../../../contrib/python/svc/_agent.py")),
    ("svc/client.py", include_str!("../../../contrib/python/svc/client.py")),
    ("svc/event.py", include_str!("../../../contrib/python/svc/event.py")),
    ("svc/methods/__init__.py", include_str!("../../../contrib/python/svc/methods/__init__.py")),
    ("svc/methods/schema.py", include_str!("../../../contrib/python/svc/methods/schema.py")),
    ("svc/methods.lua", include_str!("../../../lua/svc/methods.lua")),
    ("svc/methods/schema.lua", include_str!("../../../lua/svc/methods/schema.lua")),
    ("svc/py.typed", ""),
];

/// The two archives.
pub struct Packages {
    store: Store,
    directory: PathBuf,
    bundled: PackageArchive,
    /// The libraries that a server has sent last.
    sent: watch::Sender<Arc<[Library]>>,
    /// Set once a server has sent the libraries in this run, and they are archived.
    received: watch::Sender<LibrariesReceived>,
    user: Mutex<UserLibraries>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LibrariesReceived {
    Yes,
    NotYet,
}

/// The user's libraries, as they are served now.
struct UserLibraries {
    libraries: Arc<[Library]>,
    archive: PackageArchive,
    /// The archives on disk, the newest last.
    files: VecDeque<PathBuf>,
}

impl Packages {
    /// The packages of the agent whose data is in `directory`, with the libraries that were saved last. Damaged ones
    /// count as none: a server sends them after its welcome.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read. A directory that cannot be written is only logged: Python then misses the
    /// bundled package, and everything else works.
    pub fn open(store: Store, directory: &Path) -> Result<Self, StoreError> {
        let saved = SAVED.get(&store, LIBRARIES).inspect_err(|error| log::error!("the libraries are missing: {error}"));
        let saved: Arc<[Library]> = without_shadowing(readable(saved)?.flatten().unwrap_or_default()).into();
        let packages = Self {
            store,
            directory: std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()).join("packages"),
            bundled: PackageArchive::new(archive(BUNDLED.map(|(path, text)| (path.to_owned(), text)))),
            sent: watch::Sender::new(saved.clone()),
            received: watch::Sender::new(LibrariesReceived::NotYet),
            user: Mutex::new(UserLibraries {
                libraries: saved.clone(),
                archive: PackageArchive::new(archive(files_of(&saved))),
                files: VecDeque::new(),
            }),
        };
        packages.write_all();
        Ok(packages)
    }

    /// The archive of the bundled libraries.
    pub fn bundled(&self) -> &PackageArchive {
        &self.bundled
    }

    /// The archive of the user's libraries and the global ones.
    pub fn user(&self) -> PackageArchive {
        self.user.lock().archive.clone()
    }

    /// The user's libraries and the global ones.
    pub fn libraries(&self) -> Arc<[Library]> {
        self.user.lock().libraries.clone()
    }

    /// The paths of the archives, for Python's module path.
    pub fn python_path(&self) -> Vec<PathBuf> {
        let user = self.user.lock().files.back().cloned();
        [Some(self.bundled_file()), user].into_iter().flatten().filter(|path| path.exists()).collect()
    }

    /// Takes the libraries that a server has sent. [`Packages::follow`] archives them.
    pub fn replace_libraries(&self, libraries: Vec<Library>) {
        self.sent.send_replace(without_shadowing(libraries).into());
    }

    /// Resolves once a server has sent the libraries in this run, or after [`RECEIVE_TIMEOUT`].
    pub async fn received(&self) {
        let mut received = self.received.subscribe();
        let arrived = received.wait_for(|received| *received == LibrariesReceived::Yes);
        let _ = tokio::time::timeout(RECEIVE_TIMEOUT, arrived).await;
    }

    /// Archives each change that a server sends.
    pub async fn follow(self: Arc<Self>) {
        let mut sent = self.sent.subscribe();
        while sent.changed().await.is_ok() {
            let libraries = sent.borrow_and_update().clone();
            if libraries != self.libraries() {
                let packages = self.clone();
                let replaced = libraries.clone();
                // Compression of some megabytes would delay calls.
                let _ = tokio::task::spawn_blocking(move || packages.archive_user(replaced)).await;
                let saved = libraries.to_vec();
                if let Err(error) = self.store.write(move |batch| SAVED.put(batch, LIBRARIES, &saved)).await {
                    log::error!(
                        "the libraries of the space are not saved, and would be missing after a restart: {error}"
                    );
                }
                log::info!("{} libraries can be loaded", libraries.len());
            }
            self.received.send_replace(LibrariesReceived::Yes);
        }
    }

    fn archive_user(&self, libraries: Arc<[Library]>) {
        let archive = PackageArchive::new(archive(files_of(&libraries)));
        let file = self.user_file(&archive);
        let written = self.write(&file, &archive);
        let mut user = self.user.lock();
        (user.libraries, user.archive) = (libraries, archive);
        if written {
            user.files.retain(|old| *old != file);
            user.files.push_back(file);
        }
        while user.files.len() > VERSIONS {
            user.files.pop_front().map(fs::remove_file);
        }
    }

    /// Writes both archives, and removes those of earlier runs.
    fn write_all(&self) {
        let archive = self.user();
        let (bundled, user) = (self.bundled_file(), self.user_file(&archive));
        if let Err(error) = fs::create_dir_all(&self.directory) {
            return log::error!("Python in this space will not find `svc`: {}: {error}", self.directory.display());
        }
        let left = fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path());
        for old in left.filter(|path| path.extension() == Some(OsStr::new("zip")) && *path != bundled && *path != user)
        {
            let _ = fs::remove_file(old);
        }
        self.write(&bundled, &self.bundled);
        if self.write(&user, &archive) {
            self.user.lock().files.push_back(user);
        }
    }

    /// Writes an archive as a whole or not at all, and returns whether it was written.
    fn write(&self, file: &Path, archive: &PackageArchive) -> bool {
        let written = || -> io::Result<()> {
            let unfinished = file.with_extension("part");
            fs::write(&unfinished, &archive.bytes)?;
            fs::rename(&unfinished, file)
        };
        written().inspect_err(|error| log::error!("Python misses libraries: {}: {error}", file.display())).is_ok()
    }

    fn bundled_file(&self) -> PathBuf {
        self.directory.join("svc-libraries.zip")
    }

    fn user_file(&self, archive: &PackageArchive) -> PathBuf {
        self.directory.join(format!("user-libraries-{}.zip", archive.tag))
    }
}

/// The libraries without those that would shadow modules of Python: a server refuses such names, and may have older
/// ones.
fn without_shadowing(mut libraries: Vec<Library>) -> Vec<Library> {
    libraries.retain(|library| {
        let checked = library.name.check_for(library.language);
        checked.inspect_err(|error| log::warn!("a library is left out: {error}")).is_ok()
    });
    libraries
}
