//! The threads that Lua runs on, apart from tokio's, and the scheduler that shares them between owners.
//!
//! A run is a future. A thread polls it; while the run waits for something, the thread is free for others. Turns go
//! round the owners, and in a runtime of many owners each has at most half of everything: of the threads, of the runs in
//! progress, and of the places in the queue. So the scripts of one owner cannot keep another's from running.
//!
//! Threads start when there is work for them, and end with [`Executor::stop`].

use super::limits::RunClock;
use crate::model::owner::Owner;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{HashMap, VecDeque},
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
    /// One owner gets the `1 / owner_divisor` part of each of these.
    owner_divisor: usize,
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

/// The runs of all owners, and the state of the threads.
#[derive(Default)]
struct Scheduler {
    queues: HashMap<Owner, OwnerQueue>,
    /// Owners with something to run, in the order of their next turn. Each is here once.
    round: VecDeque<Owner>,
    queued: usize,
    in_progress: usize,
    started: usize,
    idle: usize,
    /// Idle threads that were notified and have not woken up yet. The next notification needs another thread.
    notified: usize,
    stopped: bool,
}

/// The runs of one owner.
#[derive(Default)]
struct OwnerQueue {
    /// Begun, and ready to go on.
    woken: VecDeque<Arc<Task>>,
    /// Not begun.
    queued: VecDeque<Arc<Task>>,
    running: usize,
    in_progress: usize,
}

struct Task {
    owner: Owner,
    clock: Arc<RunClock>,
    executor: Weak<ExecutorShared>,
    state: Mutex<TaskState>,
}

enum TaskState {
    /// The run is in its owner's queue, or on a thread that has just taken it from there.
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
    /// The bounds of an executor that many owners share.
    pub fn for_many_owners(threads: usize) -> Self {
        Self { threads: threads.max(1), in_progress: 64, queue: 1024, owner_divisor: 2 }
    }

    /// The bounds of an executor that one owner has to itself.
    pub fn for_one_owner(threads: usize) -> Self {
        Self { threads: threads.max(1), in_progress: 256, queue: 4096, owner_divisor: 1 }
    }

    /// The part of `total` that one owner gets.
    fn per_owner(self, total: usize) -> usize {
        (total / self.owner_divisor).max(1)
    }
}

impl Executor {
    pub fn new(capacity: Capacity) -> Self {
        Self(Arc::new(ExecutorShared { scheduler: Mutex::default(), work_available: Condvar::new(), capacity }))
    }

    /// Queues a run. It begins when its owner has a turn.
    pub fn spawn(&self, owner: Owner, clock: Arc<RunClock>, work: Work) -> Result<(), ExecutorError> {
        let executor = Arc::downgrade(&self.0);
        let task = Arc::new(Task { owner, clock, executor, state: Mutex::new(TaskState::Ready(work)) });
        let mut scheduler = self.0.scheduler.lock();
        if scheduler.stopped {
            return Err(ExecutorError::Stopped);
        }
        let queued_by_owner = scheduler.queues.get(&owner).map_or(0, |queue| queue.queued.len());
        let capacity = self.0.capacity;
        if scheduler.queued >= capacity.queue || queued_by_owner >= capacity.per_owner(capacity.queue) {
            return Err(ExecutorError::QueueFull);
        }
        scheduler.queued += 1;
        scheduler.queue(owner).queued.push_back(task);
        scheduler.enter_round(owner);
        self.0.provide_thread(&mut scheduler);
        Ok(())
    }

