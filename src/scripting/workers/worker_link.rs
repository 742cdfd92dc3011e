//! The server's end of a worker: sends turns, reads what the worker sends, and knows which run has its turn.
//!
//! A worker is untrusted. Each of its messages must be about the run whose turn it is, as [`super::messages`] has it;
//! anything else ends the worker. Sending never waits: the bytes that the socket does not take at once are kept, and
//! there are never more than the runs of one worker need.

use super::{
    host_messages::{HostRequest, HostResult},
    messages::{
        FinishedRun, FromWorker, RunWork, write_end, write_forget, write_limits, write_program, write_reply,
        write_start,
    },
    places::WorkerKey,
    process::{ProcessThread, StartedProcess, own_fault, process_cpu},
    program_text::ProgramText,
    quarantine::Quarantine,
    wire::{FrameBuffer, FrameWriter, MAX_FRAME, Malformed, READ_SIZE},
    worker_socket::WorkerSocket,
};
use crate::{
    model::id_map::IdMap,
    platform::task,
    scripting::lua::{LimitExceeded, RunLimits, ScriptError},
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    process::Child,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc};

/// The programs that a worker keeps.
const MAX_PROGRAMS: usize = 64;

/// The processor time over its limit after which a turn is ended by killing the worker.
const CPU_GRACE: Duration = Duration::from_secs(1);

/// The wall-clock time over its limit after which a turn is ended by killing the worker.
const WALL_GRACE: Duration = Duration::from_secs(5);

/// The time that a turn whose caller is gone may still take.
const ABANDONED_GRACE: Duration = Duration::from_secs(1);

/// The time after which a socket that cannot be watched is tried again.
const UNWATCHED_WAIT: Duration = Duration::from_millis(10);

/// A worker process and its runs.
pub(super) struct WorkerLink {
    pub id: u64,
    key: WorkerKey,
    pid: u32,
    limits: RunLimits,
    socket: WorkerSocket,
    child: Mutex<Option<Child>>,
    state: Mutex<WorkerLinkState>,
    /// The number of turns that the worker has to take.
    turns: AtomicUsize,
    next_run: AtomicU64,
    /// Notified when the socket did not take everything.
    blocked: Notify,
    /// The turn that was under way at the last check.
    observed: Mutex<Option<ObservedTurn>>,
    owner: Weak<dyn LinkOwner>,
    quarantine: Arc<Quarantine>,
}

/// The owner of links, who is told what becomes of them.
pub(super) trait LinkOwner: Send + Sync {
    /// A run of this worker is over, and its place is free.
    fn run_ended(&self, worker: u64);
    /// The worker is gone, and its runs with it.
    fn worker_ended(&self, worker: u64, cause: EndCause);
    fn processes(&self) -> &ProcessThread;
}

#[derive(Default)]
struct WorkerLinkState {
    /// Bytes that wait to be sent.
    outbox: Vec<u8>,
    /// True while somebody writes to the socket.
    writing: bool,
    /// The runs that have a turn, in the order in which the worker takes them.
    turns: VecDeque<u64>,
    /// Grows with every turn that ends.
    turn_number: u64,
    runs: IdMap<u64, RunRecord>,
    /// The programs that the worker has, the one used last at the end.
    programs: VecDeque<u64>,
    /// Set when the worker is killed.
    cause: Option<EndCause>,
    ended: bool,
}

struct RunRecord {
    /// One program, or the filters of an event.
    programs: Vec<ProgramText>,
    /// The program is compiled and not run, which tells nothing of how it behaves.
    is_compilation: bool,
    events: mpsc::UnboundedSender<RunEvent>,
    phase: RunPhase,
    /// The time at which the first turn began.
    began: Option<Instant>,
    /// The time at which the caller went away.
    abandoned: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    /// The run has a turn, or waits for one.
    InTurn,
    /// The worker waits for a reply in the middle of the run's turn.
    Asking,
    /// The run waits for a reply, and the worker takes other turns.
    Waiting,
}

/// A turn and the worker's times when it was first seen.
struct ObservedTurn {
    number: u64,
    cpu: Duration,
    at: Instant,
}

/// The reason for which a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCause {
    /// It was idle, or its place was needed.
    Retired,
    /// The server shuts down.
    Stopped,
    /// The present turn exceeded this limit.
    Limit(LimitExceeded),
    /// The caller of the present turn is gone.
    Abandoned,
    /// It sent something that it must not send.
    Protocol,
    /// It ended by itself, or somebody killed it.
    Closed,
}

/// A change of a run.
#[derive(Debug)]
pub(super) enum RunEvent {
    /// Its turn has ended, and the reply begins the next one.
    YieldingRequest(HostRequest),
    /// Its worker does nothing else until it has the reply.
    BlockingRequest(HostRequest),
    Done(FinishedRun),
    Lost(LostRun),
}

