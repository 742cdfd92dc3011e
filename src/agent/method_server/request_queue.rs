//! What is in line for the process, and what it has not answered yet.
//!
//! A request is a [`Ticket`] to its caller and stays here until it is answered or its ticket is dropped. One that was
//! not sent by then never is. In serial mode the process is given one call at a time: the *slot* is taken by a call
//! that is sent and free again when its answer comes, also when nobody waits for that any more: until then the process
//! is busy with it. Notifications wait for the slot and do not take it.
//!
//! One short lock guards it all; nothing waits while holding it.

use super::{CallFault, Queued, answer::Answered};
use crate::model::{jsonrpc::RpcResponse, method::ServerMode};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use std::{
    collections::{HashMap, VecDeque},
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// What may be in line for a process, in bytes: a few of the longest requests.
const MAX_BYTES: usize = 64 << 20;

/// How many may wait for a serial process.
const MAX_WAITING: usize = 1000;

/// Requests are gathered up to about this size, which is what a pipe holds, for one write.
const BATCH: usize = 64 << 10;

/// Withdrawn requests leave their ids in line; so many are not worth a sweep.
const STALE: usize = 1024;

pub struct Traffic {
    mode: ServerMode,
    next_id: AtomicU64,
    state: Mutex<State>,
    /// There may be something to send, or no more to come.
    sendable: Notify,
    /// Nothing is left.
    idle: Notify,
}

struct State {
    gate: Gate,
    requests: HashMap<u64, Request>,
    /// Ids in the order of sending; those no longer in `requests` were withdrawn.
    line: VecDeque<u64>,
    unsent: usize,
    unsent_bytes: usize,
    slot: Option<Slot>,
}

/// Whether requests are let in.
enum Gate {
    Open,
    /// No more, but what is here goes its way.
    Retiring,
    /// There is no process.
    Shut(Arc<str>),
}

struct Request {
    reply: Reply,
    /// What is to be sent; `None` once it was.
    frame: Option<Vec<u8>>,
}

enum Reply {
    Call(oneshot::Sender<Result<RpcResponse, CallFault>>),
    Notification(oneshot::Sender<Result<(), CallFault>>),
}

/// The call that a serial process is busy with.
struct Slot {
    id: u64,
    since: Instant,
}

/// A caller's hold on its request, which ends when this is dropped.
pub struct Ticket {
    traffic: Arc<Traffic>,
    id: u64,
    held: bool,
}

/// What [`Traffic::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    Something,
    Nothing,
    /// Nothing, and never again.
    End,
}

