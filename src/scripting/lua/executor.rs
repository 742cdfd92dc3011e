//! The threads Lua runs on, apart from tokio's, and who gets a turn on them.
//!
//! A run is a future. A thread polls it; while it waits for something, the thread is free for others.
//! Turns go round the owners, and where there are several one has at most half of everything: of the threads, of
//! the runs under way, and of the places in the queue. So whatever one owner's scripts do, another's come next.
//!
//! Threads start when there is work for them, and end with [`Threads::stop`].

use super::limits::Watch;
use crate::model::owner::Owner;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
};

/// Room for the interpreter's own recursion, which it limits to 200 calls.
const STACK: usize = 2 << 20;

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    threads: usize,
    /// Runs under way, waiting ones included. Each holds a Lua state.
    under_way: usize,
    /// Runs that wait to begin.
    queue: usize,
    /// Into how many parts each is divided, of which an owner gets one.
    parts: usize,
}

/// A handle to the threads.
pub(super) struct Threads(Arc<Hall>);

/// Why a run was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    QueueFull,
    Stopped,
}

struct Hall {
    board: Mutex<Board>,
    /// There may be a turn to take.
    called: Condvar,
    room: Room,
}

/// Who waits and who runs.
#[derive(Default)]
struct Board {
    lanes: HashMap<Owner, Lane>,
    /// Owners with something to do, in the order of their next turn. Each is here once.
    round: VecDeque<Owner>,
    queued: usize,
    under_way: usize,
    started: usize,
    idle: usize,
    /// Idle threads that were called and have not woken up yet. Who calls next needs another one.
    summoned: usize,
    stopped: bool,
}

/// One owner's runs.
#[derive(Default)]
struct Lane {
    /// Begun, and ready to go on.
    woken: VecDeque<Arc<Task>>,
    /// Not begun.
    queued: VecDeque<Arc<Task>>,
    running: usize,
    under_way: usize,
}

struct Task {
    owner: Owner,
    watch: Arc<Watch>,
    hall: Weak<Hall>,
    state: Mutex<State>,
}

enum State {
    /// In its lane, or on a thread that has just taken it from there.
    Ready(Work),
    /// On a thread; `again` if it was woken meanwhile.
    Running {
        again: bool,
    },
    /// Waits to be woken.
    Waiting(Work),
    Over,
}

impl Room {
    /// Room for many owners.
    pub fn shared(threads: usize) -> Self {
        Self { threads: threads.max(1), under_way: 64, queue: 1024, parts: 2 }
    }

    /// Room for one, who has it all.
    pub fn alone(threads: usize) -> Self {
        Self { threads: threads.max(1), under_way: 256, queue: 4096, parts: 1 }
    }

    /// What one owner gets of it.
    fn share(self, of: usize) -> usize {
        (of / self.parts).max(1)
    }
}

impl Threads {
    pub fn new(room: Room) -> Self {
        Self(Arc::new(Hall { board: Mutex::default(), called: Condvar::new(), room }))
    }

    /// Takes a run. It has its turn when its owner's comes round.
    pub fn spawn(&self, owner: Owner, watch: Arc<Watch>, work: Work) -> Result<(), Refused> {
        let hall = Arc::downgrade(&self.0);
        let task = Arc::new(Task { owner, watch, hall, state: Mutex::new(State::Ready(work)) });
        let mut board = lock(&self.0.board);
        if board.stopped {
            return Err(Refused::Stopped);
        }
        let mine = board.lanes.get(&owner).map_or(0, |lane| lane.queued.len());
        let room = self.0.room;
        if board.queued >= room.queue || mine >= room.share(room.queue) {
            return Err(Refused::QueueFull);
        }
        board.queued += 1;
        board.lane(owner).queued.push_back(task);
        board.enter(owner);
        self.0.call(&mut board);
        Ok(())
    }

    /// Ends the threads once the runs under way are over. What has not begun is dropped.
    pub fn stop(&self) {
        let mut board = lock(&self.0.board);
        board.stopped = true;
        board.queued = 0;
        let dropped: Vec<_> = board.lanes.values_mut().flat_map(|lane| lane.queued.drain(..)).collect();
        drop(board);
        drop(dropped);
        self.0.called.notify_all();
    }
}

