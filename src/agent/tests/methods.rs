//! Registrations: made, replaced, refused, taken back and taken up again; and the calls they are for.

use super::support::{Running, Scratch, Server, Visitor, raw, settings, soon};
use crate::{
    agent::Settings,
    model::agent_protocol::{CallReply, MethodServerHealth, ToAgent, ToServer},
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

/// A file of a test's own that registers one method.
fn methods_file(scratch: &Scratch) -> PathBuf {
    std::fs::create_dir_all(&scratch.0).unwrap();
    std::fs::copy(fixture("echo.py"), scratch.0.join("echo.py")).unwrap();
    let file = scratch.0.join("methods.toml");
    std::fs::write(&file, source(&["echo"])).unwrap();
    file
}

async fn register(agent: &Running, source: &str) -> (u16, Value) {
    let body = json!({ "path": fixture("methods.toml"), "source": source });
    agent.post("/methods", &body.to_string()).await
}

/// Registers these methods, which the server takes, and gives the generation.
async fn registered(agent: &Running, visitor: &mut Visitor, names: &[&str]) -> u64 {
    let text = source(names);
    let (answer, (generation, heard)) = tokio::join!(register(agent, &text), visitor.expect_register());
    assert_eq!((answer.0, heard), (200, names.iter().map(|name| (*name).to_owned()).collect()), "{}", answer.1);
    generation
}

fn result(answer: &CallReply) -> Value {
    match answer {
        CallReply::Result(value) => serde_json::from_str(value.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn running(server: &Server) -> (Scratch, Running, Visitor) {
    let scratch = Scratch::new();
    let agent = Running::start(settings(&scratch, &[server])).await;
    let visitor = server.welcome_idle().await;
    (scratch, agent, visitor)
}

#[tokio::test]
async fn a_registered_method_is_called_where_its_file_is_and_knows_its_agent() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let text = source(&["echo", "directory"]);
    let (answer, (generation, _)) = tokio::join!(register(&agent, &text), visitor.expect_register());
    let methods = json!([
        { "name": "notes.echo", "local_name": "echo" }, { "name": "notes.directory", "local_name": "directory" }
    ]);
    assert_eq!(answer, (200, json!({ "methods": methods, "output": "" })));
    assert_eq!(result(&visitor.answer(generation, "echo", json!({ "n": 1 })).await), json!({ "n": 1 }));
    let directory = Path::new(&fixture("methods.toml")).parent().unwrap().canonicalize().unwrap();
    assert_eq!(result(&visitor.answer(generation, "directory", json!({})).await), json!(directory));
    let environment = visitor.answer(generation, "environment", json!(["SVC_AGENT_URL", "SVC_AGENT_TOKEN"])).await;
    assert_eq!(result(&environment), json!([format!("http://{}", agent.address), null]));
    let CallReply::Error(error) = visitor.answer(generation, "fail", json!({ "x": 1 })).await else {
        panic!("an error")
    };
    let error: Value = serde_json::from_str(error.get()).unwrap();
    assert_eq!(error, json!({ "code": -1234, "message": "as you wish", "data": { "x": 1 } }));
    let status = agent.status(|_| true).await;
    assert_eq!((&status["registration"]["health"], &status["registration"]["methods"]), (&json!("running"), &methods));
    agent.stop(visitor).await;
}

#[tokio::test]
async fn notifications_and_calls_keep_their_order_and_unknown_generations_are_unavailable() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let generation = registered(&agent, &mut visitor, &["remember", "remembered"]).await;
    for n in 0..50 {
        let params = Some(raw(&json!({ "n": n })));
        let method = "remember".to_owned();
        visitor.say(ToAgent::Call { id: 100 + n, generation, method, params, notification: true }).await;
    }
    let remembered = result(&visitor.answer(generation, "remembered", json!({})).await);
    assert_eq!(remembered, (0..50).map(|n| json!({ "n": n })).collect::<Value>());
    assert!(matches!(visitor.answer(generation + 7, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.stop(visitor).await;
}

#[tokio::test]
async fn a_registration_is_published_again_on_every_link() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let generation = registered(&agent, &mut visitor, &["echo"]).await;
    let told = |status: &Value| (status["servers"][0]["published"].clone(), status["servers"][0]["refusal"].clone());
    agent.status(|status| told(status) == (json!(true), json!(null))).await;
    drop(visitor);
    let mut visitor = server.welcome().await;
    assert_eq!(visitor.expect_register().await, (generation, vec!["echo".to_owned()]));
    assert_eq!(result(&visitor.answer(generation, "echo", json!({ "n": 2 })).await), json!({ "n": 2 }));
    drop(visitor);
    let mut visitor = server.welcome().await;
    visitor.hear_register().await;
    visitor.refuse(generation, "no group named `ops`").await;
    agent.status(|status| told(status) == (json!(false), json!("no group named `ops`"))).await;
    agent.stop(visitor).await;
}

#[tokio::test]
async fn a_refused_registration_leaves_the_old_one_serving() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let old = registered(&agent, &mut visitor, &["pid"]).await;
    let pid = result(&visitor.answer(old, "pid", json!({})).await);
    let text = source(&["pid", "echo"]).replace("name = \"{{space}}.echo\"", "groups = [\"ops\"]\nname = \"x\"");
    let refusing = async {
        let (generation, _) = visitor.hear_register().await;
        visitor.refuse(generation, "`methods[1].groups[0]`: there is no group named `ops`").await;
        generation
    };
    let (answer, new) = tokio::join!(register(&agent, &text), refusing);
    assert_eq!((answer.0, &answer.1["error"]["code"]), (409, &json!("refused")));
    let message = answer.1["error"]["message"].as_str().unwrap();
    assert!(message.contains("no group named `ops`") && message.contains("line 11"), "{message}");
    assert_eq!(result(&visitor.answer(old, "pid", json!({})).await), pid);
    assert!(matches!(visitor.answer(new, "pid", json!({})).await, CallReply::Unavailable(_)));
    agent.stop(visitor).await;
}

#[tokio::test]
async fn what_one_server_refuses_is_taken_back_from_the_others() {
    let (scratch, one) = (Scratch::new(), Server::new().await);
    let two = Server::beside(&one).await;
    let agent = Running::start(settings(&scratch, &[&one, &two])).await;
    let (mut first, mut second) = tokio::join!(one.welcome_idle(), two.welcome_idle());
    let text = source(&["pid"]);
    let (answer, (old, _), _) =
        tokio::join!(register(&agent, &text), first.expect_register(), second.expect_register());
    assert_eq!(answer.0, 200);
    let refusing = async {
        let (generation, _) = second.hear_register().await;
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
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let old = registered(&agent, &mut visitor, &["pid"]).await;
    let before = result(&visitor.answer(old, "pid", json!({})).await);
    let new = registered(&agent, &mut visitor, &["pid", "echo"]).await;
    // Some calls were on their way when the server changed over.
    assert_eq!(result(&visitor.answer(old, "pid", json!({})).await), before);
    assert_ne!(result(&visitor.answer(new, "pid", json!({})).await), before);
    soon("the old process to go", async {
        while !matches!(visitor.answer(old, "pid", json!({})).await, CallReply::Unavailable(_)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    agent.stop(visitor).await;
}

#[tokio::test]
async fn a_registration_that_is_wrong_never_reaches_the_server() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
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
    // The first registration that the server hears of is the good one.
    registered(&agent, &mut visitor, &["echo"]).await;
    agent.stop(visitor).await;
}

#[tokio::test]
async fn without_a_link_nothing_can_be_registered() {
    let (scratch, server) = (Scratch::new(), Server::new().await);
    let agent = Running::start(settings(&scratch, &[&server])).await;
    let answer = register(&agent, &source(&["echo"])).await;
    assert_eq!((answer.0, &answer.1["error"]["code"]), (503, &json!("not_connected")), "{answer:?}");
    agent.stop(()).await;
}

#[tokio::test]
async fn methods_are_taken_back_one_by_one_and_all_at_once() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let first = registered(&agent, &mut visitor, &["pid", "echo", "add"]).await;
    let pid = result(&visitor.answer(first, "pid", json!({})).await);
    assert_eq!(agent.delete("/methods/nothing").await.0, 404);
    let (answer, (reduced, names)) = tokio::join!(agent.delete("/methods/echo"), visitor.expect_register());
    assert_eq!(answer, (200, json!({ "removed": [{ "name": "notes.echo", "local_name": "echo" }] })));
    assert_eq!(names, ["pid", "add"]);
    assert_eq!(result(&visitor.answer(reduced, "pid", json!({})).await), pid, "the process stays");
    let (answer, _) = tokio::join!(agent.delete("/methods"), visitor.expect_unregister());
    assert_eq!((answer.0, answer.1["removed"].as_array().unwrap().len()), (200, 2));
    assert!(matches!(visitor.answer(reduced, "pid", json!({})).await, CallReply::Unavailable(_)));
    // There is nothing left, and removing that is no fault.
    let (answer, _) = tokio::join!(agent.delete("/methods"), visitor.expect_unregister());
    assert_eq!(answer, (200, json!({ "removed": [] })));
    let generation = registered(&agent, &mut visitor, &["echo"]).await;
    let (answer, _) = tokio::join!(agent.delete("/methods/echo"), visitor.expect_unregister());
    assert_eq!(answer.0, 200);
    assert!(matches!(visitor.answer(generation, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.stop(visitor).await;
}

#[tokio::test]
async fn what_is_taken_back_without_a_link_is_told_with_the_next() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    registered(&agent, &mut visitor, &["echo"]).await;
    drop(visitor);
    agent.status(|status| status["servers"][0]["connected"] == false).await;
    assert_eq!(agent.delete("/methods").await.0, 200);
    server.welcome_idle().await;
    agent.stop(()).await;
}

#[tokio::test]
async fn a_registration_is_taken_up_again_after_a_restart() {
    let server = Server::new().await;
    let (scratch, agent, mut visitor) = running(&server).await;
    registered(&agent, &mut visitor, &["echo", "pid"]).await;
    drop(visitor);
    agent.stop(()).await;
    let agent = Running::start(settings(&scratch, &[&server])).await;
    let mut visitor = server.welcome().await;
    let (generation, names) = visitor.expect_register().await;
    assert_eq!(names, ["echo", "pid"]);
    assert_eq!(result(&visitor.answer(generation, "echo", json!([1])).await), json!([1]));
    drop(visitor);
    agent.stop(()).await;
    // Not by an agent of another space, though.
    let server = server.of_another_space();
    let agent = Running::start(settings(&scratch, &[&server])).await;
    server.welcome_idle().await;
    agent.stop(()).await;
}

#[tokio::test]
async fn a_methods_file_is_registered_with_the_first_link_and_its_fault_stops_nothing() {
    let (scratch, server) = (Scratch::new(), Server::new().await);
    let file = methods_file(&scratch);
    let told = || Settings { methods_file: Some(file.clone()), ..settings(&scratch, &[&server]) };
    let agent = Running::start(told()).await;
    let mut visitor = server.welcome().await;
    let (generation, _) = visitor.expect_register().await;
    assert_eq!(result(&visitor.answer(generation, "echo", json!({ "n": 3 })).await), json!({ "n": 3 }));
    drop(visitor);
    agent.stop(()).await;
    // A file that is wrong leaves what was registered before.
    std::fs::write(&file, source(&["echo", "pid"]).replace("command", "comand")).unwrap();
    let agent = Running::start(told()).await;
    let mut visitor = server.welcome().await;
    let (generation, names) = visitor.expect_register().await;
    assert_eq!(names, ["echo"]);
    result(&visitor.answer(generation, "echo", json!({})).await);
    agent.raise("a", json!({})).await;
    drop(visitor);
    agent.stop(()).await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_registration_gets_it_again_on_a_new_link() {
    let (scratch, server) = (Scratch::new(), Server::new().await);
    let told = Settings { answer: Duration::from_secs(2), ..settings(&scratch, &[&server]) };
    let agent = Running::start(Settings { methods_file: Some(methods_file(&scratch)), ..told }).await;
    // Neither a file that is not registered yet nor one that is may wait for a link to break by itself.
    let mut silent = server.welcome().await;
    let (unanswered, _) = silent.hear_register().await;
    let mut visitor = server.welcome().await;
    let (generation, names) = visitor.expect_register().await;
    assert_eq!(names, ["echo"]);
    assert!(generation > unanswered);
    assert_eq!(result(&visitor.answer(generation, "echo", json!([1])).await), json!([1]));
    drop((silent, visitor));
    let mut silent = server.welcome().await;
    assert_eq!(silent.hear_register().await.0, generation);
    let mut visitor = server.welcome().await;
    assert_eq!(visitor.expect_register().await.0, generation);
    assert_eq!(visitor.hear_health().await, (generation, MethodServerHealth::Running));
    agent.stop((silent, visitor)).await;
}

#[tokio::test]
async fn a_server_hears_how_its_method_server_is() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"exits_on_request.py\"");
    let (_, (generation, _)) = tokio::join!(register(&agent, &text), visitor.expect_register());
    assert_eq!(visitor.hear_health().await, (generation, MethodServerHealth::Running));
    visitor.call(1, generation, "exit", json!({ "status": 3 })).await;
    let (of, MethodServerHealth::Restarting { reason }) = visitor.hear_health().await else { panic!("it has died") };
    assert!(of == generation && reason.contains('3'), "{reason}");
    assert!(matches!(visitor.hear_reply().await, (1, CallReply::Unavailable(_))));
    while visitor.hear_health().await != (generation, MethodServerHealth::Running) {}
    agent.stop(visitor).await;
}

#[tokio::test]
async fn a_method_server_that_ends_at_once_is_not_registered() {
    let (scratch, server) = (Scratch::new(), Server::new().await);
    let agent = Running::start(Settings { trial: Duration::from_secs(60), ..settings(&scratch, &[&server]) }).await;
    let mut visitor = server.welcome_idle().await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"-c\", \"raise SystemExit(3)\"");
    let answer = register(&agent, &text).await;
    let message = answer.1["error"]["message"].as_str().unwrap();
    assert!(answer.0 == 400 && message.contains("status 3; the agent's log"), "{answer:?}");
    assert_eq!(agent.get("/status").await.1["registration"], json!(null));
    agent.signals.stop.cancel();
    assert!(matches!(visitor.hear().await, Some(ToServer::Goodbye)), "the server never heard of it");
    drop(visitor);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn calls_under_way_are_answered_before_the_goodbye_and_new_ones_are_not_taken() {
    let server = Server::new().await;
    let (scratch, agent, mut visitor) = running(&server).await;
    let file = methods_file(&scratch);
    let waits = "import json, os, sys, time\nfor line in sys.stdin:\n    while not os.path.exists('go'):\n        \
                 time.sleep(0.01)\n    print(json.dumps({'id': json.loads(line)['id'], 'result': 'done'}), flush=True)\n";
    std::fs::write(scratch.0.join("echo.py"), waits).unwrap();
    let body = json!({ "path": file, "source": source(&["echo"]) }).to_string();
    let (_, (generation, _)) = tokio::join!(agent.post("/methods", &body), visitor.expect_register());
    visitor.call(7, generation, "echo", json!({})).await;
    // Calls are heard in order: once this one is answered, the other is under way.
    assert!(matches!(visitor.answer(generation + 1, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.signals.stop.cancel();
    soon("the agent to stop", async {
        let stopping = |answer| matches!(answer, CallReply::Unavailable(why) if why.contains("stopping"));
        while !stopping(visitor.answer(generation + 1, "echo", json!({})).await) {}
    })
    .await;
    std::fs::write(scratch.0.join("go"), "").unwrap();
    let (id, answer) = visitor.hear_reply().await;
    assert_eq!((id, result(&answer)), (7, json!("done")));
    visitor.hear_goodbye().await;
    drop(visitor);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn a_call_that_takes_too_long_does_not_keep_the_agent() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"never_reads.py\"");
    let (_, (generation, _)) = tokio::join!(register(&agent, &text), visitor.expect_register());
    visitor.call(7, generation, "echo", json!({})).await;
    assert!(matches!(visitor.answer(generation + 1, "echo", json!({})).await, CallReply::Unavailable(_)));
    agent.signals.stop.cancel();
    visitor.hear_goodbye().await;
    drop(visitor);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_dropped() {
    let server = Server::new().await;
    let (_scratch, agent, mut visitor) = running(&server).await;
    let text = source(&["echo"]).replace("\"echo.py\"", "\"never_reads.py\"");
    let (_, (generation, _)) = tokio::join!(register(&agent, &text), visitor.expect_register());
    visitor.call(7, generation, "echo", json!({})).await;
    visitor.say(ToAgent::Cancel { id: 7 }).await;
    visitor.call(8, generation + 1, "echo", json!({})).await;
    assert!(matches!(visitor.hear_reply().await, (8, CallReply::Unavailable(_))));
    agent.stop(visitor).await;
}
