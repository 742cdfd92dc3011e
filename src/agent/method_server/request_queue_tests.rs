//! Tests of the request queue without a process: order, the serial slot, bounds, withdrawal and closing.

use super::*;
use serde_json::Value;

fn queue_of(mode: ServerMode) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(mode))
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn taken(queue: &RequestQueue) -> String {
    let mut batch = Vec::new();
    queue.take(&mut batch);
    String::from_utf8(batch).unwrap()
}

fn ids(queue: &RequestQueue) -> Vec<u64> {
    let lines = taken(queue);
    lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap()).collect()
}

fn answer(queue: &RequestQueue, id: u64) -> usize {
    queue.settle(&mut vec![ServerAnswer { id, outcome: Ok(RpcResponse::Result(raw("true"))) }])
}

#[test]
fn a_request_is_one_line_whatever_the_layout_of_its_params() {
    let queue = queue_of(ServerMode::Concurrent);
    let params = raw("{\r\n  \"a\": \"x\\ny\",\n  \"n\": 1.50 }");
    let _call = RequestQueue::call(&queue, "a\"b\n", Some(&params)).unwrap();
    let _notification = RequestQueue::notify(&queue, "n", None).unwrap();
    assert_eq!(
        taken(&queue),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\\"b\\n\",\"params\":{    \"a\": \"x\\ny\",   \"n\": 1.50 }}\n\
         {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n"
    );
}

#[test]
fn a_concurrent_process_gets_all_at_once_and_may_answer_in_any_order() {
    let queue = queue_of(ServerMode::Concurrent);
    let mut calls: Vec<_> = (0..3).map(|_| RequestQueue::call(&queue, "m", None).unwrap()).collect();
    assert_eq!(ids(&queue), [1, 2, 3]);
    for (settled, id) in [3, 1, 2].into_iter().enumerate() {
        assert_eq!(answer(&queue, id), 0);
        assert!(matches!(calls[id as usize - 1].reply.try_recv(), Ok(Ok(RpcResponse::Result(_)))));
        assert_eq!(queue.state().requests.len(), 2 - settled);
    }
}

#[test]
fn an_answer_that_nobody_waits_for_is_counted_and_ignored() {
    let queue = queue_of(ServerMode::Concurrent);
    let PendingReply { request: _request, mut reply, .. } = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(answer(&queue, 1), 1, "it was not even sent");
    assert_eq!(ids(&queue), [1]);
    assert_eq!(answer(&queue, 7), 1);
    assert_eq!(answer(&queue, 1), 0);
    assert_eq!(answer(&queue, 1), 1, "it was answered before");
    assert!(matches!(reply.try_recv(), Ok(Ok(RpcResponse::Result(_)))));
}

#[test]
fn a_serial_process_gets_the_next_call_after_the_answer() {
    let queue = queue_of(ServerMode::Serial);
    let _calls: Vec<_> = (0..3).map(|_| RequestQueue::call(&queue, "m", None).unwrap()).collect();
    assert_eq!(ids(&queue), [1]);
    assert_eq!(ids(&queue), [0; 0]);
    answer(&queue, 2);
    assert_eq!(ids(&queue), [0; 0], "another's answer frees nothing");
    answer(&queue, 1);
    assert_eq!(ids(&queue), [2]);
}

#[test]
fn a_serial_process_stays_busy_with_an_abandoned_call_until_it_answers() {
    let queue = queue_of(ServerMode::Serial);
    drop_sent(&queue);
    let _next = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(ids(&queue), [0; 0]);
    assert!(queue.busy_since().is_some());
    assert_eq!(answer(&queue, 1), 1);
    assert!(queue.busy_since().is_none());
    assert_eq!(ids(&queue), [2]);
}

fn drop_sent(queue: &Arc<RequestQueue>) {
    let call = RequestQueue::call(queue, "m", None).unwrap();
    assert_eq!(ids(queue).len(), 1);
    drop(call);
}

#[test]
fn a_notification_waits_for_the_slot_and_does_not_take_it() {
    let queue = queue_of(ServerMode::Serial);
    let _first = RequestQueue::call(&queue, "m", None).unwrap();
    let mut notices: Vec<_> = (0..2).map(|_| RequestQueue::notify(&queue, "n", None).unwrap()).collect();
    let _second = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(ids(&queue), [1]);
    assert!(notices[0].reply.try_recv().is_err());
    answer(&queue, 1);
    assert_eq!(taken(&queue).lines().count(), 3);
    for notice in &mut notices {
        assert_eq!(notice.reply.try_recv(), Ok(Ok(())));
    }
}

