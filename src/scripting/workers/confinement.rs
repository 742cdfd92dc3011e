//! The rights that a worker gives up before it runs anything: every file descriptor but its socket, files, network,
//! other programs, and memory beyond its limit.
//!
//! Landlock and seccomp are applied where the kernel has them; `no_new_privs` and the resource limits always.

use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, Scope};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::{io, os::fd::RawFd};

/// The exit code of a worker that ran out of memory.
pub(super) const OUT_OF_MEMORY: i32 = 71;

/// The exit code of a worker that aborted for another reason.
pub(super) const ABORTED: i32 = 70;

/// The exit code of a worker that could not confine itself.
pub(super) const NOT_CONFINED: i32 = 72;

/// The only file descriptor of a worker.
pub(super) const SOCKET: RawFd = 0;

/// Memory that a worker has besides that of Lua, in bytes: the program's own data, stacks, frames.
const BASE_MEMORY: usize = 64 << 20;

/// The amount by which the priority of a worker for the processor is lower than the server's.
const NICENESS: libc::c_int = 5;

/// The number of runs that can use all their memory at the same time in one worker.
const FULL_RUNS: usize = 4;

/// The memory left at which an abort is taken for a lack of memory: the largest block that is asked for at once, and
/// the rounding of its size.
const MEMORY_PROBE: usize = 64 << 20;

/// Limits what the process may use and open. It must be called before any other thread starts.
///
/// # Errors
///
/// Fails if a limit that every kernel has cannot be set.
pub(super) fn confine_process(run_memory: usize) -> io::Result<()> {
    // Killed with the server, also in the middle of a loop.
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    // The processor is the server's first. A lower priority is always allowed.
    // SAFETY: the call takes a number.
    unsafe { libc::nice(NICENESS) };
    // SAFETY: the name is a string with a terminating zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"svc-lua-worker".as_ptr()) };
    // When the machine runs out of memory, the kernel ends a worker rather than the server.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // No core dump, and no other process of this user may attach. From here on `/proc/self` belongs to root.
    prctl(libc::PR_SET_DUMPABLE, 0)?;
    close_descriptors();
    let memory = memory_limit(run_memory) as u64;
    for (resource, most) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_FSIZE, 0), (libc::RLIMIT_DATA, memory)] {
        let limits = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: `limits` is valid for reading.
        check(unsafe { libc::setrlimit(resource, &limits) })?;
    }
    handle_abort();
    // A kernel without Landlock, or a service manager that forbids it, leaves the work to seccomp.
    let abi = ABI::V6;
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(abi));
    let ruleset = ruleset.and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(abi)));
    let ruleset = ruleset.and_then(|ruleset| ruleset.scope(Scope::from_all(abi)));
    let _ = ruleset.and_then(|ruleset| ruleset.create()?.restrict_self().map(drop));
    // Landlock needed a descriptor until now.
    let limits = libc::rlimit { rlim_cur: SOCKET as u64 + 1, rlim_max: SOCKET as u64 + 1 };
    // SAFETY: `limits` is valid for reading.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) })
}

/// Refuses every system call but those that computing and the socket need, in all threads.
///
/// # Errors
///
/// Fails if the kernel has seccomp and refuses the filter.
pub(super) fn confine_system_calls() -> io::Result<()> {
    let Ok(arch) = std::env::consts::ARCH.try_into() else { return Ok(()) };
    let calls: Vec<(i64, Vec<SeccompRule>)> = ALLOWED
        .iter()
        .map(|call| (*call, Vec::new()))
        .chain([
            // The limit on memory does not count shared memory.
            (libc::SYS_mmap, vec![rule(&[no_bits(2, libc::PROT_EXEC)?, private_mapping()?])?]),
            (libc::SYS_mprotect, vec![rule(&[no_bits(2, libc::PROT_EXEC)?])?]),
            (libc::SYS_tgkill, vec![rule(&[equal(0, std::process::id())?])?]),
        ])
        .collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(calls.into_iter().collect(), refused, SeccompAction::Allow, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(io::Error::other)?;
    match seccompiler::apply_filter_all_threads(&program) {
        // The kernel has no seccomp.
        Err(seccompiler::Error::Seccomp(error)) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other.map_err(io::Error::other),
    }
}

/// The memory of a worker whose runs may each use `run_memory`, in bytes.
pub(super) fn memory_limit(run_memory: usize) -> usize {
    BASE_MEMORY.saturating_add(run_memory.saturating_mul(FULL_RUNS))
}

const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_ppoll,
    libc::SYS_close,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The condition that an argument has none of these bits.
fn no_bits(argument: u8, bits: i32) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::MaskedEq(bits as u64), 0)
}

/// The condition that the type of a mapping is private.
fn private_mapping() -> io::Result<SeccompCondition> {
    condition(3, SeccompCmpOp::MaskedEq(libc::MAP_TYPE as u64), libc::MAP_PRIVATE as u64)
}

fn equal(argument: u8, value: u32) -> io::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::Eq, value.into())
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)
}

/// The rule that a call is allowed if all conditions hold.
fn rule(conditions: &[SeccompCondition]) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions.to_vec()).map_err(io::Error::other)
}

/// Makes an abort an exit whose code names the reason. An allocation that fails aborts the process, and so does C++.
fn handle_abort() {
    extern "C" fn on_abort(_: libc::c_int) {
        // SAFETY: both are system calls, which a signal handler may make.
        unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let probe = libc::mmap(std::ptr::null_mut(), MEMORY_PROBE, protection, flags, -1, 0);
            libc::_exit(if probe == libc::MAP_FAILED { OUT_OF_MEMORY } else { ABORTED });
        }
    }
    // SAFETY: the handler makes system calls only.
    unsafe { libc::signal(libc::SIGABRT, on_abort as *const () as libc::sighandler_t) };
}

/// Closes every descriptor but the socket.
fn close_descriptors() {
    let first = SOCKET + 1;
    // SAFETY: nothing in this process uses the descriptors.
    let closed = unsafe { libc::close_range(first.cast_unsigned(), u32::MAX, 0) };
    if closed != 0 {
        // An old kernel. The server marks all its own descriptors to be closed, so that few are left.
        for descriptor in first..1024 {
            // SAFETY: as above.
            unsafe { libc::close(descriptor) };
        }
    }
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take one number.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) })
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
