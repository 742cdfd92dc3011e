//! A line typed at the terminal that is not shown.
//!
//! The terminal's settings outlive the process, so they are restored before a signal ends or stops it. The handlers do
//! this themselves and then let the signal take its default effect: it may arrive in another thread than the one that
//! reads. Each uses only functions that are safe in a handler.

use std::{
    mem, ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

/// The signals that end the process.
const FATAL: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The settings of the terminal before and during the question; null while there is none. They are never freed, because
/// a handler may be reading them.
static SETTINGS: AtomicPtr<EchoSettings> = AtomicPtr::new(ptr::null_mut());

/// True while this process has turned the echo off.
static IS_OFF: AtomicBool = AtomicBool::new(false);

struct EchoSettings {
    before: libc::termios,
    during: libc::termios,
}

/// Turns the echo of the terminal off until dropped.
pub struct EchoOff {
    /// The handlers before, by signal.
    former: Vec<(libc::c_int, libc::sigaction)>,
}

impl EchoOff {
    /// Does nothing if stdin is no terminal.
    pub fn begin() -> Self {
        // SAFETY: termios is plain data for which all zeros is a value, and tcgetattr fills it.
        let mut before: libc::termios = unsafe { mem::zeroed() };
        // SAFETY: the pointer is to a live termios of ours.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, &raw mut before) } != 0 {
            return Self { former: Vec::new() };
        }
        let mut during = before;
        during.c_lflag &= !libc::ECHO;
        SETTINGS.store(Box::into_raw(Box::new(EchoSettings { before, during })), Ordering::SeqCst);
        let mut former = Vec::new();
        for signal in FATAL {
            former.extend(install(signal, end_by_signal));
        }
        former.extend(install(libc::SIGTSTP, stop_by_signal));
        former.extend(install(libc::SIGCONT, continue_by_signal));
        // After the handlers: from here on, every way out restores the settings. TCSAFLUSH discards what was typed
        // before.
        set_echo_off(libc::TCSAFLUSH);
        Self { former }
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        restore(libc::TCSAFLUSH);
        SETTINGS.store(ptr::null_mut(), Ordering::SeqCst);
        for (signal, action) in &self.former {
            // SAFETY: the action is one that sigaction gave.
            unsafe { libc::sigaction(*signal, action, ptr::null_mut()) };
        }
    }
}

/// Installs a handler and returns the action before. A signal that the process ignores, as below `nohup`, stays
/// ignored.
fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> Option<(libc::c_int, libc::sigaction)> {
    // SAFETY: sigaction is plain data for which all zeros is a value: the default action with an empty mask.
    let (mut action, mut former): (libc::sigaction, libc::sigaction) = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: all pointers are to live values of ours, and the handler has the type that sa_flags asks for.
    unsafe {
        if libc::sigaction(signal, ptr::null(), &raw mut former) != 0 || former.sa_sigaction == libc::SIG_IGN {
            return None;
        }
        (libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0).then_some((signal, former))
    }
}

extern "C" fn end_by_signal(signal: libc::c_int) {
    if restore(libc::TCSANOW) {
        // SAFETY: the pointer is to one byte. The line of the question is left, so that the next prompt has its own.
        unsafe { libc::write(libc::STDERR_FILENO, b"\n".as_ptr().cast(), 1) };
    }
    take_default_action(signal);
}

extern "C" fn stop_by_signal(signal: libc::c_int) {
    keeping_errno(|| {
        restore(libc::TCSANOW);
        take_default_action(signal);
        // The process was continued, or could not be stopped.
        install(signal, stop_by_signal);
        set_echo_off(libc::TCSANOW);
    });
}

extern "C" fn continue_by_signal(_: libc::c_int) {
    keeping_errno(|| set_echo_off(libc::TCSANOW));
}

/// Raises the signal again with its default action, which ends or stops the process in this call.
fn take_default_action(signal: libc::c_int) {
    // SAFETY: the action and the set are plain data of ours, and each function may be called in a handler.
    unsafe {
        let action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &raw const action, ptr::null_mut());
        libc::raise(signal);
        let (mut only, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        // The signal is blocked while its handler runs.
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, &raw mut before);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}

fn set_echo_off(when: libc::c_int) {
    // SAFETY: the settings are never freed.
    if let Some(settings) = unsafe { SETTINGS.load(Ordering::SeqCst).as_ref() }
        && is_in_foreground()
    {
        IS_OFF.store(true, Ordering::SeqCst);
        // SAFETY: the pointer is to a live termios.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, when, &raw const settings.during) };
    }
}

/// Restores the settings if the echo is off. In the background the terminal belongs to another process, which has made
/// its own.
fn restore(when: libc::c_int) -> bool {
    // SAFETY: the settings are never freed.
    let settings = unsafe { SETTINGS.load(Ordering::SeqCst).as_ref() };
    match settings {
        Some(settings) if IS_OFF.swap(false, Ordering::SeqCst) && is_in_foreground() => {
            // SAFETY: the pointer is to a live termios.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, when, &raw const settings.before) == 0 }
        }
        _ => false,
    }
}

/// Returns true also for a terminal that does not control the process: there is no job control on it.
fn is_in_foreground() -> bool {
    // SAFETY: neither call takes a pointer.
    let (group, own) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
    group == own || group == -1
}

/// A handler that returns must not change the error of the call it interrupted.
fn keeping_errno(handle: impl FnOnce()) {
    // SAFETY: the pointer is to the thread's own errno.
    let before = unsafe { *libc::__errno_location() };
    handle();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
}