impl Traffic {
    /// For a process that runs.
    pub fn new(mode: ServerMode) -> Self {
        let state = State {
            gate: Gate::Open,
            requests: HashMap::new(),
            line: VecDeque::new(),
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

    /// Puts a call in line.
    pub fn call(this: &Arc<Self>, name: &str, params: Option<&RawValue>) -> Result<Queued<RpcResponse>, CallFault> {
        let (sender, reply) = oneshot::channel();
        Ok((Self::enqueue(this, name, params, Reply::Call(sender))?, reply))
    }

    /// Puts a notification in line.
    pub fn notify(this: &Arc<Self>, name: &str, params: Option<&RawValue>) -> Result<Queued<()>, CallFault> {
        let (sender, reply) = oneshot::channel();
        Ok((Self::enqueue(this, name, params, Reply::Notification(sender))?, reply))
    }

    fn enqueue(this: &Arc<Self>, name: &str, params: Option<&RawValue>, reply: Reply) -> Result<Ticket, CallFault> {
        let id = this.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = match reply {
            Reply::Call(_) => frame(Some(id), name, params),
            Reply::Notification(_) => frame(None, name, params),
        };
        let mut state = this.state();
        match &state.gate {
            Gate::Open => {}
            Gate::Retiring => return Err(CallFault::NotRunning("it is being stopped".into())),
            Gate::Shut(why) => return Err(CallFault::NotRunning(why.clone())),
        }
        let crowded = this.mode == ServerMode::Serial && state.unsent >= MAX_WAITING;
        if crowded || state.unsent_bytes + frame.len() > MAX_BYTES {
            return Err(CallFault::TooManyWaiting);
        }
        state.unsent += 1;
        state.unsent_bytes += frame.len();
        state.line.push_back(id);
        state.requests.insert(id, Request { reply, frame: Some(frame) });
        drop(state);
        this.sendable.notify_one();
        Ok(Ticket { traffic: this.clone(), id, held: true })
    }

    /// Moves to `batch` what may be sent now, some of it if that is a lot.
    pub fn take(&self, batch: &mut Vec<u8>) -> Taken {
        let before = batch.len();
        let mut guard = self.state();
        let state = &mut *guard;
        let mut notified = Vec::new();
        while batch.len() - before < BATCH && !(self.mode == ServerMode::Serial && state.slot.is_some()) {
            let Some(id) = state.line.pop_front() else { break };
            let Some(frame) = state.requests.get_mut(&id).and_then(|request| request.frame.take()) else { continue };
            state.unsent -= 1;
            state.unsent_bytes -= frame.len();
            batch.extend_from_slice(&frame);
            match state.requests[&id].reply {
                Reply::Call(_) if self.mode == ServerMode::Serial => {
                    state.slot = Some(Slot { id, since: Instant::now() })
                }
                Reply::Call(_) => {}
                Reply::Notification(_) => notified.extend(state.requests.remove(&id)),
            }
        }
        let end = state.line.is_empty() && matches!(state.gate, Gate::Shut(_));
        self.note_idle(state);
        drop(guard);
        for request in notified {
            request.reply.sent();
        }
        match batch.len() > before {
            true => Taken::Something,
            false if end => Taken::End,
            false => Taken::Nothing,
        }
    }

    /// Returns when [`Traffic::take`] may find something else than it did.
    pub async fn sendable(&self) {
        self.sendable.notified().await;
    }

    /// Gives answers to whoever waits for them, and returns how many nobody waits for.
    pub fn settle(&self, answers: &mut Vec<Answered>) -> usize {
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
                // Nobody can answer what was not asked yet.
                let asked = state.requests.get(&answer.id)?.frame.is_none();
                let request = if asked { state.requests.remove(&answer.id) } else { None }?;
                Some((request, answer.outcome))
            })
            .collect();
        self.note_idle(state);
        drop(guard);
        if freed {
            self.sendable.notify_one();
        }
        let unknown = count - settled.len();
        for (request, outcome) in settled {
            if let Reply::Call(reply) = request.reply {
                let _ = reply.send(outcome.map_err(CallFault::Garbled));
            }
        }
        unknown
    }

    /// There is a process again.
    pub fn open(&self) {
        self.state().gate = Gate::Open;
    }

    /// Lets nothing more in.
    pub fn retire(&self) {
        let mut state = self.state();
        state.gate = Gate::Retiring;
        self.note_idle(&state);
    }

    /// Returns once nothing is in line or unanswered; only sensible after [`Traffic::retire`].
    pub async fn idle(&self) {
        while !self.state().requests.is_empty() {
            self.idle.notified().await;
        }
    }

    /// There is no process any more: everything fails, now and until there is one again.
    pub fn shut(&self, why: &Arc<str>) {
        let mut state = self.state();
        state.gate = Gate::Shut(why.clone());
        state.slot = None;
        state.line.clear();
        (state.unsent, state.unsent_bytes) = (0, 0);
        let lost = std::mem::take(&mut state.requests);
        self.note_idle(&state);
        drop(state);
        self.sendable.notify_one();
        for request in lost.into_values() {
            let fault = match request.frame {
                Some(_) => CallFault::NotRunning(why.clone()),
                None => CallFault::Died(why.clone()),
            };
            request.reply.fail(fault);
        }
    }

