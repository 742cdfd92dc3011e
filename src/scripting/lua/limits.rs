//! How long a run may take and how much it may hold, and who sees to it.
//!
//! Every run has a [`Watch`]. One thread, the [`Watchdog`], does nothing but call for attention every few
//! milliseconds; the run itself then looks at the clocks, from the interpreter's interrupt. A run that is
//! over a limit stays over it: each interrupt fails, so that no `pcall` can swallow it. A run that waits
//! (for a reply over the network) is woken up by the watchdog to find that its time is over.

use crate::platform::config;
use mlua::Lua;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::{Duration, Instant},
};

/// How often clocks are looked at.
const TICK: Duration = Duration::from_millis(5);

/// Ticks without a run after which the watchdog sleeps until there is one.
const DROWSY: u32 = 200;

/// What one run may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub wall: Duration,
    pub cpu: Duration,
    pub memory: usize,
}

/// The limit a run went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Wall(Duration),
    Cpu(Duration),
    /// In bytes.
    Memory(usize),
    /// Whoever asked for the run no longer waits for it.
    Cancelled,
    /// The runtime shuts down.
    Stopped,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wall(limit) => write!(f, "took longer than {}", config::Span(*limit)),
            Self::Cpu(limit) => write!(f, "took more than {} of processor time", config::Span(*limit)),
            Self::Memory(limit) => write!(f, "needed more than {} of memory", config::Size(*limit as u64)),
            Self::Cancelled => f.write_str("was cancelled"),
            Self::Stopped => f.write_str("was stopped: the server shuts down"),
        }
    }
}

impl From<&config::Script> for Limits {
    fn from(config: &config::Script) -> Self {
        Self { wall: config.wall.0, cpu: config.cpu.0, memory: config.memory.bytes() }
    }
}

/// The clocks of one run.
pub(super) struct Watch {
    limits: Limits,
    /// Whether the run should look at its clocks; once it is over a limit, for ever.
    attention: AtomicBool,
    over: OnceLock<Limit>,
    started: OnceLock<Instant>,
    /// Processor time of the turns that are over, in nanoseconds.
    spent: AtomicU64,
    /// The thread's processor time when the present turn began, in nanoseconds.
    turn_began: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl Watch {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            attention: AtomicBool::new(false),
            over: OnceLock::new(),
            started: OnceLock::new(),
            spent: AtomicU64::new(0),
            turn_began: AtomicU64::new(0),
            waker: Mutex::new(None),
        })
    }

    /// Notes that the run begins a turn on this thread; the first one starts the wall clock.
    pub fn begin_turn(&self, waker: &Waker) {
        self.started.get_or_init(|| {
            *lock(&self.waker) = Some(waker.clone());
            Instant::now()
        });
        self.turn_began.store(thread_cpu(), Relaxed);
    }

    /// Notes that the turn is over, and so is its share of processor time.
    pub fn end_turn(&self) {
        self.spent.store(self.cpu_nanos(), Relaxed);
    }

    /// Processor time used so far. Only the thread whose turn it is may ask.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_nanos())
    }

    /// How long the run may take, waiting included.
    pub fn wall(&self) -> Duration {
        self.limits.wall
    }

    /// How much the run may hold, in bytes; 0 for as much as there is.
    pub fn memory(&self) -> usize {
        self.limits.memory
    }

    /// The interpreter's interrupt: cheap until the watchdog calls.
    pub fn check(&self) -> Result<(), Limit> {
        if self.attention.load(Relaxed) { self.look() } else { Ok(()) }
    }

    /// Looks at the clocks now.
    pub fn look(&self) -> Result<(), Limit> {
        if let Some(limit) = self.over() {
            return Err(limit);
        }
        self.attention.store(false, Relaxed);
        if self.cpu() > self.limits.cpu {
            self.end(Limit::Cpu(self.limits.cpu));
        } else if self.is_past_its_time() {
            self.end(Limit::Wall(self.limits.wall));
        }
        self.over().map_or(Ok(()), Err)
    }

    /// The limit the run was found to be over, if it was. A run that swallowed that and returned is still over it.
    pub fn over(&self) -> Option<Limit> {
        self.over.get().copied()
    }

    /// Ends the run at its next interrupt, or at once if it waits.
    pub fn end(&self, limit: Limit) {
        let _ = self.over.set(limit);
        self.attention.store(true, Relaxed);
        // Out of the lock first: waking takes the threads' own.
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn tick(&self) {
        self.attention.store(true, Relaxed);
        if self.is_past_its_time() {
            self.end(Limit::Wall(self.limits.wall));
        }
    }

    fn is_past_its_time(&self) -> bool {
        self.started.get().is_some_and(|started| started.elapsed() > self.limits.wall)
    }

    fn cpu_nanos(&self) -> u64 {
        self.spent.load(Relaxed) + thread_cpu().saturating_sub(self.turn_began.load(Relaxed))
    }
}

/// Lets long work for the run that `lua` is in end when the run is over a limit.
pub(super) fn check(lua: &Lua) -> mlua::Result<()> {
    match lua.app_data_ref::<Arc<Watch>>().map(|watch| watch.check()) {
        Some(Err(limit)) => Err(mlua::Error::runtime(limit)),
        _ => Ok(()),
    }
}

