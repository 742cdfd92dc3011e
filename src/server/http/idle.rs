//! Whether a connection is still used: by requests being handled, and by answers being taken.
//!
//! What only keeps a connection open, such as HTTP/2's pings, is not use. An answer's body counts each time the
//! connection takes a piece of it, so that a peer whose window stays shut falls silent like one that asks nothing.

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// The use of one connection.
pub struct Pulse(Mutex<State>);

struct State {
    /// Requests being handled.
    handling: usize,
    /// When there last was anything.
    beat: Instant,
    /// Whether there has been a request yet.
    spoke: bool,
}

/// A request being handled.
pub struct Handling(Arc<Pulse>);

/// An answer's body that tells when a piece of it is taken.
pub struct Followed<B> {
    body: B,
    pulse: Arc<Pulse>,
}

impl Pulse {
    pub fn new() -> Self {
        Self(Mutex::new(State { handling: 0, beat: Instant::now(), spoke: false }))
    }

    /// Ends once nothing has happened for `idle`, or no request has come at all after `first`.
    pub async fn stops(&self, first: Duration, idle: Duration) {
        loop {
            let wait = {
                let state = self.state();
                let limit = if state.spoke { idle } else { first };
                if state.handling > 0 { limit } else { limit.saturating_sub(state.beat.elapsed()) }
            };
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A request has come; it is handled until the answer is dropped.
    pub fn handle(self: &Arc<Self>) -> Handling {
        let mut state = self.state();
        state.handling += 1;
        state.spoke = true;
        Handling(self.clone())
    }

    /// Follows the body of an answer.
    pub fn follow<B>(self: &Arc<Self>, body: B) -> Followed<B> {
        Followed { body, pulse: self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Its fields mean something each on its own.
        self.0.lock()
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.handling -= 1;
        state.beat = Instant::now();
    }
}

impl<B: Body + Unpin> Body for Followed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.pulse.state().beat = Instant::now();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_has_less_time() {
        let (pulse, start) = (Pulse::new(), Instant::now());
        pulse.stops(FIRST, IDLE).await;
        assert_eq!(start.elapsed().as_secs(), FIRST.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_last_answer_and_not_while_one_is_made() {
        let (pulse, start) = (Arc::new(Pulse::new()), Instant::now());
        let handling = pulse.handle();
        let answer = async {
            tokio::time::sleep(IDLE * 3).await;
            drop(handling);
        };
        tokio::join!(answer, pulse.stops(FIRST, IDLE));
        assert_eq!(start.elapsed().as_secs(), (IDLE * 4).as_secs());
    }
}
