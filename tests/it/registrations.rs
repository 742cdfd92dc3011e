//! Registrations that outlive renamed and deleted groups, agents that are gone, and refusals.

use crate::support::{Daemon, Space, eventually, registration, stderr, stdout, success};
use serde_json::{Value, json};
use std::thread;

/// A group, and the token of a user in it who may use methods.
fn group_with_member(daemon: &Daemon, group: &str) -> (String, String) {
    let made = daemon.post("/api/groups", &json!({"name": group}));
    assert_eq!(made.status, 201, "{}", made.text);
    let token = daemon.create_user("bob", &["use_methods"]);
    let users = daemon.get("/api/users").json();
    let bob =
        users["items"].as_array().expect("a list").iter().find(|user| user["name"] == "bob").expect("bob").clone();
    let path = format!("/api/users/{}", bob["id"].as_str().expect("an id"));
    let changed = daemon.patch(&path, &json!({"groups": [group]}));
    assert_eq!(changed.status, 200, "{}", changed.text);
    (made.json()["id"].as_str().expect("an id").to_owned(), token)
}

/// The names of the methods that the token's user sees.
fn names(daemon: &Daemon, token: &str) -> Vec<String> {
    let listed = daemon.send("GET", "/api/methods", Some(token), None).json();
    let methods = listed["methods"].as_array().expect("a list").clone();
    methods.iter().map(|method| method["name"].as_str().expect("a name").to_owned()).collect()
}

/// Restarts the agent with its methods file, and the server.
fn restart_both(daemon: &mut Daemon, space: &mut Space, file: &str) {
    space.kill();
    daemon.crash_and_restart();
    space.start(daemon, &["--methods-file", file]);
}

#[test]
fn a_renamed_group_stays_the_same_one_for_a_registration_that_names_it_as_before() {
    let mut daemon = Daemon::start();
    let (group, bob) = group_with_member(&daemon, "ops");
    let mut space = Space::create(&daemon, "notes");
    let text = registration("echo.py", "", &[("x.echo", "scope = \"shared\"\ngroups = [\"ops\"]"), ("x.pid", "")]);
    let file = space.write("methods.toml", &text).to_str().expect("the path is text").to_owned();
    space.start(&daemon, &["--methods-file", &file]);
    daemon.wait_method("x.echo");
    space.wait_saved();
    assert_eq!(names(&daemon, &bob), ["user.admin.x.echo"]);

    assert_eq!(daemon.patch(&format!("/api/groups/{group}"), &json!({"name": "platform"})).status, 200);
    // Another group of the old name is not meant.
    assert_eq!(daemon.post("/api/groups", &json!({"name": "ops"})).status, 201);
    for arguments in [&["--methods-file", &file][..], &[]] {
        space.kill();
        daemon.crash_and_restart();
        space.start(&daemon, arguments);
        daemon.wait_method("x.echo");
        space.wait_saved();
        assert_eq!(names(&daemon, &bob), ["user.admin.x.echo"]);
        assert_eq!(daemon.call_as(&bob, "user.admin.x.echo", &json!([1]))["result"], json!([1]));
        let method = daemon.get("/api/methods/x.echo").json();
        assert_eq!(method["groups"], json!([{"id": group, "name": "platform"}]));
    }
    // A command means the groups that have the names now.
    space.register(&text);
    assert_eq!(names(&daemon, &bob), [""; 0]);
}

