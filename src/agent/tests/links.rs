//! Links: made, kept, lost, made anew, and left; and the events that go over them.

use super::support::{FakeServer, LinkedAgent, RunningAgent, raw, settings, soon};
use crate::{
    agent::AgentError,
    model::{
        agent_protocol::{EventReceipt, Goodbye, ToAgent},
        id::EventId,
    },
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn heard(linked: &mut LinkedAgent, count: usize) -> Vec<EventId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(linked.receive_event().await.0);
    }
    ids
}

#[tokio::test]
async fn an_agent_introduces_itself_and_tells_who_it_is() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let linked = server.welcome_idle().await;
    assert_eq!((linked.hello.node_id.as_str(), linked.hello.version.as_str()), ("here", env!("CARGO_PKG_VERSION")));
    let status = agent.status(|status| status["servers"][0]["connected"] == true).await;
    assert_eq!(status["space"]["name"], "notes");
    assert_eq!(status["space"]["id"], json!(server.space));
    assert_eq!((&status["spool"]["depth"], &status["registration"]), (&json!(0), &json!(null)));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_broken_link_is_made_anew() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    drop(server.welcome_idle().await);
    let mut linked = server.welcome_idle().await;
    linked.goodbye(Goodbye::Restarting).await;
    let mut linked = server.welcome_idle().await;
    linked.goodbye(Goodbye::Unexpected("what?".to_owned())).await;
    let mut linked = server.welcome_idle().await;
    // Neither a second welcome nor nonsense is what a server should say.
    linked.send(ToAgent::Cancel { id: 7 }).await;
    let second = server_welcome(&server);
    linked.send(second).await;
    let linked = server.welcome_idle().await;
    agent.status(|status| status["servers"][0]["connected"] == true).await;
    drop(linked);
    agent.stop(()).await;
}

fn server_welcome(server: &FakeServer) -> ToAgent {
    ToAgent::Welcome(crate::model::agent_protocol::Welcome {
        space_id: server.space,
        space_name: "notes".to_owned(),
        zone: "default".to_owned(),
        max_payload: 1,
        health_check: None,
        startup_script: None,
    })
}

#[tokio::test]
async fn a_server_that_answers_heartbeats_is_kept_and_one_that_stalls_is_left() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(crate::agent::AgentSettings {
        heartbeat: Duration::from_millis(50),
        ..settings(&scratch, &[&server])
    })
    .await;
    let mut linked = server.welcome_idle().await;
    for _ in 0..10 {
        linked.heartbeat().await;
    }
    // From here on it neither reads nor says anything, and yet the connection stands.
    let again = server.welcome().await;
    agent.stop((linked, again)).await;
}

#[tokio::test]
async fn a_refused_token_is_tried_again_and_told_meanwhile() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let body = r#"{"error":{"code":"unauthorized","message":"this token is not known"}}"#;
    // Who it is that asks, the words of a 401 do not know.
    for (status, words) in [("401 Unauthorized", "(401): "), ("403 Forbidden", "(403: this token is not known): ")] {
        let mut stream = server.connection().await;
        let mut request = [0; 4096];
        soon("a request", stream.read(&mut request)).await.unwrap();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        let told = format!("the server refused the token {words}give this agent the one that `svc space token NAME`");
        let error = |status: &Value| status["servers"][0]["error"].as_str().unwrap_or_default().to_owned();
        agent.status(|status| error(status).starts_with(&told)).await;
    }
    server.welcome_idle().await;
    agent.stop(()).await;
}

#[tokio::test]
async fn who_ends_an_agent_is_told_goodbye() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    agent.signals.stop.cancel();
    linked.receive_goodbye().await;
    assert!(linked.receive().await.is_none(), "and then it hangs up");
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_is_abandoned_goes_without_a_word() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    agent.signals.abandoned.cancel();
    assert!(linked.receive().await.is_none());
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn an_agent_without_a_link_ends_at_once() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    agent.raise("a", json!({})).await;
    agent.stop(()).await;
}

#[tokio::test]
async fn a_stopped_space_stops_its_agent_in_good_order() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let other = FakeServer::beside(&server).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server, &other])).await;
    let mut linked = server.welcome_idle().await;
    let mut elsewhere = other.welcome_idle().await;
    linked.goodbye(Goodbye::Stopped).await;
    linked.receive_goodbye().await;
    elsewhere.receive_goodbye().await;
    drop((linked, elsewhere));
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_drains_does_not_come_back_to_a_server_that_hung_up() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let other = FakeServer::beside(&server).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server, &other])).await;
    let mut linked = server.welcome_idle().await;
    let mut elsewhere = other.welcome_idle().await;
    // This one is never confirmed, so that the agent has something to wait for.
    agent.raise("a", json!({})).await;
    linked.goodbye(Goodbye::Stopped).await;
    drop(linked);
    let hearing = async {
        elsewhere.receive_goodbye().await;
        drop(elsewhere);
        agent.ended().await
    };
    tokio::select! {
        biased;
        _ = server.connection() => panic!("a stopped space would be started again"),
        ended = hearing => ended.unwrap(),
    }
}

#[tokio::test]
async fn an_agent_that_was_welcomed_before_says_so() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let unwelcomed = server.accept().await;
    assert!(!unwelcomed.hello.returning);
    drop(unwelcomed);
    let linked = server.welcome_idle().await;
    assert!(!linked.hello.returning);
    drop(linked);
    let linked = server.welcome_idle().await;
    assert!(linked.hello.returning);
    agent.stop(linked).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let linked = server.welcome_idle().await;
    assert!(!linked.hello.returning, "a new process is not back, it is new");
    agent.stop(linked).await;
}