    /// Since when a serial process is busy with its present call.
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
        if let Some(frame) = &request.frame {
            state.unsent -= 1;
            state.unsent_bytes -= frame.len();
            if state.line.len() > 2 * state.unsent + STALE {
                let State { line, requests, .. } = state;
                line.retain(|id| requests.contains_key(id));
            }
        }
        self.note_idle(state);
        drop(guard);
        // Its reply wakes whoever waits for it, which is done without the lock.
        drop(request);
    }

    fn note_idle(&self, state: &State) {
        if state.requests.is_empty() && !matches!(state.gate, Gate::Open) {
            self.idle.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Reply {
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

impl Ticket {
    /// The request is no longer there, and need not be looked for.
    pub fn settled(&mut self) {
        self.held = false;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.held {
            self.traffic.withdraw(self.id);
        }
    }
}

/// A request's line.
fn frame(id: Option<u64>, name: &str, params: Option<&RawValue>) -> Vec<u8> {
    let params = params.map_or("", RawValue::get);
    let mut frame = Vec::with_capacity(name.len() + params.len() + 80);
    frame.extend_from_slice(b"{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        write!(frame, "\"id\":{id},").expect("a vector takes everything");
    }
    frame.extend_from_slice(b"\"method\":");
    serde_json::to_writer(&mut frame, name).expect("a string is JSON");
    if !params.is_empty() {
        frame.extend_from_slice(b",\"params\":");
        let start = frame.len();
        frame.extend_from_slice(params.as_bytes());
        // Line ends can only stand between tokens, where a space means the same: within strings they are escaped.
        for byte in &mut frame[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    frame.extend_from_slice(b"}\n");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(mode: ServerMode) -> Arc<Traffic> {
        Arc::new(Traffic::new(mode))
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn taken(traffic: &Traffic) -> String {
        let mut batch = Vec::new();
        traffic.take(&mut batch);
        String::from_utf8(batch).unwrap()
    }

    fn ids(traffic: &Traffic) -> Vec<u64> {
        let lines = taken(traffic);
        lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap())
            .collect()
    }

    fn answer(traffic: &Traffic, id: u64) -> usize {
        traffic.settle(&mut vec![Answered { id, outcome: Ok(RpcResponse::Result(raw("true"))) }])
    }

    #[test]
    fn a_request_is_one_line_however_its_params_are_laid_out() {
        let traffic = traffic(ServerMode::Concurrent);
        let params = raw("{\r\n  \"a\": \"x\\ny\",\n  \"n\": 1.50 }");
        let _call = Traffic::call(&traffic, "a\"b\n", Some(&params)).unwrap();
        let _notification = Traffic::notify(&traffic, "n", None).unwrap();
        assert_eq!(
            taken(&traffic),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\\"b\\n\",\"params\":{    \"a\": \"x\\ny\",   \"n\": 1.50 }}\n\
             {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"
        );
    }

    #[test]
    fn a_concurrent_process_gets_all_at_once_and_may_answer_in_any_order() {
        let traffic = traffic(ServerMode::Concurrent);
        let mut calls: Vec<_> = (0..3).map(|_| Traffic::call(&traffic, "m", None).unwrap()).collect();
        assert_eq!(ids(&traffic), [1, 2, 3]);
        for (settled, id) in [3, 1, 2].into_iter().enumerate() {
            assert_eq!(answer(&traffic, id), 0);
            assert!(matches!(calls[id as usize - 1].1.try_recv(), Ok(Ok(RpcResponse::Result(_)))));
            assert_eq!(traffic.state().requests.len(), 2 - settled);
        }
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_counted_and_harms_nobody() {
        let traffic = traffic(ServerMode::Concurrent);
        let (_ticket, mut reply) = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(answer(&traffic, 1), 1, "it was not even sent");
        assert_eq!(ids(&traffic), [1]);
        assert_eq!(answer(&traffic, 7), 1);
        assert_eq!(answer(&traffic, 1), 0);
        assert_eq!(answer(&traffic, 1), 1, "it was answered before");
        assert!(matches!(reply.try_recv(), Ok(Ok(RpcResponse::Result(_)))));
    }

    #[test]
    fn a_serial_process_gets_the_next_call_after_the_answer() {
        let traffic = traffic(ServerMode::Serial);
        let _calls: Vec<_> = (0..3).map(|_| Traffic::call(&traffic, "m", None).unwrap()).collect();
        assert_eq!(ids(&traffic), [1]);
        assert_eq!(ids(&traffic), [0; 0]);
        answer(&traffic, 2);
        assert_eq!(ids(&traffic), [0; 0], "another's answer frees nothing");
        answer(&traffic, 1);
        assert_eq!(ids(&traffic), [2]);
    }

    #[test]
    fn a_serial_process_stays_busy_with_a_call_that_was_given_up_until_it_answers() {
        let traffic = traffic(ServerMode::Serial);
        drop_sent(&traffic);
        let _next = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(ids(&traffic), [0; 0]);
        assert!(traffic.busy_since().is_some());
        assert_eq!(answer(&traffic, 1), 1);
        assert!(traffic.busy_since().is_none());
        assert_eq!(ids(&traffic), [2]);
    }

    fn drop_sent(traffic: &Arc<Traffic>) {
        let call = Traffic::call(traffic, "m", None).unwrap();
        assert_eq!(ids(traffic).len(), 1);
        drop(call);
    }

    #[test]
    fn a_notification_waits_for_the_slot_and_does_not_take_it() {
        let traffic = traffic(ServerMode::Serial);
        let _first = Traffic::call(&traffic, "m", None).unwrap();
        let mut notices: Vec<_> = (0..2).map(|_| Traffic::notify(&traffic, "n", None).unwrap()).collect();
        let _second = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(ids(&traffic), [1]);
        assert!(notices[0].1.try_recv().is_err());
        answer(&traffic, 1);
        assert_eq!(taken(&traffic).lines().count(), 3);
        for (_, notice) in &mut notices {
            assert_eq!(notice.try_recv(), Ok(Ok(())));
        }
    }

    #[test]
    fn a_thousand_may_wait_for_a_serial_process_and_no_more() {
        let traffic = traffic(ServerMode::Serial);
        let _busy = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(ids(&traffic), [1]);
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Traffic::call(&traffic, "m", None).unwrap()).collect();
        assert!(matches!(Traffic::call(&traffic, "m", None), Err(CallFault::TooManyWaiting)));
        assert!(matches!(Traffic::notify(&traffic, "m", None), Err(CallFault::TooManyWaiting)));
        waiting.pop();
        assert!(Traffic::call(&traffic, "m", None).is_ok());
    }

    #[test]
    fn what_is_in_line_is_bounded_in_bytes_and_room_comes_back() {
        let traffic = traffic(ServerMode::Concurrent);
        let large = raw(&format!("[\"{}\"]", "x".repeat(MAX_BYTES / 4)));
        let mut waiting: Vec<_> = (0..3).map(|_| Traffic::call(&traffic, "m", Some(&large)).unwrap()).collect();
        assert!(matches!(Traffic::call(&traffic, "m", Some(&large)), Err(CallFault::TooManyWaiting)));
        assert!(Traffic::call(&traffic, "m", None).is_ok(), "a small one still fits");
        waiting.pop();
        waiting.push(Traffic::call(&traffic, "m", Some(&large)).unwrap());
        drop(waiting);
        let state = traffic.state();
        assert_eq!((state.unsent, state.unsent_bytes, state.requests.len()), (0, 0, 0));
    }

    #[test]
    fn a_withdrawn_call_is_never_sent_and_leaves_nothing_behind() {
        let traffic = traffic(ServerMode::Concurrent);
        let _kept = Traffic::call(&traffic, "m", None).unwrap();
        for _ in 0..100_000 {
            drop(Traffic::call(&traffic, "m", None).unwrap());
        }
        assert!(traffic.state().line.len() <= STALE + 3, "{}", traffic.state().line.len());
        assert_eq!(ids(&traffic), [1]);
    }

    #[test]
    fn without_a_process_what_was_sent_died_and_what_was_not_was_not() {
        let traffic = traffic(ServerMode::Serial);
        let (_sent, mut sent) = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(ids(&traffic), [1]);
        let (_unsent, mut unsent) = Traffic::call(&traffic, "m", None).unwrap();
        let why: Arc<str> = "it fell over".into();
        traffic.shut(&why);
        assert!(matches!(sent.try_recv(), Ok(Err(CallFault::Died(reason))) if reason == why));
        assert!(matches!(unsent.try_recv(), Ok(Err(CallFault::NotRunning(reason))) if reason == why));
        assert!(matches!(Traffic::call(&traffic, "m", None), Err(CallFault::NotRunning(reason)) if reason == why));
        assert_eq!(traffic.take(&mut Vec::new()), Taken::End);
        traffic.open();
        let _call = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(ids(&traffic), [4], "the slot is free, and no id is used twice");
    }

    #[tokio::test]
    async fn what_retires_takes_no_more_and_is_idle_once_all_is_answered() {
        let traffic = traffic(ServerMode::Concurrent);
        let first = Traffic::call(&traffic, "m", None).unwrap();
        let second = Traffic::call(&traffic, "m", None).unwrap();
        assert_eq!(ids(&traffic), [1, 2]);
        traffic.retire();
        assert!(matches!(Traffic::call(&traffic, "m", None), Err(CallFault::NotRunning(_))));
        assert_eq!(traffic.take(&mut Vec::new()), Taken::Nothing, "its stdin stays open");
        let waiting = tokio::spawn({
            let traffic = traffic.clone();
            async move { traffic.idle().await }
        });
        answer(&traffic, 1);
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        waiting.await.unwrap();
    }
}
