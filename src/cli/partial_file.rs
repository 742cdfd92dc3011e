//! A file that gets its name only when it is whole and on disk.
//!
//! Until then it is `FILE.partial`, which is deleted if the command fails or is interrupted. One that a killed command
//! left behind is deleted by the next. The file holds secrets and may be in a folder that others can write to, so it is
//! always a new one: never a link, and never a file that another process has open.

use super::failure::Failure;
use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a command that a signal ended.
const INTERRUPTED: i32 = 1;

/// Treatment of a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    Refuse,
    Replace,
}

/// A file that is being written. Dropping it deletes it.
pub struct PartialFile {
    pub file: File,
    target: PathBuf,
    partial: PathBuf,
    is_finished: bool,
}

impl PartialFile {
    /// Begins a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// Fails if the target exists and may not be replaced, or another command is writing it.
    pub fn create(target: &Path, overwrite: Overwrite) -> Result<Self, Failure> {
        if target == Path::new("-") {
            return Err(Failure::Usage("`-` is no file that can be written: name one".to_owned()));
        }
        if target.exists() && overwrite == Overwrite::Refuse {
            return Err(Failure::Bad(format!(
                "{} exists already: name another file, or use --force to replace it",
                target.display()
            )));
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = target.with_file_name(name);
        delete_stale(&partial)?;
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = match options.open(&partial) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(busy(&partial)),
            file => file.map_err(|source| Failure::File { path: partial.clone(), source })?,
        };
        lock(&file, &partial)?;
        delete_when_interrupted(partial.clone());
        Ok(Self { file, target: target.to_owned(), partial, is_finished: false })
    }

    /// Puts the file on disk and gives it its name. Returns its size.
    ///
    /// # Errors
    ///
    /// The file does not exist under its name then.
    pub fn finish(mut self) -> Result<u64, Failure> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Failure::File { path, source }
        };
        self.file.sync_all().map_err(failed(&self.partial))?;
        let bytes = self.file.metadata().map_err(failed(&self.partial))?.len();
        std::fs::rename(&self.partial, &self.target).map_err(failed(&self.target))?;
        self.is_finished = true;
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
        Ok(bytes)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// Deletes the partial file that a killed command left behind.
fn delete_stale(partial: &Path) -> Result<(), Failure> {
    let failed = |source| Failure::File { path: partial.to_owned(), source };
    let found = match partial.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed)?,
    };
    // SAFETY: the call takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    if !found.is_file() || found.uid() != own {
        return Err(Failure::Bad(format!(
            "{} is in the way and no file of yours: delete it, or name another file",
            partial.display()
        )));
    }
    let mut options = File::options();
    let stale = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(partial).map_err(failed)?;
    lock(&stale, partial)?;
    std::fs::remove_file(partial).map_err(failed)
}

/// Takes the lock of a partial file, which tells other commands that it is being written.
fn lock(file: &File, partial: &Path) -> Result<(), Failure> {
    let failed = |source| Failure::File { path: partial.to_owned(), source };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy(partial)),
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // Another command may have replaced the file since it was opened.
    let locked = file.metadata().map_err(failed)?;
    match partial.symlink_metadata() {
        Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => Ok(()),
        _ => Err(busy(partial)),
    }
}

fn busy(partial: &Path) -> Failure {
    Failure::Bad(format!("another command is writing {}: wait for it", partial.display()))
}

/// Deletes the file and ends the process on the signals that ask for its end. Without a way to wait for them they end
/// the process as usual, and the file stays.
fn delete_when_interrupted(partial: PathBuf) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let signals = {
        let _context = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals else { return };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        let _ = std::fs::remove_file(&partial);
        eprintln!("\nsvc: interrupted: {} is deleted", partial.display());
        std::process::exit(INTERRUPTED);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        os::unix::fs::{PermissionsExt as _, symlink},
    };
    use tempfile::TempDir;

    fn create(target: &Path) -> Result<PartialFile, String> {
        PartialFile::create(target, Overwrite::Refuse).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_dash_is_no_file_to_write() {
        assert_eq!(create(Path::new("-")).map(drop).unwrap_err(), "`-` is no file that can be written: name one");
    }

    #[test]
    fn a_partial_file_that_a_killed_command_left_is_not_written_to_but_replaced() {
        let folder = TempDir::new().unwrap();
        let (target, partial) = (folder.path().join("a.backup"), folder.path().join("a.backup.partial"));
        let linked = folder.path().join("linked");
        std::fs::write(&partial, "stale").unwrap();
        std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::hard_link(&partial, &linked).unwrap();
        let mut reader = File::open(&partial).unwrap();

        let mut file = create(&target).unwrap();
        assert_eq!(partial.metadata().unwrap().mode() & 0o777, 0o600);
        file.file.write_all(b"secret").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), std::fs::read_to_string(&linked).unwrap().as_str()), ("stale", "stale"));

        let second = create(&target).map(drop).unwrap_err();
        assert!(second.contains("another command is writing"), "{second}");
        assert_eq!(file.finish().unwrap(), 6);
        assert_eq!(std::fs::read(&target).unwrap(), b"secret");
        assert_eq!(target.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_or_a_folder_in_the_place_of_the_partial_file_is_refused_and_not_touched() {
        let folder = TempDir::new().unwrap();
        let (target, partial) = (folder.path().join("a.backup"), folder.path().join("a.backup.partial"));
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        symlink(&victim, &partial).unwrap();
        let refused = create(&target).map(drop).unwrap_err();
        assert!(refused.contains("a.backup.partial is in the way"), "{refused}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        assert!(partial.is_symlink() && victim.metadata().unwrap().mode() & 0o777 != 0o600);

        std::fs::remove_file(&partial).unwrap();
        symlink(folder.path().join("absent"), &partial).unwrap();
        create(&target).map(drop).unwrap_err();
        assert!(!folder.path().join("absent").exists());

        std::fs::remove_file(&partial).unwrap();
        std::fs::create_dir(&partial).unwrap();
        create(&target).map(drop).unwrap_err();
        assert!(partial.is_dir());
    }
}
