//! The guards of outbound requests, with both clients.

use super::{
    Completeness, Egress, EgressError, OutboundRequest, OutboundResponse, Resend, Tls,
    receiver::{Behaviour, Receiver},
};
use crate::{
    model::{id::UserId, outbound_http::check_url, owner::Owner},
    platform::config::{self, EgressClient},
};
use bytes::Bytes;
use http::{HeaderMap, Method};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
};

const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(30);

/// Makes a test of each function for each client.
macro_rules! with_both_clients {
    ($($name:ident)*) => {
        mod hyper {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::EgressClient::Hyper).await;
            })*
        }

        mod isahc {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::EgressClient::Isahc).await;
            })*
        }
    };
}

with_both_clients! {
    an_answer_comes_back_with_its_status_headers_and_body
    a_connection_is_used_again
    a_receiver_that_never_answers_is_given_up_in_time
    a_timeout_past_the_end_of_time_is_one_of_a_day
    a_receiver_that_answers_byte_by_byte_cannot_stretch_the_timeout
    a_receiver_that_closes_mid_response_is_a_broken_connection
    an_endless_body_is_cut_off_and_its_status_stands
    a_redirect_is_an_answer_and_is_not_followed
    an_untrusted_certificate_is_refused_unless_verification_is_off
    a_closed_port_is_a_failed_connection
    every_address_of_a_host_is_tried
    every_spelling_of_a_forbidden_address_is_refused_before_connecting
    a_request_is_sent_again_if_its_kept_connection_is_closed_before_the_answer
    a_request_over_a_new_connection_is_sent_once
}

fn egress(client: EgressClient) -> Egress {
    Egress::new(&config::EgressConfig { client, ..config::EgressConfig::default() })
}

fn post(url: impl Into<String>, timeout: Duration) -> OutboundRequest {
    OutboundRequest {
        method: Method::POST,
        url: check_url(&url.into()).unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        timeout,
        tls: Tls::Verify,
        keep: 1024,
        resend: Resend::Allowed,
    }
}

async fn send(client: EgressClient, behaviour: Behaviour, timeout: Duration) -> Result<OutboundResponse, EgressError> {
    let receiver = Receiver::start(behaviour).await;
    egress(client).send(Owner::Global, post(receiver.url(), timeout)).await
}

async fn an_answer_comes_back_with_its_status_headers_and_body(client: EgressClient) {
    let receiver =
        Receiver::start(Behaviour::Answer("HTTP/1.1 418 Teapot\r\nX-Kind: tea\r\nContent-Length: 2\r\n\r\nhi")).await;
    let response = egress(client).send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
    assert_eq!(response.status.as_u16(), 418);
    assert_eq!(response.headers["x-kind"], "tea");
    assert_eq!((&*response.body, response.completeness), (&b"hi"[..], Completeness::Whole));
    let request = receiver.request(0);
    assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(concat!("user-agent: svc/", env!("CARGO_PKG_VERSION"))), "{request}");
    assert!(!request.to_lowercase().contains("accept-encoding"), "{request}");
    assert!(request.ends_with("\r\n\r\n{}"), "{request}");
}

async fn a_connection_is_used_again(client: EgressClient) {
    let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")).await;
    let egress = egress(client);
    for _ in 0..5 {
        egress.send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
    }
    assert_eq!((receiver.requests(), receiver.connections()), (5, 1));
}

async fn a_receiver_that_never_answers_is_given_up_in_time(client: EgressClient) {
    assert!(matches!(send(client, Behaviour::Silence, SOON).await, Err(EgressError::Timeout(SOON))));
}

async fn a_timeout_past_the_end_of_time_is_one_of_a_day(client: EgressClient) {
    for timeout in [Duration::from_secs(u64::MAX / 2), Duration::MAX] {
        let answer = Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(send(client, answer, timeout).await.is_ok());
    }
}

async fn a_receiver_that_answers_byte_by_byte_cannot_stretch_the_timeout(client: EgressClient) {
    for text in ["HTTP/1.1 200 OK\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "HTTP/1.1 200 OK\r\n\r\nslow"] {
        let result = send(client, Behaviour::ByteByByte(text), SOON).await;
        assert!(matches!(result, Err(EgressError::Timeout(SOON))), "{result:?}");
    }
}

async fn a_receiver_that_closes_mid_response_is_a_broken_connection(client: EgressClient) {
    // A head without its end is not among them: curl takes an incomplete head for a complete one.
    for text in [
        "",
        "HTTP/1.1 20",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
    ] {
        let result = send(client, Behaviour::Close(text), LONG).await;
        assert!(matches!(result, Err(EgressError::Broken(_))), "{text:?}: {result:?}");
    }
}

async fn an_endless_body_is_cut_off_and_its_status_stands(client: EgressClient) {
    let receiver = Receiver::start(Behaviour::Endless("HTTP/1.1 201 Created\r\n\r\n")).await;
    let response = egress(client).send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
    assert_eq!((response.status.as_u16(), response.body.len()), (201, 1024));
    assert_eq!(response.completeness, Completeness::Cut);
    receiver.closed().await;
}

async fn a_redirect_is_an_answer_and_is_not_followed(client: EgressClient) {
    let target = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let head = format!("HTTP/1.1 307 Moved\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", target.url());
    let response = send(client, Behaviour::Answer(head.leak()), LONG).await.unwrap();
    assert_eq!((response.status.as_u16(), target.requests()), (307, 0));
}

