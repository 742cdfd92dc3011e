//! The libraries of a space as zip archives: ours, and those that its owner and the zone keep on the server.
//!
//! They are served by [`super::api`] and lie in the data directory, where Python imports from them. An archive on disk
//! never changes, since a Python that has opened one remembers where in it each module is: a new version is a new file,
//! and goes to the processes that start after it ([`super::child_env`]).

mod archive;

pub use archive::Package;

use crate::{
    model::library::Library,
    platform::store::{Store, StoreError, Table, keys},
};
use archive::{archive, files_of};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

/// Under which key of ours the libraries are kept.
const LIBRARIES: &[u8] = b"libraries";
const KEPT: Table<Vec<Library>> = Table::new(keys::AGENT);

/// How long scripts that are run at the start wait to hear of the libraries, which a server tells with its welcome.
const PATIENCE: Duration = Duration::from_secs(5);

/// Versions of the user's archive that stay on disk for the processes that use them.
const VERSIONS: usize = 16;

/// What comes with us: the Python package, and the Lua modules that set-up scripts load.
const OURS: [(&str, &str); 9] = [
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

/// Both packages.
pub struct Packages {
    store: Store,
    directory: PathBuf,
    ours: Package,
    /// What the server has sent last.
    sent: watch::Sender<Arc<[Library]>>,
    /// Whether a server has told of the libraries in this run, and a package was made of them.
    told: watch::Sender<Told>,
    theirs: Mutex<Theirs>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Yes,
    NotYet,
}

/// The user's, as they are served now.
struct Theirs {
    libraries: Arc<[Library]>,
    package: Package,
    /// The archives on disk, the newest last.
    files: VecDeque<PathBuf>,
}

impl Packages {
    /// The packages of the agent whose data is in `directory`, with the libraries that it knew last.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read. A directory that cannot be written is only logged: Python then misses our
    /// package, and everything else works.
    pub fn open(store: Store, directory: &Path) -> Result<Self, StoreError> {
        let kept: Arc<[Library]> = harmless(KEPT.get(&store, LIBRARIES)?.unwrap_or_default()).into();
        let packages = Self {
            store,
            directory: std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()).join("packages"),
            ours: Package::new(archive(OURS.map(|(path, text)| (path.to_owned(), text)))),
            sent: watch::Sender::new(kept.clone()),
            told: watch::Sender::new(Told::NotYet),
            theirs: Mutex::new(Theirs {
                libraries: kept.clone(),
                package: Package::new(archive(files_of(&kept))),
                files: VecDeque::new(),
            }),
        };
        packages.write_all();
        Ok(packages)
    }

    /// The archive of what comes with us.
    pub fn ours(&self) -> &Package {
        &self.ours
    }

    /// The archive of the user's libraries and the global ones.
    pub fn theirs(&self) -> Package {
        self.locked().package.clone()
    }

    /// The libraries themselves.
    pub fn libraries(&self) -> Arc<[Library]> {
        self.locked().libraries.clone()
    }

    /// The archives as Python's path names them.
    pub fn python_path(&self) -> Vec<PathBuf> {
        let theirs = self.locked().files.back().cloned();
        [Some(self.our_file()), theirs].into_iter().flatten().filter(|path| path.exists()).collect()
    }

    /// Takes the libraries that a server has sent. [`Packages::keep_up`] makes a package of them.
    pub fn take(&self, libraries: Vec<Library>) {
        self.sent.send_replace(harmless(libraries).into());
    }

    /// Resolves once the libraries are those that a server has told of in this run, or after a while without that.
    pub async fn told(&self) {
        let mut told = self.told.subscribe();
        let _ = tokio::time::timeout(PATIENCE, told.wait_for(|told| *told == Told::Yes)).await;
    }

    /// Makes a package of each change that a server sends.
    pub async fn keep_up(self: Arc<Self>) {
        let mut sent = self.sent.subscribe();
        while sent.changed().await.is_ok() {
            let libraries = sent.borrow_and_update().clone();
            if libraries != self.libraries() {
                let packages = self.clone();
                let replaced = libraries.clone();
                // Compressing some megabytes would hold up the calls.
                let _ = tokio::task::spawn_blocking(move || packages.replace(replaced)).await;
                let kept = libraries.to_vec();
                if let Err(error) = self.store.write(move |batch| KEPT.put(batch, LIBRARIES, &kept)).await {
                    log::error!("the libraries of the space would not be there after a restart: {error}");
                }
                log::info!("{} libraries can be loaded", libraries.len());
            }
            self.told.send_replace(Told::Yes);
        }
    }

    fn replace(&self, libraries: Arc<[Library]>) {
        let package = Package::new(archive(files_of(&libraries)));
        let file = self.their_file(&package);
        let written = self.write(&file, &package);
        let mut theirs = self.locked();
        (theirs.libraries, theirs.package) = (libraries, package);
        if written {
            theirs.files.retain(|old| *old != file);
            theirs.files.push_back(file);
        }
        while theirs.files.len() > VERSIONS {
            theirs.files.pop_front().map(fs::remove_file);
        }
    }

    /// Writes both, and clears away what earlier runs have left.
    fn write_all(&self) {
        let package = self.theirs();
        let (ours, theirs) = (self.our_file(), self.their_file(&package));
        if let Err(error) = fs::create_dir_all(&self.directory) {
            return log::error!("Python in this space will not find `svc`: {}: {error}", self.directory.display());
        }
        let left = fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path());
        for old in left.filter(|path| path.extension() == Some(OsStr::new("zip")) && *path != ours && *path != theirs) {
            let _ = fs::remove_file(old);
        }
        self.write(&ours, &self.ours);
        if self.write(&theirs, &package) {
            self.locked().files.push_back(theirs);
        }
    }

    /// Whether the file is there then, whole.
    fn write(&self, file: &Path, package: &Package) -> bool {
        let written = || -> io::Result<()> {
            let unfinished = file.with_extension("part");
            fs::write(&unfinished, &package.bytes)?;
            fs::rename(&unfinished, file)
        };
        written().inspect_err(|error| log::error!("Python misses libraries: {}: {error}", file.display())).is_ok()
    }

    fn our_file(&self) -> PathBuf {
        self.directory.join("svc-libraries.zip")
    }

    fn their_file(&self, package: &Package) -> PathBuf {
        self.directory.join(format!("user-libraries-{}.zip", package.tag))
    }

    fn locked(&self) -> MutexGuard<'_, Theirs> {
        self.theirs.lock()
    }
}

/// The libraries without those that would hide modules of Python: a server refuses such names, and may have older ones.
fn harmless(mut libraries: Vec<Library>) -> Vec<Library> {
    libraries.retain(|library| {
        let checked = library.name.check_for(library.language);
        checked.inspect_err(|error| log::warn!("a library is left out: {error}")).is_ok()
    });
    libraries
}
