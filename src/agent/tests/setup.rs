//! Tests of set-up scripts in Python and Lua, and of the libraries that they load.

use super::support::{LinkedAgent, RunningAgent, ScriptedServer, settings, soon};
use crate::{
    agent::AgentSettings,
    model::{
        agent_protocol::{CallReply, ToAgent},
        library::{Language, Library, LibraryName},
    },
};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};

/// A Python script around this body, whose server is the fixtures' echo server.
fn script(body: &str) -> String {
    format!("from svc.methods import Server, schema as s\nserver = Server('python3', args=['echo.py'])\n{body}\n")
}

fn echo(name: &str) -> String {
    format!("server.method('{{{{space}}}}.{name}', '{name}', 'Does it')\n")
}

/// Writes a script beside a copy of the echo server.
fn file(scratch: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/methods/echo.py");
    std::fs::copy(fixture, scratch.path().join("echo.py")).unwrap();
    let path = scratch.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn running(scratch: &tempfile::TempDir, server: &ScriptedServer) -> (RunningAgent, LinkedAgent) {
    let agent = RunningAgent::start(settings(scratch, &[server])).await;
    let linked = server.welcome_idle().await;
    (agent, linked)
}

async fn register(agent: &RunningAgent, scratch: &tempfile::TempDir, name: &str, text: &str) -> (u16, Value) {
    let path = file(scratch, name, text);
    agent.post("/methods", &json!({ "path": path, "source": text }).to_string()).await
}

/// A Lua script around this body.
fn lua(body: &str) -> String {
    let head = "local methods = require 'svc.methods'\nlocal s = require 'svc.methods.schema'\n";
    format!("{head}local server = methods.Server('python3', {{ args = {{ 'echo.py' }} }})\n{body}\n")
}

fn lua_echo(name: &str) -> String {
    format!("server:method {{ name = '{{{{space}}}}.{name}', local_name = '{name}', description = 'Does it' }}\n")
}

fn message(answer: &(u16, Value)) -> &str {
    answer.1["error"]["message"].as_str().unwrap_or_default()
}

fn library(name: &str, language: Language, source: &str) -> Library {
    Library { name: LibraryName::parse(name).unwrap(), language, source: source.to_owned() }
}

/// Sends changed libraries, and returns the tag of the package that the agent has made of them.
async fn send_libraries(agent: &RunningAgent, linked: &mut LinkedAgent, libraries: Vec<Library>) -> String {
    let (_, before) = agent.head("/packages/user-libraries.zip", "").await;
    linked.send(ToAgent::Libraries(libraries)).await;
    let changed = async {
        loop {
            let (status, tag) = agent.head("/packages/user-libraries.zip", "").await;
            assert_eq!(status, 200);
            if tag != before {
                return tag;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("a new package", changed).await
}

#[tokio::test]
async fn a_python_file_registers_what_it_builds_and_its_output_is_returned() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = script(&format!("{}print('registered', server.register())", echo("directory")));
    let (answer, (generation, names)) =
        tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
    assert_eq!(names, ["directory"]);
    let methods = json!([{ "name": "notes.directory", "local_name": "directory" }]);
    assert_eq!(answer, (200, json!({ "methods": methods, "output": "registered ['notes.directory']\n" })));
    let CallReply::Result(directory) = linked.answer(generation, "directory", json!({})).await else {
        panic!("a result")
    };
    assert_eq!(directory.get(), json!(scratch.path().canonicalize().unwrap()).to_string());
    let status = agent.status(|_| true).await;
    assert_eq!(status["registration"]["path"], json!(scratch.path().join("methods.py")));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_script_that_fails_is_an_error_with_its_line_and_changes_nothing() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, linked) = running(&scratch, &server).await;
    for (body, parts) in [
        ("server.method(", &["methods.py\", line 3", "SyntaxError"][..]),
        ("s.string(min_len=1)", &["line 3", "min_len"]),
        ("server.method('a', 'a', 'A', params=s.object(x=5))", &["line 3", "`x`", "needs a schema"]),
        ("\n\nserver.register()", &["line 5", "`methods`: there must be at least one"]),
        ("server.method('user.a', 'a', 'A')\nserver.register()", &["line 4", "`methods[0].name`", "reserved"]),
        ("raise SystemExit(3)", &["exited with status 3"]),
        ("print('hello')\nraise SystemExit(3)", &["exited with status 3\nit had printed:\nhello"]),
        ("print('hello')\n1 / 0", &["ZeroDivisionError: division by zero\nit had printed:\nhello"]),
        ("print('hello')", &["ended without registering", "\nit had printed:\nhello"]),
    ] {
        let answer = register(&agent, &scratch, "methods.py", &script(body)).await;
        assert_eq!(answer.0, 400, "{body}: {answer:?}");
        for part in parts {
            assert!(message(&answer).contains(part), "{body}: {part}: {}", message(&answer));
        }
    }
    assert_eq!(agent.get("/status").await.1["registration"], Value::Null);
    agent.stop(linked).await;
}

#[tokio::test]
async fn the_registration_of_a_script_that_fails_later_is_undone() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = script(&format!("{}server.register()\n1 / 0", echo("echo")));
    let undone = async {
        assert_eq!(linked.expect_register().await.1, ["echo"]);
        linked.expect_unregister().await;
    };
    let (answer, ()) = tokio::join!(register(&agent, &scratch, "methods.py", &text), undone);
    assert!(answer.0 == 400 && message(&answer).contains("ZeroDivisionError"), "{answer:?}");
    assert_eq!(agent.get("/status").await.1["registration"], Value::Null);
    let good = script(&format!("{}server.register()", echo("directory")));
    let (answer, _) = tokio::join!(register(&agent, &scratch, "good.py", &good), linked.expect_register());
    assert_eq!(answer.0, 200, "{answer:?}");
    let text = lua(&format!("{}server:register()\nerror('no')", lua_echo("echo")));
    let undone = async {
        assert_eq!(linked.expect_register().await.1, ["echo"]);
        linked.expect_register().await
    };
    let (answer, (generation, names)) = tokio::join!(register(&agent, &scratch, "methods.lua", &text), undone);
    assert_eq!((answer.0, names), (400, vec!["directory".to_owned()]), "{:?}", answer.1);
    assert!(matches!(linked.answer(generation, "directory", json!({})).await, CallReply::Result(_)));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_script_that_only_unregisters_reports_the_removed_methods() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = script(&format!("{}server.register()", echo("echo")));
    let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
    assert_eq!(answer.0, 200, "{answer:?}");
    let text = script("server.unregister()");
    let (answer, _) = tokio::join!(register(&agent, &scratch, "gone.py", &text), linked.expect_unregister());
    let removed = json!([{ "name": "notes.echo", "local_name": "echo" }]);
    assert_eq!(answer, (200, json!({ "methods": [], "removed": removed, "output": "" })));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_registration_by_another_caller_is_not_counted_as_the_scripts() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    // A caller without the script's token is another caller.
    let other = "import os\nos.environ.pop('SVC_SETUP')\n";
    for (end, part) in [("", "ended without registering"), ("\n1 / 0", "ZeroDivisionError")] {
        let text = script(&format!("{other}{}server.register(){end}", echo("echo")));
        let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
        assert!(answer.0 == 400 && message(&answer).contains(part), "{answer:?}");
        assert_eq!(agent.get("/status").await.1["registration"]["methods"][0]["name"], "notes.echo");
    }
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_script_that_does_not_end_is_killed() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let settings = AgentSettings { setup_timeout: Duration::from_millis(300), ..settings(&scratch, &[&server]) };
    let agent = RunningAgent::start(settings).await;
    let linked = server.welcome_idle().await;
    let answer = register(&agent, &scratch, "methods.py", "import time\ntime.sleep(600)\n").await;
    assert_eq!(answer.0, 400);
    assert!(message(&answer).contains("`agent.setup_timeout`"), "{answer:?}");
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_script_is_not_run_without_a_link_or_with_a_relative_path() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let text = script("open('ran', 'w')");
    let answer = register(&agent, &scratch, "methods.py", &text).await;
    assert_eq!((answer.0, &answer.1["error"]["code"]), (503, &json!("not_connected")));
    assert!(!scratch.path().join("ran").exists());
    for (path, part) in [("methods.py", "whole path"), ("/methods.rb", ".toml, .lua or .py"), ("/methods", ".toml")] {
        let answer = agent.post("/methods", &json!({ "path": path, "source": "" }).to_string()).await;
        assert_eq!(answer.0, 400);
        assert!(message(&answer).contains(part), "{path}: {answer:?}");
    }
    agent.stop(()).await;
}

#[tokio::test]
async fn a_registration_built_by_a_program_is_checked_like_a_file() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    file(&scratch, "unused", "");
    let method = json!({ "name": "{{space}}.echo", "local_name": "echo", "description": "Does it" });
    let registration = json!({ "server": { "command": "python3", "args": ["echo.py"] }, "methods": [method] });
    let body = json!({ "directory": scratch.path(), "registration": registration }).to_string();
    let (answer, _) = tokio::join!(agent.post("/methods", &body), linked.expect_register());
    assert_eq!(answer, (200, json!({ "methods": [{ "name": "notes.echo", "local_name": "echo" }] })));
    for (body, part) in [
        (json!({ "directory": "here", "registration": registration }), "whole path"),
        (json!({ "directory": "/", "registration": { "server": { "command": 5 } } }), "`server.command`"),
        (json!({ "directory": "/" }), "`registration`"),
        (json!({ "path": "/a.toml", "registration": registration }), "`directory`"),
        (json!({ "directory": "/", "registration": registration, "port": 1 }), "`port`"),
        (json!({}), "`path`"),
    ] {
        let answer = agent.post("/methods", &body.to_string()).await;
        assert_eq!(answer.0, 400, "{body}");
        assert!(message(&answer).contains(part), "{body}: {answer:?}");
    }
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_methods_file_may_be_a_script() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let methods_file = Some(file(&scratch, "methods.py", &script(&format!("{}server.register()", echo("echo")))));
    let agent = RunningAgent::start(AgentSettings { methods_file, ..settings(&scratch, &[&server]) }).await;
    let mut linked = server.welcome().await;
    assert_eq!(linked.expect_register().await.1, ["echo"]);
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_methods_file_that_fails_leaves_the_agent_serving_what_it_had() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = script(&format!("{}server.register()", echo("echo")));
    let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
    assert_eq!(answer.0, 200, "{}", answer.1);
    agent.stop(linked).await;
    let methods_file = Some(file(&scratch, "wrong.py", "1 / 0"));
    let agent = RunningAgent::start(AgentSettings { methods_file, ..settings(&scratch, &[&server]) }).await;
    let mut linked = server.welcome().await;
    assert_eq!(linked.expect_register().await.1, ["echo"]);
    agent.stop(linked).await;
}

