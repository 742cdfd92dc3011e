//! A queue of outgoing messages that is bounded in number and in bytes. Both ends of an agent's link send through one.
//!
//! A sender waits for room, never for the network: the task that owns the socket takes the messages from the
//! [`OutboxReceiver`]. A message keeps its room until its [`Queued`] is dropped, so that a peer that does not read
//! cannot make this process hold more than the bound. A message heavier than the whole bound still fits alone. Once the
//! receiver is dropped, every send fails at once, also one that waits for room.

use std::sync::Arc;
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{self, error::TrySendError},
};

/// Messages that may be queued at once.
pub const MAX_MESSAGES: usize = 1024;

/// Total weight of the queued messages, in KiB.
pub const MAX_KIB: u32 = 64 << 10;

/// The sending half. Cloning it is cheap.
#[derive(Debug)]
pub struct Outbox<T> {
    queue: mpsc::Sender<Queued<T>>,
    room: Arc<Semaphore>,
}

/// The receiving half, for the task that writes to the socket.
#[derive(Debug)]
pub struct OutboxReceiver<T> {
    queue: mpsc::Receiver<Queued<T>>,
    room: Arc<Semaphore>,
}

/// A queued message. Its room is free again once this is dropped.
#[derive(Debug)]
pub struct Queued<T> {
    pub message: T,
    _room: Option<OwnedSemaphorePermit>,
}

/// The receiver is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the outbox is closed")]
pub struct OutboxClosed;

/// Makes an empty outbox.
pub fn outbox<T>() -> (Outbox<T>, OutboxReceiver<T>) {
    let (sender, receiver) = mpsc::channel(MAX_MESSAGES);
    let room = Arc::new(Semaphore::new(MAX_KIB as usize));
    (Outbox { queue: sender, room: room.clone() }, OutboxReceiver { queue: receiver, room })
}

/// The weight of this many bytes in whole KiB, rounded down: a small message weighs nothing and counts only in number.
pub fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(MAX_KIB)
}

impl<T> Outbox<T> {
    /// Queues a message of this weight in KiB, once there is room for it.
    ///
    /// # Errors
    ///
    /// Fails once the receiver is gone.
    pub async fn send(&self, message: T, kib: u32) -> Result<(), OutboxClosed> {
        // Most messages are small and find room at once.
        let message = match kib {
            0 => match self.queue.try_send(Queued { message, _room: None }) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(queued)) => queued.message,
                Err(TrySendError::Closed(_)) => return Err(OutboxClosed),
            },
            _ => message,
        };
        let _room = match kib.min(MAX_KIB) {
            0 => None,
            kib => Some(self.room.clone().acquire_many_owned(kib).await.map_err(|_| OutboxClosed)?),
        };
        self.queue.send(Queued { message, _room }).await.map_err(|_| OutboxClosed)
    }

    /// Queues a message of this weight in KiB, if there is room for it now. Returns whether it was queued.
    pub fn try_send(&self, message: T, kib: u32) -> bool {
        let _room = match kib.min(MAX_KIB) {
            0 => None,
            kib => match self.room.clone().try_acquire_many_owned(kib) {
                Ok(room) => Some(room),
                Err(_) => return false,
            },
        };
        self.queue.try_send(Queued { message, _room }).is_ok()
    }
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), room: self.room.clone() }
    }
}

impl<T> OutboxReceiver<T> {
    /// Waits for the next message; `None` once every sender is gone.
    pub async fn recv(&mut self) -> Option<Queued<T>> {
        self.queue.recv().await
    }

    /// The next message, if one is queued.
    pub fn try_recv(&mut self) -> Option<Queued<T>> {
        self.queue.try_recv().ok()
    }
}

impl<T> Drop for OutboxReceiver<T> {
    fn drop(&mut self) {
        // A sender that waits for room would otherwise wait until the messages that were taken are dropped.
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_in_bytes_and_small_messages_pass() {
        let (outbox, mut messages) = outbox();
        outbox.send(1, MAX_KIB / 2).await.unwrap();
        outbox.send(2, MAX_KIB / 2).await.unwrap();
        let mut third = std::pin::pin!(outbox.send(3, 1));
        assert!(futures_util::poll!(third.as_mut()).is_pending(), "there is no room for a third");
        outbox.send(4, 0).await.unwrap();
        let first = messages.recv().await.unwrap();
        assert!(futures_util::poll!(third.as_mut()).is_pending(), "the first keeps its room until it is dropped");
        drop(first);
        third.await.unwrap();
        let left: Vec<i32> = std::iter::from_fn(|| messages.try_recv()).map(|queued| queued.message).collect();
        assert_eq!(left, [2, 4, 3]);
    }

    #[tokio::test]
    async fn a_message_heavier_than_the_bound_fits_alone() {
        let (outbox, mut messages) = outbox();
        outbox.send("large", u32::MAX).await.unwrap();
        assert_eq!(messages.recv().await.unwrap().message, "large");
    }

    #[tokio::test]
    async fn a_message_that_does_not_wait_counts_in_bytes_too() {
        let (outbox, mut messages) = outbox();
        assert!(outbox.try_send(1, MAX_KIB));
        assert!(!outbox.try_send(2, 1));
        assert!(outbox.try_send(3, 0));
        drop(messages.recv().await.unwrap());
        assert!(outbox.try_send(4, 1));
    }

    #[tokio::test]
    async fn a_sender_that_waits_for_room_fails_once_the_receiver_is_gone() {
        let (outbox, mut messages) = outbox();
        outbox.send(1, MAX_KIB).await.unwrap();
        let _being_written = messages.recv().await.unwrap();
        let mut waiting = std::pin::pin!(outbox.send(2, 1));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(messages);
        assert_eq!(futures_util::poll!(waiting.as_mut()), std::task::Poll::Ready(Err(OutboxClosed)));
        assert!(!outbox.try_send(3, 1));
    }

    #[tokio::test]
    async fn the_queue_is_bounded_in_number() {
        let (outbox, messages) = outbox();
        for n in 0..MAX_MESSAGES {
            assert!(outbox.try_send(n, 0));
        }
        assert!(!outbox.try_send(0, 0));
        let mut waiting = std::pin::pin!(outbox.send(0, 0));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(messages);
        assert_eq!(waiting.await, Err(OutboxClosed));
    }
}