#[tokio::test]
async fn an_agent_that_is_replaced_or_revoked_ends_and_says_why() {
    for (why, word) in [(Goodbye::Replaced, "another agent"), (Goodbye::Revoked, "svc space token")] {
        let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
        let other = FakeServer::beside(&server).await;
        let agent = RunningAgent::start(settings(&scratch, &[&server, &other])).await;
        let mut linked = server.welcome_idle().await;
        let mut elsewhere = other.welcome_idle().await;
        linked.goodbye(why).await;
        let error = agent.ended().await.unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&server.url), "{error}");
        assert!(elsewhere.receive().await.is_none(), "the space has not stopped, so nobody says so");
    }
}

#[tokio::test]
async fn one_that_is_sent_away_at_the_door_ends_too() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.accept().await;
    linked.goodbye(Goodbye::Revoked).await;
    assert!(matches!(agent.ended().await, Err(AgentError::Revoked(_))));
}

#[tokio::test]
async fn a_directory_has_one_agent() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    agent.status(|_| true).await;
    let error = RunningAgent::start(settings(&scratch, &[&server])).await.ended().await.unwrap_err();
    assert!(matches!(error, AgentError::InUse(_)) && error.to_string().contains("--data"), "{error}");
    agent.stop(()).await;
}

#[tokio::test]
async fn events_arrive_in_order_however_often_the_link_breaks() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(agent.raise("deploy.done", json!({ "n": n })).await);
    }
    let mut linked = server.welcome_idle().await;
    assert_eq!(linked.receive_event().await, (ids[0], "deploy.done".to_owned(), json!({ "n": 0 })));
    assert_eq!(heard(&mut linked, 4).await, ids[1..]);
    linked.confirm(ids[0]).await;
    agent.status(|status| status["spool"]["depth"] == 4).await;
    drop(linked);
    let mut linked = server.welcome_idle().await;
    ids.push(agent.raise("deploy.done", json!({})).await);
    assert_eq!(heard(&mut linked, 5).await, ids[1..]);
    for id in &ids[1..] {
        linked.confirm(*id).await;
    }
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn what_a_server_refuses_is_dropped() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    let id = agent.raise("a", json!({})).await;
    assert_eq!(heard(&mut linked, 1).await, [id]);
    linked.send(ToAgent::Confirm { id, receipt: EventReceipt::Refused("too old".to_owned()) }).await;
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn events_survive_the_agent_and_go_out_before_newer_ones() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(agent.raise("a", json!({ "n": n })).await);
    }
    agent.stop(()).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    ids.push(agent.raise("a", json!({})).await);
    let mut linked = server.welcome_idle().await;
    assert_eq!(heard(&mut linked, 21).await, ids);
    for id in ids {
        linked.confirm(id).await;
    }
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn one_server_gets_the_events_and_another_takes_over_when_it_breaks() {
    let (scratch, one) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let two = FakeServer::beside(&one).await;
    let agent = RunningAgent::start(settings(&scratch, &[&one, &two])).await;
    let mut first = one.welcome_idle().await;
    let id = agent.raise("a", json!({})).await;
    assert_eq!(heard(&mut first, 1).await, [id]);
    let mut second = two.welcome_idle().await;
    // Nothing more has come here; what comes next is the same event, once the first link is gone.
    drop(first);
    assert_eq!(heard(&mut second, 1).await, [id]);
    second.confirm(id).await;
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(second).await;
}

#[tokio::test]
async fn the_last_events_are_sent_before_the_goodbye() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    let id = agent.raise("a", json!({})).await;
    agent.signals.stop.cancel();
    assert_eq!(heard(&mut linked, 1).await, [id]);
    linked.confirm(id).await;
    linked.receive_goodbye().await;
    drop(linked);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn events_for_one_space_are_not_sent_to_another() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let linked = server.welcome_idle().await;
    agent.raise("a", json!({})).await;
    drop(linked);
    agent.stop(()).await;
    let server = server.of_another_space();
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome().await;
    let error = agent.ended().await.unwrap_err();
    assert!(matches!(error, AgentError::WrongSpace(_)) && error.to_string().contains("--data"), "{error}");
    assert!(linked.receive().await.is_none());
}

#[tokio::test]
async fn the_health_check_that_the_server_wants_is_run_and_told() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), FakeServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let good = json!({ "type": "command", "command": "true", "interval": "100ms" });
    let mut linked = server.welcome_with(Some(good)).await;
    // On a busy machine some take too long, and are told as failures.
    for _ in 0..3 {
        while linked.receive_check_result().await != (true, None) {}
    }
    let bad = json!({ "type": "command", "command": "false", "interval": "100ms" });
    linked.send(ToAgent::Check(Some(raw(&bad)))).await;
    while linked.receive_check_result().await != (false, Some("it exited with status 1".to_owned())) {}
    // Without a check nothing is told, and what is no check is no reason to go.
    linked.send(ToAgent::Check(None)).await;
    linked.send(ToAgent::Check(Some(raw(&json!({ "type": "ping" }))))).await;
    agent.raise("a", json!({})).await;
    linked.receive_event().await;
    agent.stop(linked).await;
}
