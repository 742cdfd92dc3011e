//! Agents: events emitted through them, broken links, and tokens.

use crate::support::{Answer, Daemon, Receiver, Space, ended, eventually, registration, stderr, stdout};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// A receiver behind a global sink for all custom events.
fn receiver_of_custom_events(daemon: &Daemon) -> Receiver {
    let receiver = Receiver::answering(|_| Answer::Status(200));
    let webhook = json!({"url": receiver.url("/")});
    daemon.create_sink(
        &json!({"name": "hook", "events": "custom.*", "type": "webhook", "owner": "global", "webhook": webhook}),
    );
    receiver
}

#[test]
fn an_event_emitted_in_a_space_carries_the_space_and_its_owner() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let output = space.svc(&["event", "deploy.done", r#"{"v": 1.0}"#, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let emitted: Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(emitted["event_type"], "custom.deploy.done");
    let event = eventually("the event to arrive", || {
        let reply = daemon.get(&format!("/api/events/{}", emitted["event_id"].as_str().expect("an id")));
        (reply.status == 200).then(|| reply.json())
    });
    assert_eq!((&event["space_id"], &event["actor"]["kind"]), (&json!(space.id), &json!("agent")));
    assert_eq!((&event["actor"]["username"], &event["data"]), (&json!("admin"), &json!({"v": 1.0})));
}

#[test]
fn an_event_carries_the_current_name_of_its_owner() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let admin = daemon.get("/api/whoami").json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(daemon.patch(&format!("/api/users/{admin}"), &json!({"name": "root"})).status, 200);
    assert!(space.svc(&["event", "n"]).status.success());
    let event = eventually("the event to arrive", || {
        daemon.get("/api/events?pattern=custom.n").json()["items"].as_array()?.first().cloned()
    });
    assert_eq!(event["actor"]["username"], "root");
}

