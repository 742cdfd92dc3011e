//! Scripts in a space against the real server: they register and call methods, emit events and load libraries, without
//! a URL or a token.

use crate::support::{Daemon, Space, eventually, registration};
use isahc::{ReadResponseExt as _, Request, RequestExt as _};
use serde_json::{Value, json};
use std::process::{Command, Output};

/// A daemon and a space that publishes `notes.echo` and `notes.fail`.
fn space_with_methods() -> (Daemon, Space) {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    space.register(&registration("echo.py", "", &[("notes.echo", ""), ("notes.fail", "")]));
    (daemon, space)
}

/// Sends a request to the agent and returns the status and body of the response.
fn send_request(space: &Space, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
    let mut request = Request::builder().method(method).uri(format!("{}{path}", space.url));
    if method == "POST" {
        request = request.header("content-type", "application/json");
    }
    let sent = request.body(body.to_owned()).expect("the request is well-formed").send();
    let mut answer = sent.expect("the agent answers");
    let bytes = answer.bytes().expect("the answer can be read");
    (answer.status().as_u16(), bytes)
}

fn request_text(space: &Space, method: &str, path: &str, body: &str) -> (u16, String) {
    let (status, bytes) = send_request(space, method, path, body);
    (status, String::from_utf8(bytes).expect("the answer is text"))
}

/// Runs Python in the space; the package comes from the agent, over HTTP.
fn python(space: &Space, source: &str) -> Output {
    let (status, zip) = send_request(space, "GET", "/packages/svc-libraries.zip", "");
    assert_eq!(status, 200);
    let (archive, script) = (space.directory().join("svc.zip"), space.write("use.py", source));
    std::fs::write(&archive, zip).expect("there is room");
    Command::new("python3")
        .arg(script)
        .env("PYTHONPATH", archive)
        .env("SVC_AGENT_URL", &space.url)
        .output()
        .expect("python3 runs")
}

