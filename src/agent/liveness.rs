//! Whether anything still moves on a link, byte by byte: a large message on a slow network is no silence.
//!
//! [`Felt`] goes around the socket and counts; [`Pulse::stops`] resolves once too many heartbeats have passed in which
//! nothing came in, or nothing of what waits could be sent.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, MissedTickBehavior},
};

/// So many silent heartbeats and the other side is taken for gone.
pub const SILENT_BEATS: u32 = 3;

/// What moved so far.
#[derive(Debug, Default)]
pub struct Pulse {
    heard: AtomicU64,
    sent: AtomicU64,
    /// Whether the socket would not take what was to be sent last.
    stuck: AtomicBool,
}

/// How a link went quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// Nothing came.
    Silent,
    /// Nothing was taken.
    Deaf,
}

/// A socket whose bytes are counted.
#[derive(Debug)]
pub struct Felt<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl Pulse {
    /// Resolves once the link has been quiet for [`SILENT_BEATS`] heartbeats.
    pub async fn stops(&self, heartbeat: Duration) -> Quiet {
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        // After a machine has slept, its peer gets as many heartbeats as ever to say something.
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut sent) = (self.heard.load(Relaxed), self.sent.load(Relaxed));
        let (mut silent, mut deaf) = (0, 0);
        loop {
            beats.tick().await;
            let (heard_now, sent_now) = (self.heard.load(Relaxed), self.sent.load(Relaxed));
            silent = if heard_now == heard { silent + 1 } else { 0 };
            deaf = if sent_now == sent && self.stuck.load(Relaxed) { deaf + 1 } else { 0 };
            (heard, sent) = (heard_now, sent_now);
            if silent >= SILENT_BEATS {
                return Quiet::Silent;
            }
            if deaf >= SILENT_BEATS {
                return Quiet::Deaf;
            }
        }
    }
}

impl<S> Felt<S> {
    pub const fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Felt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.pulse.heard.fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Felt<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.pulse.sent.fetch_add(count as u64, Relaxed);
        }
        self.pulse.stuck.store(written.is_pending(), Relaxed);
        written
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const BEAT: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn three_silent_heartbeats_are_enough_and_a_byte_starts_them_anew() {
        let (near, mut far) = tokio::io::duplex(64);
        let pulse = Arc::<Pulse>::default();
        let mut near = Felt::new(near, pulse.clone());
        let began = Instant::now();
        let speaking = async {
            tokio::time::sleep(BEAT * 2 + BEAT / 2).await;
            far.write_all(b"x").await.unwrap();
            near.read_u8().await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            quiet = pulse.stops(BEAT) => assert_eq!(quiet, Quiet::Silent),
            () = speaking => unreachable!(),
        }
        assert_eq!(began.elapsed(), BEAT * 6, "two beats of silence, one with a byte, and three of silence");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_speaks_and_takes_nothing_is_noticed_too() {
        let (near, mut far) = tokio::io::duplex(4);
        let pulse = Arc::<Pulse>::default();
        let near = Felt::new(near, pulse.clone());
        let (mut reader, mut writer) = tokio::io::split(near);
        let writing = async { writer.write_all(&[0; 64]).await.unwrap() };
        let reading = async { while reader.read_u8().await.is_ok() {} };
        let speaking = async {
            loop {
                far.write_u8(1).await.unwrap();
                tokio::time::sleep(BEAT).await;
            }
        };
        let quiet = tokio::select! {
            quiet = pulse.stops(BEAT) => quiet,
            _ = async { tokio::join!(writing, reading, speaking) } => unreachable!(),
        };
        assert_eq!(quiet, Quiet::Deaf);
    }
}
