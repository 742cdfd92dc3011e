//! The watchdog thread: every few milliseconds it asks all runs in progress to look at their clocks.
//!
//! It also ends runs whose wall-clock time is over while they wait, for example for a reply over the network. Its
//! thread starts with the first run and sleeps while there is none.

use super::{run_clock::RunClock, run_limits::LimitExceeded};
use parking_lot::{Condvar, Mutex};
use std::{sync::Arc, time::Duration};

/// The interval at which runs look at their clocks.
const TICK: Duration = Duration::from_millis(5);

/// Ticks without a run after which the watchdog sleeps until there is one.
const IDLE_TICKS: u32 = 200;

/// A handle to the watchdog thread.
#[derive(Default)]
pub(in crate::scripting) struct Watchdog(Arc<WatchdogShared>);

#[derive(Default)]
struct WatchdogShared {
    state: Mutex<WatchdogState>,
    /// Notified when a run is added or the watchdog is stopped.
    changed: Condvar,
}

#[derive(Default)]
struct WatchdogState {
    clocks: Vec<Arc<RunClock>>,
    started: bool,
    asleep: bool,
    stopped: bool,
}

/// Keeps a run watched until it is dropped.
pub(in crate::scripting) struct WatchGuard {
    clock: Arc<RunClock>,
    shared: Arc<WatchdogShared>,
}

impl Watchdog {
    /// Watches a run until the guard is dropped.
    pub fn watch(&self, clock: Arc<RunClock>) -> WatchGuard {
        let mut state = self.0.state.lock();
        if state.stopped {
            clock.end(LimitExceeded::Stopped);
        }
        state.clocks.push(clock.clone());
        if !state.started {
            let shared = self.0.clone();
            let thread = std::thread::Builder::new().name("lua-watchdog".to_owned()).stack_size(64 << 10);
            // A failure is tried again with the next run: without the thread, only a run that loops goes on too long.
            state.started = thread.spawn(move || shared.run()).is_ok();
        }
        if state.asleep {
            self.0.changed.notify_one();
        }
        WatchGuard { clock, shared: self.0.clone() }
    }

    pub fn is_stopped(&self) -> bool {
        self.0.state.lock().stopped
    }

    /// Ends every run and the watchdog itself.
    pub fn stop(&self) {
        let clocks = {
            let mut state = self.0.state.lock();
            state.stopped = true;
            state.clocks.clone()
        };
        for clock in clocks {
            clock.end(LimitExceeded::Stopped);
        }
        self.0.changed.notify_one();
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if let Some(at) = state.clocks.iter().position(|clock| Arc::ptr_eq(clock, &self.clock)) {
            state.clocks.swap_remove(at);
        }
    }
}

impl WatchdogShared {
    /// Ticks until the watchdog is stopped.
    fn run(&self) {
        let mut idle = 0;
        let mut state = self.state.lock();
        while !state.stopped {
            idle = if state.clocks.is_empty() { idle + 1 } else { 0 };
            if idle > IDLE_TICKS {
                state.asleep = true;
                self.changed.wait(&mut state);
                state.asleep = false;
                idle = 0;
                continue;
            }
            // A tick may wake a task, which must not happen under this lock.
            let clocks = state.clocks.clone();
            drop(state);
            clocks.iter().for_each(|clock| clock.tick());
            drop(clocks);
            state = self.state.lock();
            self.changed.wait_for(&mut state, TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripting::lua::limits::RunLimits;
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        task::Waker,
    };

    fn clock(wall: Duration, cpu: Duration) -> Arc<RunClock> {
        RunClock::new(RunLimits { wall, cpu, memory: 1 << 20 })
    }

    #[test]
    fn a_busy_run_exceeds_its_processor_time_and_stays_over_it() {
        let watchdog = Watchdog::default();
        let clock = clock(Duration::from_secs(60), Duration::from_millis(20));
        let _guard = watchdog.watch(clock.clone());
        clock.begin_turn(Waker::noop());
        let limit = loop {
            if let Err(limit) = clock.check() {
                break limit;
            }
        };
        assert_eq!(limit, LimitExceeded::Cpu(Duration::from_millis(20)));
        assert_eq!(clock.check(), Err(limit));
        watchdog.stop();
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
        let watchdog = Watchdog::default();
        let clock = clock(Duration::from_millis(20), Duration::from_secs(60));
        let _guard = watchdog.watch(clock.clone());
        let unpark = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
        clock.begin_turn(&unpark.clone().into());
        clock.end_turn();
        while !unpark.1.load(Relaxed) {
            std::thread::park();
        }
        assert_eq!(clock.check(), Err(LimitExceeded::Wall(Duration::from_millis(20))));
        watchdog.stop();
    }
}