#[test]
fn the_agent_forwards_listings_and_calls_of_methods_byte_for_byte() {
    let (_daemon, space) = space_with_methods();
    let (status, listed) = request_text(&space, "GET", "/api/methods", "");
    let listed: Value = serde_json::from_str(&listed).expect("it is JSON");
    let names: Vec<&str> =
        listed["methods"].as_array().expect("a list").iter().filter_map(|m| m["name"].as_str()).collect();
    assert_eq!((status, names), (200, vec!["notes.echo", "notes.fail"]));
    let (status, one) = request_text(&space, "GET", "/api/methods/notes.echo", "");
    assert!(status == 200 && one.contains("provider_count"), "{one}");
    assert_eq!(send_request(&space, "GET", "/api/methods/notes.none", "").0, 404);
    let call = |body: &str| request_text(&space, "POST", "/api/methods/call", body);
    let request = r#"{"jsonrpc":"2.0","method":"notes.echo","params":{"n":12345678901234567890},"id":"x"}"#;
    assert_eq!(call(request), (200, r#"{"jsonrpc":"2.0","result":{"n": 12345678901234567890},"id":"x"}"#.to_owned()));
    let batch = format!("[{request},{}]", request.replace("\"x\"", "2").replace("echo", "none"));
    let (_, answers) = call(&batch);
    let answers: Value = serde_json::from_str(&answers).expect("it is JSON");
    assert_eq!((&answers[0]["id"], &answers[1]["error"]["code"]), (&json!("x"), &json!(-32601)));
    assert_eq!(call(&request.replace(",\"id\":\"x\"", "")), (204, String::new()));
    assert!(call("{").1.contains("-32700"));
    for (method, path) in
        [("POST", "/api/methods"), ("GET", "/api/methods/call"), ("DELETE", "/api/methods/notes.echo")]
    {
        assert_eq!(send_request(&space, method, path, "{}").0, 405, "{method} {path}");
    }
    assert_eq!(send_request(&space, "GET", "/api/spaces", "").0, 404, "nothing else is passed on");
}

#[test]
fn without_a_server_the_agent_forwards_nothing() {
    let (mut daemon, space) = space_with_methods();
    daemon.kill();
    let refused = eventually("the link to be seen as lost", || {
        let (status, text) = request_text(&space, "GET", "/api/methods", "");
        (status == 503).then_some(text)
    });
    assert!(refused.contains("not_connected"), "{refused}");
}

#[test]
fn python_in_a_space_calls_methods_and_emits_events() {
    let (daemon, space) = space_with_methods();
    let output = python(
        &space,
        r#"
import svc
print(svc.client.call("notes.echo", {"n": 1}), [method["name"] for method in svc.client.list()])
print(svc.client.get("notes.echo")["owner"])
try:
    svc.client.call("notes.fail", {"x": 1})
except svc.CallError as error:
    print(error.code, error, error.data)
print([getattr(answer, "code", answer) for answer in svc.client.batch([("notes.echo", {}), ("notes.none", None)])])
svc.client.notify("notes.echo")
print(svc.event.emit("deploy.done", {"version": "1.2"}))
"#,
    );
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(
        &lines[..4],
        ["{'n': 1} ['notes.echo', 'notes.fail']", "admin", "-1234 as you wish {'x': 1}", "[{}, -32601]"]
    );
    let event = eventually("the event to reach the server", || {
        let reply = daemon.get(&format!("/api/events/{}", lines[4]));
        (reply.status == 200).then(|| reply.json())
    });
    assert_eq!((&event["type"], &event["data"]["version"]), (&json!("custom.deploy.done"), &json!("1.2")), "{event}");
}

#[test]
fn a_registration_script_registers_and_unregisters_methods() {
    let (daemon, space) = space_with_methods();
    std::fs::copy("tests/fixtures/methods/echo.py", space.directory().join("echo.py")).expect("there is room");
    let register = |text: &str| {
        let path = space.write("methods.py", text);
        let output = space.svc(&["methods", "register", path.to_str().expect("it is text")]);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), format!("{out}{err}"))
    };
    let head = "from svc.methods import Server\nserver = Server('python3', args=['echo.py'])\n";
    let methods = "for name in ('echo', 'add', 'pid'):\n    server.method('{{space}}.' + name, name, 'Does it')\n";
    let (code, message) =
        register(&format!("{head}{methods}print('here')\nserver.register()\nserver.unregister('pid')"));
    assert_eq!(
        (code, message.as_str()),
        (Some(0), "here\nregistered 2 methods: notes.echo, notes.add\nremoved 1 method: notes.pid\n")
    );
    assert_eq!(daemon.call("notes.add", &json!({"a": 1, "b": 2}))["result"], 3);
    assert_eq!(daemon.get("/api/methods/notes.pid").status, 404);
    let (code, message) = register("import svc\n\nraise RuntimeError('no luck')");
    assert_eq!(code, Some(1));
    assert!(message.contains("methods.py\", line 3") && message.contains("RuntimeError: no luck"), "{message}");
    assert_eq!(daemon.call("notes.add", &json!({"a": 1, "b": 2}))["result"], 3, "it changed nothing");
    let (code, message) =
        register(&format!("{head}server.method('a', 'a', 'A', groups=['nobody'])\nserver.register()"));
    assert_eq!(code, Some(1));
    assert!(message.contains("line 4") && message.contains("`methods[0].groups[0]`"), "{message}");
}

#[test]
fn without_python_its_scripts_are_refused_and_lua_still_works() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    // Only the programs that the test needs are on the path.
    let bare = space.directory().join("bare");
    std::fs::create_dir(&bare).expect("there is room");
    std::os::unix::fs::symlink("/bin/sh", bare.join("sh")).expect("there is room");
    let mut command = space.agent_command(&daemon.url, &[]);
    command.env("PATH", &bare);
    space.launch_as(command);
    space.wait_linked(&daemon);
    let register = |name: &str, text: &str| {
        let path = space.write(name, text);
        let output = space.svc(&["methods", "register", path.to_str().expect("it is text")]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, message) = register("methods.py", "import svc");
    assert_eq!(code, Some(1));
    assert!(message.contains("methods.py needs python3") && message.lines().count() == 1, "{message}");
    let lua = "local server = require('svc.methods').Server('sh', { args = { '-c', 'while read -r x; do :; done' } })\n\
               server:method { name = 'a', local_name = 'a', description = 'A' }\nserver:register()";
    assert_eq!(register("methods.lua", lua), (Some(0), String::new()));
}

/// Runs Lua in the space and returns its output or error.
fn lua(space: &Space, arguments: &[&str], source: &str) -> String {
    space.write("use.lua", source);
    let output = space.svc(&[&["run"], arguments, &["use.lua"]].concat());
    String::from_utf8([output.stdout, output.stderr].concat()).expect("it is text")
}