#[tokio::test]
async fn libraries_are_served_with_a_tag_imported_and_kept() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let libraries = vec![
        library("acme.text", Language::Python, "def shout(text):\n    return text.upper()\n"),
        library("acme.text", Language::Lua, "return {}"),
    ];
    let tag = send_libraries(&agent, &mut linked, libraries).await;
    let known = format!("If-None-Match: {tag}\r\n");
    assert_eq!(agent.head("/packages/user-libraries.zip", &known).await, (304, tag.clone()));
    assert_eq!(agent.head("/packages/user-libraries.zip", "If-None-Match: \"x\"\r\n").await, (200, tag.clone()));
    let text = script(&format!("from acme.text import shout\nprint(shout('a'))\n{}server.register()", echo("echo")));
    let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
    assert_eq!(answer.1["output"], "A\n", "{answer:?}");
    agent.stop(linked).await;
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    assert_eq!(agent.head("/packages/user-libraries.zip", "").await, (200, tag), "they outlive a restart");
    assert_eq!(agent.head("/packages/svc-libraries.zip", "").await.0, 200);
    assert_eq!(agent.head("/packages/other.zip", "").await.0, 404);
    agent.stop(()).await;
}

#[tokio::test]
async fn a_library_that_would_shadow_a_python_module_is_left_out() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let libraries = vec![
        library("urllib", Language::Python, "raise RuntimeError('hidden')"),
        library("acme", Language::Python, "version = 1"),
    ];
    send_libraries(&agent, &mut linked, libraries).await;
    let text = script(&format!("import acme\nprint(acme.version)\n{}server.register()", echo("echo")));
    let (answer, (generation, _)) =
        tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
    assert_eq!(answer.1["output"], "1\n", "{answer:?}");
    assert!(matches!(linked.answer(generation, "echo", json!({})).await, CallReply::Result(_)));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_process_that_starts_later_imports_the_newer_library_and_finds_its_own_path_first() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = script(&format!("from acme import version\nprint(version)\n{}server.register()", echo("echo")));
    for version in 1..=20 {
        let source = format!("version = {version}");
        send_libraries(&agent, &mut linked, vec![library("acme", Language::Python, &source)]).await;
    }
    let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.py", &text), linked.expect_register());
    assert_eq!(answer.1["output"], "20\n", "{answer:?}");
    let archives = std::fs::read_dir(scratch.path().join("packages")).unwrap().count();
    assert!(archives <= 17, "{archives} archives");
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_lua_file_registers_what_it_builds_and_its_output_is_returned() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = lua(&format!("{}print('registered', unpack(server:register()))", lua_echo("directory")));
    let (answer, (generation, names)) =
        tokio::join!(register(&agent, &scratch, "methods.lua", &text), linked.expect_register());
    assert_eq!(names, ["directory"]);
    let methods = json!([{ "name": "notes.directory", "local_name": "directory" }]);
    assert_eq!(answer, (200, json!({ "methods": methods, "output": "registered\tnotes.directory\n" })));
    let CallReply::Result(directory) = linked.answer(generation, "directory", json!({})).await else {
        panic!("a result")
    };
    assert_eq!(directory.get(), json!(scratch.path().canonicalize().unwrap()).to_string());
    let status = agent.status(|_| true).await;
    assert_eq!(status["registration"]["path"], json!(scratch.path().join("methods.lua")));
    agent.stop(linked).await;
}

