//! The load of the runtime: whether its threads have time left.

use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeMetrics};

/// The least time between two measurements. A thread that never waits counts its work every 61 tasks, which is more
/// often.
const PERIOD: Duration = Duration::from_millis(20);

/// The part of their time for which busy threads run tasks. The rest of it, they ask the system for events.
const BUSY: f64 = 0.8;

pub struct RuntimeLoad {
    metrics: RuntimeMetrics,
    last: Mutex<Measured>,
}

struct Measured {
    at: Instant,
    /// The time that all threads have worked since they started.
    worked: Duration,
    is_busy: bool,
}

impl RuntimeLoad {
    /// The load of the runtime that this is called in.
    pub fn of_this_runtime() -> Self {
        let metrics = Handle::current().metrics();
        let last = Measured { at: Instant::now(), worked: worked(&metrics), is_busy: false };
        Self { metrics, last: Mutex::new(last) }
    }

    /// The load of one thread that is busy for an hour.
    #[cfg(test)]
    pub fn always_busy() -> Self {
        let load = Self::of_this_runtime();
        *load.last.lock() =
            Measured { at: Instant::now() + Duration::from_secs(3600), worked: Duration::ZERO, is_busy: true };
        load
    }

    pub fn threads(&self) -> usize {
        self.metrics.num_workers()
    }

    /// Tells if the threads had next to no time left between the last two measurements.
    pub fn is_busy(&self) -> bool {
        let mut last = self.last.lock();
        let passed = last.at.elapsed();
        if passed >= PERIOD {
            let worked = worked(&self.metrics);
            let time = passed.as_secs_f64() * self.threads() as f64;
            last.is_busy = worked.saturating_sub(last.worked).as_secs_f64() >= BUSY * time;
            last.at += passed;
            last.worked = worked;
        }
        last.is_busy
    }
}

fn worked(metrics: &RuntimeMetrics) -> Duration {
    (0..metrics.num_workers()).map(|thread| metrics.worker_total_busy_duration(thread)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    #[test]
    fn a_runtime_is_busy_while_its_threads_have_no_time_left_and_then_no_more() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let load = runtime.block_on(async { RuntimeLoad::of_this_runtime() });
        let wait_until = |busy| {
            let began = Instant::now();
            while load.is_busy() != busy {
                assert!(began.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let ends = Arc::new(AtomicBool::new(false));
        let task = runtime.spawn({
            let ends = ends.clone();
            async move {
                while !ends.load(Ordering::Relaxed) {
                    // Long enough that the steps between two polls, which count as rest, take a small part.
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(1) {}
                    tokio::task::yield_now().await;
                }
            }
        });
        wait_until(true);
        ends.store(true, Ordering::Relaxed);
        runtime.block_on(task).unwrap();
        wait_until(false);
    }
}
