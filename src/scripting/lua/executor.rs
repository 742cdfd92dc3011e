//! The threads that Lua runs on in an agent or in `svc run`, apart from tokio's.
//!
//! A run is a future. A thread polls it; while the run waits for something, the thread is free for others.
//!
//! Threads start when there is work for them, and end with [`Executor::stop`].

use super::limits::RunClock;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
};

/// The stack of a thread, in bytes: enough for the interpreter's own recursion, which it limits to 200 calls.
const STACK: usize = 2 << 20;

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The bounds of an executor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    threads: usize,
    /// Runs in progress, waiting ones included. Each holds a Lua state.
    in_progress: usize,
    /// Runs that have not begun.
    queue: usize,
}

/// A handle to the threads.
pub(super) struct Executor(Arc<ExecutorShared>);

/// The reason a run was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutorError {
    QueueFull,
    Stopped,
}

struct ExecutorShared {
    scheduler: Mutex<Scheduler>,
    /// Notified when there may be a turn to take.
    work_available: Condvar,
    capacity: Capacity,
}

/// The runs, and the state of the threads.
#[derive(Default)]
struct Scheduler {
    /// Begun, and ready to go on.
    woken: VecDeque<Arc<Task>>,
    /// Not begun.
    queued: VecDeque<Arc<Task>>,
    in_progress: usize,
    started: usize,
    idle: usize,
    /// Idle threads that were notified and have not woken up yet. The next notification needs another thread.
    notified: usize,
    stopped: bool,
}

struct Task {
    clock: Arc<RunClock>,
    executor: Weak<ExecutorShared>,
    state: Mutex<TaskState>,
}

enum TaskState {
    /// The run is in a queue, or on a thread that has just taken it from there.
    Ready(Work),
    /// The run is on a thread; `woken` if it was woken meanwhile.
    Running {
        woken: bool,
    },
    /// The run waits to be woken.
    Waiting(Work),
    Finished,
}

impl Capacity {
    /// The bounds of an executor with this many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), in_progress: 256, queue: 4096 }
    }
}

impl Executor {
    pub fn new(capacity: Capacity) -> Self {
        Self(Arc::new(ExecutorShared { scheduler: Mutex::default(), work_available: Condvar::new(), capacity }))
    }

    /// Queues a run.
    pub fn spawn(&self, clock: Arc<RunClock>, work: Work) -> Result<(), ExecutorError> {
        let executor = Arc::downgrade(&self.0);
        let task = Arc::new(Task { clock, executor, state: Mutex::new(TaskState::Ready(work)) });
        let mut scheduler = self.0.scheduler.lock();
        if scheduler.stopped {
            return Err(ExecutorError::Stopped);
        }
        if scheduler.queued.len() >= self.0.capacity.queue {
            return Err(ExecutorError::QueueFull);
        }
        scheduler.queued.push_back(task);
        self.0.provide_thread(&mut scheduler);
        Ok(())
    }

    /// Ends the threads once the runs in progress are over. Runs that have not begun are dropped.
    pub fn stop(&self) {
        let mut scheduler = self.0.scheduler.lock();
        scheduler.stopped = true;
        let dropped = std::mem::take(&mut scheduler.queued);
        drop(scheduler);
        drop(dropped);
        self.0.work_available.notify_all();
    }
}

impl ExecutorShared {
    /// Notifies an idle thread of the next turn, or starts a thread for it.
    fn provide_thread(self: &Arc<Self>, scheduler: &mut Scheduler) {
        if scheduler.idle > scheduler.notified {
            self.notify_thread(scheduler);
        } else if scheduler.started < self.capacity.threads {
            let executor = self.clone();
            let thread = std::thread::Builder::new().name("lua".to_owned()).stack_size(STACK);
            match thread.spawn(move || executor.run_thread()) {
                Ok(_) => scheduler.started += 1,
                Err(error) => log::error!("cannot start a thread for scripts: {error}"),
            }
        }
    }

    fn notify_thread(&self, scheduler: &mut Scheduler) {
        scheduler.notified += 1;
        self.work_available.notify_one();
    }

    /// Takes turns until the executor is stopped: the main loop of a thread.
    fn run_thread(&self) {
        let mut scheduler = self.scheduler.lock();
        loop {
            if let Some(task) = scheduler.next(self.capacity) {
                drop(scheduler);
                let progress = task.take_turn();
                scheduler = self.scheduler.lock();
                scheduler.in_progress -= usize::from(progress == Progress::Finished);
            } else if scheduler.stopped && scheduler.in_progress == 0 {
                drop(scheduler);
                self.work_available.notify_all();
                return;
            } else {
                scheduler.idle += 1;
                self.work_available.wait(&mut scheduler);
                scheduler.idle -= 1;
                scheduler.notified = scheduler.notified.saturating_sub(1);
            }
        }
    }
}

/// The state of a run after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    Finished,
}

impl Scheduler {
    /// Takes the next run to have a turn.
    fn next(&mut self, capacity: Capacity) -> Option<Arc<Task>> {
        if let Some(task) = self.woken.pop_front() {
            return Some(task);
        }
        if self.in_progress >= capacity.in_progress {
            return None;
        }
        let task = self.queued.pop_front()?;
        self.in_progress += 1;
        Some(task)
    }
}