#[test]
fn programs_of_a_space_share_one_key_value_store() {
    let (_daemon, mut space) = space_with_methods();
    let run = |source: &str| lua(&space, &[], source);
    assert_eq!(run("kv.set('a', { n = 1, list = json.array() }) print(kv.get('b'), kv.increment('n'))"), "nil\t1\n");
    assert_eq!(
        run("print(json.encode(kv.get('a')), kv.increment('n', 5, 60), kv.add('a', 1))"),
        "{\"list\":[],\"n\":1}\t6\tfalse\n"
    );
    assert_eq!(
        run("print(kv.add('once', 1, 0), kv.get('once'), kv.add('once', 2), kv.get('once'))"),
        "true\tnil\ttrue\t2\n"
    );
    assert_eq!(run("print(kv.delete('once'), kv.delete('once'))"), "true\tfalse\n");
    assert_eq!(lua(&space, &["--sandbox"], "print(fs, kv.get('n'))"), "nil\t6\n");
    let keys = "for _, key in { '', '.', '..', 'a/b', 'a b+c', '%2e', '?&=#', '\\0\\n', 'ä' } do
            kv.set(key, key) assert(kv.get(key) == key and kv.delete(key), key) end print('all')";
    assert_eq!(run(keys), "all\n");
    let big = "kv.set('big', json.decode('9007199254740993')) print(json.encode(kv.get('big')), kv.get('a').none)";
    assert_eq!(run(big), "9007199254740993\tnil\n");
    for (source, error) in [
        ("kv.increment('a')", "kv.increment: the value under `a` is no integer, or would grow past 2^53"),
        ("kv.get(('k'):rep(300))", "kv.get: a key has at most 256 bytes; this one has 300"),
        ("kv.set('a', ('v'):rep(1000000))", "kv.set: a value has at most 65536 bytes of JSON; this one has 1000002"),
        ("kv.set('a', nil)", "kv.set: the value is nil: use kv.delete"),
    ] {
        assert_eq!(run(source), format!("svc: use.lua:1: {error}\n"));
    }
    // A set-up script shares the same store.
    let setup = space.write("methods.lua", "print(kv.get('n') .. ' ' .. kv.increment('n')) error('enough')");
    let output = space.svc(&["methods", "register", setup.to_str().expect("it is text")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("6 7"), "{output:?}");
    space.kill();
    let gone = lua(&space, &[], "kv.get('n')");
    assert!(gone.starts_with("svc: use.lua:1: kv.get: cannot reach the agent at http://127.0.0.1:"), "{gone}");
    space.launch("http://127.0.0.1:1", &[]);
    assert_eq!(lua(&space, &[], "print(kv.get('n'))"), "7\n", "it outlives the agent, and needs no server");
}

#[test]
fn a_program_unregisters_a_method_whatever_characters_its_local_name_has() {
    let (daemon, space) = space_with_methods();
    let source =
        "local server = require('svc.methods').Server('sh', { args = { '-c', 'while read -r x; do :; done' } })
        local names = { 'my method', 'a+b', '100%', 'a/b?c#d', 'ä', 'last' }
        for at, name in ipairs(names) do
            server:method { name = 'm' .. at, local_name = name, description = 'A method' }
        end
        server:register()
        for at = 1, #names - 1 do print(table.concat(server:unregister(names[at]), ' ')) end";
    assert_eq!(lua(&space, &[], source), "m1\nm2\nm3\nm4\nm5\n");
    let listed = daemon.get("/api/methods").json();
    assert_eq!(listed["methods"].as_array().map(Vec::len), Some(1), "{listed}");
}

/// Stores a script and returns its id.
fn store(daemon: &Daemon, script: &Value) -> Value {
    let reply = daemon.post("/api/scripts", script);
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.json()["id"].clone()
}

#[test]
fn a_startup_script_prepares_a_space_with_the_libraries_of_its_owner() {
    let daemon = Daemon::start();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/methods/echo.py");
    let library = format!("return {{ args = {{ '{fixture}' }} }}");
    store(&daemon, &json!({"name": "acme.echo", "kind": "library", "content": library}));
    let content = r#"
        local methods = require "svc.methods"
        local server = methods.Server("python3", { args = require("acme.echo").args })
        server:method { name = "{{space}}.echo", local_name = "echo", description = "Echoes" }
        server:register()
        svc.event.emit("set.up", svc.client.call("box.echo", { n = #svc.client.list() }))
        print("all is set up")
    "#;
    let script = store(&daemon, &json!({"name": "set-up", "content": content}));
    let fields = json!({"name": "box", "startup_script_id": script});
    let mut space = Space::create_with(&daemon, &daemon.admin_token(), fields);
    space.start(&daemon, &[]);
    daemon.wait_method("box.echo");
    eventually("the script to end", || space.log().contains("the startup script `set-up` has ended").then_some(()));
    assert!(space.log().contains("set-up: all is set up"), "{}", space.log());
    // The agent delivers the event by itself.
    let event = eventually("the event to reach the server", || {
        let events = daemon.get("/api/events?pattern=custom.set.up").json();
        events["items"].get(0).cloned()
    });
    assert_eq!(event["data"], json!({"n": 1}), "{event}");
}

#[test]
fn a_startup_script_that_fails_is_logged_with_its_line_and_the_agent_continues() {
    let daemon = Daemon::start();
    let script = store(&daemon, &json!({"name": "set-up", "content": "\nlocal x = nil .. 'x'"}));
    let fields = json!({"name": "box", "startup_script_id": script});
    let mut space = Space::create_with(&daemon, &daemon.admin_token(), fields);
    space.start(&daemon, &[]);
    eventually("the failure to be logged", || space.log().contains("set-up:2: ").then_some(()));
    space.register(&registration("echo.py", "", &[("box.echo", "")]));
    assert_eq!(daemon.call("box.echo", &json!({"n": 1}))["result"], json!({"n": 1}));
}

#[test]
fn a_changed_library_takes_effect_in_a_running_method_server() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "notes");
    space.start(&daemon, &[]);
    let content = |version: &str| format!("return {{ version = function() return '{version}' end }}");
    let library = store(&daemon, &json!({"name": "acme.text", "kind": "library", "content": content("one")}));
    space.write("handlers.lua", "return { version = function() return require('acme.text').version() end }");
    let setup =
        "runtime.jsonrpc.method('version', 'handlers.version') runtime.jsonrpc.method('direct', 'acme.text.version')";
    space.write("setup.lua", setup);
    // The set-up script names a function of the library, which must exist.
    eventually("the library to arrive", || {
        lua(&space, &[], "print(require('acme.text').version())").eq("one\n").then_some(())
    });
    let method = |name: &str| {
        format!("[[methods]]\nname = \"{{{{space}}}}.{name}\"\nlocal_name = \"{name}\"\ndescription = \"Tells\"\n")
    };
    let server = "[server]\ncommand = \"svc\"\nargs = [\"run\", \"--json-rpc\", \"setup.lua\"]\n";
    space.register(&format!("{server}{}{}", method("version"), method("direct")));
    let answers = |expected: &str| {
        let both = ["notes.version", "notes.direct"].map(|name| daemon.call(name, &json!({}))["result"].clone());
        (both == [json!(expected), json!(expected)]).then_some(())
    };
    eventually("the first answers", || answers("one"));
    let started = || space.log().matches("the method server of space notes runs as process").count();
    let before = started();
    let path = format!("/api/scripts/{}", library.as_str().expect("an id is text"));
    assert_eq!(daemon.patch(&path, &json!({"content": content("two")})).status, 200);
    eventually("answers of the new library", || answers("two"));
    assert_eq!(daemon.delete(&path).status, 204);
    eventually("it to be gone", || {
        let error = daemon.call("notes.version", &json!({}))["error"]["message"].clone();
        error.as_str().is_some_and(|error| error.contains("no module named `acme.text`")).then_some(())
    });
    assert_eq!(started(), before, "it was never started anew");
}

#[test]
fn a_changed_library_takes_effect_in_python_imports_of_a_space() {
    let (daemon, space) = space_with_methods();
    let tag = || {
        let request = Request::get(format!("{}/packages/user-libraries.zip", space.url)).body(());
        let answer = request.expect("the request is well-formed").send().expect("the agent answers");
        answer.headers()["etag"].to_str().expect("it is text").to_owned()
    };
    let imported = |expected: &str| {
        let (status, zip) = send_request(&space, "GET", "/packages/user-libraries.zip", "");
        assert_eq!(status, 200);
        let archive = space.directory().join("user.zip");
        std::fs::write(&archive, zip).expect("there is room");
        let import = "import sys; sys.path.insert(0, sys.argv[1]); import acme.text; print(acme.text.name)";
        let output = Command::new("python3").args(["-c", import]).arg(archive).output().expect("python3 runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?}");
    };
    let before = tag();
    let fields = json!({"name": "acme.text", "kind": "library", "language": "python", "content": "name = 'old'"});
    let library = store(&daemon, &fields);
    let first = eventually("the library to arrive", || Some(tag()).filter(|tag| *tag != before));
    imported("old");
    let path = format!("/api/scripts/{}", library.as_str().expect("an id is text"));
    assert_eq!(daemon.patch(&path, &json!({"content": "name = 'new'"})).status, 200);
    eventually("the change to arrive", || (tag() != first).then_some(()));
    imported("new");
    assert_eq!(daemon.delete(&path).status, 204);
    eventually("it to be gone", || (tag() == before).then_some(()));
}
