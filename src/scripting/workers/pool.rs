//! The worker processes: starts them on demand, gives runs to them, and ends those that are idle or not needed.
//!
//! A run takes a slot in a worker of its owner. If there is none and no place for another worker, an idle worker of
//! another owner ends; if none is idle, a busy one gets no more runs and ends with its last, so that a place becomes
//! free. Runs that wait for a slot take turns by owner.

use super::{
    messages::RunWork,
    places::{PoolBounds, WorkerClass, WorkerKey, WorkerPlace},
    process::{ProcessThread, WorkerCommand},
    program_text::ProgramText,
    quarantine::Quarantine,
    slot_queue::SlotQueue,
    worker_link::{EndCause, LinkOwner, RunHandle, WorkerLink},
};
use crate::{
    model::id_map::IdMap,
    platform::metrics::Metrics,
    scripting::lua::{RunLimits, ScriptError},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::oneshot};

/// The time after which an idle worker ends.
const IDLE: Duration = Duration::from_secs(60);

/// All workers.
pub(super) struct WorkerPool {
    /// The pool itself, for the tasks it starts.
    this: Weak<Self>,
    state: Mutex<WorkerPoolState>,
    next_id: AtomicU64,
    bounds: PoolBounds,
    limits: RunLimits,
    command: WorkerCommand,
    processes: ProcessThread,
    quarantine: Arc<Quarantine>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct WorkerPoolState {
    members: IdMap<u64, Member>,
    /// The ids of the members of each kind.
    by_place: HashMap<WorkerPlace, Vec<u64>>,
    /// The workers that are being started.
    starting: HashMap<WorkerPlace, usize>,
    waiting: SlotQueue<SlotGrant>,
    stopped: bool,
}

struct Member {
    link: Arc<WorkerLink>,
    place: WorkerPlace,
    runs: usize,
    /// It gets no more runs, because others wait for its place.
    retiring: bool,
    started: Instant,
    /// The end of its last run.
    idle_since: Instant,
}

/// A slot that was waited for, or the reason that there is none.
type SlotGrant = Result<RunSlot, ScriptError>;

/// Room for one run in a worker.
pub(super) struct RunSlot {
    pool: Weak<WorkerPool>,
    link: Arc<WorkerLink>,
    begun: bool,
}

/// Things to do after the lock is released.
#[derive(Default)]
struct WorkerPoolActions {
    grants: Vec<(oneshot::Sender<SlotGrant>, SlotGrant)>,
    starts: Vec<WorkerPlace>,
    retired: Vec<Arc<WorkerLink>>,
}

impl WorkerPool {
    /// Makes a pool. The first worker starts with the first run.
    ///
    /// # Errors
    ///
    /// Fails if no thread can be started.
    pub fn new(
        bounds: PoolBounds,
        limits: RunLimits,
        command: WorkerCommand,
        quarantine: Arc<Quarantine>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Arc<Self>> {
        let checked = Arc::<OnceLock<Weak<Self>>>::default();
        let checked_pool = checked.clone();
        let processes = ProcessThread::start(move || {
            if let Some(pool) = checked_pool.get().and_then(Weak::upgrade) {
                pool.check();
            }
        })?;
        let (state, next_id) = (Mutex::default(), AtomicU64::new(0));
        let pool = Arc::new_cyclic(|this: &Weak<Self>| {
            let _ = checked.set(this.clone());
            Self { this: this.clone(), state, next_id, bounds, limits, command, processes, quarantine, metrics }
        });
        Ok(pool)
    }

    /// Waits for a slot in a worker of this kind.
    ///
    /// # Errors
    ///
    /// Fails if too many runs wait, no worker can be started, or the server shuts down.
    pub async fn slot(&self, place: WorkerPlace) -> Result<RunSlot, ScriptError> {
        let mut actions = WorkerPoolActions::default();
        let waiting = {
            let mut state = self.state.lock();
            if state.stopped {
                return Err(ScriptError::Stopped);
            }
            // Checked first: what is chosen below must be carried out.
            if !state.waiting.has_room(place.key.acts_for, self.bounds) {
                return Err(ScriptError::Busy);
            }
            // Nobody overtakes a run of the same owner that waits.
            let chosen = if state.waiting.has(place) { None } else { self.choose(&mut state, place, &mut actions) };
            match chosen {
                Some(link) => Ok(self.granted(link)),
                None => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.push(place, sender);
                    Err(receiver)
                }
            }
        };
        self.act(actions);
        match waiting {
            Ok(slot) => Ok(slot),
            Err(receiver) => receiver.await.unwrap_or(Err(ScriptError::Stopped)),
        }
    }

