//! The requests of one method server: those that wait to be sent, and those that wait for an answer.
//!
//! A caller holds a [`RequestGuard`]; its request stays here until it is answered or the guard is dropped, and a request
//! that was not sent by then never is. In serial mode the process gets one call at a time: a sent call takes the *slot*
//! until its answer arrives, even if its caller is gone, because the process is busy with it. Notifications wait for the
//! slot and do not take it. Requests that wait for the slot stay while a process that hangs is replaced ([`RequestQueue::pause`]).
//!
//! One lock guards everything; no code waits while holding it.

use super::{
    fault::CallFault,
    messages::{ServerAnswer, encode_request},
};
use crate::model::{jsonrpc::RpcResponse, method::ServerMode};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// Bytes of unsent requests: a few of the longest ones.
const MAX_BYTES: usize = 64 << 20;

/// Unsent requests of a serial process.
const MAX_WAITING: usize = 1000;

/// Approximate size of one write, which is the capacity of a pipe.
const BATCH: usize = 64 << 10;

/// Ids of withdrawn requests that may stay in the queue before they are removed.
const MAX_STALE: usize = 1024;

/// The queue of one method server.
pub struct RequestQueue {
    mode: ServerMode,
    next_id: AtomicU64,
    state: Mutex<RequestQueueState>,
    /// Notified when there may be something to send, or the queue is closed.
    sendable: Notify,
    /// Notified when no request is left.
    idle: Notify,
}

struct RequestQueueState {
    intake: QueueIntake,
    requests: HashMap<u64, QueuedRequest>,
    /// Ids in the order of sending; those no longer in `requests` were withdrawn.
    order: VecDeque<u64>,
    unsent: usize,
    unsent_bytes: usize,
    slot: Option<SerialSlot>,
}

/// The acceptance of new requests.
enum QueueIntake {
    Open,
    /// No new requests; those in the queue are still sent.
    Draining,
    /// New requests wait with the unsent ones for the next process.
    Paused,
    /// No process runs, for this reason.
    Closed(Arc<str>),
}

struct QueuedRequest {
    reply: ReplySender,
    /// The encoded request; `None` once it was sent.
    unsent: Option<Vec<u8>>,
    /// Tells the caller of a serial process that the request is being sent.
    turn: Option<oneshot::Sender<()>>,
}

enum ReplySender {
    Call(oneshot::Sender<Result<RpcResponse, CallFault>>),
    Notification(oneshot::Sender<Result<(), CallFault>>),
}

/// The call that a serial process is busy with.
struct SerialSlot {
    id: u64,
    since: Instant,
}

/// A caller's hold on its request, which is withdrawn when this is dropped.
pub struct RequestGuard {
    queue: Arc<RequestQueue>,
    id: u64,
    queued: bool,
}

/// A queued request, and the receiver of its reply.
pub struct PendingReply<T> {
    pub request: RequestGuard,
    /// Resolves once a serial process gets the request. `None` for a concurrent one, which gets it at once.
    pub turn: Option<oneshot::Receiver<()>>,
    pub reply: oneshot::Receiver<Result<T, CallFault>>,
}

/// Result of [`RequestQueue::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Requests,
    Nothing,
    /// Nothing more for this process: the queue is closed or paused.
    Ended,
}