    /// Ends the threads once the runs in progress are over. Runs that have not begun are dropped.
    pub fn stop(&self) {
        let mut scheduler = self.0.scheduler.lock();
        scheduler.stopped = true;
        scheduler.queued = 0;
        let dropped: Vec<_> = scheduler.queues.values_mut().flat_map(|queue| queue.queued.drain(..)).collect();
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
                let owner = task.owner;
                let progress = task.take_turn();
                scheduler = self.scheduler.lock();
                scheduler.end_turn(owner, progress);
                // The end of a turn may allow another one, of this owner or of one that waited for a place.
                if !scheduler.round.is_empty() && scheduler.idle > scheduler.notified {
                    self.notify_thread(&mut scheduler);
                }
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
    /// Takes the next run to have a turn, if some owner may have one.
    fn next(&mut self, capacity: Capacity) -> Option<Arc<Task>> {
        for _ in 0..self.round.len() {
            let owner = self.round.pop_front()?;
            let has_place = self.in_progress < capacity.in_progress;
            let queue = self.queue(owner);
            let task = if queue.running >= capacity.per_owner(capacity.threads) {
                None
            } else if let Some(task) = queue.woken.pop_front() {
                Some(task)
            } else if has_place && queue.in_progress < capacity.per_owner(capacity.in_progress) {
                let task = queue.queued.pop_front();
                queue.in_progress += usize::from(task.is_some());
                self.in_progress += usize::from(task.is_some());
                self.queued -= usize::from(task.is_some());
                task
            } else {
                None
            };
            if task.is_some() {
                self.queue(owner).running += 1;
            }
            self.enter_round(owner);
            if task.is_some() {
                return task;
            }
        }
        None
    }

    fn end_turn(&mut self, owner: Owner, progress: Progress) {
        let queue = self.queue(owner);
        queue.running -= 1;
        if progress == Progress::Finished {
            queue.in_progress -= 1;
            self.in_progress -= 1;
        }
        let queue = self.queue(owner);
        if queue.in_progress == 0 && queue.queued.is_empty() && queue.woken.is_empty() {
            self.queues.remove(&owner);
        }
    }

    /// Puts an owner with something to run at the end of the round, unless it is in it.
    fn enter_round(&mut self, owner: Owner) {
        let queue = self.queue(owner);
        if (!queue.woken.is_empty() || !queue.queued.is_empty()) && !self.round.contains(&owner) {
            self.round.push_back(owner);
        }
    }

    fn queue(&mut self, owner: Owner) -> &mut OwnerQueue {
        self.queues.entry(owner).or_default()
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

    /// Puts a begun run back into its owner's queue.
    fn requeue(self: &Arc<Self>) {
        let Some(executor) = self.executor.upgrade() else { return };
        let mut scheduler = executor.scheduler.lock();
        scheduler.queue(self.owner).woken.push_back(self.clone());
        scheduler.enter_round(self.owner);
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
    use crate::{
        model::{id::UserId, owner::Owner},
        scripting::lua::limits::{RunClock, RunLimits},
    };
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

    fn spawn(
        executor: &Executor,
        owner: Owner,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ExecutorError> {
        executor.spawn(owner, clock(), Box::pin(work))
    }

    fn user() -> Owner {
        Owner::User(UserId::new())
    }

    #[test]
    fn no_thread_exists_before_there_is_work() {
        let executor = Executor::new(Capacity::for_many_owners(4));
        assert_eq!(executor.0.scheduler.lock().started, 0);
        let (done, wait) = mpsc::channel();
        spawn(&executor, user(), async move { done.send(()).unwrap() }).unwrap();
        wait.recv().unwrap();
        assert_eq!(executor.0.scheduler.lock().started, 1);
        executor.stop();
    }

    #[test]
    fn an_owner_that_fills_its_half_leaves_the_other_half_free() {
        let executor = Executor::new(Capacity::for_many_owners(2));
        let busy = user();
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..10 {
            let gate = gate.clone();
            spawn(&executor, busy, async move { gate.lock().recv().unwrap_or_default() }).unwrap();
        }
        let (done, wait) = mpsc::channel();
        spawn(&executor, user(), async move { done.send(()).unwrap() }).unwrap();
        // Returns although nothing of the first owner has ended.
        wait.recv().unwrap();
        assert_eq!(executor.0.scheduler.lock().queues[&busy].running, 1);
        drop(release);
        executor.stop();
    }

    #[test]
    fn a_run_that_waits_leaves_its_thread_to_others() {
        let executor = Executor::new(Capacity::for_many_owners(1));
        let (reply, waits) = oneshot::channel();
        let (done, wait) = mpsc::channel();
        let first = done.clone();
        spawn(&executor, user(), async move { first.send(waits.await.unwrap()).unwrap() }).unwrap();
        spawn(&executor, user(), async move { done.send("second").unwrap() }).unwrap();
        assert_eq!(wait.recv().unwrap(), "second");
        reply.send("first").unwrap();
        assert_eq!(wait.recv().unwrap(), "first");
        executor.stop();
    }

    #[test]
    fn runs_spawned_together_get_a_thread_each_although_one_was_idle() {
        let executor = Executor::new(Capacity::for_one_owner(2));
        let owner = user();
        spawn(&executor, owner, async {}).unwrap();
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
            spawn(&executor, owner, run).unwrap();
        }
        for _ in 0..2 {
            begins.recv_timeout(Duration::from_secs(30)).expect("it has begun while the other waits");
        }
        drop(release);
        executor.stop();
    }

    #[test]
    fn the_queue_is_bounded_and_one_owner_gets_half_of_it() {
        let executor = Executor::new(Capacity::for_many_owners(1));
        let busy = user();
        let (release, gate) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let block = async move {
            begun.send(()).unwrap();
            gate.recv().unwrap_or_default();
        };
        spawn(&executor, busy, block).unwrap();
        begins.recv().unwrap();
        for _ in 0..executor.0.capacity.queue / 2 {
            spawn(&executor, busy, async {}).unwrap();
        }
        assert_eq!(spawn(&executor, busy, async {}), Err(ExecutorError::QueueFull));
        assert_eq!(spawn(&executor, user(), async {}), Ok(()));
        drop(release);
        executor.stop();
        assert_eq!(spawn(&executor, busy, async {}), Err(ExecutorError::Stopped));
    }

    #[test]
    fn a_panic_costs_its_run_and_not_the_thread() {
        let executor = Executor::new(Capacity::for_many_owners(1));
        spawn(&executor, user(), async { std::panic::panic_any("expected by the test") }).unwrap();
        let (done, wait) = mpsc::channel();
        spawn(&executor, user(), async move { done.send(()).unwrap() }).unwrap();
        wait.recv().unwrap();
        executor.stop();
    }
}
