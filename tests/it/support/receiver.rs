//! A webhook receiver that records every request and responds as the test decides.

use super::eventually;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// A receiver on a free port. It listens until dropped.
pub struct Receiver {
    address: SocketAddr,
    state: Arc<ReceiverState>,
}

struct ReceiverState {
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    /// Requests in progress, and their maximum so far.
    busy: AtomicUsize,
    most_busy: AtomicUsize,
    closed: AtomicBool,
    answer: Box<dyn Fn(&Received) -> Answer + Send + Sync>,
}

/// One recorded request.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// The response to a request.
pub enum Answer {
    Status(u16),
    /// The bytes of the whole response; the connection is closed afterwards.
    Raw(String),
    /// Runs with the connection, which is closed afterwards.
    Custom(Box<dyn FnOnce(&mut TcpStream) + Send>),
}

impl Receiver {
    /// A receiver that answers every request with 200.
    pub fn start() -> Self {
        Self::answering(|_| Answer::Status(200))
    }

    /// A receiver that answers each request with the result of `answer`.
    pub fn answering(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(ReceiverState {
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            most_busy: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            answer: Box::new(answer),
        });
        let accepting = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.closed.load(Ordering::Relaxed) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let serving = accepting.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        Self { address, state }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    /// Waits until there are at least `count` requests, and returns all.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        eventually(&format!("{count} requests at the receiver"), || {
            let received = self.received();
            (received.len() >= count).then_some(received)
        })
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The maximum number of concurrent requests.
    pub fn most_at_once(&self) -> usize {
        self.state.most_busy.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

impl Received {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

impl ReceiverState {
    fn serve(&self, stream: TcpStream) {
        let Ok(mut writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_busy.fetch_max(busy, Ordering::SeqCst);
            self.received.lock().unwrap().push(request.clone());
            let answer = (self.answer)(&request);
            self.busy.fetch_sub(1, Ordering::SeqCst);
            match answer {
                Answer::Status(status) => {
                    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok");
                    if writer.write_all(head.as_bytes()).is_err() {
                        return;
                    }
                }
                Answer::Raw(text) => {
                    let _ = writer.write_all(text.as_bytes());
                    return;
                }
                Answer::Custom(act) => return act(&mut writer),
            }
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Received> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received { path, headers, body })
}
