//! Tests of links and of the events that are sent over them: connecting, heartbeats, reconnecting, shutdown.

use super::support::{LinkedAgent, RunningAgent, ScriptedServer, raw, settings, soon};
use crate::{
    agent::{AgentError, AgentSettings},
    model::{
        agent_protocol::{EventConfirmation, EventOutcome, Goodbye, ToAgent},
        id::EventId,
    },
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn received_events(linked: &mut LinkedAgent, count: usize) -> Vec<EventId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(linked.receive_event().await.0);
    }
    ids
}

#[tokio::test]
async fn an_agent_says_hello_and_shows_its_space_in_its_status() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
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
async fn an_agent_reconnects_after_a_broken_link() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    drop(server.welcome_idle().await);
    let mut linked = server.welcome_idle().await;
    linked.goodbye(Goodbye::Unavailable).await;
    let mut linked = server.welcome_idle().await;
    linked.goodbye(Goodbye::Unexpected("what?".to_owned())).await;
    let mut linked = server.welcome_idle().await;
    // A cancellation of an unknown call is ignored; a second welcome ends the link.
    linked.send(ToAgent::Cancel { id: 7 }).await;
    let second = server_welcome(&server);
    linked.send(second).await;
    let linked = server.welcome_idle().await;
    agent.status(|status| status["servers"][0]["connected"] == true).await;
    drop(linked);
    agent.stop(()).await;
}

fn server_welcome(server: &ScriptedServer) -> ToAgent {
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
async fn a_link_with_heartbeats_stays_and_a_stalled_one_is_replaced() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(crate::agent::AgentSettings {
        heartbeat: Duration::from_millis(50),
        ..settings(&scratch, &[&server])
    })
    .await;
    let mut linked = server.welcome_idle().await;
    for _ in 0..10 {
        linked.heartbeat().await;
    }
    // From here on the server neither reads nor writes, although the connection is open.
    let again = server.welcome().await;
    agent.stop((linked, again)).await;
}

#[tokio::test]
async fn a_refused_token_is_tried_again_and_shown_in_the_status() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let body = r#"{"error":{"code":"unauthorized","message":"this token is not known"}}"#;
    // The message of a 401 is not repeated: it is about tokens of users.
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
async fn an_agent_that_is_asked_to_stop_says_goodbye() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    agent.signals.stop.cancel();
    linked.receive_goodbye().await;
    assert!(linked.receive().await.is_none(), "and then it hangs up");
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn an_abandoned_agent_leaves_without_a_goodbye() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    agent.signals.abandoned.cancel();
    assert!(linked.receive().await.is_none());
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn an_agent_without_a_link_ends_at_once() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    // Longer than the test waits.
    let drain = Duration::from_secs(600);
    let agent = RunningAgent::start(AgentSettings { drain, ..settings(&scratch, &[&server]) }).await;
    agent.emit("a", json!({})).await;
    agent.stop(()).await;
}

#[tokio::test]
async fn a_stopped_space_stops_its_agent_with_a_goodbye_to_every_server() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let other = ScriptedServer::beside(&server).await;
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
async fn an_agent_that_drains_does_not_reconnect() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let other = ScriptedServer::beside(&server).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server, &other])).await;
    let mut linked = server.welcome_idle().await;
    let mut elsewhere = other.welcome_idle().await;
    // This event is never confirmed, so that the agent waits for it.
    agent.emit("a", json!({})).await;
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
async fn an_agent_that_was_welcomed_before_says_hello_as_returning() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
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
        let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
        let other = ScriptedServer::beside(&server).await;
        let agent = RunningAgent::start(settings(&scratch, &[&server, &other])).await;
        let mut linked = server.welcome_idle().await;
        let mut elsewhere = other.welcome_idle().await;
        linked.goodbye(why).await;
        let error = agent.ended().await.unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&server.url), "{error}");
        assert!(elsewhere.receive().await.is_none(), "the space has not stopped, so no server gets a goodbye");
    }
}

#[tokio::test]
async fn an_agent_that_gets_a_goodbye_instead_of_a_welcome_stops() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.accept().await;
    linked.goodbye(Goodbye::Revoked).await;
    assert!(matches!(agent.ended().await, Err(AgentError::Revoked(_))));
}