    /// Waits for a slot as [`WorkerPool::slot`] does, for a run that is of use only if it leaves room to those that
    /// must be made.
    ///
    /// # Errors
    ///
    /// Fails in addition if half of the runs that an owner may have wait already.
    pub async fn spare_slot(&self, place: WorkerPlace) -> Result<RunSlot, ScriptError> {
        if self.state.lock().waiting.waiting_of(place.key.acts_for) >= self.bounds.queue_per_owner / 2 {
            return Err(ScriptError::Busy);
        }
        self.slot(place).await
    }

    /// The number of workers that run now.
    pub fn workers(&self) -> usize {
        self.state.lock().members.len()
    }

    /// The process ids of the workers.
    #[cfg(test)]
    pub fn pids(&self) -> Vec<u32> {
        self.state.lock().members.values().map(|member| member.link.pid()).collect()
    }

    /// Ends every worker and starts no more. Runs in progress are lost.
    pub fn stop(&self) {
        let (links, waiting) = {
            let mut state = self.state.lock();
            state.stopped = true;
            let links: Vec<_> = state.members.values().map(|member| member.link.clone()).collect();
            (links, state.waiting.take_all())
        };
        for sender in waiting {
            let _ = sender.send(Err(ScriptError::Stopped));
        }
        for link in links {
            link.kill(EndCause::Stopped);
        }
    }

    fn granted(&self, link: Arc<WorkerLink>) -> RunSlot {
        RunSlot { pool: self.this.clone(), link, begun: false }
    }

    /// Chooses a worker for a run and takes a slot in it. Another worker is started if those of this kind are busy.
    fn choose(
        &self,
        state: &mut WorkerPoolState,
        place: WorkerPlace,
        actions: &mut WorkerPoolActions,
    ) -> Option<Arc<WorkerLink>> {
        let ids = state.by_place.get(&place).map_or(&[][..], Vec::as_slice);
        let slots = ids.iter().filter_map(|id| state.members.get(id).map(|member| (*id, member)));
        let open = slots.filter(|(_, member)| !member.retiring && member.runs < self.bounds.runs(place.class));
        let best = open.map(|(id, member)| (member.link.turns(), id)).min();
        let free = best.filter(|(turns, _)| *turns == 0);
        if free.is_none() {
            let own = ids.len() + state.starting.get(&place).copied().unwrap_or(0);
            if own < self.bounds.per_owner && self.make_room(state, place, own == 0, actions) {
                *state.starting.entry(place).or_default() += 1;
                actions.starts.push(place);
            }
        }
        let (_, id) = free.or(best.filter(|(turns, _)| *turns < self.bounds.turns(place.class)))?;
        let member = state.members.get_mut(&id)?;
        member.runs += 1;
        Some(member.link.clone())
    }

    /// Makes a place for another worker, by ending an idle one if need be. If there is none and the owner has no worker
    /// at all (`needed`), the worker that runs for longest gets no more runs.
    fn make_room(
        &self,
        state: &mut WorkerPoolState,
        place: WorkerPlace,
        needed: bool,
        actions: &mut WorkerPoolActions,
    ) -> bool {
        let starting: usize = state.starting.values().sum();
        let is_script = |place: &WorkerPlace| place.class == WorkerClass::Script;
        let scripts = state.members.values().filter(|member| is_script(&member.place)).count()
            + state.starting.iter().filter(|(place, _)| is_script(place)).map(|(_, count)| count).sum::<usize>();
        let scripts_full = is_script(&place) && scripts >= self.bounds.script_workers;
        if !scripts_full && state.members.len() + starting < self.bounds.workers {
            return true;
        }
        let candidates = || {
            let others = state.members.iter().filter(|(_, member)| member.place != place);
            others.filter(|(_, member)| !scripts_full || is_script(&member.place))
        };
        let idle = candidates().filter(|(_, member)| member.runs == 0).min_by_key(|(_, member)| member.idle_since);
        if let Some(id) = idle.map(|(id, _)| *id) {
            actions.retired.extend(state.remove(id));
            return true;
        }
        if needed && candidates().filter(|(_, member)| member.retiring).count() < state.waiting.places() + 1 {
            // A worker for templates is free sooner.
            let eldest = candidates()
                .filter(|(_, member)| !member.retiring)
                .min_by_key(|(_, member)| (is_script(&member.place), member.started))
                .map(|(id, _)| *id);
            if let Some(member) = eldest.and_then(|id| state.members.get_mut(&id)) {
                member.retiring = true;
            }
        }
        false
    }

    /// Gives free slots to the runs that wait, one owner after the other.
    fn dispatch(&self, state: &mut WorkerPoolState, actions: &mut WorkerPoolActions) {
        let mut without_slot = 0;
        while without_slot < state.waiting.places()
            && let Some(place) = state.waiting.next_place()
        {
            match self.choose(state, place, actions) {
                Some(link) => {
                    without_slot = 0;
                    match state.waiting.pop(place) {
                        Some(sender) => actions.grants.push((sender, Ok(self.granted(link)))),
                        None => state.leave(link.id),
                    }
                }
                None => without_slot += 1,
            }
        }
    }