#[test]
fn events_emitted_while_the_server_is_down_and_the_agent_then_killed_all_arrive_in_order() {
    let mut daemon = Daemon::start();
    let receiver = receiver_of_custom_events(&daemon);
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    daemon.kill();
    let mut raised = Vec::new();
    for n in 0..20 {
        let output = space.svc(&["event", "n", &json!({ "n": n }).to_string(), "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let receipt: Value = serde_json::from_slice(&output.stdout).unwrap();
        raised.push(receipt["event_ts"].clone());
    }
    space.kill();
    daemon.restart();
    space.start(&daemon, &[]);
    let arrived =
        |count| receiver.wait_for(count).iter().map(|request| request.json()["data"]["n"].clone()).collect::<Vec<_>>();
    assert_eq!(arrived(20), (0..20).map(Value::from).collect::<Vec<_>>());
    let times: Vec<_> = receiver.wait_for(20).iter().map(|request| request.json()["event_ts"].clone()).collect();
    assert_eq!(times, raised, "an event has the time at which it was raised, not that of its arrival");
    // No event arrived twice, and a new event arrives next.
    space.svc(&["event", "n", r#"{"n": 20}"#]);
    assert_eq!(arrived(21).last(), Some(&json!(20)));
    let history = daemon.get("/api/events?limit=100&pattern=custom.n").json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(21));
}

/// The number of write groups of the store so far.
fn writes(daemon: &Daemon) -> f64 {
    daemon.metric("svc_store_flushes_total")
}

#[test]
fn a_spool_is_stored_in_order_with_few_writes_and_a_refused_event_holds_up_no_other() {
    const EVENTS: usize = 190;
    const REFUSED: usize = 70;
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    daemon.kill();
    let api = format!("{}/event", space.url);
    let client = isahc::HttpClient::new().expect("it starts");
    for n in 0..EVENTS {
        let filler = if n == REFUSED { 5000 } else { 10 };
        let body = json!({"type": "n", "payload": {"n": n, "filler": "x".repeat(filler)}}).to_string();
        let event = isahc::Request::post(&api).header("content-type", "application/json").body(body);
        assert_eq!(client.send(event.expect("it is well-formed")).expect("the agent answers").status(), 202);
    }
    daemon.set("LIMITS_PAYLOAD", "1KiB");
    daemon.restart();
    let before = writes(&daemon);
    let history = |limit: usize| daemon.get(&format!("/api/events?limit={limit}&pattern=custom.n")).json();
    eventually("all events but one to arrive", || {
        (history(EVENTS)["items"].as_array()?.len() == EVENTS - 1).then_some(())
    });
    let shared = writes(&daemon) - before;
    assert!(shared < EVENTS as f64 / 2.0, "{shared} writes for {EVENTS} events");
    let mut arrived: Vec<_> = history(EVENTS)["items"].as_array().expect("a list").clone();
    arrived.reverse();
    let numbers: Vec<_> = arrived.iter().map(|event| event["data"]["n"].as_u64().expect("a number")).collect();
    let expected: Vec<_> = (0..EVENTS as u64).filter(|n| *n != REFUSED as u64).collect();
    assert_eq!(numbers, expected);
    eventually("the spool to be empty", || {
        let status: Value = serde_json::from_slice(&space.svc(&["agent", "status", "--json"]).stdout).ok()?;
        (status["spool"]["depth"] == 0).then_some(())
    });
    assert!(space.log().contains("which is lost: `payload` has"), "{}", space.log());
}

#[test]
fn a_server_without_room_leaves_events_in_the_spool_and_takes_them_in_order_later() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    daemon.set("LIMITS_DISK_FREE", "1000000GiB");
    daemon.crash_and_restart();
    for n in 0..30 {
        assert!(space.svc(&["event", "n", &json!({ "n": n }).to_string()]).status.success());
    }
    eventually("the events to wait", || daemon.log().contains("wait at its agent").then_some(()));
    daemon.set("LIMITS_DISK_FREE", "0MiB");
    daemon.crash_and_restart();
    let arrived = eventually("all events to arrive", || {
        let history = daemon.get("/api/events?limit=100&pattern=custom.n").json()["items"].as_array()?.clone();
        (history.len() == 30).then_some(history)
    });
    let numbers: Vec<_> = arrived.iter().rev().map(|event| event["data"]["n"].clone()).collect();
    assert_eq!(numbers, (0..30).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn a_full_spool_says_so_and_takes_no_more() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    let nowhere = "http://127.0.0.1:9";
    space.write("agent.toml", "[agent]\nspool = 3\n");
    let config = space.directory().join("agent.toml");
    space.launch(nowhere, &["--config", config.to_str().unwrap()]);
    for _ in 0..3 {
        assert!(space.svc(&["event", "n"]).status.success());
    }
    let full = space.svc(&["event", "n"]);
    assert_eq!(full.status.code(), Some(1));
    assert!(stderr(&full).contains("agent.spool"), "{}", stderr(&full));
    // The events are not lost: they are sent once there is a server, which makes room.
    space.kill();
    space.start(&daemon, &["--config", config.to_str().unwrap()]);
    eventually("the spool to drain", || space.svc(&["event", "n"]).status.success().then_some(()));
    eventually("all four to arrive", || {
        (daemon.get("/api/events?pattern=custom.n").json()["items"].as_array().map(Vec::len) == Some(4)).then_some(())
    });
}

#[test]
fn a_web_page_cannot_emit_events() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let address = space.url.trim_start_matches("http://").to_owned();
    let port = address.rsplit(':').next().unwrap().to_owned();
    let post = |headers: &str| {
        let mut stream = TcpStream::connect(&address).expect("the agent listens");
        let body = r#"{"type":"x","payload":{}}"#;
        let request = format!(
            "POST /event HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_else(|| panic!("{answer}"))
    };
    let json = "content-type: application/json\r\n";
    for host in [&*address, &format!("localhost:{port}"), &format!("[::1]:{port}"), "127.0.0.1"] {
        assert_eq!(post(&format!("host: {host}\r\n{json}")), 202, "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.1"] {
        assert_eq!(post(&format!("host: {host}:{port}\r\n{json}")), 403, "{host}");
    }
    let own = format!("host: {address}\r\n");
    assert_eq!(post(&format!("{own}content-type: text/plain\r\n")), 415);
    assert_eq!(post(&format!("{own}content-type: application/x-www-form-urlencoded\r\n")), 415);
    assert_eq!(post(&own), 415);
    assert_eq!(post(&format!("{own}{json}origin: https://evil.example\r\n")), 403);
    assert_eq!(post(&format!("{own}{json}origin: null\r\n")), 403);
}

#[test]
fn of_two_agents_with_one_token_the_newer_one_replaces_the_older() {
    let daemon = Daemon::start();
    let mut older = Space::create(&daemon, "notes");
    older.start(&daemon, &[]);
    older.register(&registration("echo.py", "", &[("x.echo", "")]));
    let mut newer = older.twin();
    newer.launch(&daemon.url, &[]);
    assert_eq!(older.ended().code(), Some(4));
    assert!(older.log().contains("another agent"), "{}", older.log());
    newer.wait_linked(&daemon);
    assert_eq!(older.view(&daemon)["state"], "deployed", "being replaced is no stop");
    newer.register(&registration("echo.py", "", &[("x.echo", "")]));
    assert_eq!(daemon.call("x.echo", &json!([1]))["result"], json!([1]));
}

#[test]
fn an_agent_whose_token_is_revoked_ends_at_once() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let rotated = daemon.post(&format!("/api/spaces/{}/token", space.id), &json!({}));
    assert!([200, 201].contains(&rotated.status), "{}", rotated.text);
    assert_eq!(space.ended().code(), Some(4));
    assert!(space.log().contains("token"), "{}", space.log());
    space.token = rotated.json()["agent_token"].as_str().expect("a token").to_owned();
    space.start(&daemon, &[]);
    // A deleted space has no agent either.
    assert_eq!(daemon.delete(&format!("/api/spaces/{}", space.id)).status, 204);
    assert_eq!(space.ended().code(), Some(4));
}

#[test]
fn an_agent_that_ends_stops_its_space_and_a_broken_link_does_not() {
    let daemon = Daemon::start();
    let receiver = Receiver::answering(|_| Answer::Status(200));
    let webhook = json!({"url": receiver.url("/")});
    daemon.create_sink(
        &json!({"name": "hook", "events": "space.*", "type": "webhook", "owner": "global", "webhook": webhook}),
    );
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("x.echo", "")]));
    space.kill();
    eventually("the link to be lost", || (space.view(&daemon)["linked"] == false).then_some(()));
    assert_eq!(space.view(&daemon)["state"], "deployed");
    assert_eq!(daemon.get("/api/methods").json()["methods"].as_array().map(Vec::len), Some(1));
    space.start(&daemon, &[]);
    assert_eq!(space.terminate().code(), Some(0));
    eventually("the space to be stopped", || (space.view(&daemon)["state"] == "stopped").then_some(()));
    eventually("its methods to be gone", || {
        (daemon.get("/api/methods").json() == json!({"methods": []})).then_some(())
    });
    space.start(&daemon, &[]);
    assert_eq!(daemon.post(&format!("/api/spaces/{}/stop", space.id), &json!({})).status, 200);
    assert_eq!(space.ended().code(), Some(0), "an agent that is asked to stop exits with 0");

    let types: Vec<_> =
        receiver.wait_for(5).iter().map(|request| request.json()["event_type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(types, ["space.created", "space.started", "space.stopped", "space.started", "space.stopped"]);
}

#[test]
fn a_space_stopped_while_its_agent_is_away_stays_stopped_when_the_agent_reconnects() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    // The server restarts, and the space is stopped before its agent has reconnected.
    space.pause();
    daemon.crash_and_restart();
    assert_eq!(daemon.post(&format!("/api/spaces/{}/stop", space.id), &json!({})).status, 200);
    space.resume();
    assert_eq!(space.ended().code(), Some(0));
    assert_eq!(space.view(&daemon)["state"], "stopped");
}

/// A proxy to the daemon that can be made to stall: it then carries nothing and closes nothing.
fn stalling_proxy(target: String) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    let stalled = Arc::new(AtomicBool::new(false));
    let stall = stalled.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(target.trim_start_matches("http://")) else { continue };
            for (mut from, mut to) in [(stream.try_clone().unwrap(), server.try_clone().unwrap()), (server, stream)] {
                let stall = stall.clone();
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(read @ 1..) = from.read(&mut buffer) {
                        if stall.load(Ordering::SeqCst) {
                            // Keeps the connection open forever.
                            loop {
                                thread::park();
                            }
                        }
                        if to.write_all(&buffer[..read]).is_err() {
                            return;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    (address, stalled)
}

#[test]
fn both_ends_notice_a_stalled_network_and_reconnect() {
    let daemon = Daemon::with(&[("AGENT_HEARTBEAT", "200ms")]);
    let (proxy, stalled) = stalling_proxy(daemon.url.clone());
    let mut space = Space::create(&daemon, "notes");
    space.write("agent.toml", "[agent]\nheartbeat = \"200ms\"\n");
    let config = space.directory().join("agent.toml");
    space.launch(&proxy, &["--config", config.to_str().unwrap()]);
    space.wait_linked(&daemon);
    stalled.store(true, Ordering::SeqCst);
    eventually("the server to notice", || (space.view(&daemon)["linked"] == false).then_some(()));
    stalled.store(false, Ordering::SeqCst);
    space.wait_linked(&daemon);
    assert_eq!(space.view(&daemon)["state"], "deployed");
}

#[test]
fn commands_in_a_space_without_an_agent_say_to_start_one() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.url = "http://127.0.0.1:9".to_owned();
    for command in [&["event", "x"][..], &["methods", "unregister"], &["agent", "status"]] {
        let output = space.svc(command);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("svc agent start"), "{}", stderr(&output));
    }
}

#[test]
fn a_server_that_does_not_know_the_token_does_not_disturb_the_one_that_does() {
    let (daemon, stranger) = (Daemon::start(), Daemon::start());
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &["--server", &stranger.url]);
    let refusal = eventually("the refusal to be logged", || {
        let log = space.log();
        log.lines().find(|line| line.contains("refused the token")).map(str::to_owned)
    });
    for part in [&*stranger.url, "svc space token", "SVC_AGENT_TOKEN"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    let servers = || {
        let status: Value = serde_json::from_slice(&space.svc(&["agent", "status", "--json"]).stdout).unwrap();
        status["servers"].clone()
    };
    let before = servers();
    assert_eq!((&before[0]["url"], &before[0]["connected"]), (&json!(daemon.url), &json!(true)));
    assert_eq!((&before[1]["url"], &before[1]["connected"]), (&json!(stranger.url), &json!(false)));
    assert!(before[1]["error"].as_str().is_some_and(|error| error.contains("refused the token")), "{before}");

    space.register(&registration("echo.py", "", &[("x.echo", "")]));
    assert_eq!(daemon.call("x.echo", &json!([1]))["result"], json!([1]));
    assert!(space.svc(&["event", "n"]).status.success());
    eventually("the event to arrive", || {
        (daemon.get("/api/events?pattern=custom.n").json()["items"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    drop(stranger);
    assert_eq!(daemon.call("x.echo", &json!([2]))["result"], json!([2]));
    let after = servers();
    assert_eq!(
        (&after[0]["since"], &after[0]["connected"]),
        (&before[0]["since"], &json!(true)),
        "the link is the same"
    );
    assert_eq!(space.terminate().code(), Some(0));
}

#[test]
fn an_agent_of_two_servers_publishes_at_both_or_at_none() {
    let mut one = Daemon::start();
    let mut space = Space::create(&one, "notes");
    let mut two = one.twin();
    space.start(&one, &["--server", &two.url]);
    space.wait_linked(&two);
    space.register(&registration("echo.py", "", &[("x.echo", ""), ("x.pid", "")]));
    let pid = one.call("x.pid", &json!({}))["result"].clone();
    assert_eq!(two.call("x.pid", &json!({}))["result"], pid, "one process answers for both");

    // Only one of the servers has the group.
    assert_eq!(one.post("/api/groups", &json!({"name": "ops"})).status, 201);
    let shared = registration("echo.py", "", &[("y.echo", "scope = \"shared\"\ngroups = [\"ops\"]")]);
    let refused = space.try_register(&shared);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains(&two.url) && stderr(&refused).contains("`ops`"), "{}", stderr(&refused));
    for daemon in [&one, &two] {
        assert_eq!(daemon.call("x.pid", &json!({}))["result"], pid);
        assert_eq!(daemon.call("y.echo", &json!({}))["error"]["code"], -32601);
    }

    // While one server is down the other one serves, and the first gets the change when it is back.
    two.kill();
    space.register(&registration("echo.py", "", &[("z.echo", "")]));
    assert_eq!(one.call("z.echo", &json!([1]))["result"], json!([1]));
    two.restart();
    two.wait_method("z.echo");
    assert_eq!(two.call("z.echo", &json!([1]))["result"], json!([1]));
    assert_eq!(two.call("x.pid", &json!({}))["error"]["code"], -32601);
}

#[test]
fn methods_are_removed_one_by_one_and_the_last_one_ends_the_process() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("x.echo", ""), ("{{space}}.pid", "")]));
    let pid = daemon.call("notes.pid", &json!({}))["result"].as_u64().expect("a process id");
    let output = space.svc(&["methods", "unregister", "echo"]);
    assert_eq!(stdout(&output), "removed 1 method: x.echo\n", "{}", stderr(&output));
    assert_eq!(daemon.call("x.echo", &json!({}))["error"]["code"], -32601);
    assert_eq!(daemon.call("notes.pid", &json!({}))["result"], pid, "the process stays");
    let unknown = space.svc(&["methods", "unregister", "echo"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(
        stderr(&unknown),
        "svc: no method with the local name `echo` is registered: `svc agent status` shows those that are\n"
    );

    // A restarted agent registers the remaining methods.
    space.kill();
    space.start(&daemon, &[]);
    daemon.wait_method("notes.pid");
    assert_eq!(daemon.get("/api/methods").json()["methods"].as_array().map(Vec::len), Some(1));
    let pid = daemon.call("notes.pid", &json!({}))["result"].as_u64().expect("a process id");
    let removed: Value =
        serde_json::from_str(&stdout(&space.svc(&["methods", "unregister", "pid", "--json"]))).expect("it is JSON");
    assert_eq!(removed, json!({"removed": [{"name": "notes.pid", "local_name": "pid"}]}));
    assert_eq!(daemon.get("/api/methods").json(), json!({"methods": []}));
    eventually("the process to be gone", || ended(pid).then_some(()));
    assert_eq!(stdout(&space.svc(&["methods", "unregister"])), "nothing was registered\n");
}

#[test]
fn without_a_server_methods_cannot_be_registered_but_can_be_removed() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    let text = registration("echo.py", "", &[("x.echo", "")]);
    let refuses = |space: &Space| {
        let output = space.try_register(&text);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("svc agent status"), "{}", stderr(&output));
    };
    space.launch("http://127.0.0.1:9", &[]);
    refuses(&space);
    space.kill();
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("x.pid", "")]));
    let pid = daemon.call("x.pid", &json!({}))["result"].as_u64().expect("a process id");
    daemon.kill();
    eventually("the agent to notice", || {
        let status: Value = serde_json::from_slice(&space.svc(&["agent", "status", "--json"]).stdout).unwrap();
        (status["servers"][0]["connected"] == false).then_some(())
    });
    refuses(&space);
    assert!(!ended(pid), "the earlier registration stays");
    assert_eq!(stdout(&space.svc(&["methods", "unregister"])), "removed 1 method: x.pid\n");
    eventually("the process to be gone", || ended(pid).then_some(()));
    daemon.restart();
    space.wait_linked(&daemon);
    space.register(&text);
    let methods = daemon.get("/api/methods").json();
    assert_eq!((&methods["methods"][0]["name"], &methods["methods"][1]), (&json!("x.echo"), &json!(null)));
}
