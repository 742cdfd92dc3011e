//! A receiver for tests: a socket on this machine that behaves as badly as it is told, and records what it got.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// What is done once a request has come in whole.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    /// Answers so, and takes the next request.
    Answer(&'static str),
    /// Answers so, and closes the connection.
    Close(&'static str),
    /// Never says a word.
    Silence,
    /// Sends one byte every 20 ms, and after the last of them the last again, for ever.
    ByteByByte(&'static str),
    /// Sends this, and then bytes without end.
    Endless(&'static str),
}

/// Stops listening when dropped.
pub(crate) struct Receiver {
    address: SocketAddr,
    record: Arc<Record>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Record {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    closed: Notify,
}

impl Receiver {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let record = Arc::new(Record::default());
        let shared = record.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let record = shared.clone();
                tokio::spawn(async move {
                    serve(stream, behaviour, &record).await;
                    record.closed.notify_one();
                });
            }
        });
        Self { address, record, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The `index`th request, head and body, as text.
    pub(crate) fn request(&self, index: usize) -> String {
        self.record.requests.lock().unwrap()[index].clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.record.requests.lock().unwrap().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.record.connections.load(Ordering::SeqCst)
    }

    /// Returns once a connection has ended.
    pub(crate) async fn closed(&self) {
        self.record.closed.notified().await;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, record: &Record) {
    while let Some(request) = next_request(&mut stream).await {
        record.requests.lock().unwrap().push(request);
        let sent = match behaviour {
            Behaviour::Answer(text) => stream.write_all(text.as_bytes()).await,
            Behaviour::Close(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                return;
            }
            Behaviour::Silence => return std::future::pending().await,
            Behaviour::ByteByByte(text) => drip(&mut stream, text).await,
            Behaviour::Endless(text) => flood(&mut stream, text).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn drip(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    let last = text.len() - 1;
    for index in 0.. {
        stream.write_all(&text.as_bytes()[last.min(index)..=last.min(index)]).await?;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn flood(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    loop {
        stream.write_all(&[b'x'; 4096]).await?;
    }
}

/// One request, head and body; `None` when the connection ends.
async fn next_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
