//! Events that an agent sends: what the server does with those that it cannot or may not store.

use crate::support::{Daemon, LinkedAgent, Space, eventually};
use serde_json::{json, value::to_raw_value};
use svc::model::{
    agent_protocol::{EventConfirmation, EventOutcome, ToAgent, ToServer},
    id::EventId,
};

/// An event with a payload of this size.
fn event(id: EventId, size: usize) -> ToServer {
    let payload = to_raw_value(&json!({"x": "x".repeat(size)})).unwrap();
    ToServer::Event { id, kind: "x".to_owned(), payload, raised_at: None }
}

fn link(daemon: &Daemon, space: &Space) -> LinkedAgent {
    let (mut agent, _) = LinkedAgent::new(daemon, &space.token);
    assert!(matches!(agent.next(), ToAgent::Libraries(_)));
    agent
}

/// The confirmation that must be the next message.
fn confirmed(agent: &mut LinkedAgent) -> EventConfirmation {
    match agent.next() {
        ToAgent::Confirm(confirmation) => confirmation,
        other => panic!("{other:?}"),
    }
}

fn stored(id: EventId) -> EventConfirmation {
    EventConfirmation { id, outcome: EventOutcome::Stored }
}

/// Sends a message whose answer shows that the link is up.
fn assert_linked(agent: &mut LinkedAgent, generation: u64) {
    agent.send(&ToServer::Unregister { generation });
    match agent.next() {
        ToAgent::Registered { generation: answered, .. } => assert_eq!(answered, generation),
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_for_which_the_sinks_of_a_user_have_no_room_wait_in_order_while_the_link_stays() {
    let settings = [("LIMITS_UNDELIVERED", "10KiB"), ("DELIVERY_BACKOFF", "1h"), ("EGRESS_ALLOW_PRIVATE", "true")];
    let daemon = Daemon::with(&settings);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let sink = json!({
        "name": "s", "events": "custom.x", "type": "webhook", "webhook": {"url": format!("http://127.0.0.1:{port}/")},
    });
    let sink = daemon.create_sink(&sink);
    let space = Space::create_with(&daemon, &daemon.admin_token(), json!({"name": "box"}));
    let mut agent = link(&daemon, &space);
    let [first, second, third] = [EventId::new(), EventId::new(), EventId::new()];
    agent.send(&event(first, 12 << 10));
    assert_eq!(confirmed(&mut agent), stored(first));
    agent.send(&event(second, 1));
    eventually("the second event has to wait", || daemon.log().contains("wait at its agent").then_some(()));
    assert_linked(&mut agent, 1);
    // No sink takes it, and it is not stored before the second: neither ahead of it nor right behind its refusal.
    let other = || ToServer::Event {
        id: third,
        kind: "other".to_owned(),
        payload: to_raw_value(&json!({})).unwrap(),
        raised_at: None,
    };
    agent.send(&other());
    agent.send(&event(second, 1));
    agent.send(&other());
    eventually("it has to wait again", || (daemon.log().matches("wait at its agent").count() == 2).then_some(()));
    assert_linked(&mut agent, 2);
    assert_eq!(
        daemon.send("DELETE", &format!("/api/event-sinks/{sink}"), Some(&daemon.admin_token()), None).status,
        204
    );
    agent.send(&event(second, 1));
    assert_eq!(confirmed(&mut agent), stored(second));
    agent.send(&other());
    assert_eq!(confirmed(&mut agent), stored(third));
    assert_eq!(daemon.log().matches("wait at its agent").count(), 2);
}

#[test]
fn events_of_an_agent_are_refused_once_its_owner_may_not_emit() {
    let daemon = Daemon::start();
    let ada = daemon.create_user("ada", &["use_spaces"]);
    let space = Space::create_with(&daemon, &ada, json!({"name": "box"}));
    let mut agent = link(&daemon, &space);
    let [first, second] = [EventId::new(), EventId::new()];
    agent.send(&event(first, 1));
    assert_eq!(confirmed(&mut agent), stored(first));
    let roles = daemon.items("/api/roles");
    let role = roles.iter().find(|role| role["name"] == "role-ada").unwrap()["id"].as_str().unwrap().to_owned();
    let changed = daemon.patch(&format!("/api/roles/{role}"), &json!({"permissions": []}));
    assert_eq!(changed.status, 200, "{}", changed.text);
    agent.send(&event(second, 1));
    let reason = "the owner of the space needs the permission use_spaces".to_owned();
    assert_eq!(confirmed(&mut agent), EventConfirmation { id: second, outcome: EventOutcome::Refused(reason) });
    assert_linked(&mut agent, 1);
}

#[test]
fn on_a_full_disk_events_of_an_agent_wait_while_the_link_stays() {
    let mut daemon = Daemon::start();
    let space = Space::create_with(&daemon, &daemon.admin_token(), json!({"name": "box"}));
    daemon.kill();
    daemon.set("LIMITS_DISK_FREE", "1000000GiB");
    daemon.restart();
    let mut agent = link(&daemon, &space);
    agent.send(&event(EventId::new(), 1));
    eventually("it has to wait", || daemon.log().contains("wait at its agent").then_some(()));
    assert_linked(&mut agent, 1);
}
