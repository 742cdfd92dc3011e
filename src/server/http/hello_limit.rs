//! Bounds the bytes that an agent's socket reads before its first message, so that a stranger's hello takes little memory.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes before the first message. A hello has a few hundred.
pub const HELLO_BYTES: usize = 64 << 10;

/// Bytes that are read at once before the first message.
const PIECE: usize = 4 << 10;

/// The value of [`HelloLimit`] without a limit.
const UNLIMITED: usize = usize::MAX;

/// The limit of one stream. Cloning the handle is cheap.
#[derive(Clone)]
pub struct HelloLimit(Arc<AtomicUsize>);

/// A stream that fails once its limit is used up.
pub struct HelloStream<S> {
    stream: S,
    limit: HelloLimit,
}

impl HelloLimit {
    pub fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(HELLO_BYTES)))
    }

    /// Ends the limit, after the first message.
    pub fn lift(&self) {
        self.0.store(UNLIMITED, Relaxed);
    }

    pub fn applied_to<S>(&self, stream: S) -> HelloStream<S> {
        HelloStream { stream, limit: self.clone() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HelloStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.limit.0.load(Relaxed);
        if left == UNLIMITED {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        if left == 0 {
            return Poll::Ready(Err(io::Error::other("an agent says hello first, in a short message")));
        }
        let mut piece = [0; PIECE];
        let mut part = ReadBuf::new(&mut piece[..left.min(PIECE).min(buffer.remaining())]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        buffer.put_slice(part.filled());
        self.limit.0.store(left - part.filled().len(), Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HelloStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_stream_reads_so_much_and_more_only_after_the_limit_is_lifted() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        far.write_all(&vec![7; 3 * HELLO_BYTES]).await.unwrap();
        let limit = HelloLimit::new();
        let mut stream = limit.applied_to(near);
        let mut read = vec![0; HELLO_BYTES];
        stream.read_exact(&mut read).await.unwrap();
        assert!(stream.read(&mut [0; 1]).await.is_err());
        limit.lift();
        stream.read_exact(&mut read).await.unwrap();
    }
}
