//! The server's end of a worker's socket.
//!
//! The system wakes a process that watches a local socket for room whenever the other end reads from it: once for each
//! message, for nothing. So the socket is watched for room only while something waits to be sent.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
};
use tokio::io::{Interest, unix::AsyncFd};

pub(super) struct WorkerSocket(AsyncFd<UnixStream>);

impl WorkerSocket {
    /// Takes over a socket that does not block.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be watched.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self(watch(socket, Interest::READABLE)?))
    }

    /// Sends as many of these bytes as the socket takes now, and returns their number.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] if it takes none, and otherwise if the other end is gone.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.get_ref().write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent,
            }
        }
    }

    /// Waits until the socket takes more bytes.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be watched.
    pub async fn room(&self) -> io::Result<()> {
        let watched = watch(self.0.get_ref().try_clone()?, Interest::WRITABLE)?;
        watched.writable().await?.retain_ready();
        Ok(())
    }

    /// Waits for bytes, and returns their number; 0 once the other end is closed.
    ///
    /// # Errors
    ///
    /// Fails if the socket does.
    pub async fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        // A worker that sends without a pause does not hold up other tasks.
        tokio::task::coop::consume_budget().await;
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|socket| socket.get_ref().read(bytes)) {
                Ok(Ok(count)) => {
                    if (1..bytes.len()).contains(&count) {
                        // That was everything: the next call waits without another attempt.
                        ready.clear_ready();
                    }
                    return Ok(count);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                // The event was an old one.
                Err(_) => {}
            }
        }
    }
}

fn watch(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: the socket has its descriptor for as long as it exists.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pair() -> (WorkerSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (WorkerSocket::new(ours).unwrap(), theirs)
    }

    /// Returns true if nothing comes for a while.
    async fn never(waiting: impl Future) -> bool {
        tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err()
    }

    #[tokio::test]
    async fn messages_and_the_end_of_the_other_side_are_received() {
        let (socket, mut other) = pair();
        let mut bytes = [0; 8];
        assert!(never(socket.receive(&mut bytes)).await);
        for message in [b"one", b"two"] {
            other.write_all(message).unwrap();
            assert_eq!(socket.receive(&mut bytes).await.unwrap(), 3);
            assert_eq!(&bytes[..3], message);
        }
        drop(other);
        assert_eq!(socket.receive(&mut bytes).await.unwrap(), 0);
        assert!(socket.send(b"x").is_err());
    }

    #[tokio::test]
    async fn a_full_socket_takes_more_once_the_other_side_has_read() {
        let (socket, mut other) = pair();
        let (sent, mut full) = (vec![7; 1 << 20], 0);
        let refused = loop {
            match socket.send(&sent) {
                Ok(count) => full += count,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(never(socket.room()).await);
        let reading = std::thread::spawn(move || other.read_exact(&mut vec![0; full]).map(|()| other));
        socket.room().await.unwrap();
        assert!(socket.send(b"more").is_ok());
        let mut other = reading.join().unwrap().unwrap();
        let mut rest = [0; 4];
        other.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"more");
    }
}
