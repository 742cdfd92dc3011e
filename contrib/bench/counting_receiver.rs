//! A webhook receiver on one thread that counts requests and answers each. Shared by the benchmarks of deliveries.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

pub struct CountingReceiver {
    pub url: String,
    requests: Arc<AtomicUsize>,
}

impl CountingReceiver {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let requests = Arc::<AtomicUsize>::default();
        let counted = requests.clone();
        thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            tokio.block_on(async {
                listener.set_nonblocking(true).expect("the listener accepts the option");
                let listener = TcpListener::from_std(listener).expect("the listener is watched");
                loop {
                    // A connection that its client closed already is no reason to stop.
                    if let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(answer(stream, counted.clone()));
                    }
                }
            });
        });
        Self { url: format!("http://{address}/"), requests }
    }

    /// Requests so far.
    pub fn count(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Waits until as many requests have come, or none has come for the time of `stall`; returns when the last one
    /// came.
    pub fn wait_for(&self, count: usize, stall: Duration) -> Instant {
        let (mut seen, mut last) = (self.count(), Instant::now());
        while seen < count && last.elapsed() < stall {
            thread::sleep(Duration::from_millis(1));
            let now = self.count();
            if now > seen {
                (seen, last) = (now, Instant::now());
            }
        }
        last
    }
}

/// Answers every request on a connection.
async fn answer(mut stream: TcpStream, requests: Arc<AtomicUsize>) {
    let _ = stream.set_nodelay(true);
    let mut received = Vec::with_capacity(4 << 10);
    while let Ok(1..) = stream.read_buf(&mut received).await {
        while let Some(length) = request_length(&received) {
            received.drain(..length);
            requests.fetch_add(1, Relaxed);
            if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
                return;
            }
        }
    }
}

/// The length of the first request, if it is complete.
fn request_length(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&received[..head]).expect("a head is text");
    let lengths = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().expect("a length"))
    });
    let length = head + lengths.sum::<usize>();
    (received.len() >= length).then_some(length)
}