impl RequestQueue {
    /// An open queue, for a process that runs.
    pub fn new(mode: ServerMode) -> Self {
        let state = RequestQueueState {
            intake: QueueIntake::Open,
            requests: HashMap::new(),
            order: VecDeque::new(),
            unsent: 0,
            unsent_bytes: 0,
            slot: None,
        };
        Self {
            mode,
            next_id: AtomicU64::new(1),
            state: Mutex::new(state),
            sendable: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Queues a call.
    pub fn call(
        this: &Arc<Self>,
        name: &str,
        params: Option<&RawValue>,
    ) -> Result<PendingReply<RpcResponse>, CallFault> {
        let (sender, reply) = oneshot::channel();
        let (request, turn) = Self::enqueue(this, name, params, ReplySender::Call(sender))?;
        Ok(PendingReply { request, turn, reply })
    }

    /// Queues a notification.
    pub fn notify(this: &Arc<Self>, name: &str, params: Option<&RawValue>) -> Result<PendingReply<()>, CallFault> {
        let (sender, reply) = oneshot::channel();
        let (request, turn) = Self::enqueue(this, name, params, ReplySender::Notification(sender))?;
        Ok(PendingReply { request, turn, reply })
    }

    fn enqueue(
        this: &Arc<Self>,
        name: &str,
        params: Option<&RawValue>,
        reply: ReplySender,
    ) -> Result<(RequestGuard, Option<oneshot::Receiver<()>>), CallFault> {
        let id = this.next_id.fetch_add(1, Ordering::Relaxed);
        let request = match reply {
            ReplySender::Call(_) => encode_request(Some(id), name, params),
            ReplySender::Notification(_) => encode_request(None, name, params),
        };
        let mut state = this.state();
        match &state.intake {
            QueueIntake::Open | QueueIntake::Paused => {}
            QueueIntake::Draining => return Err(CallFault::NotRunning("it is being stopped".into())),
            QueueIntake::Closed(reason) => return Err(CallFault::NotRunning(reason.clone())),
        }
        let too_many = this.mode == ServerMode::Serial && state.unsent >= MAX_WAITING;
        if too_many || state.unsent_bytes + request.len() > MAX_BYTES {
            return Err(CallFault::TooManyWaiting);
        }
        state.unsent += 1;
        state.unsent_bytes += request.len();
        state.order.push_back(id);
        let (turn, awaited) = match this.mode {
            ServerMode::Serial => Some(oneshot::channel()).unzip(),
            ServerMode::Concurrent => (None, None),
        };
        state.requests.insert(id, QueuedRequest { reply, unsent: Some(request), turn });
        drop(state);
        this.sendable.notify_one();
        Ok((RequestGuard { queue: this.clone(), id, queued: true }, awaited))
    }

    /// Moves requests that may be sent now to `batch`, up to about one write.
    pub fn take(&self, batch: &mut Vec<u8>) -> Taken {
        let before = batch.len();
        let mut guard = self.state();
        let state = &mut *guard;
        let (mut notified, mut turns) = (Vec::new(), Vec::new());
        if matches!(state.intake, QueueIntake::Paused) {
            return Taken::Ended;
        }
        while batch.len() - before < BATCH && !(self.mode == ServerMode::Serial && state.slot.is_some()) {
            let Some(id) = state.order.pop_front() else { break };
            let Some(request) = state.requests.get_mut(&id) else { continue };
            let Some(unsent) = request.unsent.take() else { continue };
            turns.extend(request.turn.take());
            state.unsent -= 1;
            state.unsent_bytes -= unsent.len();
            batch.extend_from_slice(&unsent);
            match state.requests[&id].reply {
                ReplySender::Call(_) if self.mode == ServerMode::Serial => {
                    state.slot = Some(SerialSlot { id, since: Instant::now() });
                }
                ReplySender::Call(_) => {}
                ReplySender::Notification(_) => notified.extend(state.requests.remove(&id)),
            }
        }
        let closed = state.order.is_empty() && matches!(state.intake, QueueIntake::Closed(_));
        self.notify_idle(state);
        drop(guard);
        for turn in turns {
            let _ = turn.send(());
        }
        for request in notified {
            request.reply.sent();
        }
        match batch.len() > before {
            true => Taken::Requests,
            false if closed => Taken::Ended,
            false => Taken::Nothing,
        }
    }

    /// Resolves when [`RequestQueue::take`] may return another result.
    pub async fn sendable(&self) {
        self.sendable.notified().await;
    }

    /// Hands answers to their callers, and returns the number of those that nobody waits for.
    pub fn settle(&self, answers: &mut Vec<ServerAnswer>) -> usize {
        let mut guard = self.state();
        let state = &mut *guard;
        let mut freed = false;
        let count = answers.len();
        let settled: Vec<_> = answers
            .drain(..)
            .filter_map(|answer| {
                if state.slot.as_ref().is_some_and(|slot| slot.id == answer.id) {
                    state.slot = None;
                    freed = true;
                }
                // A request that was not sent cannot be answered.
                let sent = state.requests.get(&answer.id)?.unsent.is_none();
                let request = if sent { state.requests.remove(&answer.id) } else { None }?;
                Some((request, answer.outcome))
            })
            .collect();
        self.notify_idle(state);
        drop(guard);
        if freed {
            self.sendable.notify_one();
        }
        let unknown = count - settled.len();
        for (request, outcome) in settled {
            if let ReplySender::Call(reply) = request.reply {
                let _ = reply.send(outcome.map_err(CallFault::Garbled));
            }
        }
        unknown
    }

    /// Accepts requests again, for a new process.
    pub fn open(&self) {
        self.state().intake = QueueIntake::Open;
    }

    /// Accepts no more requests; those in the queue are still sent.
    pub fn drain(&self) {
        let mut state = self.state();
        state.intake = QueueIntake::Draining;
        self.notify_idle(&state);
    }

    /// Resolves once no request is unsent or unanswered; only useful after [`RequestQueue::drain`].
    pub async fn idle(&self) {
        while !self.state().requests.is_empty() {
            self.idle.notified().await;
        }
    }

    /// Sends nothing more to the process, which is to be replaced for this reason, and fails the requests that it has.
    /// The others wait until the queue is opened again, unless it is closed.
    pub fn pause(&self, reason: &Arc<str>) {
        let mut state = self.state();
        state.intake = QueueIntake::Paused;
        state.slot = None;
        let (kept, lost) =
            std::mem::take(&mut state.requests).into_iter().partition(|(_, request)| request.unsent.is_some());
        state.requests = kept;
        self.notify_idle(&state);
        drop(state);
        self.sendable.notify_one();
        let lost: HashMap<u64, QueuedRequest> = lost;
        for request in lost.into_values() {
            request.reply.fail(CallFault::Died(reason.clone()));
        }
    }

    /// Fails all requests, now and until the queue is opened again: there is no process, for this reason.
    pub fn close(&self, reason: &Arc<str>) {
        let mut state = self.state();
        state.intake = QueueIntake::Closed(reason.clone());
        state.slot = None;
        state.order.clear();
        (state.unsent, state.unsent_bytes) = (0, 0);
        let lost = std::mem::take(&mut state.requests);
        self.notify_idle(&state);
        drop(state);
        self.sendable.notify_one();
        for request in lost.into_values() {
            let fault = match request.unsent {
                Some(_) => CallFault::NotRunning(reason.clone()),
                None => CallFault::Died(reason.clone()),
            };
            request.reply.fail(fault);
        }
    }

    /// The time since which a serial process is busy with its current call.
    pub fn busy_since(&self) -> Option<Instant> {
        self.state().slot.as_ref().map(|slot| slot.since)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.state().requests.is_empty()
    }

    fn withdraw(&self, id: u64) {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(request) = state.requests.remove(&id) else { return };
        if let Some(unsent) = &request.unsent {
            state.unsent -= 1;
            state.unsent_bytes -= unsent.len();
            if state.order.len() > 2 * state.unsent + MAX_STALE {
                let RequestQueueState { order, requests, .. } = state;
                order.retain(|id| requests.contains_key(id));
            }
        }
        self.notify_idle(state);
        drop(guard);
        // Dropping the sender wakes its receiver, which is done without the lock.
        drop(request);
    }

    fn notify_idle(&self, state: &RequestQueueState) {
        if state.requests.is_empty() && !matches!(state.intake, QueueIntake::Open) {
            self.idle.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, RequestQueueState> {
        self.state.lock()
    }
}

impl ReplySender {
    fn sent(self) {
        if let Self::Notification(reply) = self {
            let _ = reply.send(Ok(()));
        }
    }

    fn fail(self, fault: CallFault) {
        match self {
            Self::Call(reply) => drop(reply.send(Err(fault))),
            Self::Notification(reply) => drop(reply.send(Err(fault))),
        }
    }
}

impl RequestGuard {
    /// Notes that the request was answered, and is not in the queue any more.
    pub fn settled(&mut self) {
        self.queued = false;
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if self.queued {
            self.queue.withdraw(self.id);
        }
    }
}

#[cfg(test)]
#[path = "request_queue_tests.rs"]
mod tests;
