//! The clock of one run: measures its time and ends it.
//!
//! The interpreter calls [`RunClock::check`] from its interrupt, which is cheap until the watchdog asks for attention;
//! then the run compares its times with its limits. A run that has exceeded a limit stays over it: each interrupt
//! fails from then on, so that no `pcall` can swallow the error.

use super::run_limits::{LimitExceeded, RunLimits};
use mlua::Lua;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::{Duration, Instant},
};

/// The wall-clock time of a run that is taken to be its processor time. It may be less, by so much at most.
const TAKEN_AS_USED: Duration = Duration::from_millis(1);

/// The clock of one run.
pub(in crate::scripting) struct RunClock {
    limits: RunLimits,
    /// Set when the run should compare its times with its limits; stays set once it is over one.
    attention: AtomicBool,
    exceeded: OnceLock<LimitExceeded>,
    started: OnceLock<Instant>,
    /// Processor time of the finished turns, in nanoseconds.
    spent: AtomicU64,
    /// The thread's processor time when the present turn began, in nanoseconds; for a part of a run, that or a little
    /// more.
    turn_began: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl RunClock {
    pub fn new(limits: RunLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            attention: AtomicBool::new(false),
            exceeded: OnceLock::new(),
            started: OnceLock::new(),
            spent: AtomicU64::new(0),
            turn_began: AtomicU64::new(0),
            waker: Mutex::new(None),
        })
    }

    /// Begins a turn of the run on this thread. The first turn starts the wall clock.
    pub fn begin_turn(&self, waker: &Waker) {
        self.started.get_or_init(|| {
            *self.waker.lock() = Some(waker.clone());
            Instant::now()
        });
        self.turn_began.store(thread_cpu(), Relaxed);
    }

    /// Begins a part of a run in the middle of its only turn.
    ///
    /// If the run began less than [`TAKEN_AS_USED`] ago, its processor time since is taken to be as much: that costs no
    /// system call, and gives the part its whole limit and at most that time more.
    pub fn begin_within(&self, run: &Self) {
        let now = Instant::now();
        let _ = self.started.set(now);
        let before = run.started.get().map(|started| now.duration_since(*started));
        let turn_began = match before.filter(|before| *before <= TAKEN_AS_USED) {
            Some(before) => run.turn_began.load(Relaxed) + before.as_nanos() as u64,
            None => thread_cpu(),
        };
        self.turn_began.store(turn_began, Relaxed);
    }

    /// Wall-clock time since the first turn began.
    pub fn wall(&self) -> Duration {
        self.started.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Ends the turn and adds its processor time.
    pub fn end_turn(&self) {
        self.spent.store(self.cpu_nanos(), Relaxed);
    }

    /// Processor time used so far. Only the thread whose turn it is may ask.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_nanos())
    }

    pub fn limits(&self) -> RunLimits {
        self.limits
    }

    /// Fails if the run is over a limit; looks at the clocks only after the watchdog asked for attention.
    pub fn check(&self) -> Result<(), LimitExceeded> {
        if self.attention.load(Relaxed) { self.check_now() } else { Ok(()) }
    }

    /// Fails if the run is over a limit; looks at the clocks in any case.
    pub fn check_now(&self) -> Result<(), LimitExceeded> {
        if let Some(limit) = self.exceeded() {
            return Err(limit);
        }
        self.attention.store(false, Relaxed);
        if self.cpu() > self.limits.cpu {
            self.end(LimitExceeded::Cpu(self.limits.cpu));
        } else if self.is_past_wall_limit() {
            self.end(LimitExceeded::Wall(self.limits.wall));
        }
        self.exceeded().map_or(Ok(()), Err)
    }

    /// The limit that the run was found to exceed. A run that caught the error and returned is still over it.
    pub fn exceeded(&self) -> Option<LimitExceeded> {
        self.exceeded.get().copied()
    }

    /// Ends the run at its next interrupt, or at once if it waits.
    pub fn end(&self, limit: LimitExceeded) {
        let _ = self.exceeded.set(limit);
        self.attention.store(true, Relaxed);
        // Released before waking, which takes the executor's lock.
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks the run to look at its clocks, and ends it if its wall-clock time is over.
    pub fn tick(&self) {
        self.attention.store(true, Relaxed);
        if self.is_past_wall_limit() {
            self.end(LimitExceeded::Wall(self.limits.wall));
        }
    }

    /// Returns true if the watchdog has asked for attention, and so runs.
    pub fn was_ticked(&self) -> bool {
        self.attention.load(Relaxed)
    }

    fn is_past_wall_limit(&self) -> bool {
        self.wall() > self.limits.wall
    }

    fn cpu_nanos(&self) -> u64 {
        self.spent.load(Relaxed) + thread_cpu().saturating_sub(self.turn_began.load(Relaxed))
    }
}

/// Fails if the run that `lua` is in is over a limit. Long work of the host for a run calls it now and then.
pub(in crate::scripting::lua) fn check(lua: &Lua) -> mlua::Result<()> {
    match lua.app_data_ref::<Arc<RunClock>>().map(|clock| clock.check()) {
        Some(Err(limit)) => Err(mlua::Error::runtime(limit)),
        _ => Ok(()),
    }
}

/// The processor time this thread has used, in nanoseconds.
fn thread_cpu() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing. The clock exists on every system we build for.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_run_has_its_whole_processor_time_and_little_more() {
        let limits = |cpu| RunLimits { wall: Duration::from_secs(60), cpu, memory: 1 << 20 };
        let burn = |nanos| {
            let began = thread_cpu();
            while thread_cpu() - began < nanos {}
        };
        for wait in [Duration::ZERO, Duration::from_millis(20)] {
            for used in [0, 3_000_000] {
                let run = RunClock::new(limits(Duration::from_secs(60)));
                run.begin_turn(Waker::noop());
                std::thread::sleep(wait);
                burn(used);
                let part = RunClock::new(limits(Duration::from_millis(5)));
                part.begin_within(&run);
                burn(4_000_000);
                assert_eq!(part.check_now(), Ok(()), "{wait:?} {used}");
                burn(1_000_000 + TAKEN_AS_USED.as_nanos() as u64);
                assert_eq!(part.check_now(), Err(LimitExceeded::Cpu(Duration::from_millis(5))), "{wait:?} {used}");
            }
        }
    }

    #[test]
    fn waiting_costs_no_processor_time() {
        let long = Duration::from_secs(60);
        let clock = RunClock::new(RunLimits { wall: long, cpu: long, memory: 1 << 20 });
        clock.begin_turn(Waker::noop());
        clock.end_turn();
        let spent = clock.spent.load(Relaxed);
        while thread_cpu() - clock.turn_began.load(Relaxed) < 5_000_000 {}
        clock.begin_turn(Waker::noop());
        clock.end_turn();
        assert!(clock.spent.load(Relaxed) - spent < 5_000_000);
    }
}