#[tokio::test]
async fn an_empty_list_in_lua_is_a_list_where_only_a_list_can_be() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    for (schema, field, wanted) in [
        ("s.array(s.string(), { default = {} })", "default", json!([])),
        ("s.string { enum = {} }", "enum", json!([])),
        ("s.object { default = {} }", "default", json!({})),
    ] {
        let method = format!(
            "server:method {{ name = 'a', local_name = 'a', description = 'A', params = {schema} }}\nserver:register()"
        );
        let text = lua(&method);
        let registering = register(&agent, &scratch, "methods.lua", &text);
        let heard = async { tokio::time::timeout(Duration::from_secs(10), linked.expect_whole_register()).await };
        let (answer, heard) = tokio::join!(registering, heard);
        assert_eq!(answer.0, 200, "{schema}: {}", answer.1);
        let params = heard.unwrap().methods.remove(0).params_schema.unwrap();
        assert_eq!(params[field], wanted, "{schema}");
    }
    agent.stop(linked).await;
}

#[tokio::test]
async fn misuse_in_lua_is_an_error_on_the_line_of_the_script() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, linked) = running(&scratch, &server).await;
    let method =
        |fields: &str| format!("server:method {{ name = 'a', local_name = 'a', description = 'A', {fields} }}");
    for (body, line, part) in [
        ("server:method(".to_owned(), 0, "line 5: "),
        ("s.string { min_len = 1 }".to_owned(), 4, "`min_len` is no keyword of s.string"),
        ("s.boolean { minimum = 1 }".to_owned(), 4, "`minimum` is no keyword of s.boolean"),
        ("\ns.string { min_length = '1' }".to_owned(), 5, "`min_length` is a whole number from 0, not \"1\""),
        ("s.string { max_length = -1 }".to_owned(), 4, "`max_length`"),
        ("s.number { minimum = 0/0 }".to_owned(), 4, "`minimum` is a number"),
        ("s.string { pattern = 5 }".to_owned(), 4, "`pattern` is a string, not 5"),
        ("s.string { enum = 'ab' }".to_owned(), 4, "`enum` is a list"),
        ("s.string { extra = { 'title' } }".to_owned(), 4, "`extra` is a table of JSON Schema keywords"),
        ("s.string 'x'".to_owned(), 4, "s.string takes a table of keywords"),
        ("s.array('string')".to_owned(), 4, "`items` is a schema, not \"string\""),
        ("s.array(s.optional(s.null()))".to_owned(), 4, "`items` cannot be optional"),
        ("s.array()".to_owned(), 4, "`items` is a schema, not a nil"),
        ("s.object { min_items = 1 }".to_owned(), 4, "`min_items` is no keyword of s.object"),
        ("s.object { additional_properties = 1 }".to_owned(), 4, "`additional_properties`"),
        ("s.object { s.string() }".to_owned(), 4, "needs a name"),
        ("s.object(s.string())".to_owned(), 4, "s.object takes a table of properties"),
        ("s.optional(5)".to_owned(), 4, "`schema` is a schema, not 5"),
        (method("keyword = {}"), 4, "`keyword` is nothing that a method has"),
        (method("keywords = 'k'"), 4, "`keywords` is a list of strings, not k"),
        (method("groups = { 1 }"), 4, "`groups` is a list of strings"),
        (method("mcp_tool = 'yes'"), 4, "`mcp_tool` is true or false"),
        (method("params = 'object'"), 4, "`params` is a schema, not a string"),
        (method("result = s.optional(s.null())"), 4, "`result` cannot be optional"),
        ("server:method { name = 'a', local_name = 'a' }".to_owned(), 4, "a method needs a `description`"),
        ("methods.Server(5)".to_owned(), 4, "`command` is a string"),
        ("methods.server('x')".to_owned(), 4, "svc.methods has no `server`: it has Server, schema"),
        ("server:regster()".to_owned(), 4, "a server has no `regster`: it has method, register, unregister"),
        (
            "methods.schema.str()".to_owned(),
            4,
            "svc.methods.schema has no `str`: it has array, boolean, integer, null, number, object, optional, string",
        ),
        ("methods.Server('x', { timeout = 1.5 })".to_owned(), 4, "`timeout` is a whole number, not 1.5"),
        ("methods.Server('x', { port = 1 })".to_owned(), 4, "`port` is nothing that a server has"),
        ("\n\nserver:register()".to_owned(), 6, "`methods`: there must be at least one"),
        (format!("{}\nserver:register()", method("scope = 'some'")), 5, "`methods[0].scope`: unknown variant"),
        (format!("{}\nserver:register()", method("params = { type = 'text' }")), 5, "`methods[0].params_schema`: at"),
        ("server:unregister('none')".to_owned(), 4, "no method with the local name `none`"),
        ("error('on purpose')".to_owned(), 4, "on purpose"),
        ("local x = nil + 1".to_owned(), 4, "arithmetic"),
        ("require 'none'".to_owned(), 4, "no module named `none`"),
        ("print('hello')".to_owned(), 0, "ended without registering"),
    ] {
        let answer = register(&agent, &scratch, "methods.lua", &lua(&body)).await;
        assert_eq!(answer.0, 400, "{body}: {answer:?}");
        let told = message(&answer);
        assert!(told.contains(part), "{body}: {told}");
        assert!(line == 0 || told.contains(&format!("failed: methods.lua:{line}: ")), "{body}: {told}");
    }
    assert_eq!(agent.get("/status").await.1["registration"], Value::Null);
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_lua_script_that_does_not_end_is_stopped() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let settings = AgentSettings { setup_timeout: Duration::from_millis(300), ..settings(&scratch, &[&server]) };
    let agent = RunningAgent::start(settings).await;
    let linked = server.welcome_idle().await;
    for body in ["while true do end", "time.sleep(600)", "process.run { cmd = 'sleep', args = { '600' } }"] {
        let answer = register(&agent, &scratch, "methods.lua", &format!("\n{body}")).await;
        assert_eq!(answer.0, 400, "{body}");
        assert!(message(&answer).contains("failed: methods.lua:2: it "), "{body}: {answer:?}");
    }
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_lua_script_sets_things_up_with_files_processes_events_and_modules() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    file(&scratch, "names.lua", "return { beside = 'beside' }");
    let text = library("acme.text", Language::Lua, "return { name = 'from the server' }");
    send_libraries(&agent, &mut linked, vec![text]).await;
    let text = lua(&format!(
        "fs.write('made.txt', process.run {{ cmd = 'echo', args = {{ os.getenv('SVC_AGENT_URL') }} }}.stdout)\n\
         assert(os.getenv('SVC_AGENT_TOKEN') == nil)\n\
         svc.event.emit('set.up', {{ by = require('names').beside }})\n\
         print(require('acme.text').name)\n{}server:register()",
        lua_echo("echo")
    ));
    let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.lua", &text), linked.expect_register());
    assert_eq!((answer.0, &answer.1["output"]), (200, &json!("from the server\n")), "{answer:?}");
    let (_, kind, payload) = linked.receive_event().await;
    assert_eq!((kind.as_str(), payload), ("set.up", json!({ "by": "beside" })));
    let made = std::fs::read_to_string(scratch.path().join("made.txt")).unwrap();
    assert_eq!(made, format!("http://{}\n", agent.address));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_startup_script_runs_once_and_the_methods_file_after_it() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let methods_file = Some(file(&scratch, "methods.lua", &lua(&format!("{}server:register()", lua_echo("echo")))));
    let directory = scratch.path().to_owned();
    let agent = RunningAgent::start(AgentSettings { methods_file, directory, ..settings(&scratch, &[&server]) }).await;
    let script = lua(&format!("fs.append('ran.txt', 'x')\n{}server:register()", lua_echo("add")));
    let mut linked = server.welcome_to_run("set-up", &script).await;
    linked.send(ToAgent::Libraries(Vec::new())).await;
    assert_eq!(linked.expect_register().await.1, ["add"]);
    assert_eq!(linked.expect_register().await.1, ["echo"]);
    drop(linked);
    let mut linked = server.welcome_to_run("set-up", &script).await;
    assert_eq!(linked.expect_register().await.1, ["echo"]);
    assert_eq!(std::fs::read_to_string(scratch.path().join("ran.txt")).unwrap(), "x");
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_startup_script_that_fails_leaves_the_agent_serving() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let agent = RunningAgent::start(settings(&scratch, &[&server])).await;
    let mut linked = server.welcome_to_run("set-up", "error('no luck')").await;
    linked.send(ToAgent::Libraries(Vec::new())).await;
    linked.expect_unregister().await;
    agent.emit("a", json!({})).await;
    linked.receive_event().await;
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_startup_script_waits_for_its_libraries() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let settings = AgentSettings { directory: scratch.path().to_owned(), ..settings(&scratch, &[&server]) };
    file(&scratch, "unused", "");
    let agent = RunningAgent::start(settings).await;
    let script = lua(&format!("fs.append('ran', '')\nprint(require('acme'))\n{}server:register()", lua_echo("echo")));
    let mut linked = server.welcome_to_run("set-up", &script).await;
    // A script that waits for nothing is begun later and has ended, so that the other has had its chance.
    let later = register(&agent, &scratch, "later.lua", "error('it ran')").await;
    assert!(message(&later).contains("it ran"), "{later:?}");
    assert!(!scratch.path().join("ran").exists());
    linked.send(ToAgent::Libraries(vec![library("acme", Language::Lua, "return 'there'")])).await;
    assert_eq!(linked.expect_register().await.1, ["echo"]);
    assert!(scratch.path().join("ran").exists());
    agent.stop(linked).await;
}