/// A run whose worker is gone.
#[derive(Debug)]
pub(super) enum LostRun {
    /// The run ended the worker.
    Failed(ScriptError),
    /// The run is not to blame: it is to be repeated.
    Repeat,
    /// Somebody else killed the worker while it executed the run.
    Unexplained,
    Stopped,
}

/// One run in a worker. Dropping it ends the run.
pub(super) struct RunHandle {
    link: Arc<WorkerLink>,
    run: u64,
    events: mpsc::UnboundedReceiver<RunEvent>,
}

impl WorkerLink {
    /// Takes over a process that has just started.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be watched.
    pub fn start(
        id: u64,
        key: WorkerKey,
        process: StartedProcess,
        limits: RunLimits,
        owner: Weak<dyn LinkOwner>,
        quarantine: Arc<Quarantine>,
    ) -> io::Result<Arc<Self>> {
        let mut writer = FrameWriter::default();
        write_limits(&mut writer, limits);
        let link = Arc::new(Self {
            id,
            key,
            pid: process.child.id(),
            limits,
            socket: WorkerSocket::new(process.socket)?,
            child: Mutex::new(Some(process.child)),
            state: Mutex::new(WorkerLinkState { outbox: writer.bytes, ..WorkerLinkState::default() }),
            turns: AtomicUsize::new(0),
            next_run: AtomicU64::new(0),
            blocked: Notify::new(),
            observed: Mutex::default(),
            owner,
            quarantine,
        });
        link.flush();
        let served = link.clone();
        task::spawn(async move {
            let cause = tokio::select! {
                cause = served.read() => cause,
                never = served.write() => match never {},
            };
            served.end(cause).await;
        });
        Ok(link)
    }

    /// The number of turns that the worker has to take.
    pub fn turns(&self) -> usize {
        self.turns.load(Relaxed)
    }

    /// The worker's process id.
    #[cfg(test)]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Begins a run of these filters, or of this one program; `None` if the worker is gone.
    pub fn begin(self: &Arc<Self>, programs: &[ProgramText], work: &RunWork) -> Option<RunHandle> {
        let run = self.next_run.fetch_add(1, Relaxed);
        let mut start = FrameWriter { bytes: Vec::with_capacity(1 << 10) };
        write_start(&mut start, run, programs, work);
        let (sender, events) = mpsc::unbounded_channel();
        {
            let mut state = self.state.lock();
            if state.cause.is_some() || state.ended {
                return None;
            }
            programs.iter().for_each(|program| state.give_program(program));
            state.outbox.append(&mut start.bytes);
            let record = RunRecord {
                programs: programs.to_vec(),
                is_compilation: matches!(work, RunWork::Compile),
                events: sender,
                phase: RunPhase::InTurn,
                began: None,
                abandoned: None,
            };
            state.runs.insert(run, record);
            self.push_turn(&mut state, run);
        }
        self.flush();
        Some(RunHandle { link: self.clone(), run, events })
    }

    /// Kills the worker. Its runs are lost as the cause has it.
    pub fn kill(&self, cause: EndCause) {
        self.state.lock().cause.get_or_insert(cause);
        if let Some(child) = self.child.lock().as_mut() {
            let _ = child.kill();
        }
    }

    /// Kills the worker if its present turn is far over a limit.
    pub fn check_limits(&self) {
        let (number, head, asking) = {
            let state = self.state.lock();
            let Some(head) = state.turns.front().and_then(|run| state.runs.get(run)) else { return };
            (state.turn_number, head.abandoned, head.phase == RunPhase::Asking)
        };
        let Some(cpu) = process_cpu(self.pid) else { return };
        let exceeded = {
            let mut observed = self.observed.lock();
            let seen = match &mut *observed {
                Some(seen) if seen.number == number => seen,
                other => other.insert(ObservedTurn { number, cpu, at: Instant::now() }),
            };
            if cpu.saturating_sub(seen.cpu) > self.limits.cpu.saturating_add(CPU_GRACE) {
                Some(EndCause::Limit(LimitExceeded::Cpu(self.limits.cpu)))
            } else if !asking && seen.at.elapsed() > self.limits.wall.saturating_add(WALL_GRACE) {
                Some(EndCause::Limit(LimitExceeded::Wall(self.limits.wall)))
            } else if !asking && head.is_some_and(|since| since.elapsed() > ABANDONED_GRACE) {
                Some(EndCause::Abandoned)
            } else {
                None
            }
        };
        if let Some(cause) = exceeded {
            self.kill(cause);
        }
    }

    fn push_turn(&self, state: &mut WorkerLinkState, run: u64) {
        state.turns.push_back(run);
        if state.turns.len() == 1 {
            state.begin_turn();
        }
        self.turns.store(state.turns.len(), Relaxed);
    }

