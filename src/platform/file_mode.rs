//! The file mode creation mask of the process. Servers, agents and the commands that write databases and archives keep
//! what they write to themselves, whatever mask they were started with; the programs that they start get that mask
//! back.

use std::sync::OnceLock;

/// The mask that the process was started with, once it has been replaced.
static INHERITED: OnceLock<libc::mode_t> = OnceLock::new();

/// Makes every file and directory that the process creates from now on accessible to its user alone.
pub fn make_new_files_private() {
    // SAFETY: the call takes a number and cannot fail.
    let before = unsafe { libc::umask(0o077) };
    INHERITED.get_or_init(|| before);
}

/// Gives the program that `command` starts the mask that this process was started with.
pub fn restore_in(command: &mut tokio::process::Command) {
    let Some(mask) = INHERITED.get().copied() else { return };
    let restore = move || {
        // SAFETY: it only makes a system call, which is allowed between fork and exec.
        unsafe { libc::umask(mask) };
        Ok(())
    };
    // SAFETY: `restore` allocates nothing and takes no lock.
    unsafe { command.pre_exec(restore) };
}