async fn an_untrusted_certificate_is_refused_unless_verification_is_off(client: EgressClient) {
    let answer = Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let receiver = Receiver::start_untrusted(answer).await;
    let egress = egress(client);
    let strict = post(receiver.url(), LONG);
    let trusting = OutboundRequest { tls: Tls::SkipVerify, ..strict.clone() };
    assert!(egress.send(Owner::Global, trusting).await.is_ok());
    // A request that verifies certificates must not reuse a connection that was opened without verifying.
    let result = egress.send(Owner::Global, strict).await;
    assert!(matches!(result, Err(EgressError::Certificate { .. })), "{result:?}");
    assert_eq!(receiver.requests(), 1);
}

async fn a_closed_port_is_a_failed_connection(client: EgressClient) {
    // Bound and not listening, so that no other test can be given the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    let result = egress(client).send(Owner::Global, post(url, LONG)).await;
    assert!(matches!(result, Err(EgressError::Connect { .. })), "{result:?}");
}

async fn every_address_of_a_host_is_tried(client: EgressClient) {
    let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let url = format!("http://localhost:{}/", receiver.address().port());
    assert!(egress(client).send(Owner::Global, post(url, LONG)).await.is_ok());
}

async fn every_spelling_of_a_forbidden_address_is_refused_before_connecting(client: EgressClient) {
    let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let port = receiver.address().port();
    let user = Owner::User(UserId::new());
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "localhost",
        "0.0.0.0",
        "0",
        "①②⑦.⓪.⓪.①",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
    ] {
        let result = egress(client).send(user, post(format!("http://{host}:{port}/"), LONG)).await;
        assert!(matches!(result, Err(EgressError::Denied { .. })), "{host}: {result:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

/// Reads one request with a body of two bytes.
async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n{}") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request is complete");
    }
}

async fn answer(stream: &mut TcpStream) {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
}

async fn a_request_is_sent_again_if_its_kept_connection_is_closed_before_the_answer(client: EgressClient) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let receiver = tokio::spawn(async move {
        let (mut kept, _) = listener.accept().await.unwrap();
        read_request(&mut kept).await;
        answer(&mut kept).await;
        read_request(&mut kept).await;
        drop(kept);
        let (mut second, _) = listener.accept().await.unwrap();
        read_request(&mut second).await;
        answer(&mut second).await;
    });
    let egress = egress(client);
    for _ in 0..2 {
        assert_eq!(egress.send(Owner::Global, post(&url, LONG)).await.unwrap().status, 200);
    }
    receiver.await.unwrap();
}

async fn a_request_over_a_new_connection_is_sent_once(client: EgressClient) {
    let receiver = Receiver::start(Behaviour::Close("")).await;
    let egress = egress(client);
    for requests in 1..=3 {
        let result = egress.send(Owner::Global, post(receiver.url(), LONG)).await;
        assert!(matches!(result, Err(EgressError::Broken(_))), "{result:?}");
        assert_eq!(receiver.requests(), requests);
    }
}

/// curl goes on until the timeout.
#[tokio::test]
async fn endless_interim_responses_break_the_exchange_and_a_few_do_not() {
    const HINT: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n";
    let egress = egress(EgressClient::Hyper);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            read_request(&mut stream).await;
            for _ in 0..1000 {
                stream.write_all(HINT).await.unwrap();
            }
            answer(&mut stream).await;
        }
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        while stream.write_all(HINT).await.is_ok() {}
    });
    for _ in 0..2 {
        assert_eq!(egress.send(Owner::Global, post(&url, LONG)).await.unwrap().status, 200);
    }
    let flooded = egress.send(Owner::Global, post(&url, LONG)).await.unwrap_err();
    assert!(flooded.to_string().contains("more than 128 KiB came before the response"), "{flooded}");
    receiver.await.unwrap();
}

/// With curl, the first request after the restart fails.
#[tokio::test]
async fn connections_that_a_receiver_closed_while_they_rested_cost_no_request() {
    const CONNECTIONS: usize = 100;
    let egress = egress(EgressClient::Hyper);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/");
    let requests: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (egress, request) = (egress.clone(), post(&url, LONG));
            tokio::spawn(async move { egress.send(Owner::Global, request).await })
        })
        .collect();
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        streams.push(stream);
    }
    for stream in &mut streams {
        answer(stream).await;
    }
    for request in requests {
        assert_eq!(request.await.unwrap().unwrap().status, 200);
    }
    // The receiver ends, and starts again on the same port.
    drop((listener, streams));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(1).unwrap();
    let receiver = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            read_request(&mut stream).await;
            answer(&mut stream).await;
        }
    });
    for _ in 0..3 {
        assert_eq!(egress.send(Owner::Global, post(&url, LONG)).await.unwrap().status, 200);
    }
    receiver.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_rests_is_closed_after_a_minute() {
    let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let egress = egress(EgressClient::Hyper);
    egress.send(Owner::Global, post(receiver.url(), LONG)).await.unwrap();
    let sent = tokio::time::Instant::now();
    receiver.closed().await;
    assert_eq!(sent.elapsed().as_secs(), 60);
}