impl Task {
    /// Polls the run once.
    fn take_turn(self: Arc<Self>) -> Progress {
        let mut state = self.state.lock();
        let TaskState::Ready(mut work) = std::mem::replace(&mut *state, TaskState::Running { woken: false }) else {
            unreachable!("only a ready run is in a queue")
        };
        drop(state);
        let waker = Waker::from(self.clone());
        self.clock.begin_turn(&waker);
        // A panic is a defect of the host, not of the script; it costs this run and not the thread.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        self.clock.end_turn();
        let waits = matches!(polled, Ok(Poll::Pending));
        let mut state = self.state.lock();
        if !waits {
            *state = TaskState::Finished;
            drop(state);
            drop(work);
            return Progress::Finished;
        }
        if matches!(*state, TaskState::Running { woken: true }) {
            *state = TaskState::Ready(work);
            drop(state);
            self.requeue();
        } else {
            *state = TaskState::Waiting(work);
        }
        Progress::Waiting
    }

    /// Puts a begun run back into the queue.
    fn requeue(self: &Arc<Self>) {
        let Some(executor) = self.executor.upgrade() else { return };
        let mut scheduler = executor.scheduler.lock();
        scheduler.woken.push_back(self.clone());
        executor.provide_thread(&mut scheduler);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, TaskState::Finished) {
            TaskState::Waiting(work) => {
                *state = TaskState::Ready(work);
                drop(state);
                self.requeue();
            }
            TaskState::Running { .. } => *state = TaskState::Running { woken: true },
            unchanged => *state = unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Capacity, Executor, ExecutorError};
    use crate::scripting::lua::limits::{RunClock, RunLimits};
    use parking_lot::Mutex;
    use std::{
        sync::{Arc, mpsc},
        time::Duration,
    };
    use tokio::sync::oneshot;

    fn clock() -> Arc<RunClock> {
        let long = Duration::from_secs(60);
        RunClock::new(RunLimits { wall: long, cpu: long, memory: 1 })
    }

    fn spawn(executor: &Executor, work: impl Future<Output = ()> + Send + 'static) -> Result<(), ExecutorError> {
        executor.spawn(clock(), Box::pin(work))
    }

    #[test]
    fn no_thread_exists_before_there_is_work() {
        let executor = Executor::new(Capacity::new(4));
        assert_eq!(executor.0.scheduler.lock().started, 0);
        let (done, wait) = mpsc::channel();
        spawn(&executor, async move { done.send(()).unwrap() }).unwrap();
        wait.recv().unwrap();
        assert_eq!(executor.0.scheduler.lock().started, 1);
        executor.stop();
    }

    #[test]
    fn a_run_that_waits_leaves_its_thread_to_others() {
        let executor = Executor::new(Capacity::new(1));
        let (reply, waits) = oneshot::channel();
        let (done, wait) = mpsc::channel();
        let first = done.clone();
        spawn(&executor, async move { first.send(waits.await.unwrap()).unwrap() }).unwrap();
        spawn(&executor, async move { done.send("second").unwrap() }).unwrap();
        assert_eq!(wait.recv().unwrap(), "second");
        reply.send("first").unwrap();
        assert_eq!(wait.recv().unwrap(), "first");
        executor.stop();
    }

    #[test]
    fn runs_spawned_together_get_a_thread_each_although_one_was_idle() {
        let executor = Executor::new(Capacity::new(2));
        spawn(&executor, async {}).unwrap();
        while executor.0.scheduler.lock().idle == 0 {
            std::thread::yield_now();
        }
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (begun, begins) = mpsc::channel();
        for _ in 0..2 {
            let (gate, begun) = (gate.clone(), begun.clone());
            let run = async move {
                begun.send(()).unwrap();
                gate.lock().recv().unwrap_or_default();
            };
            spawn(&executor, run).unwrap();
        }
        for _ in 0..2 {
            begins.recv_timeout(Duration::from_secs(30)).expect("it has begun while the other waits");
        }
        drop(release);
        executor.stop();
    }

    #[test]
    fn the_queue_is_bounded() {
        let executor = Executor::new(Capacity::new(1));
        let (release, gate) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let block = async move {
            begun.send(()).unwrap();
            gate.recv().unwrap_or_default();
        };
        spawn(&executor, block).unwrap();
        begins.recv().unwrap();
        for _ in 0..executor.0.capacity.queue {
            spawn(&executor, async {}).unwrap();
        }
        assert_eq!(spawn(&executor, async {}), Err(ExecutorError::QueueFull));
        drop(release);
        executor.stop();
        assert_eq!(spawn(&executor, async {}), Err(ExecutorError::Stopped));
    }

    #[test]
    fn a_panic_costs_its_run_and_not_the_thread() {
        let executor = Executor::new(Capacity::new(1));
        spawn(&executor, async { std::panic::panic_any("expected by the test") }).unwrap();
        let (done, wait) = mpsc::channel();
        spawn(&executor, async move { done.send(()).unwrap() }).unwrap();
        wait.recv().unwrap();
        executor.stop();
    }
}