    /// Replies to the request of a run, if the run still waits. `program` is the library that the reply names.
    fn reply(&self, run: u64, result: &HostResult, program: Option<&ProgramText>) {
        let mut reply = FrameWriter::default();
        write_reply(&mut reply, run, result);
        {
            let mut state = self.state.lock();
            let Some(record) = state.runs.get_mut(&run) else { return };
            let phase = std::mem::replace(&mut record.phase, RunPhase::InTurn);
            if let Some(program) = program {
                state.give_program(program);
            }
            state.outbox.append(&mut reply.bytes);
            if phase == RunPhase::Waiting {
                self.push_turn(&mut state, run);
            }
        }
        self.flush();
    }

    /// Ends a run that waits for a reply.
    fn end_waiting(&self, run: u64, why: LimitExceeded) {
        let mut writer = FrameWriter::default();
        write_end(&mut writer, run, why);
        {
            let mut state = self.state.lock();
            let Some(record) = state.runs.get_mut(&run).filter(|record| record.phase == RunPhase::Waiting) else {
                return;
            };
            record.phase = RunPhase::InTurn;
            state.outbox.append(&mut writer.bytes);
            self.push_turn(&mut state, run);
        }
        self.flush();
    }

    /// Ends a run whose caller is gone: at once if it waits, else with its turn.
    fn abandon(&self, run: u64) {
        let phase = {
            let mut state = self.state.lock();
            let Some(record) = state.runs.get_mut(&run) else { return };
            record.abandoned = Some(Instant::now());
            record.phase
        };
        match phase {
            RunPhase::InTurn => {}
            RunPhase::Asking => self.reply(run, &Err(LimitExceeded::Cancelled.to_string()), None),
            RunPhase::Waiting => self.end_waiting(run, LimitExceeded::Cancelled),
        }
    }

    /// Takes a message of the worker.
    fn receive(&self, message: FromWorker) -> Result<(), Malformed> {
        let run = message.run();
        let (finished, abandoned) = {
            let mut state = self.state.lock();
            if state.turns.front() != Some(&run) {
                return Err(Malformed);
            }
            let Some(record) = state.runs.get_mut(&run).filter(|record| record.phase == RunPhase::InTurn) else {
                return Err(Malformed);
            };
            let abandoned = record.abandoned.is_some();
            match message {
                FromWorker::BlockingRequest { request, .. } => {
                    record.phase = RunPhase::Asking;
                    let _ = record.events.send(RunEvent::BlockingRequest(request));
                    (None, abandoned)
                }
                FromWorker::YieldingRequest { request, .. } => {
                    record.phase = RunPhase::Waiting;
                    let _ = record.events.send(RunEvent::YieldingRequest(request));
                    self.end_turn(&mut state);
                    (None, abandoned)
                }
                FromWorker::Done { finished, .. } => {
                    let record = state.runs.remove(&run).expect("it was found above");
                    self.end_turn(&mut state);
                    (Some((record, finished)), abandoned)
                }
            }
        };
        match finished {
            Some((record, finished)) => {
                if !record.is_compilation {
                    record.programs.iter().for_each(|program| self.quarantine.succeeded(self.key, program));
                }
                // The place is free before the caller goes on, who may begin the next run.
                if let Some(owner) = self.owner.upgrade() {
                    owner.run_ended(self.id);
                }
                let _ = record.events.send(RunEvent::Done(finished));
            }
            None if abandoned => self.abandon(run),
            None => {}
        }
        Ok(())
    }

    fn end_turn(&self, state: &mut WorkerLinkState) {
        state.turns.pop_front();
        state.turn_number += 1;
        state.begin_turn();
        self.turns.store(state.turns.len(), Relaxed);
    }

    /// Sends what the socket takes now. Only one caller writes at a time, and none holds the lock meanwhile.
    fn flush(&self) {
        loop {
            let bytes = {
                let mut state = self.state.lock();
                if state.writing || state.outbox.is_empty() {
                    return;
                }
                state.writing = true;
                std::mem::take(&mut state.outbox)
            };
            let mut sent = 0;
            while sent < bytes.len() {
                match self.socket.send(&bytes[sent..]) {
                    Ok(count) => sent += count,
                    // The end of the worker is found by reading.
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => sent = bytes.len(),
                    Err(_) => break,
                }
            }
            let mut state = self.state.lock();
            state.writing = false;
            if sent < bytes.len() {
                let later = std::mem::replace(&mut state.outbox, bytes);
                state.outbox.drain(..sent);
                state.outbox.extend_from_slice(&later);
                drop(state);
                self.blocked.notify_one();
                return;
            }
        }
    }

    /// Sends what the socket did not take at once, whenever it takes more.
    async fn write(&self) -> Infallible {
        loop {
            self.blocked.notified().await;
            if self.socket.room().await.is_err() {
                // There was no descriptor to watch it with. The worker must not pay for that.
                tokio::time::sleep(UNWATCHED_WAIT).await;
            }
            self.flush();
        }
    }

