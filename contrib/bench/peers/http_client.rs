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

    /// Posts a body and returns the status and the body of the response.
    pub fn post(&mut self, path: &str, body: &str) -> (u16, &str) {
        self.request("POST", path, body)
    }

    /// Sends a body and returns the status and the body of the response, which has an announced length or comes in
    /// chunks.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> (u16, &str) {
        let request = format!("{method} {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        self.writer.write_all(request.as_bytes()).expect("the server reads");
        let (mut status, mut length, mut chunked) = (0, 0, false);
        loop {
            let line = self.read_line();
            if status == 0 {
                status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
            } else if line.is_empty() {
                break;
            } else if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().expect("a length is a number");
                } else if name.eq_ignore_ascii_case("transfer-encoding") {
                    chunked = value.trim().eq_ignore_ascii_case("chunked");
                }
            }
        }
        self.body.clear();
        if chunked {
            self.read_chunks();
        } else {
            self.read_body(length);
        }
        (status, std::str::from_utf8(&self.body).expect("responses are text"))
    }

    /// Reads chunks to the end of the last one, which is empty; no server here sends trailers.
    fn read_chunks(&mut self) {
        loop {
            let length = usize::from_str_radix(self.read_line(), 16).expect("a chunk begins with its length");
            self.read_body(length);
            self.read_line();
            if length == 0 {
                return;
            }
        }
    }

    /// Appends bytes of the response to the body.
    fn read_body(&mut self, length: usize) {
        let begin = self.body.len();
        self.body.resize(begin + length, 0);
        self.reader.read_exact(&mut self.body[begin..]).expect("the body has its announced length");
    }

    /// The next line of the response, without its end.
    fn read_line(&mut self) -> &str {
        self.line.clear();
        self.reader.read_line(&mut self.line).expect("the server responds");
        self.line.trim_end()
    }
}

impl Emitter for HttpEmitter {
    fn emit(&mut self) {
        let (status, answer) = self.client.post(self.path, &self.body);
        assert_eq!(status, self.accepted, "{answer}");
    }
}
