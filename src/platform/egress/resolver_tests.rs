//! The resolver against name servers that answer, stay silent or know nothing.

use super::{resolver::*, *};
use crate::{
    model::{id::UserId, outbound_http::check_url, owner::Owner},
    platform::config,
};
use bytes::Bytes;
use futures_util::{FutureExt, future::join_all};
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::net::UdpSocket;

/// A name server: answers `A` questions for names under `good.test`, knows no name under `none.test`, and never answers
/// others.
struct NameServer {
    address: SocketAddr,
    /// Questions by name.
    asked: Arc<Mutex<HashMap<String, usize>>>,
    task: tokio::task::JoinHandle<()>,
}

impl NameServer {
    async fn start(ttl: u32) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(HashMap::new()));
        let counted = asked.clone();
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let (name, end) = question(&buffer[..length]);
                let is_v4 = buffer[end - 4..end - 2] == [0, 1];
                if is_v4 {
                    *counted.lock().entry(name.clone()).or_default() += 1;
                }
                let (code, answers) = match name.as_str() {
                    name if name.ends_with("good.test") => (0, u8::from(is_v4)),
                    name if name.ends_with("none.test") => (3, 0),
                    _ => continue,
                };
                let mut reply = buffer[..end].to_vec();
                reply[2..12].copy_from_slice(&[0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
                if answers == 1 {
                    // The name of the question, type A, class IN.
                    reply.extend([0xc0, 12, 0, 1, 0, 1]);
                    reply.extend(ttl.to_be_bytes());
                    reply.extend([0, 4, 127, 0, 0, 1]);
                }
                socket.send_to(&reply, from).await.unwrap();
            }
        });
        Self { address, asked, task }
    }

    fn asked(&self, name: &str) -> usize {
        self.asked.lock().get(name).copied().unwrap_or(0)
    }

    fn resolver(&self) -> NameResolver {
        NameResolver::new(&[self.address])
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name of the question, and the index after it.
fn question(message: &[u8]) -> (String, usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while message[at] != 0 {
        let length = usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..=at + length]).to_lowercase());
        at += length + 1;
    }
    (labels.join("."), at + 5)
}

fn user() -> Owner {
    Owner::User(UserId::new())
}

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[tokio::test]
async fn a_name_is_looked_up_once_for_all_that_ask_and_then_known_for_a_while() {
    let server = NameServer::start(300).await;
    let (resolver, owner) = (server.resolver(), user());
    let all = join_all((0..50).map(|_| resolver.resolve(owner, "a.good.test"))).await;
    assert!(all.iter().all(|addresses| addresses.as_deref() == Ok(&[LOCAL][..])), "{all:?}");
    assert_eq!(resolver.resolve(owner, "a.good.test").await.as_deref(), Ok(&[LOCAL][..]));
    assert_eq!(server.asked("a.good.test"), 1);
    assert!(resolver.resolve(user(), "a.good.test").await.is_ok());
    assert_eq!(server.asked("a.good.test"), 2, "each owner has a cache of its own");
}

#[tokio::test]
async fn an_unknown_name_is_an_error_that_is_kept_for_a_moment() {
    let server = NameServer::start(300).await;
    let (resolver, owner) = (server.resolver(), user());
    for _ in 0..3 {
        assert_eq!(resolver.resolve(owner, "x.none.test").await, Err(ResolveError::NotFound));
    }
    assert_eq!(server.asked("x.none.test"), 1);
}

#[tokio::test]
async fn names_that_are_never_answered_hold_up_nobody_else_and_the_owner_hears_why() {
    let server = NameServer::start(300).await;
    let (resolver, slow, other) = (server.resolver(), user(), user());
    let names: Vec<String> = (0..400).map(|n| format!("n{n}.slow.test")).collect();
    let mut pending: Vec<_> = names.iter().map(|name| Box::pin(resolver.resolve(slow, name))).collect();
    let mut refused = 0;
    for one in &mut pending {
        if let Some(answer) = one.now_or_never() {
            assert_eq!(answer, Err(ResolveError::Busy { waiting: 256 }));
            refused += 1;
        }
    }
    assert_eq!(refused, 400 - 16 - 256);
    assert_eq!(resolver.resolve(other, "a.good.test").await.as_deref(), Ok(&[LOCAL][..]));
    assert_eq!(server.asked("n16.slow.test"), 0, "the other owner waited for none of the 16 under way to end");
    drop(pending);
    assert!(resolver.resolve(slow, "b.good.test").await.is_ok(), "the look-ups ended with their callers");
}

#[tokio::test]
async fn an_owner_without_a_look_up_finds_a_place_beside_many_owners_of_silent_names() {
    let server = NameServer::start(300).await;
    let resolver = server.resolver();
    let silent: Vec<_> = (0..60)
        .flat_map(|_| {
            let owner = user();
            (0..16).map(move |n| (owner, format!("n{n}.slow.test")))
        })
        .collect();
    let mut pending: Vec<_> = silent.iter().map(|(owner, name)| Box::pin(resolver.resolve(*owner, name))).collect();
    for one in &mut pending {
        // Without the budget that tokio gives a task: it would not let all of them begin.
        assert!(tokio::task::unconstrained(one).now_or_never().is_none());
    }
    // Nobody polls the silent ones meanwhile: none of their places becomes free.
    for owner in [user(), Owner::Global] {
        let found = tokio::time::timeout(Duration::from_secs(60), resolver.resolve(owner, "a.good.test")).await;
        assert_eq!(found.expect("it finds a place").as_deref(), Ok(&[LOCAL][..]));
    }
    drop(pending);
}

#[tokio::test]
async fn a_look_up_that_is_never_answered_ends_in_time() {
    let server = NameServer::start(300).await;
    let (resolver, owner) = (server.resolver(), user());
    assert_eq!(resolver.resolve(owner, "a.slow.test").await, Err(ResolveError::Timeout));
    let asked = server.asked("a.slow.test");
    assert_eq!(resolver.resolve(owner, "a.slow.test").await, Err(ResolveError::Timeout));
    assert_eq!(server.asked("a.slow.test"), asked, "the failure is kept for a moment");
}

#[tokio::test]
async fn every_address_of_a_name_is_checked() {
    let server = NameServer::start(300).await;
    let egress = Egress::new(&config::EgressConfig { dns: vec![server.address], ..config::EgressConfig::default() });
    let request = OutboundRequest {
        method: Method::GET,
        url: check_url("http://a.good.test:1/").unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        timeout: Duration::from_secs(30),
        tls: Tls::Verify,
        keep: 1024,
        resend: Resend::Allowed,
    };
    let denied = egress.send(user(), request.clone()).await.unwrap_err();
    assert!(matches!(denied, EgressError::Denied { address: LOCAL, denial: Denial::Private, .. }), "{denied}");
    let dialled = egress.send(Owner::Global, request).await.unwrap_err();
    assert!(matches!(dialled, EgressError::Connect { .. }), "{dialled}");
}
