//! One HTTP/1.1 connection: sends a request and reads its response.
//!
//! The task that waits for the response drives the connection too. An exchange takes no second task and no wake-up
//! between tasks, and a connection that rests takes none at all.

use super::exchange::{Completeness, DRAIN, OutboundResponse};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of the head of a response. hyper takes up to a hundred headers, and would allocate for another number with
/// every response.
const MAX_HEAD: usize = 64 << 10;

/// Bytes up to the end of the head of a response, with the interim responses (1xx) before it, which hyper drops one by
/// one.
const MAX_HEADS: usize = 2 * MAX_HEAD;

/// A TCP connection, or TLS on top of one.
pub(super) trait HttpStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> HttpStream for T {}

/// A connection of which a limited number of bytes may be read.
struct LimitedStream {
    stream: Box<dyn HttpStream>,
    left: Arc<AtomicUsize>,
}

/// Reads and writes the bytes of a connection.
type ConnectionDriver = Connection<TokioIo<LimitedStream>, Full<Bytes>>;

/// An open connection.
pub(super) struct HttpConnection {
    requests: SendRequest<Full<Bytes>>,
    /// `None` once it is closed.
    driver: Option<Box<ConnectionDriver>>,
    /// Bytes that may be read.
    left: Arc<AtomicUsize>,
}

/// The reason that an exchange failed.
pub(super) struct ExchangeError {
    pub error: hyper::Error,
    /// The connection broke before the head of a response was complete.
    pub unanswered: bool,
}

impl HttpConnection {
    pub async fn open(stream: Box<dyn HttpStream>) -> Result<Self, hyper::Error> {
        let mut settings = http1::Builder::new();
        settings.max_buf_size(MAX_HEAD);
        let left = Arc::new(AtomicUsize::new(MAX_HEADS));
        let stream = LimitedStream { stream, left: left.clone() };
        let (requests, driver) = settings.handshake(TokioIo::new(stream)).await?;
        Ok(Self { requests, driver: Some(Box::new(driver)), left })
    }

    /// Sends a request and reads the response, of which `keep` bytes of the body are kept.
    pub async fn exchange(
        &mut self,
        request: http::Request<Full<Bytes>>,
        keep: usize,
    ) -> Result<OutboundResponse, ExchangeError> {
        let Self { requests, driver, left } = self;
        left.store(MAX_HEADS, Relaxed);
        let response = driven(driver, requests.send_request(request)).await;
        let response =
            response.map_err(|error| ExchangeError { unanswered: !error.is_parse() && !error.is_user(), error })?;
        left.store(usize::MAX, Relaxed);
        let (parts, mut body) = response.into_parts();
        let (mut kept, mut seen) = (BytesMut::new(), 0);
        while seen <= keep.max(DRAIN)
            && let Some(frame) = driven(driver, body.frame()).await
        {
            let frame = frame.map_err(|error| ExchangeError { error, unanswered: false })?;
            if let Some(data) = frame.data_ref() {
                seen += data.len();
                kept.extend_from_slice(&data[..data.len().min(keep - kept.len())]);
            }
        }
        let completeness = if seen > kept.len() { Completeness::Cut } else { Completeness::Whole };
        Ok(OutboundResponse { status: parts.status, headers: parts.headers, body: kept.freeze(), completeness })
    }

    /// Returns true if another request can be sent: the last response was read to its end, and the other side has not
    /// closed the connection so far.
    pub fn is_reusable(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && matches!(self.requests.ready().now_or_never(), Some(Ok(())))
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        match self.left.load(Relaxed).checked_sub(read) {
            Some(left) => {
                self.left.store(left, Relaxed);
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(io::Error::other("more than 128 KiB came before the response"))),
        }
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Waits for `work`, and drives the connection that it depends on.
async fn driven<T>(driver: &mut Option<Box<ConnectionDriver>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Poll::Ready(result) = work.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        drive(driver, context);
        work.as_mut().poll(context)
    })
    .await
}

fn drive(driver: &mut Option<Box<ConnectionDriver>>, context: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
        // An error reaches the request in progress.
        *driver = None;
    }
}
