//! Detects connections that nobody uses: no request is being handled and no response is being read.
//!
//! Traffic that only keeps a connection open, such as HTTP/2 pings, is not use. A response's body counts each time the
//! connection takes a chunk of it, so that a peer whose window stays shut becomes idle like one that sends no request.

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// Activity of one connection.
pub struct IdleTimer(Mutex<Activity>);

struct Activity {
    /// Requests being handled.
    active_requests: usize,
    /// Time of the last end of a request or of the last chunk taken.
    last_used: Instant,
    had_request: bool,
}

/// A request being handled, until it is dropped.
pub struct ActiveRequest(Arc<IdleTimer>);

/// A response body that counts as activity each time a chunk of it is taken.
pub struct TrackedBody<B> {
    body: B,
    idle: Arc<IdleTimer>,
}

impl IdleTimer {
    pub fn new() -> Self {
        Self(Mutex::new(Activity { active_requests: 0, last_used: Instant::now(), had_request: false }))
    }

    /// Resolves once the connection has been idle for `idle`, or for `first_request` if it has sent no request yet.
    pub async fn expired(&self, first_request: Duration, idle: Duration) {
        loop {
            let wait = {
                let activity = self.0.lock();
                let limit = if activity.had_request { idle } else { first_request };
                match activity.active_requests {
                    0 => limit.saturating_sub(activity.last_used.elapsed()),
                    _ => limit,
                }
            };
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Keeps the connection from being idle until the returned guard is dropped.
    pub fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        let mut activity = self.0.lock();
        activity.active_requests += 1;
        activity.had_request = true;
        ActiveRequest(self.clone())
    }

    pub fn track<B>(self: &Arc<Self>, body: B) -> TrackedBody<B> {
        TrackedBody { body, idle: self.clone() }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut activity = self.0.0.lock();
        activity.active_requests -= 1;
        activity.last_used = Instant::now();
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.idle.0.lock().last_used = Instant::now();
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

    const FIRST_REQUEST: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_expires_earlier() {
        let (timer, start) = (IdleTimer::new(), Instant::now());
        timer.expired(FIRST_REQUEST, IDLE).await;
        assert_eq!(start.elapsed().as_secs(), FIRST_REQUEST.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_request() {
        let (timer, start) = (Arc::new(IdleTimer::new()), Instant::now());
        let request = timer.begin_request();
        let response = async {
            tokio::time::sleep(IDLE * 3).await;
            drop(request);
        };
        tokio::join!(response, timer.expired(FIRST_REQUEST, IDLE));
        assert_eq!(start.elapsed().as_secs(), (IDLE * 4).as_secs());
    }
}