impl Hall {
    /// Has someone take the next turn: a thread that is idle, or a new one.
    fn call(self: &Arc<Self>, board: &mut Board) {
        if board.idle > board.summoned {
            self.summon(board);
        } else if board.started < self.room.threads {
            let hall = self.clone();
            let thread = std::thread::Builder::new().name("lua".to_owned()).stack_size(STACK);
            match thread.spawn(move || hall.serve()) {
                Ok(_) => board.started += 1,
                Err(error) => log::error!("cannot start a thread for scripts: {error}"),
            }
        }
    }

    fn summon(&self, board: &mut Board) {
        board.summoned += 1;
        self.called.notify_one();
    }

    /// A thread's life.
    fn serve(&self) {
        let mut board = lock(&self.board);
        loop {
            if let Some(task) = board.next(self.room) {
                drop(board);
                let owner = task.owner;
                let over = task.take_turn();
                board = lock(&self.board);
                board.leave(owner, over);
                // Its owner, or one who waited for a place, may be next on another thread too.
                if !board.round.is_empty() && board.idle > board.summoned {
                    self.summon(&mut board);
                }
            } else if board.stopped && board.under_way == 0 {
                drop(board);
                self.called.notify_all();
                return;
            } else {
                board.idle += 1;
                self.called.wait(&mut board);
                board.idle -= 1;
                board.summoned = board.summoned.saturating_sub(1);
            }
        }
    }
}

impl Board {
    /// The next run to have a turn, if some owner may have one.
    fn next(&mut self, room: Room) -> Option<Arc<Task>> {
        for _ in 0..self.round.len() {
            let owner = self.round.pop_front()?;
            let has_place = self.under_way < room.under_way;
            let lane = self.lane(owner);
            let task = if lane.running >= room.share(room.threads) {
                None
            } else if let Some(task) = lane.woken.pop_front() {
                Some(task)
            } else if has_place && lane.under_way < room.share(room.under_way) {
                let task = lane.queued.pop_front();
                lane.under_way += usize::from(task.is_some());
                self.under_way += usize::from(task.is_some());
                self.queued -= usize::from(task.is_some());
                task
            } else {
                None
            };
            if task.is_some() {
                self.lane(owner).running += 1;
            }
            self.enter(owner);
            if task.is_some() {
                return task;
            }
        }
        None
    }

    /// Notes the end of a turn.
    fn leave(&mut self, owner: Owner, over: bool) {
        let lane = self.lane(owner);
        lane.running -= 1;
        if over {
            lane.under_way -= 1;
            self.under_way -= 1;
        }
        let lane = self.lane(owner);
        if lane.under_way == 0 && lane.queued.is_empty() && lane.woken.is_empty() {
            self.lanes.remove(&owner);
        }
    }

    /// Puts an owner with something to do at the end of the round, unless it is in it.
    fn enter(&mut self, owner: Owner) {
        let lane = self.lane(owner);
        if (!lane.woken.is_empty() || !lane.queued.is_empty()) && !self.round.contains(&owner) {
            self.round.push_back(owner);
        }
    }

    fn lane(&mut self, owner: Owner) -> &mut Lane {
        self.lanes.entry(owner).or_default()
    }
}

impl Task {
    /// Lets the run go on until it waits or is over, and says whether it is over.
    fn take_turn(self: Arc<Self>) -> bool {
        let mut state = lock(&self.state);
        let State::Ready(mut work) = std::mem::replace(&mut *state, State::Running { again: false }) else {
            unreachable!("only a ready run is in a lane")
        };
        drop(state);
        let waker = Waker::from(self.clone());
        self.watch.begin_turn(&waker);
        // A panic is a defect of ours, not of the script; it costs this run and not the thread.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        self.watch.end_turn();
        let waits = matches!(polled, Ok(Poll::Pending));
        let mut state = lock(&self.state);
        if !waits {
            *state = State::Over;
            drop(state);
            drop(work);
            return true;
        }
        if matches!(*state, State::Running { again: true }) {
            *state = State::Ready(work);
            drop(state);
            self.come_back();
        } else {
            *state = State::Waiting(work);
        }
        false
    }

