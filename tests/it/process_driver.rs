//! The driver `process`: the server runs the agent of a space, and no process outlives the space or the server.

use crate::support::{Daemon, Space, ended, eventually, registration};
use serde_json::{Value, json};

/// A daemon with a started space `box` whose agent it runs.
struct LaunchedSpace {
    daemon: Daemon,
    /// Only for its directory, which has the registration.
    files: Space,
}

/// Process ids of the agent and its method server.
#[derive(Debug, PartialEq)]
struct Processes {
    agent: u64,
    server: u64,
}

impl LaunchedSpace {
    fn create() -> Self {
        let daemon = Daemon::start();
        let files = Space::create(&daemon, "files");
        let file = files.write("methods.toml", &registration("echo.py", "", &[("{{space}}.pid", ""), ("x.echo", "")]));
        let this = Self { daemon, files };
        this.svc(&["space", "create", "box", "--driver", "process", "--methods-file", file.to_str().unwrap()]);
        this
    }

    #[track_caller]
    fn svc(&self, arguments: &[&str]) -> String {
        let output = self.daemon.svc(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("output is text")
    }

    fn view(&self) -> Value {
        self.daemon.get("/api/spaces?name=box").json()["items"][0].clone()
    }

    /// Waits until a different agent and method server answer.
    #[track_caller]
    fn wait_serving(&self, before: Option<&Processes>) -> Processes {
        eventually("the method to answer", || {
            let processes = Processes {
                agent: self.view()["process"]["pid"].as_u64()?,
                server: self.daemon.call("box.pid", &json!({}))["result"].as_u64()?,
            };
            before
                .is_none_or(|before| processes.agent != before.agent && processes.server != before.server)
                .then_some(processes)
        })
    }

    #[track_caller]
    fn wait_ended(&self, processes: &Processes) {
        eventually("the agent and its method server to be gone", || {
            (ended(processes.agent) && ended(processes.server)).then_some(())
        });
    }

    /// The types of the space's events so far, oldest first.
    fn event_types(&self) -> Vec<String> {
        let id = self.view()["id"].clone();
        let events = self.daemon.get("/api/events?pattern=space.*&limit=200").json();
        let own = events["items"].as_array().expect("a list").iter().filter(|event| event["space_id"] == id);
        own.rev().map(|event| event["type"].as_str().expect("a type").to_owned()).collect()
    }
}

#[test]
fn a_space_that_the_server_runs_serves_until_it_is_stopped() {
    let space = LaunchedSpace::create();
    assert_eq!((&space.view()["state"], &space.view()["process"]), (&json!("created"), &json!(null)));
    space.svc(&["space", "start", "box"]);
    let first = space.wait_serving(None);
    assert_eq!(space.daemon.call("x.echo", &json!({"n": 1}))["result"], json!({"n": 1}));
    let again = space.daemon.svc(&["space", "start", "box"]);
    assert_eq!(again.status.code(), Some(1));

    // A killed agent is restarted; the space is neither stopped nor started.
    assert!(std::process::Command::new("kill").args(["-KILL", &first.agent.to_string()]).status().unwrap().success());
    let second = space.wait_serving(Some(&first));
    space.wait_ended(&first);
    assert_eq!(space.view()["process"]["launches"], 2);
    assert_eq!(space.event_types(), ["space.created", "space.started"]);

    space.svc(&["space", "stop", "box"]);
    assert_eq!(space.view()["state"], "stopped");
    space.wait_ended(&second);
    eventually("nothing to be run", || space.view()["process"].is_null().then_some(()));
    assert_eq!(space.daemon.call("box.pid", &json!({}))["error"]["code"], -32601);
    assert_eq!(space.event_types(), ["space.created", "space.started", "space.stopped"]);
    drop(space.files);
}

#[test]
fn a_restarted_server_runs_its_agents_again_and_a_killed_one_leaves_no_process() {
    let mut space = LaunchedSpace::create();
    space.svc(&["space", "start", "box"]);
    let first = space.wait_serving(None);
    space.daemon.terminate();
    assert!(space.daemon.ended().success());
    space.wait_ended(&first);
    space.daemon.restart();
    let second = space.wait_serving(Some(&first));
    assert_eq!(space.event_types(), ["space.created", "space.started"], "the server's end is not the space's");
    space.daemon.kill();
    space.wait_ended(&second);
    space.daemon.restart();
    let third = space.wait_serving(Some(&second));
    assert_eq!(space.daemon.delete(&format!("/api/spaces/{}", space.view()["id"].as_str().unwrap())).status, 204);
    space.wait_ended(&third);
}