#[tokio::test]
async fn the_whole_registration_is_the_same_from_every_language() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let method = "name = \"a\"\nlocal_name = \"echo\"\ndescription = \"A\"\n";
    let toml =
        |server: &str| format!("[server]\ncommand = \"python3\"\nargs = [\"echo.py\"{server}\n[[methods]]\n{method}");
    let lua = |server: &str| {
        let method = method.replace('\n', ", ");
        format!(
            "local server = require('svc.methods').Server('python3', {{ args = {{ 'echo.py'{server} }})\n\
             server:method {{ {method} }}\nserver:register()"
        )
    };
    let python = |server: &str| {
        format!(
            "from svc.methods import Server\nserver = Server('python3', args=['echo.py'{server})\n\
             server.method('a', 'echo', 'A')\nserver.register()"
        )
    };
    for [in_toml, in_lua, in_python] in [
        ["]", "}", "]"],
        [", \"-v\"]\ntimeout = 7", ", '-v' }, timeout = 7", ", '-v'], timeout=7"],
        ["]\nmode = \"serial\"", "}, mode = 'serial'", "], mode='serial'"],
        [
            "]\nmode = \"concurrent\"\ntype = \"stdio\"",
            "}, mode = 'concurrent', type = 'stdio'",
            "], mode='concurrent', type='stdio'",
        ],
    ] {
        let mut heard = Vec::new();
        for (name, text) in [("m.toml", toml(in_toml)), ("m.lua", lua(in_lua)), ("m.py", python(in_python))] {
            let registering = register(&agent, &scratch, name, &text);
            let (answer, registration) = tokio::join!(registering, linked.expect_whole_register());
            assert_eq!(answer.0, 200, "{text}: {}", answer.1);
            heard.push(registration);
        }
        assert_eq!(heard[0], heard[1], "{in_lua}");
        assert_eq!(heard[0], heard[2], "{in_python}");
    }
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_lua_script_unregisters_methods_one_by_one_and_all_at_once() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = lua(&format!(
        "{}{}server:register()\nprint(unpack(server:unregister('add')))\nprint(#server:register(), methods.schema == s)",
        lua_echo("echo"),
        lua_echo("add")
    ));
    let served = async {
        let first = linked.expect_register().await.1;
        let second = linked.expect_register().await.1;
        (first, second, linked.expect_register().await.1)
    };
    let (answer, heard) = tokio::join!(register(&agent, &scratch, "methods.lua", &text), served);
    assert_eq!((heard.0.len(), heard.1, heard.2), (2, vec!["echo".to_owned()], vec!["echo".to_owned()]));
    assert_eq!((answer.0, &answer.1["output"]), (200, &json!("notes.add\n1\ttrue\n")), "{answer:?}");
    let text = lua(&format!("{}server:register()\nprint(unpack(server:unregister()))", lua_echo("echo")));
    let served = async {
        linked.expect_register().await;
        linked.expect_unregister().await
    };
    let (answer, _) = tokio::join!(register(&agent, &scratch, "methods.lua", &text), served);
    let removed = json!([{ "name": "notes.echo", "local_name": "echo" }]);
    assert_eq!(answer, (200, json!({ "methods": [], "removed": removed, "output": "notes.echo\n" })));
    agent.stop(linked).await;
}

#[tokio::test]
async fn a_method_server_in_python_imports_the_bundled_package() {
    let (scratch, server) = (tempfile::tempdir().unwrap(), ScriptedServer::new().await);
    let (agent, mut linked) = running(&scratch, &server).await;
    let text = script(&format!("{}server.register()", echo("environment")));
    let registering = register(&agent, &scratch, "methods.py", &text);
    let (answer, (generation, _)) = tokio::join!(registering, linked.expect_register());
    assert_eq!(answer.0, 200, "{}", answer.1);
    let path = linked.answer(generation, "environment", json!(["PYTHONPATH"])).await;
    let CallReply::Result(path) = path else { panic!("{path:?}") };
    let packages = scratch.path().join("packages");
    assert!(path.get().contains(packages.join("svc-libraries.zip").to_str().unwrap()), "{path}");
    assert!(path.get().contains(packages.join("user-libraries-").to_str().unwrap()), "{path}");
    agent.stop(linked).await;
}