    /// Puts a begun run back into its lane.
    fn come_back(self: &Arc<Self>) {
        let Some(hall) = self.hall.upgrade() else { return };
        let mut board = lock(&hall.board);
        board.lane(self.owner).woken.push_back(self.clone());
        board.enter(self.owner);
        hall.call(&mut board);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Over) {
            State::Waiting(work) => {
                *state = State::Ready(work);
                drop(state);
                self.come_back();
            }
            State::Running { .. } => *state = State::Running { again: true },
            unchanged => *state = unchanged,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::id::UserId, scripting::lua::limits::Limits};
    use std::{sync::mpsc, time::Duration};
    use tokio::sync::oneshot;

    fn watch() -> Arc<Watch> {
        let long = Duration::from_secs(60);
        Watch::new(Limits { wall: long, cpu: long, memory: 1 })
    }

    fn spawn(threads: &Threads, owner: Owner, work: impl Future<Output = ()> + Send + 'static) -> Result<(), Refused> {
        threads.spawn(owner, watch(), Box::pin(work))
    }

    fn user() -> Owner {
        Owner::User(UserId::new())
    }

    #[test]
    fn no_thread_exists_before_there_is_work() {
        let threads = Threads::new(Room::shared(4));
        assert_eq!(lock(&threads.0.board).started, 0);
        let (done, wait) = mpsc::channel();
        spawn(&threads, user(), async move { done.send(()).unwrap() }).unwrap();
        wait.recv().unwrap();
        assert_eq!(lock(&threads.0.board).started, 1);
        threads.stop();
    }

    #[test]
    fn an_owner_who_fills_its_half_leaves_the_other_half_free() {
        let threads = Threads::new(Room::shared(2));
        let hog = user();
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..10 {
            let gate = gate.clone();
            spawn(&threads, hog, async move { gate.lock().recv().unwrap_or_default() }).unwrap();
        }
        let (done, wait) = mpsc::channel();
        spawn(&threads, user(), async move { done.send(()).unwrap() }).unwrap();
        // Returns although nothing of the first owner's has ended.
        wait.recv().unwrap();
        assert_eq!(lock(&threads.0.board).lanes[&hog].running, 1);
        drop(release);
        threads.stop();
    }

    #[test]
    fn a_run_that_waits_leaves_its_thread_to_others() {
        let threads = Threads::new(Room::shared(1));
        let (reply, waits) = oneshot::channel();
        let (done, wait) = mpsc::channel();
        let first = done.clone();
        spawn(&threads, user(), async move { first.send(waits.await.unwrap()).unwrap() }).unwrap();
        spawn(&threads, user(), async move { done.send("second").unwrap() }).unwrap();
        assert_eq!(wait.recv().unwrap(), "second");
        reply.send("first").unwrap();
        assert_eq!(wait.recv().unwrap(), "first");
        threads.stop();
    }

    #[test]
    fn runs_that_come_together_get_a_thread_each_although_one_was_idle() {
        let threads = Threads::new(Room::alone(2));
        let owner = user();
        spawn(&threads, owner, async {}).unwrap();
        while lock(&threads.0.board).idle == 0 {
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
            spawn(&threads, owner, run).unwrap();
        }
        for _ in 0..2 {
            begins.recv_timeout(Duration::from_secs(30)).expect("it has begun while the other waits");
        }
        drop(release);
        threads.stop();
    }

    #[test]
    fn the_queue_is_bounded_and_one_owner_gets_half_of_it() {
        let threads = Threads::new(Room::shared(1));
        let hog = user();
        let (release, gate) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let block = async move {
            begun.send(()).unwrap();
            gate.recv().unwrap_or_default();
        };
        spawn(&threads, hog, block).unwrap();
        begins.recv().unwrap();
        for _ in 0..threads.0.room.queue / 2 {
            spawn(&threads, hog, async {}).unwrap();
        }
        assert_eq!(spawn(&threads, hog, async {}), Err(Refused::QueueFull));
        assert_eq!(spawn(&threads, user(), async {}), Ok(()));
        drop(release);
        threads.stop();
        assert_eq!(spawn(&threads, hog, async {}), Err(Refused::Stopped));
    }

    #[test]
    fn a_panic_costs_its_run_and_not_the_thread() {
        let threads = Threads::new(Room::shared(1));
        spawn(&threads, user(), async { std::panic::panic_any("expected by the test") }).unwrap();
        let (done, wait) = mpsc::channel();
        spawn(&threads, user(), async move { done.send(()).unwrap() }).unwrap();
        wait.recv().unwrap();
        threads.stop();
    }
}