/// Calls every run under way for attention, tick by tick. Its thread starts with the first run.
#[derive(Default)]
pub(super) struct Watchdog(Arc<Kennel>);

#[derive(Default)]
struct Kennel {
    flock: Mutex<Flock>,
    /// Someone came, or the end.
    stirred: Condvar,
}

#[derive(Default)]
struct Flock {
    watches: Vec<Arc<Watch>>,
    started: bool,
    asleep: bool,
    stopped: bool,
}

/// Keeps a run under the watchdog's eye until it is dropped.
pub(super) struct Watched {
    watch: Arc<Watch>,
    kennel: Arc<Kennel>,
}

impl Watchdog {
    /// Takes a run under watch.
    pub fn watch(&self, watch: Arc<Watch>) -> Watched {
        let mut flock = lock(&self.0.flock);
        if flock.stopped {
            watch.end(Limit::Stopped);
        }
        flock.watches.push(watch.clone());
        if !flock.started {
            let kennel = self.0.clone();
            let thread = std::thread::Builder::new().name("lua-watchdog".to_owned()).stack_size(64 << 10);
            // Tried again with the next run: without it, only a run that loops goes on for too long.
            flock.started = thread.spawn(move || kennel.guard()).is_ok();
        }
        if flock.asleep {
            self.0.stirred.notify_one();
        }
        Watched { watch, kennel: self.0.clone() }
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        lock(&self.0.flock).stopped
    }

    /// Ends every run and the watchdog itself.
    pub fn stop(&self) {
        let watches = {
            let mut flock = lock(&self.0.flock);
            flock.stopped = true;
            flock.watches.clone()
        };
        for watch in watches {
            watch.end(Limit::Stopped);
        }
        self.0.stirred.notify_one();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut flock = lock(&self.kennel.flock);
        if let Some(at) = flock.watches.iter().position(|watch| Arc::ptr_eq(watch, &self.watch)) {
            flock.watches.swap_remove(at);
        }
    }
}

impl Kennel {
    fn guard(&self) {
        let mut idle = 0;
        let mut flock = lock(&self.flock);
        while !flock.stopped {
            idle = if flock.watches.is_empty() { idle + 1 } else { 0 };
            if idle > DROWSY {
                flock.asleep = true;
                self.stirred.wait(&mut flock);
                flock.asleep = false;
                idle = 0;
                continue;
            }
            // Ticking wakes tasks, which must not happen under this lock.
            let watches = flock.watches.clone();
            drop(flock);
            watches.iter().for_each(|watch| watch.tick());
            drop(watches);
            flock = lock(&self.flock);
            self.stirred.wait_for(&mut flock, TICK);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// The processor time this thread has used, in nanoseconds.
fn thread_cpu() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is there to be written to. The clock exists on every system we build for.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(wall: Duration, cpu: Duration) -> Arc<Watch> {
        Watch::new(Limits { wall, cpu, memory: 1 << 20 })
    }

    #[test]
    fn a_busy_run_goes_over_its_processor_time_and_stays_over() {
        let dog = Watchdog::default();
        let watch = watch(Duration::from_secs(60), Duration::from_millis(20));
        let _watched = dog.watch(watch.clone());
        watch.begin_turn(Waker::noop());
        let limit = loop {
            if let Err(limit) = watch.check() {
                break limit;
            }
        };
        assert_eq!(limit, Limit::Cpu(Duration::from_millis(20)));
        assert_eq!(watch.check(), Err(limit));
        dog.stop();
    }

    #[test]
    fn a_waiting_run_is_woken_when_its_time_is_over() {
        struct Unpark(std::thread::Thread, AtomicBool);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.1.store(true, Relaxed);
                self.0.unpark();
            }
        }
        let dog = Watchdog::default();
        let watch = watch(Duration::from_millis(20), Duration::from_secs(60));
        let _watched = dog.watch(watch.clone());
        let unpark = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
        watch.begin_turn(&unpark.clone().into());
        watch.end_turn();
        while !unpark.1.load(Relaxed) {
            std::thread::park();
        }
        assert_eq!(watch.check(), Err(Limit::Wall(Duration::from_millis(20))));
        dog.stop();
    }

    #[test]
    fn waiting_costs_no_processor_time() {
        let watch = watch(Duration::from_secs(60), Duration::from_secs(60));
        watch.begin_turn(Waker::noop());
        watch.end_turn();
        let spent = watch.spent.load(Relaxed);
        while thread_cpu() - watch.turn_began.load(Relaxed) < 5_000_000 {}
        watch.begin_turn(Waker::noop());
        watch.end_turn();
        assert!(watch.spent.load(Relaxed) - spent < 5_000_000);
    }

    #[test]
    fn a_limit_reads_as_a_sentence_about_the_run() {
        assert_eq!(Limit::Cpu(Duration::from_secs(1)).to_string(), "took more than 1s of processor time");
        assert_eq!(Limit::Memory(32 << 20).to_string(), "needed more than 32MiB of memory");
    }
}
