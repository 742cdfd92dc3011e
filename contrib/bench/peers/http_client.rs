//! A keep-alive HTTP connection whose own cost is small; requests and responses are JSON.

use crate::server::Emitter;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

pub struct HttpClient {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    head: String,
    line: String,
    body: Vec<u8>,
}

/// Emits one prepared event over and over.
pub struct HttpEmitter {
    pub client: HttpClient,
    pub path: &'static str,
    pub body: String,
    pub accepted: u16,
}

impl HttpClient {
    /// Opens a connection that sends `credential`, a header line without its end, with every request.
    pub fn connect(address: SocketAddr, credential: &str) -> Self {
        let writer = TcpStream::connect(address).expect("the server listens");
        writer.set_nodelay(true).expect("the socket accepts the option");
        let reader = BufReader::new(writer.try_clone().expect("a socket can be cloned"));
        let credential = if credential.is_empty() { String::new() } else { format!("{credential}\r\n") };
        let head =
            format!("host: {address}\r\n{credential}accept: application/json\r\ncontent-type: application/json\r\n");
        Self { reader, writer, head, line: String::new(), body: Vec::new() }
    }

    /// Posts a body and returns the status and the body of the response, which has an announced length.
    pub fn post(&mut self, path: &str, body: &str) -> (u16, &str) {
        let request = format!("POST {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        self.writer.write_all(request.as_bytes()).expect("the server reads");
        let (mut status, mut length) = (0, 0);
        loop {
            self.line.clear();
            self.reader.read_line(&mut self.line).expect("the server responds");
            let line = self.line.trim_end();
            if status == 0 {
                status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
            } else if line.is_empty() {
                break;
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length is a number");
            }
        }
        self.body.resize(length, 0);
        self.reader.read_exact(&mut self.body).expect("the body has its announced length");
        (status, std::str::from_utf8(&self.body).expect("responses are text"))
    }
}

impl Emitter for HttpEmitter {
    fn emit(&mut self) {
        let (status, answer) = self.client.post(self.path, &self.body);
        assert_eq!(status, self.accepted, "{answer}");
    }
}