    fn act(&self, actions: WorkerPoolActions) {
        for link in actions.retired {
            link.kill(EndCause::Retired);
        }
        for (sender, slot) in actions.grants {
            // A slot that is no longer wanted is given back when it is dropped.
            let _ = sender.send(slot);
        }
        for place in actions.starts {
            // Without a tokio runtime the server is on its way out, and nobody waits.
            if let (Some(pool), Ok(tokio)) = (self.this.upgrade(), Handle::try_current()) {
                tokio.spawn(async move { pool.start(place).await });
            }
        }
    }

    async fn start(&self, place: WorkerPlace) {
        let started = self.processes.start_worker(self.command.clone()).await;
        let id = self.next_id.fetch_add(1, Relaxed);
        let link = started.and_then(|process| {
            let (owner, quarantine): (Weak<dyn LinkOwner>, _) = (self.this.clone(), self.quarantine.clone());
            WorkerLink::start(id, place.key, process, place.class.limits(self.limits), owner, quarantine)
        });
        let mut actions = WorkerPoolActions::default();
        {
            let mut state = self.state.lock();
            match state.starting.get_mut(&place) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(state.starting.remove(&place)),
            }
            match &link {
                Ok(link) if state.stopped => actions.retired.push(link.clone()),
                Ok(link) => {
                    let now = Instant::now();
                    let link = link.clone();
                    let member = Member { link, place, runs: 0, retiring: false, started: now, idle_since: now };
                    state.members.insert(id, member);
                    state.by_place.entry(place).or_default().push(id);
                }
                Err(_) => {
                    if let Some(sender) = state.waiting.pop(place) {
                        actions.grants.push((sender, Err(ScriptError::Host)));
                    }
                }
            }
            self.dispatch(&mut state, &mut actions);
        }
        if let Err(error) = link {
            log::error!("cannot start a worker process for scripts: {error}");
        }
        self.act(actions);
    }

    /// Ends turns that are far over a limit, and workers that are idle.
    fn check(&self) {
        let mut retired = Vec::new();
        let busy: Vec<_> = {
            let mut state = self.state.lock();
            let idle =
                state.members.iter().filter(|(_, member)| member.runs == 0 && member.idle_since.elapsed() > IDLE);
            let idle: Vec<_> = idle.map(|(id, _)| *id).collect();
            retired.extend(idle.into_iter().filter_map(|id| state.remove(id)));
            state.members.values().filter(|member| member.runs > 0).map(|member| member.link.clone()).collect()
        };
        retired.iter().for_each(|link| link.kill(EndCause::Retired));
        busy.iter().for_each(|link| link.check_limits());
    }
}

impl LinkOwner for WorkerPool {
    fn run_ended(&self, worker: u64) {
        let mut actions = WorkerPoolActions::default();
        {
            let mut state = self.state.lock();
            state.leave(worker);
            let done = state.members.get(&worker).is_some_and(|member| member.retiring && member.runs == 0);
            if done {
                actions.retired.extend(state.remove(worker));
            }
            self.dispatch(&mut state, &mut actions);
        }
        self.act(actions);
    }

    fn worker_ended(&self, worker: u64, cause: EndCause) {
        if !matches!(cause, EndCause::Retired | EndCause::Stopped) {
            self.metrics.lua_workers_lost.increment();
        }
        let mut actions = WorkerPoolActions::default();
        {
            let mut state = self.state.lock();
            state.remove(worker);
            self.dispatch(&mut state, &mut actions);
        }
        self.act(actions);
    }

    fn processes(&self) -> &ProcessThread {
        &self.processes
    }
}

impl WorkerPoolState {
    fn remove(&mut self, id: u64) -> Option<Arc<WorkerLink>> {
        let member = self.members.remove(&id)?;
        if let Some(ids) = self.by_place.get_mut(&member.place) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_place.remove(&member.place);
            }
        }
        Some(member.link)
    }

    /// Gives a slot back.
    fn leave(&mut self, id: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.runs -= 1;
            member.idle_since = Instant::now();
        }
    }
}

impl RunSlot {
    /// Begins a run of these filters, or of this one program, in the worker; `None` if the worker is gone meanwhile.
    pub fn begin(mut self, programs: &[ProgramText], work: &RunWork) -> Option<RunHandle> {
        let handle = self.link.begin(programs, work)?;
        // From now on the slot is free when the run is over.
        self.begun = true;
        Some(handle)
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        if !self.begun
            && let Some(pool) = self.pool.upgrade()
        {
            pool.run_ended(self.link.id);
        }
    }
}

impl WorkerPlace {
    pub fn new(key: WorkerKey, class: WorkerClass) -> Self {
        Self { key, class }
    }
}
