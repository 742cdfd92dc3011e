//! A blocking HTTP/1.1 client on one connection. It takes little of the processor, and shares nothing with other
//! clients.

use crate::support::TEST_TIMEOUT;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

/// A connection to the daemon, opened again after the daemon has closed it.
pub struct Client {
    address: String,
    token: String,
    stream: Option<BufReader<TcpStream>>,
}

/// The status and the body of a response.
pub struct Response {
    pub status: u16,
    pub body: String,
}

impl Client {
    pub fn new(url: &str, token: &str) -> Self {
        let address = url.trim_start_matches("http://").to_owned();
        Self { address, token: token.to_owned(), stream: None }
    }

    /// Closes the connection; the next request opens another.
    pub fn close(&mut self) {
        self.stream = None;
    }

    /// Sends a request with a JSON body and reads the response.
    #[track_caller]
    pub fn send(&mut self, method: &str, path: &str, body: &str) -> Response {
        self.send_with(method, path, "", body)
    }

    /// Like [`Client::send`], with further header lines.
    #[track_caller]
    pub fn send_with(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Response {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             {headers}content-length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        let stream = self.stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(&self.address).expect("the daemon listens");
            stream.set_nodelay(true).expect("a socket has options");
            stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket has options");
            BufReader::new(stream)
        });
        stream.get_mut().write_all(request.as_bytes()).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let (response, closes) = read(stream).unwrap_or_else(|| panic!("{method} {path} had no response"));
        if closes {
            self.stream = None;
        }
        response
    }
}

/// A response, and whether the daemon closes the connection after it.
fn read(stream: &mut BufReader<TcpStream>) -> Option<(Response, bool)> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let (mut length, mut closes, mut chunked) = (0, false, false);
    loop {
        line.clear();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "content-length" => length = value.parse().ok()?,
            "connection" => closes = value == "close",
            "transfer-encoding" => chunked = true,
            _ => {}
        }
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            line.clear();
            stream.read_line(&mut line).ok()?;
            let length = u64::from_str_radix(line.trim_end(), 16).ok()?;
            stream.by_ref().take(length).read_to_end(&mut body).ok()?;
            stream.read_line(&mut line).ok()?;
            if length == 0 {
                break;
            }
        }
    } else {
        stream.by_ref().take(length).read_to_end(&mut body).ok()?;
    }
    Some((Response { status, body: String::from_utf8(body).ok()? }, closes))
}

/// Runs something on a thread of the lowest priority, as are all threads that it starts: what is measured beside it is
/// the daemon, and not the client.
pub fn at_low_priority<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: it changes the priority of this thread, and nothing else.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) }, 0);
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