#[test]
fn a_deleted_group_hides_its_own_methods_and_no_other_and_is_not_deleted_by_mistake() {
    let mut daemon = Daemon::start();
    let (group, bob) = group_with_member(&daemon, "ops");
    let mut space = Space::create(&daemon, "notes");
    let methods = [("x.echo", "scope = \"shared\"\ngroups = [\"ops\"]"), ("x.pid", "scope = \"shared\"")];
    let text = registration("echo.py", "", &methods);
    let file = space.write("methods.toml", &text).to_str().expect("the path is text").to_owned();
    space.start(&daemon, &["--methods-file", &file]);
    daemon.wait_method("x.echo");
    space.wait_saved();

    let refused = daemon.delete(&format!("/api/groups/{group}"));
    assert_eq!(refused.status, 409, "{}", refused.text);
    let reason = refused.message();
    assert!(reason.contains("group `ops` is in use, by `user.admin.x.echo` of space notes: "), "{reason}");
    let refused = daemon.svc(&["group", "delete", "ops"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(success(&daemon.svc(&["group", "delete", "ops", "--force"])), "deleted group ops\n");
    assert_eq!(names(&daemon, &bob), ["user.admin.x.pid"]);

    restart_both(&mut daemon, &mut space, &file);
    daemon.wait_method("x.echo");
    assert_eq!(names(&daemon, &bob), ["user.admin.x.pid"]);
    assert_eq!(daemon.get("/api/methods/x.echo").json()["groups"], json!([{"id": group, "name": group}]));
    let unknown = space.try_register(&text);
    assert!(stderr(&unknown).contains("there is no group named `ops`"), "{}", stderr(&unknown));
    daemon.wait_method("x.echo");
}

#[test]
fn a_definition_of_a_dead_agent_gives_way_and_the_refused_one_is_shown_and_returns_by_itself() {
    let daemon = Daemon::start();
    let (mut old, mut new) = (Space::create(&daemon, "old"), Space::create(&daemon, "new"));
    old.start(&daemon, &[]);
    old.register(&registration("echo.py", "", &[("x.echo", ""), ("x.pid", "")]));
    new.start(&daemon, &[]);
    let other = registration("echo.py", "", &[("x.echo", "keywords = [\"other\"]")]);
    let conflict = new.try_register(&other);
    assert!(stderr(&conflict).contains("`x.echo` is published by space `old` with another keywords"));
    assert_eq!(
        new.view(&daemon)["refused_registration"]["reason"].as_str().map(|why| why.contains("`old`")),
        Some(true)
    );

    old.kill();
    eventually("the old agent to be missed", || (old.view(&daemon)["linked"] == false).then_some(()));
    new.register(&other);
    assert_eq!(new.view(&daemon)["refused_registration"], Value::Null);
    assert_eq!(daemon.get("/api/methods/x.echo").json()["providers"][0]["space"], "new");

    old.start(&daemon, &[]);
    let refused = eventually("the old registration to be refused", || {
        Some(old.view(&daemon)["refused_registration"].clone()).filter(|refused| !refused.is_null())
    });
    let reason = refused["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("`x.echo` is published by space `new` with another keywords"), "{reason}");
    let methods = daemon.get("/api/methods").json();
    assert_eq!(
        methods["refused"],
        json!([{"space_id": old.id, "space": "old", "reason": reason, "since": refused["since"]}])
    );
    for (arguments, text) in [
        (["space", "list"], "old: its registration is refused since 20"),
        (["space", "list"], "yes, registration refused"),
        (["method", "list"], "space old: its registration is refused since 20"),
    ] {
        let shown = stdout(&daemon.svc(&arguments));
        assert!(shown.contains(text) && shown.contains("is published by space `new`"), "{shown}");
    }
    let shown = stdout(&daemon.svc(&["space", "show", "old"]));
    assert!(shown.contains("methods") && shown.contains("refused since 20"), "{shown}");

    assert!(new.svc(&["methods", "unregister"]).status.success());
    eventually("the old registration to be published", || {
        (daemon.get("/api/methods/x.echo").json()["providers"][0]["space"] == "old").then_some(())
    });
    daemon.wait_method("x.pid");
    assert_eq!(old.view(&daemon)["refused_registration"], Value::Null);
    assert_eq!(daemon.get("/api/methods").json().get("refused"), None);
    assert_eq!(old.log().matches("is tried again").count(), 1, "{}", old.log());
}

#[test]
fn a_methods_file_that_is_refused_is_registered_once_the_other_space_is_gone() {
    for (name, text) in [
        ("methods.toml", registration("echo.py", "", &[("x.echo", "keywords = [\"other\"]")])),
        (
            "methods.lua",
            format!(
                "local server = require('svc.methods').Server('python3', {{ args = {{ '{}/tests/fixtures/methods/echo.py' }} }})\n\
                 server:method {{ name = 'x.echo', local_name = 'echo', description = 'Another' }}\nserver:register()\n",
                env!("CARGO_MANIFEST_DIR")
            ),
        ),
    ] {
        let daemon = Daemon::start();
        let (mut old, mut new) = (Space::create(&daemon, "old"), Space::create(&daemon, "new"));
        old.start(&daemon, &[]);
        old.register(&registration("echo.py", "", &[("x.echo", "")]));
        let file = new.write(name, &text);
        new.start(&daemon, &["--methods-file", file.to_str().expect("the path is text")]);
        eventually("the file to be refused", || (!new.view(&daemon)["refused_registration"].is_null()).then_some(()));
        old.kill();
        eventually("the file to be registered", || {
            let method = daemon.get("/api/methods/x.echo").json();
            (method["providers"][0]["space"] == "new" && method["available_count"] == 1).then_some(())
        });
        assert_eq!(daemon.call("x.echo", &json!([1]))["result"], json!([1]));
    }
}

#[test]
fn a_registration_of_a_startup_script_that_is_refused_is_made_once_the_other_space_is_gone() {
    let daemon = Daemon::start();
    let mut old = Space::create(&daemon, "old");
    old.start(&daemon, &[]);
    old.register(&registration("echo.py", "", &[("x.echo", "")]));
    let content = format!(
        "local server = require('svc.methods').Server('python3', {{ args = {{ '{}/tests/fixtures/methods/echo.py' }} }})\n\
         server:method {{ name = 'x.echo', local_name = 'echo', description = 'Another' }}\n\
         server:register()\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let script = daemon.post("/api/scripts", &json!({"name": "set-up", "content": content}));
    assert_eq!(script.status, 201, "{}", script.text);
    let fields = json!({"name": "new", "startup_script_id": script.json()["id"]});
    let mut new = Space::create_with(&daemon, &daemon.admin_token(), fields);
    new.start(&daemon, &[]);
    eventually("the script to be refused", || (!new.view(&daemon)["refused_registration"].is_null()).then_some(()));
    old.kill();
    eventually("its methods to be registered", || {
        let method = daemon.get("/api/methods/x.echo").json();
        (method["providers"][0]["space"] == "new" && method["available_count"] == 1).then_some(())
    });
    assert_eq!(daemon.call("x.echo", &json!([1]))["result"], json!([1]));
}

#[test]
fn commands_in_a_space_wait_for_an_agent_that_has_just_started_to_be_linked() {
    let mut daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    let text = registration("echo.py", "", &[("x.echo", "")]);
    daemon.kill();
    space.launch(&daemon.url, &[]);
    let api = format!("{}/api/methods", space.url);
    thread::scope(|scope| {
        let registering = scope.spawn(|| space.try_register(&text));
        let listing = scope.spawn(|| isahc::get(&api).expect("the agent answers").status());
        daemon.restart();
        assert_eq!(success(&registering.join().expect("it does not panic")), "registered 1 method: x.echo\n");
        assert_eq!(listing.join().expect("it does not panic"), 200);
    });
    assert_eq!(daemon.call("x.echo", &json!([1]))["result"], json!([1]));
}
