//! A file that gets its name only when it is whole and on disk.
//!
//! Until then it is `FILE.partial`, which is deleted if the command fails or is interrupted. One that a killed command left
//! behind is written over by the next.

use super::failure::Failure;
use std::{
    fs::{File, TryLockError},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
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
        if target.exists() && overwrite == Overwrite::Refuse {
            return Err(Failure::Bad(format!(
                "{} exists already: name another file, or use --force to replace it",
                target.display()
            )));
        }
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = target.with_file_name(name);
        let failed = |source| Failure::File { path: partial.clone(), source };
        let file =
            File::options().write(true).create(true).truncate(false).mode(0o600).open(&partial).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Bad(format!("another command is writing {}: wait for it", partial.display())));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
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

/// Deletes the file and ends the process on the signals that ask for its end. Without a way to wait for them they end the
/// process as usual, and the file stays.
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
