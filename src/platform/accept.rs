//! The accept loop of a TCP listener: bounds the connections, and drains them within a bounded time on shutdown.
//!
//! The server's API and the agent's local API each serve their connections through it. A handler must end by itself
//! soon after shutdown; one that does not within the drain time is dropped, which closes its connection. The time that a
//! request's head may take is bounded by [`http1_with_head_timeout`] or the handler's own HTTP builder.

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

/// Accepts connections until `shutdown`, and then waits for their handlers.
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
                Err(error) => {
                    log::warn!("cannot accept connections: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
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
    }
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
    async fn a_connection_over_the_bound_waits_until_another_closes() {
        let mut served = serve(1, Duration::ZERO).await;
        let first = TcpStream::connect(served.address).await.unwrap();
        served.admitted.recv().await.unwrap();
        let _second = TcpStream::connect(served.address).await.unwrap();
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
        served.serving.await.unwrap();
    }
}