    /// Reads messages until the worker ends or breaks the rules.
    async fn read(&self) -> EndCause {
        let (mut received, mut buffer) = (vec![0; READ_SIZE], FrameBuffer::default());
        loop {
            match self.socket.receive(&mut received).await {
                Ok(count @ 1..) => buffer.add(&received[..count]),
                _ => return EndCause::Closed,
            }
            loop {
                let taken = match buffer.next(MAX_FRAME) {
                    Ok(None) => break,
                    Ok(Some(frame)) => FromWorker::read(frame).and_then(|message| self.receive(message)),
                    Err(error) => Err(error),
                };
                if taken.is_err() {
                    return EndCause::Protocol;
                }
            }
        }
    }

    /// Ends the process and tells the callers of its runs.
    async fn end(&self, found: EndCause) {
        let (cause, runs, head) = {
            let mut state = self.state.lock();
            state.ended = true;
            let head = state.turns.front().copied();
            (state.cause.unwrap_or(found), std::mem::take(&mut state.runs), head)
        };
        let child = self.child.lock().take();
        let status = match (self.owner.upgrade(), child) {
            (Some(owner), Some(child)) => owner.processes().end_worker(child).await.ok(),
            _ => None,
        };
        let mut fault = match cause {
            EndCause::Limit(limit) => Some(ScriptError::Killed(limit)),
            EndCause::Protocol => Some(ScriptError::Crashed("it broke the rules of its connection".to_owned())),
            EndCause::Closed => status.and_then(own_fault).map(ScriptError::Crashed),
            EndCause::Retired | EndCause::Stopped | EndCause::Abandoned => None,
        };
        if let Some(fault) = &fault {
            log::warn!("the worker process {} of {} ended: {fault}", self.pid, self.key);
        }
        for (run, record) in runs {
            let own_fault = if head == Some(run) { fault.take() } else { None };
            let lost = match (cause, own_fault) {
                (EndCause::Stopped, _) => LostRun::Stopped,
                (_, Some(fault)) => {
                    // Which one of several filters it was is found when each runs alone.
                    if let [program] = &record.programs[..] {
                        self.quarantine.record_fault(self.key, program, fault.to_string());
                    }
                    LostRun::Failed(fault)
                }
                (EndCause::Closed, None) if head == Some(run) => LostRun::Unexplained,
                (_, None) => LostRun::Repeat,
            };
            let _ = record.events.send(RunEvent::Lost(lost));
        }
        if let Some(owner) = self.owner.upgrade() {
            owner.worker_ended(self.id, cause);
        }
    }
}

impl WorkerLinkState {
    /// Sends a program, unless the worker has it. The program used longest ago makes room.
    fn give_program(&mut self, program: &ProgramText) {
        let id = program.id();
        if self.programs.back() == Some(&id) {
            return;
        }
        let known = self.programs.iter().position(|known| *known == id);
        let mut writer = FrameWriter { bytes: std::mem::take(&mut self.outbox) };
        match known {
            Some(at) => drop(self.programs.remove(at)),
            None => write_program(&mut writer, id, program.content()),
        }
        self.programs.push_back(id);
        if self.programs.len() > MAX_PROGRAMS
            && let Some(oldest) = self.programs.pop_front()
        {
            write_forget(&mut writer, oldest);
        }
        self.outbox = writer.bytes;
    }

    /// Notes the time at which the run whose turn it is began.
    fn begin_turn(&mut self) {
        if let Some(record) = self.turns.front().and_then(|run| self.runs.get_mut(run)) {
            record.began.get_or_insert_with(Instant::now);
        }
    }
}

impl RunHandle {
    /// The next change of the run.
    pub async fn next(&mut self) -> RunEvent {
        self.events.recv().await.unwrap_or(RunEvent::Lost(LostRun::Repeat))
    }

    pub fn reply(&self, result: &HostResult, program: Option<&ProgramText>) {
        self.link.reply(self.run, result, program);
    }

    /// Ends the run while it waits for a reply.
    pub fn end(&self, why: LimitExceeded) {
        self.link.end_waiting(self.run, why);
    }

    /// Kills the worker, because this run does not keep to its limits.
    pub fn kill(&self, limit: LimitExceeded) {
        self.link.kill(EndCause::Limit(limit));
    }

    /// The wall-clock time that the run has left.
    pub fn time_left(&self) -> Duration {
        let began = self.link.state.lock().runs.get(&self.run).and_then(|record| record.began);
        let spent = began.map_or(Duration::ZERO, |began| began.elapsed());
        self.link.limits.wall.saturating_sub(spent)
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        self.link.abandon(self.run);
    }
}
