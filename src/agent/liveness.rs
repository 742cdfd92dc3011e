//! Detects a dead link by its bytes, so that a large message on a slow network does not count as silence.
//!
//! [`CountedStream`] wraps the socket and counts; [`LinkActivity::stopped`] resolves once too many heartbeats have
//! passed in which no byte arrived, or none of the pending ones could be sent.

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

/// Heartbeats without traffic after which the peer counts as gone.
pub const MAX_MISSED_HEARTBEATS: u32 = 3;

/// Byte counts of one link.
#[derive(Debug, Default)]
pub struct LinkActivity {
    received: AtomicU64,
    sent: AtomicU64,
    /// True if the last write found the socket full.
    blocked: AtomicBool,
}

/// The direction in which a link is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLink {
    /// No byte arrived.
    NothingReceived,
    /// Bytes were pending, and none could be sent.
    NothingSent,
}

/// A socket whose bytes are counted.
#[derive(Debug)]
pub struct CountedStream<S> {
    stream: S,
    activity: Arc<LinkActivity>,
}

impl LinkActivity {
    /// Resolves once the link has been dead for [`MAX_MISSED_HEARTBEATS`] heartbeats.
    pub async fn stopped(&self, heartbeat: Duration) -> DeadLink {
        let mut beats = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
        // After the machine has slept, its peer gets the full number of heartbeats.
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut received, mut sent) = (self.received.load(Relaxed), self.sent.load(Relaxed));
        let (mut not_received, mut not_sent) = (0, 0);
        loop {
            beats.tick().await;
            let (received_now, sent_now) = (self.received.load(Relaxed), self.sent.load(Relaxed));
            not_received = if received_now == received { not_received + 1 } else { 0 };
            not_sent = if sent_now == sent && self.blocked.load(Relaxed) { not_sent + 1 } else { 0 };
            (received, sent) = (received_now, sent_now);
            if not_received >= MAX_MISSED_HEARTBEATS {
                return DeadLink::NothingReceived;
            }
            if not_sent >= MAX_MISSED_HEARTBEATS {
                return DeadLink::NothingSent;
            }
        }
    }
}

impl<S> CountedStream<S> {
    pub const fn new(stream: S, activity: Arc<LinkActivity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.activity.received.fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.activity.sent.fetch_add(count as u64, Relaxed);
        }
        self.activity.blocked.store(written.is_pending(), Relaxed);
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

    const HEARTBEAT: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn three_silent_heartbeats_are_enough_and_a_byte_resets_the_count() {
        let (near, mut far) = tokio::io::duplex(64);
        let activity = Arc::<LinkActivity>::default();
        let mut near = CountedStream::new(near, activity.clone());
        let began = Instant::now();
        let sending = async {
            tokio::time::sleep(HEARTBEAT * 2 + HEARTBEAT / 2).await;
            far.write_all(b"x").await.unwrap();
            near.read_u8().await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            dead = activity.stopped(HEARTBEAT) => assert_eq!(dead, DeadLink::NothingReceived),
            () = sending => unreachable!(),
        }
        assert_eq!(began.elapsed(), HEARTBEAT * 6, "two beats of silence, one with a byte, and three of silence");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_and_reads_nothing_is_noticed_too() {
        let (near, mut far) = tokio::io::duplex(4);
        let activity = Arc::<LinkActivity>::default();
        let near = CountedStream::new(near, activity.clone());
        let (mut reader, mut writer) = tokio::io::split(near);
        let writing = async { writer.write_all(&[0; 64]).await.unwrap() };
        let reading = async { while reader.read_u8().await.is_ok() {} };
        let sending = async {
            loop {
                far.write_u8(1).await.unwrap();
                tokio::time::sleep(HEARTBEAT).await;
            }
        };
        let dead = tokio::select! {
            dead = activity.stopped(HEARTBEAT) => dead,
            _ = async { tokio::join!(writing, reading, sending) } => unreachable!(),
        };
        assert_eq!(dead, DeadLink::NothingSent);
    }
}
