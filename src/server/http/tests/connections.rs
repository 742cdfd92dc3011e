//! Connections that misbehave, and how the server lets go of the others.

use super::Service;
use isahc::config::{Configurable, VersionNegotiation};
use serde_json::json;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Short enough for a test, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(300);

/// All there is to wait for a condition that will come.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// Everything the server says until it closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("closed").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The head of a request whose body of `length` bytes is still to come.
fn head(service: &Service, length: usize) -> String {
    let (address, token) = (service.address, &service.token);
    format!(
        "POST /api/groups HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn who_sends_no_request_is_let_go() {
    let service = Service::start_with(SHORT, |_| {}).await;
    // Nothing at all, the beginning of both versions, a head that does not end, and silence after an answer.
    for sent in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200"), sent.ends_with("\r\n\r\n"), "{sent:?}: {answer}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_body_that_grows_over_the_limit_unannounced_is_413() {
    let service = Service::start().await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let head = head(&service, 0).replace("Content-Length: 0", "Transfer-Encoding: chunked\r\nConnection: close");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..17 {
        // The server may have hung up by now, which is its right.
        let _ = stream.write_all(chunk.as_bytes()).await;
    }
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("too_large"), "{answer}");
    service.stop().await;
}

#[tokio::test]
async fn a_request_in_flight_is_finished_when_the_server_stops() {
    let service = Service::start().await;
    let body = json!({"name": "ops"}).to_string();
    let (first, second) = body.split_at(5);
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    stream.write_all(head(&service, body.len()).as_bytes()).await.unwrap();
    stream.write_all(first.as_bytes()).await.unwrap();
    // An answer on another connection shows that the server has been scheduled since.
    assert_eq!(service.get("/healthz").await.status, 200);
    service.shutdown.cancel();
    while TcpStream::connect(service.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!service.serving.is_finished());
    stream.write_all(second.as_bytes()).await.unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    service.stop().await;
}

#[tokio::test]
async fn a_request_that_does_not_finish_is_cut_off_when_the_server_stops() {
    let service = Service::start_with(SHORT, |_| {}).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    stream.write_all(head(&service, 100).as_bytes()).await.unwrap();
    assert_eq!(service.get("/healthz").await.status, 200);
    tokio::time::timeout(LONG, service.stop()).await.expect("it does not wait for ever");
    assert_eq!(rest(&mut stream).await, "");
}

/// Opens the stream of events and reads the head of its answer.
pub(super) async fn watching(service: &Service, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let address = service.address;
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
    let service = Service::start().await;
    let (id, ada) = service.user("ada", &["member"]).await;
    let mut stream = watching(&service, &ada).await;
    assert_eq!(service.call(&service.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    // The last chunk is empty; the connection itself may be used again.
    let mut told = String::new();
    while !told.ends_with("0\r\n\r\n") {
        let mut bytes = [0; 1024];
        let read = tokio::time::timeout(LONG, stream.read(&mut bytes)).await.expect("ended").unwrap();
        assert_ne!(read, 0, "closed without an end: {told}");
        told.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    service.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    // Longer than the test may take: an end that has to be forced would show.
    let service = Service::start_with(LONG * 2, |_| {}).await;
    let mut stream = watching(&service, &service.token).await;
    tokio::time::timeout(LONG, service.stop()).await.expect("nothing holds it up");
    assert!(rest(&mut stream).await.ends_with("0\r\n\r\n"));
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let service = Service::start_with(Duration::from_secs(60), |config| config.limits.connections = 1).await;
    let mut first = TcpStream::connect(service.address).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    first.write_all(request.as_bytes()).await.unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).await.unwrap();
    let mut second = TcpStream::connect(service.address).await.unwrap();
    second.write_all(request.as_bytes()).await.unwrap();
    assert!(tokio::time::timeout(SHORT, second.read_exact(&mut byte)).await.is_err(), "there is one place");
    drop(first);
    tokio::time::timeout(LONG, second.read_exact(&mut byte)).await.expect("its turn").unwrap();
    drop(second);
    service.stop().await;
}

#[tokio::test]
async fn http2_is_spoken_to_who_speaks_it() {
    let service = Service::start().await;
    let request = service.request("POST", "/api/groups").version_negotiation(VersionNegotiation::http2());
    let request = request.header("Authorization", format!("Bearer {}", service.token));
    let request = request.header("Content-Type", "application/json").body(json!({"name": "ops"}).to_string());
    let response = service.client.send_async(request.unwrap()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (201, isahc::http::Version::HTTP_2));
    drop(response);
    service.stop().await;
}

#[tokio::test]
async fn answers_are_neither_kept_nor_reinterpreted_on_their_way() {
    let service = Service::start().await;
    for path in ["/api/whoami", "/api/nothing"] {
        let answer = service.get(path).await;
        assert_eq!(answer.headers["cache-control"], "no-store");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    service.stop().await;
}

/// What a peer that speaks HTTP/2 says first, with `settings`, and a request for `/healthz`.
fn http2_request(settings: &[u8]) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let head = [0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    };
    let headers = b"\x82\x86\x04\x08/healthz\x01\x01x";
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, settings), frame(1, 5, 1, headers)].concat()
}

#[tokio::test]
async fn an_http2_peer_that_only_pings_is_let_go() {
    let service = Service::start_with(SHORT, |_| {}).await;
    // One that takes its answer, and one whose window stays shut so that its answer never ends.
    for settings in [&[][..], &[0, 4, 0, 0, 0, 0]] {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
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
    service.stop().await;
}

#[tokio::test]
async fn a_peer_that_asks_and_never_reads_is_let_go() {
    let service = Service::start_with(SHORT, |_| {}).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    let requests = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    let asking = async { while stream.write_all(requests.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(LONG, asking).await.expect("let go");
    service.stop().await;
}

#[tokio::test]
async fn one_address_gets_half_of_the_connections() {
    let service = Service::start_with(LONG, |config| config.limits.connections = 4).await;
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        held.push(stream);
    }
    let mut third = TcpStream::connect(service.address).await.unwrap();
    let refused = tokio::time::timeout(SHORT * 10, third.read(&mut [0])).await.expect("hung up on");
    assert!(refused.is_err() || refused.is_ok_and(|read| read == 0));
    let elsewhere = tokio::net::TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut elsewhere = elsewhere.connect(service.address).await.unwrap();
    elsewhere.write_all(request.as_bytes()).await.unwrap();
    elsewhere.read_exact(&mut [0; 12]).await.unwrap();
    drop((held, elsewhere));
    service.stop().await;
}
