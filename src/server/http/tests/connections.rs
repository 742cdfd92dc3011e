//! Connections that misbehave, limits on connections, and the drain at shutdown.

use super::TestServer;
use isahc::config::{Configurable, VersionNegotiation};
use serde_json::json;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Short enough for a test, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(300);

/// Upper bound on waiting for a condition that is expected to come.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// Everything the server sends until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("closed").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The head of a request whose body of `length` bytes is still to come.
fn head(server: &TestServer, length: usize) -> String {
    let (address, token) = (server.address, &server.token);
    format!(
        "POST /api/groups HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server = TestServer::start_with(SHORT, |_| {}).await;
    // Nothing at all, the beginning of both versions, a head that does not end, and silence after a response.
    for sent in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let response = rest(&mut stream).await;
        assert_eq!(response.starts_with("HTTP/1.1 200"), sent.ends_with("\r\n\r\n"), "{sent:?}: {response}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_chunked_body_over_the_limit_is_413() {
    let server = TestServer::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = head(&server, 0).replace("Content-Length: 0", "Transfer-Encoding: chunked\r\nConnection: close");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..17 {
        // The server may have closed the connection by now.
        let _ = stream.write_all(chunk.as_bytes()).await;
    }
    let response = rest(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 413") && response.contains("too_large"), "{response}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_in_flight_is_finished_when_the_server_stops() {
    let server = TestServer::start().await;
    let body = json!({"name": "ops"}).to_string();
    let (first, second) = body.split_at(5);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head(&server, body.len()).as_bytes()).await.unwrap();
    stream.write_all(first.as_bytes()).await.unwrap();
    // A response on another connection shows that the server has been scheduled since.
    assert_eq!(server.get("/healthz").await.status, 200);
    server.shutdown.cancel();
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.serving.is_finished());
    stream.write_all(second.as_bytes()).await.unwrap();
    let response = rest(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_does_not_finish_is_cut_off_when_the_server_stops() {
    let server = TestServer::start_with(SHORT, |_| {}).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head(&server, 100).as_bytes()).await.unwrap();
    assert_eq!(server.get("/healthz").await.status, 200);
    tokio::time::timeout(LONG, server.stop()).await.expect("it does not wait for ever");
    assert_eq!(rest(&mut stream).await, "");
}

/// Opens the stream of events and reads the head of its response.
pub(super) async fn watching(server: &TestServer, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let address = server.address;
    let request =
        format!("GET /api/events/stream HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn a_stream_ends_when_its_caller_is_deleted() {
    let server = TestServer::start().await;
    let (id, ada) = server.user("ada", &["member"]).await;
    let mut stream = watching(&server, &ada).await;
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    // The last chunk is empty; the connection itself may be used again.
    let mut received = String::new();
    while !received.ends_with("0\r\n\r\n") {
        let mut bytes = [0; 1024];
        let read = tokio::time::timeout(LONG, stream.read(&mut bytes)).await.expect("ended").unwrap();
        assert_ne!(read, 0, "closed without an end: {received}");
        received.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    // Longer than the test may take, so that a forced end would fail the test.
    let server = TestServer::start_with(LONG * 2, |_| {}).await;
    let mut stream = watching(&server, &server.token).await;
    tokio::time::timeout(LONG, server.stop()).await.expect("nothing holds it up");
    assert!(rest(&mut stream).await.ends_with("0\r\n\r\n"));
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = TestServer::start_with(Duration::from_secs(60), |config| config.limits.connections = 1).await;
    let mut first = TcpStream::connect(server.address).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    first.write_all(request.as_bytes()).await.unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).await.unwrap();
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(request.as_bytes()).await.unwrap();
    assert!(tokio::time::timeout(SHORT, second.read_exact(&mut byte)).await.is_err(), "there is one place");
    drop(first);
    tokio::time::timeout(LONG, second.read_exact(&mut byte)).await.expect("its turn").unwrap();
    drop(second);
    server.stop().await;
}

#[tokio::test]
async fn http2_clients_are_served() {
    let server = TestServer::start().await;
    let request = server.request("POST", "/api/groups").version_negotiation(VersionNegotiation::http2());
    let request = request.header("Authorization", format!("Bearer {}", server.token));
    let request = request.header("Content-Type", "application/json").body(json!({"name": "ops"}).to_string());
    let response = server.client.send_async(request.unwrap()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (201, isahc::http::Version::HTTP_2));
    drop(response);
    server.stop().await;
}

#[tokio::test]
async fn responses_forbid_caching_and_content_sniffing() {
    let server = TestServer::start().await;
    for path in ["/api/whoami", "/api/nothing"] {
        let response = server.get(path).await;
        assert_eq!(response.headers["cache-control"], "no-store");
        assert_eq!(response.headers["x-content-type-options"], "nosniff");
    }
    server.stop().await;
}

/// The first bytes of an HTTP/2 connection with these settings, and a request for `/healthz`.
fn http2_request(settings: &[u8]) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let head = [0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    };
    let headers = b"\x82\x86\x04\x08/healthz\x01\x01x";
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, settings), frame(1, 5, 1, headers)].concat()
}

#[tokio::test]
async fn an_http2_connection_that_only_pings_is_closed() {
    let server = TestServer::start_with(SHORT, |_| {}).await;
    // One that takes its response, and one whose window stays shut so that its response never ends.
    for settings in [&[][..], &[0, 4, 0, 0, 0, 0]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&http2_request(settings)).await.unwrap();
        let (mut read, mut write) = stream.split();
        let pinging = async {
            while write.write_all(b"\0\0\x08\x06\0\0\0\0\0lifesign").await.is_ok() {
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        let closed = async { while read.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} };
        let ended = async {
            tokio::select! { () = pinging => {}, () = closed => {} }
        };
        tokio::time::timeout(LONG, ended).await.expect("let go");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_connection_whose_peer_never_reads_is_closed() {
    let server = TestServer::start_with(SHORT, |_| {}).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let requests = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    let asking = async { while stream.write_all(requests.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(LONG, asking).await.expect("let go");
    server.stop().await;
}

#[tokio::test]
async fn one_address_gets_half_of_the_connections() {
    let server = TestServer::start_with(LONG, |config| config.limits.connections = 4).await;
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        held.push(stream);
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(30), third.read(&mut [0])).await.expect("hung up on");
    assert!(refused.is_err() || refused.is_ok_and(|read| read == 0));
    let elsewhere = tokio::net::TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut elsewhere = elsewhere.connect(server.address).await.unwrap();
    elsewhere.write_all(request.as_bytes()).await.unwrap();
    elsewhere.read_exact(&mut [0; 12]).await.unwrap();
    drop((held, elsewhere));
    server.stop().await;
}
