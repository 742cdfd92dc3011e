//! In-flight requests by session and id, for `notifications/cancelled`.
//!
//! From version 2026-07-28 on a client cancels by closing the request's own stream, which drops the call. Before that it
//! sends a notification in a request of its own, which finds the other one here.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// All in-flight requests that can be cancelled. Cloning the handle is cheap.
#[derive(Clone, Default)]
pub struct InFlightRequests(Arc<InFlightTable>);

#[derive(Default)]
struct InFlightTable {
    /// By session, and id as JSON. The number tells requests apart that use the same id.
    requests: Mutex<HashMap<(String, String), (u64, CancellationToken)>>,
    next_number: AtomicU64,
}

/// An in-flight request, until it is dropped.
pub struct InFlightRequest {
    table: Arc<InFlightTable>,
    key: (String, String),
    number: u64,
    cancelled: CancellationToken,
}

impl InFlightRequests {
    pub fn begin(&self, session: &str, id: &str) -> InFlightRequest {
        let (key, cancelled) = ((session.to_owned(), id.to_owned()), CancellationToken::new());
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        self.0.requests.lock().insert(key.clone(), (number, cancelled.clone()));
        InFlightRequest { table: self.0.clone(), key, number, cancelled }
    }

    /// Cancels a request, if it is still in flight.
    pub fn cancel(&self, session: &str, id: &str) {
        if let Some((_, cancelled)) = self.0.requests.lock().get(&(session.to_owned(), id.to_owned())) {
            cancelled.cancel();
        }
    }
}

impl InFlightRequest {
    /// Resolves once the client cancels the request.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut requests = self.table.requests.lock();
        // A client that reused the id has its later request there.
        if requests.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            requests.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_cancelled_by_its_own_session_and_id_only() {
        let in_flight = InFlightRequests::default();
        let (one, other) = (in_flight.begin("s", "1"), in_flight.begin("t", "1"));
        in_flight.cancel("s", "2");
        in_flight.cancel("u", "1");
        assert!(!one.cancelled.is_cancelled());
        in_flight.cancel("s", "1");
        one.cancelled().await;
        assert!(!other.cancelled.is_cancelled());
        drop((one, other));
        assert!(in_flight.0.requests.lock().is_empty(), "dropped requests are forgotten");
    }

    #[test]
    fn a_reused_id_means_the_later_request() {
        let in_flight = InFlightRequests::default();
        let (first, second) = (in_flight.begin("s", "1"), in_flight.begin("s", "1"));
        drop(first);
        in_flight.cancel("s", "1");
        assert!(second.cancelled.is_cancelled());
    }
}