#[test]
fn a_thousand_may_wait_for_a_serial_process_and_no_more() {
    let queue = queue_of(ServerMode::Serial);
    let _busy = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(ids(&queue), [1]);
    let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| RequestQueue::call(&queue, "m", None).unwrap()).collect();
    assert!(matches!(RequestQueue::call(&queue, "m", None), Err(CallFault::TooManyWaiting)));
    assert!(matches!(RequestQueue::notify(&queue, "m", None), Err(CallFault::TooManyWaiting)));
    waiting.pop();
    assert!(RequestQueue::call(&queue, "m", None).is_ok());
}

#[test]
fn the_queue_is_bounded_in_bytes_and_a_withdrawn_call_gives_its_room_back() {
    let queue = queue_of(ServerMode::Concurrent);
    let large = raw(&format!("[\"{}\"]", "x".repeat(MAX_BYTES / 4)));
    let mut waiting: Vec<_> = (0..3).map(|_| RequestQueue::call(&queue, "m", Some(&large)).unwrap()).collect();
    assert!(matches!(RequestQueue::call(&queue, "m", Some(&large)), Err(CallFault::TooManyWaiting)));
    assert!(RequestQueue::call(&queue, "m", None).is_ok(), "a small one still fits");
    waiting.pop();
    waiting.push(RequestQueue::call(&queue, "m", Some(&large)).unwrap());
    drop(waiting);
    let state = queue.state();
    assert_eq!((state.unsent, state.unsent_bytes, state.requests.len()), (0, 0, 0));
}

#[test]
fn a_withdrawn_call_is_never_sent_and_leaves_nothing_behind() {
    let queue = queue_of(ServerMode::Concurrent);
    let _kept = RequestQueue::call(&queue, "m", None).unwrap();
    for _ in 0..100_000 {
        drop(RequestQueue::call(&queue, "m", None).unwrap());
    }
    assert!(queue.state().order.len() <= MAX_STALE + 3, "{}", queue.state().order.len());
    assert_eq!(ids(&queue), [1]);
}

#[test]
fn closing_fails_sent_calls_as_died_and_unsent_ones_as_not_running() {
    let queue = queue_of(ServerMode::Serial);
    let mut sent = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(ids(&queue), [1]);
    let mut unsent = RequestQueue::call(&queue, "m", None).unwrap();
    let why: Arc<str> = "it fell over".into();
    queue.close(&why);
    assert!(matches!(sent.reply.try_recv(), Ok(Err(CallFault::Died(reason))) if reason == why));
    assert!(matches!(unsent.reply.try_recv(), Ok(Err(CallFault::NotRunning(reason))) if reason == why));
    assert!(matches!(RequestQueue::call(&queue, "m", None), Err(CallFault::NotRunning(reason)) if reason == why));
    assert_eq!(queue.take(&mut Vec::new()), Taken::Ended);
    queue.open();
    let _call = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(ids(&queue), [4], "the slot is free, and no id is used twice");
}

#[tokio::test]
async fn a_draining_queue_accepts_nothing_and_is_idle_once_all_is_answered() {
    let queue = queue_of(ServerMode::Concurrent);
    let first = RequestQueue::call(&queue, "m", None).unwrap();
    let second = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(ids(&queue), [1, 2]);
    queue.drain();
    assert!(matches!(RequestQueue::call(&queue, "m", None), Err(CallFault::NotRunning(_))));
    assert_eq!(queue.take(&mut Vec::new()), Taken::Nothing, "its stdin stays open");
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.idle().await }
    });
    answer(&queue, 1);
    drop(first);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(second);
    waiting.await.unwrap();
}

#[test]
fn a_paused_queue_fails_the_sent_call_and_keeps_the_others_for_the_next_process() {
    let queue = queue_of(ServerMode::Serial);
    let mut calls: Vec<_> = (0..3).map(|_| RequestQueue::call(&queue, "m", None).unwrap()).collect();
    assert_eq!(ids(&queue), [1]);
    assert!(calls[0].turn.as_mut().unwrap().try_recv().is_ok() && calls[1].turn.as_mut().unwrap().try_recv().is_err());
    queue.pause(&"it hangs".into());
    assert!(matches!(calls[0].reply.try_recv(), Ok(Err(CallFault::Died(why))) if &*why == "it hangs"));
    let late = RequestQueue::call(&queue, "m", None).unwrap();
    assert_eq!(queue.take(&mut Vec::new()), Taken::Ended, "nothing goes to the process that is ending");
    queue.open();
    for id in [2, 3, 4] {
        assert_eq!(ids(&queue), [id]);
        assert_eq!(answer(&queue, id), 0);
    }
    drop((calls, late));
}
