//! The worker's end of the socket. Reading blocks, and so does writing: the server always reads.

use crate::scripting::workers::{
    messages::{FromWorker, ToWorker},
    wire::{FrameBuffer, FrameWriter, READ_SIZE},
};
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::AsRawFd as _,
};

/// The socket to the server.
pub(super) struct ServerSocket {
    socket: File,
    received: FrameBuffer,
    /// The bytes of one read.
    reading: Box<[u8]>,
    /// Messages that were read while the worker waited for another one.
    kept: VecDeque<ToWorker>,
    sending: FrameWriter,
}

impl ServerSocket {
    pub fn new(socket: File) -> Self {
        Self {
            socket,
            received: FrameBuffer::default(),
            reading: vec![0; READ_SIZE].into(),
            kept: VecDeque::new(),
            sending: FrameWriter::default(),
        }
    }

    /// The next message.
    ///
    /// # Errors
    ///
    /// Fails if the server is gone.
    pub fn receive(&mut self) -> io::Result<ToWorker> {
        match self.kept.pop_front() {
            Some(message) => Ok(message),
            None => self.read(),
        }
    }

    /// The next message for which `wanted` returns true, or a program. The others are kept for later.
    pub fn receive_only(&mut self, wanted: impl Fn(&ToWorker) -> bool) -> io::Result<ToWorker> {
        loop {
            let message = self.read()?;
            if wanted(&message) || matches!(message, ToWorker::Program { .. }) {
                return Ok(message);
            }
            self.kept.push_back(message);
        }
    }

    pub fn send(&mut self, message: &FromWorker) -> io::Result<()> {
        self.sending.bytes.clear();
        message.write(&mut self.sending);
        self.socket.write_all(&self.sending.bytes)?;
        if self.sending.bytes.capacity() > 256 << 10 {
            self.sending = FrameWriter::default();
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<ToWorker> {
        loop {
            if let Some(frame) = self.received.next(usize::MAX).map_err(io::Error::other)? {
                return ToWorker::read(frame).map_err(io::Error::other);
            }
            self.wait();
            match self.socket.read(&mut self.reading)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.received.add(&self.reading[..length]),
            }
        }
    }

    /// Waits for bytes to read. A thread that waits in `read` is woken also whenever the server takes a message.
    fn wait(&self) {
        let mut watched = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the pointer is that of one entry, and the others may be null. If it fails, `read` waits.
        unsafe { libc::ppoll(&mut watched, 1, std::ptr::null(), std::ptr::null()) };
    }
}
