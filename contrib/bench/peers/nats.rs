//! NATS JetStream with a file stream that is synced for every message, over the text protocol of NATS. It publishes and
//! stores; it sends no webhooks.

use crate::{
    server::{Emitter, Process, Server, free_address},
    work::{Body, PAYLOAD},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

pub struct JetStream {
    process: Process,
    address: SocketAddr,
}

/// One connection with an inbox of its own, to which the server sends its acknowledgements.
struct Publisher {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    inbox: String,
    line: String,
}

impl JetStream {
    pub fn start(binary: &Path) -> Self {
        let address = free_address();
        let mut process = Process::start(binary, |command, directory| {
            let config = directory.join("nats.conf");
            let store = directory.join("store");
            let settings = format!(
                "listen: \"{address}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
                store.display()
            );
            fs::write(&config, settings).expect("the temporary directory is writable");
            command.arg("--config").arg(config);
        });
        process.await_listener(address);
        let created = Publisher::connect(address)
            .request("$JS.API.STREAM.CREATE.events", r#"{"name":"events","subjects":["events"],"storage":"file"}"#);
        assert!(!created.contains("\"error\""), "{created}");
        Self { process, address }
    }
}

impl Server for JetStream {
    fn process(&self) -> &Process {
        &self.process
    }

    fn emitter(&self) -> Box<dyn Emitter> {
        Box::new(Publisher::connect(self.address))
    }

    fn create_inactive_sink(&self) {
        // The stream stores every message, whoever reads it.
    }

    fn create_webhooks(&self, _: usize, _: &str, _: Body) {
        unreachable!("`Work::suits` excludes webhooks");
    }
}

impl Publisher {
    fn connect(address: SocketAddr) -> Self {
        static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
        let mut writer = TcpStream::connect(address).expect("the server listens");
        writer.set_nodelay(true).expect("the socket accepts the option");
        let reader = BufReader::new(writer.try_clone().expect("a socket can be cloned"));
        let inbox = format!("_INBOX.{}", CONNECTIONS.fetch_add(1, Relaxed));
        let hello = format!("CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {inbox} 1\r\n");
        writer.write_all(hello.as_bytes()).expect("the server reads");
        Self { reader, writer, inbox, line: String::new() }
    }

    /// Publishes a message and returns the answer that comes to the inbox.
    fn request(&mut self, subject: &str, message: &str) -> String {
        let publish = format!("PUB {subject} {} {}\r\n{message}\r\n", self.inbox, message.len());
        self.writer.write_all(publish.as_bytes()).expect("the server reads");
        loop {
            self.line.clear();
            let read = self.reader.read_line(&mut self.line).expect("the server responds");
            assert!(read > 0 && !self.line.starts_with("-ERR"), "the server refused: {}", self.line);
            if self.line.starts_with("PING") {
                self.writer.write_all(b"PONG\r\n").expect("the server reads");
            } else if self.line.starts_with("MSG ") {
                let length = self.line.trim_end().rsplit(' ').next().and_then(|length| length.parse::<usize>().ok());
                // The message is followed by an end of line.
                let mut answer = vec![0; length.expect("a message has a length") + 2];
                self.reader.read_exact(&mut answer).expect("the server sends a whole message");
                return String::from_utf8(answer).expect("answers are text");
            }
        }
    }
}

impl Emitter for Publisher {
    fn emit(&mut self) {
        let answer = self.request("events", PAYLOAD);
        assert!(answer.contains("\"seq\""), "{answer}");
    }
}