#[tokio::test]
async fn a_directory_has_one_agent() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    agent.status(|_| true).await;
    let error = RunningAgent::start(settings(&scratch, &[&server])).await.ended().await.unwrap_err();
    assert!(matches!(error, AgentError::InUse(_)) && error.to_string().contains("--data"), "{error}");
    agent.stop(()).await;
}

#[tokio::test]
async fn events_arrive_in_order_however_often_the_link_breaks() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(agent.emit("deploy.done", json!({ "n": n })).await);
    }
    let mut linked = server.welcome_idle().await;
    assert_eq!(linked.receive_event().await, (ids[0], "deploy.done".to_owned(), json!({ "n": 0 })));
    assert_eq!(received_events(&mut linked, 4).await, ids[1..]);
    linked.confirm(ids[0]).await;
    agent.status(|status| status["spool"]["depth"] == 4).await;
    drop(linked);
    let mut linked = server.welcome_idle().await;
    ids.push(agent.emit("deploy.done", json!({})).await);
    assert_eq!(received_events(&mut linked, 5).await, ids[1..]);
    for id in &ids[1..] {
        linked.confirm(*id).await;
    }
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn an_event_that_the_server_refuses_is_dropped() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    let id = agent.emit("a", json!({})).await;
    assert_eq!(received_events(&mut linked, 1).await, [id]);
    linked.send(ToAgent::Confirm(EventConfirmation { id, outcome: EventOutcome::Refused("too old".to_owned()) })).await;
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn spooled_events_survive_a_restart_and_are_sent_before_newer_ones() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.push(agent.emit("a", json!({ "n": n })).await);
    }
    agent.stop(()).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    ids.push(agent.emit("a", json!({})).await);
    let mut linked = server.welcome_idle().await;
    assert_eq!(received_events(&mut linked, 21).await, ids);
    for id in ids {
        linked.confirm(id).await;
    }
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn one_server_gets_the_events_and_another_takes_over_when_its_link_breaks() {
    let (scratch, one) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let two = ScriptedServer::beside(&one).await;
    let agent = RunningAgent::start(settings(&scratch, &[&one, &two])).await;
    let mut first = one.welcome_idle().await;
    let id = agent.emit("a", json!({})).await;
    assert_eq!(received_events(&mut first, 1).await, [id]);
    let mut second = two.welcome_idle().await;
    // The second server gets the same event once the first link is gone.
    drop(first);
    assert_eq!(received_events(&mut second, 1).await, [id]);
    second.confirm(id).await;
    agent.status(|status| status["spool"]["depth"] == 0).await;
    agent.stop(second).await;
}

#[tokio::test]
async fn the_last_events_are_sent_before_the_goodbye() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_idle().await;
    let id = agent.emit("a", json!({})).await;
    agent.signals.stop.cancel();
    assert_eq!(received_events(&mut linked, 1).await, [id]);
    linked.confirm(id).await;
    linked.receive_goodbye().await;
    drop(linked);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn events_for_one_space_are_not_sent_to_another() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let linked = server.welcome_idle().await;
    agent.emit("a", json!({})).await;
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
async fn the_health_check_of_the_server_is_run_and_its_results_are_reported() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let good = json!({ "type": "command", "command": "true", "interval": "100ms" });
    let mut linked = server.welcome_with(Some(good)).await;
    // On a busy machine some checks time out, and are reported as failures.
    for _ in 0..3 {
        while linked.receive_check_result().await != (true, None) {}
    }
    let bad = json!({ "type": "command", "command": "false", "interval": "100ms" });
    linked.send(ToAgent::Check(Some(raw(&bad)))).await;
    while linked.receive_check_result().await != (false, Some("it exited with status 1".to_owned())) {}
    // Without a check nothing is reported, and an unknown kind of check does not end the link.
    linked.send(ToAgent::Check(None)).await;
    linked.send(ToAgent::Check(Some(raw(&json!({ "type": "ping" }))))).await;
    agent.emit("a", json!({})).await;
    linked.receive_event().await;
    agent.stop(linked).await;
}
