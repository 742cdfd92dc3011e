//! A name server that never answers holds up only the requests that ask it.

use crate::support::{Daemon, Receiver};
use serde_json::json;
use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

#[test]
fn names_that_are_never_answered_delay_neither_reads_nor_logins_nor_deliveries_of_others() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let servers = silent.local_addr().expect("it is bound").to_string();
    let daemon = Daemon::with(&[("EGRESS_DNS", &servers), ("EGRESS_ALLOW_PRIVATE", "true")]);
    let receiver = Receiver::start();
    let slow = daemon.create_user("slow", &["manage_own_event_sinks", "use_spaces"]);
    let other = daemon.create_user("other", &["manage_own_event_sinks", "use_spaces"]);
    let create = |token: &str, name: &str, url: &str| {
        let sink = json!({"name": name, "events": "custom.*", "type": "webhook", "webhook": {"url": url}});
        let made = daemon.send("POST", "/api/event-sinks", Some(token), Some(sink.to_string().into_bytes()));
        assert_eq!(made.status, 201, "{}", made.text);
    };
    for n in 0..150 {
        create(&slow, &format!("s{n}"), &format!("http://n{n}.slow.test/"));
    }
    create(&other, "good", &receiver.url("/"));
    let emit = |token: &str| {
        let event = json!({"type": "x", "payload": {}}).to_string().into_bytes();
        assert_eq!(daemon.send("POST", "/api/events/emit", Some(token), Some(event)).status, 202);
    };
    for _ in 0..5 {
        emit(&slow);
    }
    // The look-ups are under way.
    silent.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has a timeout");
    silent.recv(&mut [0; 512]).expect("a question");

    let started = Instant::now();
    emit(&other);
    receiver.wait_for(1);
    for _ in 0..20 {
        assert_eq!(daemon.send("GET", "/api/event-sinks", Some(&other), None).status, 200);
    }
    let login = json!({"name": "other", "password": "correct horse"}).to_string().into_bytes();
    assert_eq!(daemon.send("POST", "/api/auth/login", None, Some(login)).status, 200);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
