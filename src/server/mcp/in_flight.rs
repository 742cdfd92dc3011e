//! Requests of sessions that are under way, so that a client can take one back.
//!
//! From 2026-07-28 on a client closes the request's own stream, which drops the call. Before that it sends a
//! notification, as a request of its own, which finds the other one here by the session and the id.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// All of them. Cloning the handle is cheap.
#[derive(Clone, Default)]
pub struct Flights(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// By session, and id as JSON.
    under_way: Mutex<HashMap<(String, String), (u64, CancellationToken)>>,
    count: AtomicU64,
}

/// One of them, until it is dropped.
pub struct Flight {
    flights: Flights,
    key: (String, String),
    number: u64,
    recalled: CancellationToken,
}

impl Flights {
    /// Notes that a request is under way.
    pub fn begin(&self, session: &str, id: &str) -> Flight {
        let (key, recalled) = ((session.to_owned(), id.to_owned()), CancellationToken::new());
        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
        self.under_way().insert(key.clone(), (number, recalled.clone()));
        Flight { flights: self.clone(), key, number, recalled }
    }

    /// Takes back a request, if it is still under way.
    pub fn recall(&self, session: &str, id: &str) {
        if let Some((_, recalled)) = self.under_way().get(&(session.to_owned(), id.to_owned())) {
            recalled.cancel();
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<(String, String), (u64, CancellationToken)>> {
        // An entry is put in or taken out in one step.
        self.0.under_way.lock()
    }
}

impl Flight {
    /// Resolves once the client takes the request back.
    pub async fn recalled(&self) {
        self.recalled.cancelled().await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut under_way = self.flights.under_way();
        // A client that used the id again has its later request there.
        if under_way.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_taken_back_by_its_own_session_and_id_only() {
        let flights = Flights::default();
        let (one, other) = (flights.begin("s", "1"), flights.begin("t", "1"));
        flights.recall("s", "2");
        flights.recall("u", "1");
        assert!(!one.recalled.is_cancelled());
        flights.recall("s", "1");
        one.recalled().await;
        assert!(!other.recalled.is_cancelled());
        drop((one, other));
        assert!(flights.under_way().is_empty(), "nothing is left of what is over");
    }

    #[test]
    fn an_id_that_is_used_again_is_the_later_requests() {
        let flights = Flights::default();
        let (first, second) = (flights.begin("s", "1"), flights.begin("s", "1"));
        drop(first);
        flights.recall("s", "1");
        assert!(second.recalled.is_cancelled());
    }
}
