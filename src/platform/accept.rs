//! The accept loop of a TCP listener: bounds the connections, and drains them within a bounded time on shutdown.
//!
//! The server's API and the agent's local API each serve their connections through it. A handler must end by itself
//! soon after shutdown; one that does not within the drain time is dropped, which closes its connection. A handler that
//! panics ends its own connection alone. The time that a request's head may take is bounded by
//! [`http1_with_head_timeout`] or the handler's own HTTP builder.

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time in which handlers that were cut off must be dropped. One that takes longer blocks its thread.
const CUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Bounds of an accept loop.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections at once; the next one waits until another closes.
    pub connections: usize,
    /// Time for requests to finish after shutdown.
    pub drain: Duration,
}

/// An HTTP/1 builder that closes a connection whose next request head takes longer than this.
pub fn http1_with_head_timeout(head: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head);
    builder
}

/// Accepts connections until `shutdown`, and then waits until their handlers have ended or were dropped.
///
/// `admit` returns the handler of a connection, or `None` to close it at once. The place of a connection is free again
/// after its handler was dropped.
pub async fn accept_until<H>(
    listener: TcpListener,
    limits: AcceptLimits,
    shutdown: CancellationToken,
    admit: impl Fn(TcpStream, SocketAddr) -> Option<H>,
) where
    H: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
    let mut failing = false;
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, stream, peer) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            (place, accepted) = accept => match accepted {
                Ok((stream, peer)) => (place, stream, peer),
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    // Only the first of many in a row: a lack of file descriptors lasts.
                    if !std::mem::replace(&mut failing, true) {
                        log::warn!("cannot accept connections: {error}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        failing = false;
        // Answers are small and whole; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let Some(handler) = admit(stream, peer) else { continue };
        let cut = cut.clone();
        connections.spawn(async move {
            tokio::select! {
                () = handler => {}
                () = cut.cancelled() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        log::warn!("some requests did not finish in time and are cut off");
        cut.cancel();
        let _ = tokio::time::timeout(CUT_TIMEOUT, connections.wait()).await;
    }
}

/// Returns whether a failed accept concerns only the connection that was to be accepted, so that the next may succeed
/// at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{io::AsyncReadExt as _, sync::mpsc, task::JoinHandle};

    struct Served {
        address: SocketAddr,
        shutdown: CancellationToken,
        serving: JoinHandle<()>,
        /// Receives a message for each admitted connection.
        admitted: mpsc::UnboundedReceiver<()>,
    }

    /// Serves connections whose handlers end only with their peers.
    async fn serve(connections: usize, drain: Duration) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (sender, admitted) = mpsc::unbounded_channel();
        let admit = move |mut stream: TcpStream, _| {
            let _ = sender.send(());
            Some(async move {
                let _ = stream.read(&mut [0]).await;
            })
        };
        let limits = AcceptLimits { connections, drain };
        let serving = tokio::spawn(accept_until(listener, limits, shutdown.clone(), admit));
        Served { address, shutdown, serving, admitted }
    }

    #[tokio::test]
    async fn a_handler_that_does_not_end_is_cut_off_after_the_drain_time() {
        let mut served = serve(4, Duration::from_millis(50)).await;
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        served.admitted.recv().await.unwrap();
        served.shutdown.cancel();
        served.serving.await.unwrap();
        assert!(!matches!(stream.read(&mut [0]).await, Ok(1..)), "the connection is closed");
    }

    #[tokio::test]
    async fn a_handler_that_was_cut_off_is_gone_when_the_loop_returns() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (held, limits) = (Arc::new(()), AcceptLimits { connections: 4, drain: Duration::ZERO });
        let kept = held.clone();
        let (sender, mut admitted) = mpsc::unbounded_channel();
        let admit = move |stream: TcpStream, _| {
            let held = (kept.clone(), stream);
            let _ = sender.send(());
            Some(async move {
                std::future::pending::<()>().await;
                drop(held);
            })
        };
        let serving = tokio::spawn(accept_until(listener, limits, shutdown.clone(), admit));
        let _stream = TcpStream::connect(address).await.unwrap();
        admitted.recv().await.unwrap();
        shutdown.cancel();
        serving.await.unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn a_handler_that_panics_frees_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let limits = AcceptLimits { connections: 1, drain: Duration::ZERO };
        let (sender, mut admitted) = mpsc::unbounded_channel();
        let admit = move |_: TcpStream, _| {
            let _ = sender.send(());
            Some(async { panic!("a handler panics") })
        };
        let serving = tokio::spawn(accept_until(listener, limits, shutdown.clone(), admit));
        for _ in 0..2 {
            let _stream = TcpStream::connect(address).await.unwrap();
            admitted.recv().await.unwrap();
        }
        shutdown.cancel();
        serving.await.unwrap();
    }

    #[test]
    fn only_an_error_of_one_connection_is_no_reason_to_pause() {
        for (code, one) in [
            (libc::ECONNABORTED, true),
            (libc::ECONNRESET, true),
            (libc::EMFILE, false),
            (libc::ENFILE, false),
            (libc::ENOBUFS, false),
        ] {
            assert_eq!(is_of_one_connection(&io::Error::from_raw_os_error(code)), one, "{code}");
        }
    }

    #[tokio::test]
    async fn a_connection_over_the_bound_waits_until_another_closes() {
        let (mut served, mut other) = (serve(1, Duration::ZERO).await, serve(1, Duration::ZERO).await);
        let first = TcpStream::connect(served.address).await.unwrap();
        served.admitted.recv().await.unwrap();
        let _second = TcpStream::connect(served.address).await.unwrap();
        // A loop with room has admitted a later connection, so that this one has had its chance too.
        let _later = TcpStream::connect(other.address).await.unwrap();
        other.admitted.recv().await.unwrap();
        tokio::task::yield_now().await;
        assert!(served.admitted.try_recv().is_err());
        drop(first);
        served.admitted.recv().await.unwrap();
        served.shutdown.cancel();
        served.serving.await.unwrap();
    }

    #[tokio::test]
    async fn shutdown_without_connections_ends_at_once() {
        let served = serve(4, Duration::from_secs(600)).await;
        served.shutdown.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(60), served.serving).await;
        ended.expect("it does not wait for the drain").unwrap();
    }
}
