//! Tests of registrations and of calls: registering, replacing, refusing, unregistering, restarting.

use super::support::{LinkedAgent, RunningAgent, ScriptedServer, raw, settings, soon};
use crate::{
    agent::AgentSettings,
    model::{
        agent_protocol::{CallReply, ToAgent, ToServer},
        method::MethodServerHealth,
    },
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// A registration of the fixtures' echo server with methods of these local names.
fn source(names: &[&str]) -> String {
    let mut text = "[server]\ncommand = \"python3\"\nargs = [\"echo.py\"]\n".to_owned();
    for name in names {
        text +=
            &format!("\n[[methods]]\nname = \"{{{{space}}}}.{name}\"\nlocal_name = \"{name}\"\ndescription = \"d\"\n");
    }
    text
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/methods").join(name);
    path.to_str().unwrap().to_owned()
}

/// A methods file in the test's directory that registers one method.
fn methods_file(scratch: &tempfile::TempDir) -> PathBuf {
    std::fs::copy(fixture("echo.py"), scratch.path().join("echo.py")).unwrap();
    let file = scratch.path().join("methods.toml");
    std::fs::write(&file, source(&["echo"])).unwrap();
    file
}

async fn register(agent: &RunningAgent, source: &str) -> (u16, Value) {
    let body = json!({ "path": fixture("methods.toml"), "source": source });
    agent.post("/methods", &body.to_string()).await
}

/// Registers these methods, which the server accepts, and returns the generation.
async fn registered(agent: &RunningAgent, linked: &mut LinkedAgent, names: &[&str]) -> u64 {
    let text = source(names);
    let (answer, (generation, heard)) = tokio::join!(register(agent, &text), linked.expect_register());
    assert_eq!((answer.0, heard), (200, names.iter().map(|name| (*name).to_owned()).collect()), "{}", answer.1);
    generation
}

fn result(answer: &CallReply) -> Value {
    match answer {
        CallReply::Result(value) => serde_json::from_str(value.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn running(server: &ScriptedServer) -> (tempfile::TempDir, RunningAgent, LinkedAgent) {
    let scratch = tempfile::tempdir().unwrap();
    let agent = RunningAgent::start(settings(&scratch, &[server])).await;
    let linked = server.welcome_idle().await;
    (scratch, agent, linked)
}

#[tokio::test]
async fn a_registered_method_is_called_where_its_file_is_and_knows_its_agent() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let text = source(&["echo", "directory"]);
    let (answer, (generation, _)) = tokio::join!(register(&agent, &text), linked.expect_register());
    let methods = json!([
        { "name": "notes.echo", "local_name": "echo" }, { "name": "notes.directory", "local_name": "directory" }
    ]);
    assert_eq!(answer, (200, json!({ "methods": methods, "output": "" })));
    assert_eq!(result(&linked.answer(generation, "echo", json!({ "n": 1 })).await), json!({ "n": 1 }));
    let directory = Path::new(&fixture("methods.toml")).parent().unwrap().canonicalize().unwrap();
    assert_eq!(result(&linked.answer(generation, "directory", json!({})).await), json!(directory));
    let environment = linked.answer(generation, "environment", json!(["SVC_AGENT_URL", "SVC_AGENT_TOKEN"])).await;
    assert_eq!(result(&environment), json!([format!("http://{}", agent.address), null]));
    let CallReply::Error(error) = linked.answer(generation, "fail", json!({ "x": 1 })).await else {
        panic!("an error")
    };
    let error: Value = serde_json::from_str(error.get()).unwrap();
    assert_eq!(error, json!({ "code": -1234, "message": "as you wish", "data": { "x": 1 } }));
    let status = agent.status(|_| true).await;
    assert_eq!((&status["registration"]["health"], &status["registration"]["methods"]), (&json!("running"), &methods));
    agent.stop(linked).await;
}

#[tokio::test]
async fn notifications_and_calls_keep_their_order_and_unknown_generations_are_unavailable() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let generation = registered(&agent, &mut linked, &["remember", "remembered"]).await;
    for n in 0..50 {
        let params = Some(raw(&json!({ "n": n })));
        let method = "remember".to_owned();
        linked.send(ToAgent::Call { id: 100 + n, generation, method, params, notification: true }).await;
    }
    let remembered = result(&linked.answer(generation, "remembered", json!({})).await);
    assert_eq!(remembered, (0..50).map(|n| json!({ "n": n })).collect::<Value>());
    assert!(matches!(linked.answer(generation + 7, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_registration_is_published_again_on_every_link() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let generation = registered(&agent, &mut linked, &["echo"]).await;
    let told = |status: &Value| (status["servers"][0]["published"].clone(), status["servers"][0]["refusal"].clone());
    agent.status(|status| told(status) == (json!(true), json!(null))).await;
    drop(linked);
    let mut linked = server.welcome().await;
    assert_eq!(linked.expect_register().await, (generation, vec!["echo".to_owned()]));
    assert_eq!(result(&linked.answer(generation, "echo", json!({ "n": 2 })).await), json!({ "n": 2 }));
    drop(linked);
    let mut linked = server.welcome().await;
    linked.receive_register().await;
    linked.refuse(generation, "no group named `ops`").await;
    agent.status(|status| told(status) == (json!(false), json!("no group named `ops`"))).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_refused_registration_leaves_the_old_one_serving() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let old = registered(&agent, &mut linked, &["pid"]).await;
    let pid = result(&linked.answer(old, "pid", json!({})).await);
    let text = source(&["pid", "echo"]).replace("name = \"{{space}}.echo\"", "groups = [\"ops\"]\nname = \"x\"");
    let refusing = async {
        let (generation, _) = linked.receive_register().await;
        linked.refuse(generation, "`methods[1].groups[0]`: there is no group named `ops`").await;
        generation
    };
    let (answer, new) = tokio::join!(register(&agent, &text), refusing);
    assert_eq!((answer.0, &answer.1["error"]["code"]), (409, &json!("refused")));
    let message = answer.1["error"]["message"].as_str().unwrap();
    assert!(message.contains("no group named `ops`") && message.contains("line 11"), "{message}");
    assert_eq!(result(&linked.answer(old, "pid", json!({})).await), pid);
    assert!(matches!(linked.answer(new, "pid", json!({})).await, CallReply::Unavailable(_)));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_registration_that_one_server_refuses_is_withdrawn_from_the_others() {
    let (scratch, one) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let two = ScriptedServer::beside(&one).await;
    let agent = RunningAgent::start(settings(&scratch, &[&one, &two])).await;
    let (mut first, mut second) = tokio::join!(one.welcome_idle(), two.welcome_idle());
    let text = source(&["pid"]);
    let (answer, (old, _), _) =
        tokio::join!(register(&agent, &text), first.expect_register(), second.expect_register());
    assert_eq!(answer.0, 200);
    let refusing = async {
        let (generation, _) = second.receive_register().await;
        second.refuse(generation, "no").await;
    };
    let text = source(&["echo"]);
    let taking = async {
        let (new, _) = first.expect_register().await;
        let again = first.expect_register().await;
        assert_eq!((again, new > old), ((old, vec!["pid".to_owned()]), true));
    };
    let (answer, (), ()) = tokio::join!(register(&agent, &text), refusing, taking);
    assert_eq!(answer.0, 409);
    result(&first.answer(old, "pid", json!({})).await);
    result(&second.answer(old, "pid", json!({})).await);
    agent.stop((first, second)).await;
}

#[tokio::test]
async fn a_new_registration_replaces_the_old_process_once_its_calls_have_ended() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let old = registered(&agent, &mut linked, &["pid"]).await;
    let before = result(&linked.answer(old, "pid", json!({})).await);
    let new = registered(&agent, &mut linked, &["pid", "echo"]).await;
    // Calls may still arrive for the old generation when the server has changed over.
    assert_eq!(result(&linked.answer(old, "pid", json!({})).await), before);
    assert_ne!(result(&linked.answer(new, "pid", json!({})).await), before);
    soon("the old process to go", async {
        while !matches!(linked.answer(old, "pid", json!({})).await, CallReply::Unavailable(_)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn an_invalid_registration_never_reaches_the_server() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let good = source(&["echo"]);
    let wrong_path = json!({ "path": fixture("methods.txt"), "source": good }).to_string();
    let answer = agent.post("/methods", &wrong_path).await;
    assert!(answer.0 == 400 && answer.1["error"]["message"].as_str().unwrap().contains(".toml"), "{answer:?}");
    for (text, part) in [
        (good.replace("[server]", "[server]\nport = 1"), "line 2"),
        (good.replace("{{space}}.echo", "user.echo"), "line 6: `methods[0].name`"),
        (good.replace("python3", "./no-such-command"), "no-such-command"),
    ] {
        let answer = register(&agent, &text).await;
        assert_eq!(answer.0, 400, "{part}: {answer:?}");
        assert!(answer.1["error"]["message"].as_str().unwrap().contains(part), "{part}: {answer:?}");
    }
    // The first registration that reaches the server is the valid one.
    registered(&agent, &mut linked, &["echo"]).await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn without_a_link_nothing_can_be_registered() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let answer = register(&agent, &source(&["echo"])).await;
    assert_eq!((answer.0, &answer.1["error"]["code"]), (503, &json!("not_connected")), "{answer:?}");
    agent.stop(()).await;
}

#[tokio::test]
async fn methods_are_unregistered_one_by_one_and_all_at_once() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let first = registered(&agent, &mut linked, &["pid", "echo", "add"]).await;
    let pid = result(&linked.answer(first, "pid", json!({})).await);
    assert_eq!(agent.delete("/methods/nothing").await.0, 404);
    let (answer, (reduced, names)) = tokio::join!(agent.delete("/methods/echo"), linked.expect_register());
    assert_eq!(answer, (200, json!({ "removed": [{ "name": "notes.echo", "local_name": "echo" }] })));
    assert_eq!(names, ["pid", "add"]);
    assert_eq!(result(&linked.answer(reduced, "pid", json!({})).await), pid, "the process stays");
    let (answer, _) = tokio::join!(agent.delete("/methods"), linked.expect_unregister());
    assert_eq!((answer.0, answer.1["removed"].as_array().unwrap().len()), (200, 2));
    assert!(matches!(linked.answer(reduced, "pid", json!({})).await, CallReply::Unavailable(_)));
    // Unregistering everything again is no error.
    let (answer, _) = tokio::join!(agent.delete("/methods"), linked.expect_unregister());
    assert_eq!(answer, (200, json!({ "removed": [] })));
    let generation = registered(&agent, &mut linked, &["echo"]).await;
    let (answer, _) = tokio::join!(agent.delete("/methods/echo"), linked.expect_unregister());
    assert_eq!(answer.0, 200);
    assert!(matches!(linked.answer(generation, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.stop(linked).await;
}

#[tokio::test]
async fn methods_unregistered_without_a_link_are_withdrawn_with_the_next() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    registered(&agent, &mut linked, &["echo"]).await;
    drop(linked);
    agent.status(|status| status["servers"][0]["connected"] == false).await;
    assert_eq!(agent.delete("/methods").await.0, 200);
    server.welcome_idle().await;
    agent.stop(()).await;
}

#[tokio::test]
async fn a_registration_is_taken_up_again_after_a_restart() {
    let server = ScriptedServer::new().await;
    let (scratch, agent, mut linked) = running(&server).await;
    registered(&agent, &mut linked, &["echo", "pid"]).await;
    drop(linked);
    agent.stop(()).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome().await;
    let (generation, names) = linked.expect_register().await;
    assert_eq!(names, ["echo", "pid"]);
    assert_eq!(result(&linked.answer(generation, "echo", json!([1])).await), json!([1]));
    drop(linked);
    agent.stop(()).await;
    // An agent of another space does not take it up.
    let server = server.of_another_space();
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    server.welcome_idle().await;
    agent.stop(()).await;
}

#[tokio::test]
async fn a_methods_file_is_registered_with_the_first_link_and_an_invalid_one_stops_nothing() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let file = methods_file(&scratch);
    let told = || AgentSettings { methods_file: Some(file.clone()), ..settings(&scratch, &[&server]) };
    let agent = RunningAgent::start(told()).await;
    let mut linked = server.welcome().await;
    let (generation, _) = linked.expect_register().await;
    assert_eq!(result(&linked.answer(generation, "echo", json!({ "n": 3 })).await), json!({ "n": 3 }));
    drop(linked);
    agent.stop(()).await;
    // An invalid file leaves the saved registration in force.
    std::fs::write(&file, source(&["echo", "pid"]).replace("command", "comand")).unwrap();
    let agent = RunningAgent::start(told()).await;
    let mut linked = server.welcome().await;
    let (generation, names) = linked.expect_register().await;
    assert_eq!(names, ["echo"]);
    result(&linked.answer(generation, "echo", json!({})).await);
    agent.emit("a", json!({})).await;
    drop(linked);
    agent.stop(()).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_registration_gets_it_again_on_a_new_link() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let told = AgentSettings { answer_timeout: Duration::from_secs(2), ..settings(&scratch, &[&server]) };
    let agent = RunningAgent::start(AgentSettings { methods_file: Some(methods_file(&scratch)), ..told }).await;
    // Neither the first publication nor a later one may wait until the link breaks by itself.
    let mut silent = server.welcome().await;
    let (unanswered, _) = silent.receive_register().await;
    let mut linked = server.welcome().await;
    let (generation, names) = linked.expect_register().await;
    assert_eq!(names, ["echo"]);
    assert!(generation > unanswered);
    assert_eq!(result(&linked.answer(generation, "echo", json!([1])).await), json!([1]));
    drop((silent, linked));
    let mut silent = server.welcome().await;
    assert_eq!(silent.receive_register().await.0, generation);
    let mut linked = server.welcome().await;
    assert_eq!(linked.expect_register().await.0, generation);
    assert_eq!(linked.receive_health().await, (generation, MethodServerHealth::Running));
    agent.stop((silent, linked)).await;
}

#[tokio::test]
async fn the_health_of_the_method_server_is_reported() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"exits_on_request.py\"");
    let (_, (generation, _)) = tokio::join!(register(&agent, &text), linked.expect_register());
    assert_eq!(linked.receive_health().await, (generation, MethodServerHealth::Running));
    linked.call(1, generation, "exit", json!({ "status": 3 })).await;
    let (of, MethodServerHealth::Restarting { reason }) = linked.receive_health().await else { panic!("it has died") };
    assert!(of == generation && reason.contains('3'), "{reason}");
    assert!(matches!(linked.receive_reply().await, (1, CallReply::Unavailable(_))));
    while linked.receive_health().await != (generation, MethodServerHealth::Running) {}
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_method_server_that_ends_at_once_is_not_registered() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent =
        RunningAgent::start(AgentSettings { start_check: Duration::from_secs(60), ..settings(&scratch, &[&server]) })
            .await;
    let mut linked = server.welcome_idle().await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"-c\", \"raise SystemExit(3)\"");
    let answer = register(&agent, &text).await;
    let message = answer.1["error"]["message"].as_str().unwrap();
    assert!(answer.0 == 400 && message.contains("status 3; the agent's log"), "{answer:?}");
    assert_eq!(agent.get("/status").await.1["registration"], json!(null));
    agent.signals.stop.cancel();
    assert!(matches!(linked.receive().await, Some(ToServer::Goodbye)), "the server never got it");
    drop(linked);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn calls_in_flight_are_answered_before_the_goodbye_and_new_ones_are_refused() {
    let server = ScriptedServer::new().await;
    let (scratch, agent, mut linked) = running(&server).await;
    let file = methods_file(&scratch);
    let waits = "import json, os, sys, time\nfor line in sys.stdin:\n    while not os.path.exists('go'):\n        \
                 time.sleep(0.01)\n    print(json.dumps({'id': json.loads(line)['id'], 'result': 'done'}), flush=True)\n";
    std::fs::write(scratch.path().join("echo.py"), waits).unwrap();
    let body = json!({ "path": file, "source": source(&["echo"]) }).to_string();
    let (_, (generation, _)) = tokio::join!(agent.post("/methods", &body), linked.expect_register());
    linked.call(7, generation, "echo", json!({})).await;
    // Calls are sent in order: once this one is answered, the other is in flight.
    assert!(matches!(linked.answer(generation + 1, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.signals.stop.cancel();
    soon("the agent to stop", async {
        let stopping = |answer| matches!(answer, CallReply::Unavailable(why) if why.contains("stopping"));
        while !stopping(linked.answer(generation + 1, "echo", json!({})).await) {}
    })
    .await;
    std::fs::write(scratch.path().join("go"), "").unwrap();
    let (id, answer) = linked.receive_reply().await;
    assert_eq!((id, result(&answer)), (7, json!("done")));
    linked.receive_goodbye().await;
    drop(linked);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn a_call_that_takes_too_long_does_not_delay_the_shutdown() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"never_reads.py\"");
    let (_, (generation, _)) = tokio::join!(register(&agent, &text), linked.expect_register());
    linked.call(7, generation, "echo", json!({})).await;
    assert!(matches!(linked.answer(generation + 1, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.signals.stop.cancel();
    linked.receive_goodbye().await;
    drop(linked);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_call_is_dropped() {
    let server = ScriptedServer::new().await;
    let (_scratch, agent, mut linked) = running(&server).await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"never_reads.py\"");
    let (_, (generation, _)) = tokio::join!(register(&agent, &text), linked.expect_register());
    linked.call(7, generation, "echo", json!({})).await;
    linked.send(ToAgent::Cancel { id: 7 }).await;
    linked.call(8, generation + 1, "echo", json!({})).await;
    assert!(matches!(linked.receive_reply().await, (8, CallReply::Unavailable(_))));
    agent.stop(linked).await;
}
