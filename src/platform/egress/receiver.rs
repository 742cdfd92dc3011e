//! A receiver for tests: a local socket that misbehaves as asked, and records its requests.

use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::Notify,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// Reaction of the receiver to a complete request.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    /// Sends this response, and takes the next request.
    Answer(&'static str),
    /// Sends this response, and closes the connection.
    Close(&'static str),
    /// Sends nothing.
    Silence,
    /// Sends one byte every 20 ms, and repeats the last one for ever.
    ByteByByte(&'static str),
    /// Sends this, and then bytes without end.
    Endless(&'static str),
}

/// Stops listening when dropped.
pub(crate) struct Receiver {
    scheme: &'static str,
    address: SocketAddr,
    record: Arc<ReceiverLog>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct ReceiverLog {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    closed: Notify,
}

impl Receiver {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        Self::listen(behaviour, None).await
    }

    /// Starts a receiver with TLS and a self-signed certificate.
    pub(crate) async fn start_untrusted(behaviour: Behaviour) -> Self {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        Self::listen(behaviour, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn listen(behaviour: Behaviour, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let record = Arc::new(ReceiverLog::default());
        let shared = record.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (record, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, behaviour, &record).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, behaviour, &record).await;
                            }
                        }
                    }
                    record.closed.notify_one();
                });
            }
        });
        Self { scheme, address, record, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address)
    }

    /// The `index`th request, head and body, as text.
    pub(crate) fn request(&self, index: usize) -> String {
        self.record.requests.lock()[index].clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.record.requests.lock().len()
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

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, behaviour: Behaviour, record: &ReceiverLog) {
    while let Some(request) = next_request(&mut stream).await {
        record.requests.lock().push(request);
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

async fn drip(stream: &mut (impl AsyncWrite + Unpin), text: &str) -> std::io::Result<()> {
    let last = text.len() - 1;
    for index in 0.. {
        stream.write_all(&text.as_bytes()[last.min(index)..=last.min(index)]).await?;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn flood(stream: &mut (impl AsyncWrite + Unpin), text: &str) -> std::io::Result<()> {
    stream.write_all(text.as_bytes()).await?;
    loop {
        stream.write_all(&[b'x'; 4096]).await?;
    }
}

/// One request, head and body; `None` when the connection ends.
async fn next_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
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

/// A certificate for `localhost` and 127.0.0.1, signed by its own key, which protects nothing.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBujCCAWGgAwIBAgIUMpG+IOarAWWXnAXeCdAUNZFaeS8wCgYIKoZIzj0EAwIw
JDEiMCAGA1UEAwwZc2VsZi1zaWduZWQgdGVzdCByZWNlaXZlcjAgFw0yNjExMTUw
MjIxMDJaGA8yMTI2MTAyMjAyMjEwMlowJDEiMCAGA1UEAwwZc2VsZi1zaWduZWQg
dGVzdCByZWNlaXZlcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAlfZtDRUnGJ
aa9othE5ETkcNm3d87wTPsNAHd4HqygnUqvRjO5JFIYTjEl3ZGX/3VBmNrF9mlU6
tSArTJSOn2CjbzBtMB0GA1UdDgQWBBTsuWUQChN0nXg+Bzb56JQf1H/sBTAfBgNV
HSMEGDAWgBTsuWUQChN0nXg+Bzb56JQf1H/sBTAPBgNVHRMBAf8EBTADAQH/MBoG
A1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAKBggqhkjOPQQDAgNHADBEAiAhiU0M
cPLrbeusZJPrhtWkiI4NtF646CHPo/HdwtvkNAIgHZh2CmZQpxt+etXi17cR7uzK
cPQuFh+dziAKEy/95dg=
-----END CERTIFICATE-----
";
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgsiywtTxLBMiDcjbf
hPQom7JgXuZbiFMTGn8ieBokJMehRANCAAQJX2bQ0VJxiWmvaLYRORE5HDZt3fO8
Ez7DQB3eB6soJ1Kr0YzuSRSGE4xJd2Rl/91QZjaxfZpVOrUgK0yUjp9g
-----END PRIVATE KEY-----
";
