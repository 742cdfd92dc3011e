//! `svc run`: Lua files of a space, run once or as a method server.

use crate::support::{Answer, Receiver, eventually};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Cursor, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

/// A temporary directory with files in it.
struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self(directory)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command
            .arg("run")
            .args(arguments)
            .current_dir(self.0.path())
            .env_remove("SVC_AGENT_URL")
            .env("GREETING", "hello");
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        exit_and_output(&self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    fn serve(&self, arguments: &[&str]) -> MethodServer {
        MethodServer::start(self.command(&[&["--json-rpc"], arguments].concat()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn exit_and_output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A running `svc run --json-rpc`.
struct MethodServer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl MethodServer {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n")).unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended");
        serde_json::from_str(&line).unwrap()
    }

    fn request(&mut self, line: &str) -> Value {
        self.send(line);
        self.line()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.request(&json!({"jsonrpc": "2.0", "method": method, "params": params, "id": 1}).to_string())
    }

    fn error(&mut self, method: &str) -> (i64, String) {
        let answer = self.call(method, &json!({}));
        (answer["error"]["code"].as_i64().unwrap(), answer["error"]["message"].as_str().unwrap().to_owned())
    }

    /// Closes stdin and returns the remaining output.
    fn end(mut self) -> (ExitStatus, Vec<Value>) {
        self.stdin = None;
        let rest = self.stdout.by_ref().lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for MethodServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const HANDLERS: &str = r#"
local M = { count = 0 }
total = 0
function M.echo(params) return params end
function M.count_up() M.count += 1 total += 1 return { M.count, total } end
function M.plain() error("no such luck") end
function M.parts() error({ code = 404, message = "no such note", data = { id = 7 } }) end
function M.loops() while true do end end
function M.grows() local t = {} while true do t[#t + 1] = { #t } end end
function M.func() return { f = print } end
function M.nan() return 0 / 0 end
function M.cycle() local t = {} t.t = t return t end
function M.waits(params) time.sleep(params.seconds) return "waited" end
function M.says() print("printed") log.warn("logged") return true end
function M.deep() return require("lib.deep").name() end
return M
"#;

const SETUP: &str = r#"
for _, name in { "echo", "count_up", "plain", "parts", "loops", "grows", "func", "nan", "cycle", "waits", "says", "deep" } do
    runtime.jsonrpc.method("notes." .. name, "handlers." .. name)
end
"#;

fn notes() -> Files {
    Files::new(&[
        ("setup.lua", SETUP),
        ("handlers.lua", HANDLERS),
        ("lib/deep.lua", "local name = ... return { name = function() return name end }"),
    ])
}

#[test]
fn a_file_is_run_with_its_arguments_and_everything_a_space_has() {
    let files = Files::new(&[
        (
            "main.lua",
            "print(#arg, arg[1], arg[2], ...)
             fs.write('made.txt', os.getenv('GREETING'))
             print(process.run{ cmd = 'cat', args = { 'made.txt' } }.stdout, require('lib.text').shout('hi'))
             log.info('to stderr')
             print(json.encode({ a = { 1 } }), type(kv))",
        ),
        ("lib/text.lua", "return { shout = string.upper }"),
    ]);
    let (code, out, err) = files.run(&["main.lua", "--help", "b=c"]);
    assert_eq!((code, err.as_str()), (0, "info: to stderr\n"));
    assert_eq!(out, "2\t--help\tb=c\t--help\tb=c\nhello\tHI\n{\"a\":[1]}\ttable\n");
    assert_eq!(std::fs::read_to_string(files.path("made.txt")).unwrap(), "hello");
}

#[test]
fn modules_are_found_beside_the_file_from_wherever_it_is_run() {
    let files = Files::new(&[
        ("app/main.lua", "require('lib').go()"),
        ("app/lib.lua", "return { go = function()\n error('here') end }"),
    ]);
    let (code, out, err) = files.run(&["app/main.lua"]);
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", "svc: app/lib.lua:2: here\n"));
}

#[test]
fn an_error_in_a_file_is_reported_with_its_line() {
    let files = Files::new(&[
        ("syntax.lua", "print(1)\nlocal x = = 2"),
        ("fails.lua", "\nerror('no')"),
        ("parts.lua", "error({ code = 5, message = 'with parts' })"),
        ("bad.lua", "\n\nrequire('syntax')"),
        ("none.lua", "require('nothing.here')"),
        ("loops.lua", "\nwhile true do end"),
        ("grows.lua", "local t = {}\nwhile true do t[#t + 1] = { #t } end"),
    ]);
    for (arguments, message) in [
        (&["syntax.lua"][..], "syntax.lua:2: Expected identifier when parsing expression, got '='"),
        (&["fails.lua"], "fails.lua:2: no"),
        (&["parts.lua"], "with parts"),
        (&["bad.lua"], "bad.lua:3: cannot load `syntax`: syntax.lua:2: Expected identifier"),
        (&["none.lua"], "none.lua:1: no module named `nothing.here` in a program"),
        (&["--timeout", "200ms", "loops.lua"], "loops.lua:2: it took longer than 200ms"),
        (&["--memory", "8MiB", "grows.lua"], "grows.lua:2: it needed more than 8MiB of memory"),
        (&["missing.lua"], "missing.lua: No such file or directory"),
    ] {
        let (code, out, err) = files.run(arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {err}");
        assert!(err.starts_with(&format!("svc: {message}")) && err.lines().count() == 1, "{arguments:?}: {err}");
    }
    assert_eq!(files.run(&["--timeout", "soon", "fails.lua"]).0, 2);
    assert_eq!(files.run(&[]).0, 2);
}

#[test]
fn in_the_sandbox_there_are_no_files_processes_or_environment() {
    let files = Files::new(&[
        ("main.lua", "print(fs, process, os, svc.client ~= nil, require('lib'))"),
        ("lib.lua", "return 5"),
        ("agent.lua", "print(rawget(svc, 'agent'), (pcall(require, 'svc.agent')))"),
        ("register.lua", "\nrequire('svc.methods').Server('sh', { args = { '-c', 'touch made' } }):register()"),
        ("unregister.lua", "\nrequire('svc.methods').Server('sh'):unregister()"),
        (
            "ask.lua",
            "for _, url in ipairs(arg) do print(pcall(http.request, { url = url, method = 'POST', json = {} })) end",
        ),
    ]);
    assert_eq!(files.run(&["--sandbox", "main.lua"]).1, "nil\tnil\tnil\ttrue\t5\n");
    assert_eq!(files.run(&["--sandbox", "agent.lua"]).1, "nil\tfalse\n");

    // Registering methods would make the agent run a command.
    let agent = Receiver::answering(|_| http_response("application/json", b"{\"methods\":[],\"removed\":[]}".to_vec()));
    let run = |arguments: &[&str]| {
        exit_and_output(&files.command(arguments).env("SVC_AGENT_URL", agent.url("")).output().unwrap())
    };
    for (file, what) in [("register.lua", "register"), ("unregister.lua", "unregister")] {
        let (code, _, err) = run(&["--sandbox", file]);
        assert_eq!((code, err), (1, format!("svc: {file}:2: {what}: --sandbox takes it away\n")));
    }
    let own = agent.url("/methods");
    let (code, out, err) = run(&["--sandbox", "ask.lua", &own, "http://10.1.2.3/", "http://[::1]:7301/methods"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.matches("false\thttp.request: ").count(), 3, "{out}");
    let closed = "loopback and private addresses and those of this machine are closed to a program with --sandbox";
    assert_eq!(out.matches(closed).count(), 3, "{out}");
    assert!(agent.received().is_empty(), "{:?}", agent.received().len());
    let (code, out, _) = run(&["ask.lua", &own]);
    assert!(code == 0 && out.starts_with("true"), "without --sandbox it may: {out}");
}

#[test]
fn each_request_is_answered_by_one_line() {
    let files = notes();
    let mut server = files.serve(&["setup.lua"]);
    let answer =
        server.request(r#"{"jsonrpc":"2.0","method":"notes.echo","params":{"n":9007199254740993,"e":[]},"id":"a"}"#);
    assert_eq!(answer.to_string(), r#"{"id":"a","jsonrpc":"2.0","result":{"e":[],"n":9007199254740993}}"#);
    assert_eq!(server.request(r#"{"jsonrpc":"2.0","method":"notes.echo","id":2}"#)["result"], json!({}));
    assert_eq!(server.request(r#"{"jsonrpc":"2.0","method":"notes.echo","params":[1],"id":2}"#)["result"], json!([1]));
    for (line, code) in [
        ("nonsense", -32700),
        ("5", -32600),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","method":5,"id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"none","id":1}"#, -32601),
    ] {
        assert_eq!(server.request(line)["error"]["code"], code, "{line}");
    }
    // Notifications and empty lines get no response, even if they fail.
    server.send(r#"{"jsonrpc":"2.0","method":"notes.echo"}"#);
    server.send(r#"{"jsonrpc":"2.0","method":"notes.plain"}"#);
    server.send(r#"[{"jsonrpc":"2.0","method":"notes.echo"}]"#);
    server.send("");
    let batch = server.request(
        r#"[{"jsonrpc":"2.0","method":"notes.waits","params":{"seconds":0.1},"id":1},
            {"jsonrpc":"2.0","method":"notes.echo"},7,{"jsonrpc":"2.0","method":"notes.echo","params":[2],"id":2}]"#
            .replace('\n', " ")
            .as_str(),
    );
    let seen: Vec<_> = batch.as_array().unwrap().iter().map(|answer| answer["id"].to_string()).collect();
    assert_eq!(seen, ["1", "null", "2"]);
    let (status, rest) = server.end();
    assert!(status.success() && rest.is_empty(), "{rest:?}");
}

#[test]
fn each_request_has_an_evaluator_of_its_own() {
    let files = notes();
    let mut server = files.serve(&["setup.lua"]);
    assert_eq!(server.call("notes.deep", &json!({}))["result"], "lib.deep");
    for _ in 0..20 {
        assert_eq!(server.call("notes.count_up", &json!({}))["result"], json!([1, 1]));
    }
}

#[test]
fn a_failed_request_names_file_line_and_cause_and_the_server_continues() {
    let files = notes();
    let mut server = files.serve(&["--timeout", "1s", "--memory", "16MiB", "setup.lua"]);
    for (method, message) in [
        ("notes.plain", "handlers.lua:6: no such luck"),
        ("notes.loops", "handlers.lua:8: it took longer than 1s"),
        ("notes.grows", "handlers.lua:9: it needed more than 16MiB of memory"),
        (
            "notes.func",
            "handlers.lua:10: the result of `handlers.func` cannot be sent: $.f is a function, which is not JSON",
        ),
        (
            "notes.nan",
            "handlers.lua:11: the result of `handlers.nan` cannot be sent: $ is not a finite number, which is not JSON",
        ),
        (
            "notes.cycle",
            "handlers.lua:12: the result of `handlers.cycle` cannot be sent: $.t contains itself, which is not JSON",
        ),
    ] {
        assert_eq!(server.error(method), (-32603, message.to_owned()));
        assert_eq!(server.call("notes.echo", &json!([1]))["result"], json!([1]));
    }
    let answer = server.call("notes.parts", &json!({}));
    assert_eq!(answer["error"], json!({"code": 404, "message": "no such note", "data": {"id": 7}}));
}

#[test]
fn requests_run_while_others_wait_and_are_answered_after_the_end_of_input() {
    let files = notes();
    let mut server = files.serve(&["--threads", "1", "setup.lua"]);
    assert_eq!(server.call("notes.echo", &json!([]))["result"], json!([]));
    let begun = Instant::now();
    for id in 0..50 {
        server
            .send(&json!({"jsonrpc": "2.0", "method": "notes.waits", "params": {"seconds": 1}, "id": id}).to_string());
    }
    assert_eq!(server.call("notes.echo", &json!([2]))["result"], json!([2]), "it comes first");
    let (status, rest) = server.end();
    assert!(status.success());
    assert_eq!(rest.len(), 50);
    assert!(rest.iter().all(|answer| answer["result"] == "waited"), "{rest:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_client_that_does_not_read_responses_is_slowed_down() {
    const REQUESTS: usize = 5_000;
    let files = notes();
    let mut server = files.serve(&["setup.lua"]);
    let mut stdin = server.stdin.take().unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let counted = written.clone();
    let writer = thread::spawn(move || {
        let text = "x".repeat(10 << 10);
        for id in 0..REQUESTS {
            let request = json!({"jsonrpc": "2.0", "method": "notes.echo", "params": {"text": text}, "id": id});
            writeln!(stdin, "{request}").unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (mut last, mut since) = (0, Instant::now());
    eventually("the writer is held up", || {
        let now = written.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (last > 0 && since.elapsed() > Duration::from_millis(500)).then_some(())
    });
    assert!(last < REQUESTS / 2, "{last} requests were taken though no answer was read");
    for _ in 0..REQUESTS {
        assert_eq!(server.line()["result"]["text"].as_str().unwrap().len(), 10 << 10);
    }
    writer.join().unwrap();
}

#[test]
fn an_overlong_line_is_refused_and_the_next_one_is_served() {
    let files = notes();
    let mut server = files.serve(&["setup.lua"]);
    let answer = server.request(&"x".repeat(17 << 20));
    assert_eq!(answer["error"]["code"], -32600);
    assert_eq!(server.call("notes.echo", &json!([1]))["result"], json!([1]));
}

#[test]
fn output_of_handlers_does_not_mix_with_responses() {
    let files = notes();
    let mut command = files.command(&["--json-rpc", "setup.lua"]);
    let mut server = MethodServer::start({
        command.stderr(Stdio::piped());
        command
    });
    let mut stderr = BufReader::new(server.child.stderr.take().unwrap());
    assert_eq!(server.call("notes.says", &json!({}))["result"], true);
    let mut said = String::new();
    stderr.read_line(&mut said).and_then(|_| stderr.read_line(&mut said)).unwrap();
    assert_eq!(said, "printed\nwarn: logged\n");
}

#[test]
fn a_set_up_script_that_fails_starts_no_server() {
    let files = Files::new(&[
        ("syntax.lua", "x ="),
        ("fails.lua", "\nerror('not today')"),
        ("nothing.lua", "print('nothing to do')"),
        ("function.lua", "\nruntime.jsonrpc.method('a', 'handlers.none')"),
        ("library.lua", "runtime.jsonrpc.method('a', 'absent.none')"),
        ("broken.lua", "runtime.jsonrpc.method('a', 'syntax.none')"),
        ("handlers.lua", "return {}"),
    ]);
    for (file, message) in [
        ("syntax.lua", "syntax.lua:1: "),
        ("fails.lua", "fails.lua:2: not today"),
        ("nothing.lua", "nothing.lua names no methods: it should call runtime.jsonrpc.method"),
        ("function.lua", "function.lua:2: runtime.jsonrpc.method: the library `handlers` has no function `none`"),
        (
            "library.lua",
            "library.lua:1: runtime.jsonrpc.method: the handler of `a` is not there: no module named `absent`",
        ),
        (
            "broken.lua",
            "broken.lua:1: runtime.jsonrpc.method: the handler of `a` is not there: cannot load `syntax`: syntax.lua:1: ",
        ),
    ] {
        let (code, out, err) = files.run(&["--json-rpc", file]);
        assert_eq!((code, out.as_str()), (1, ""), "{file}: {err}");
        assert!(err.lines().last().unwrap().starts_with(&format!("svc: {message}")), "{file}: {err}");
    }
    let once = files.run(&["function.lua"]);
    assert_eq!(once.0, 1);
}

#[test]
fn processes_started_by_process_run_end_with_the_program() {
    let files = Files::new(&[(
        "main.lua",
        "process.run{ cmd = 'sh', args = { '-c', 'echo $$ > pid; sleep 600 & echo $! > grandchild; wait' } }",
    )]);
    let mut child = files.command(&["main.lua"]).stdin(Stdio::null()).spawn().unwrap();
    let pid = |name: &str| number(&files.path(name));
    let (leader, grandchild) = eventually("both have started", || Some((pid("pid")?, pid("grandchild")?)));
    // SAFETY: `kill` has no preconditions.
    unsafe { libc::kill(child.id().try_into().unwrap(), libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(1));
    for pid in [leader, grandchild] {
        eventually("it has ended", || crate::support::ended(pid).then_some(()));
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A complete HTTP response.
fn http_response(kind: &'static str, body: Vec<u8>) -> Answer {
    Answer::Custom(Box::new(move |stream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    }))
}

#[test]
fn libraries_of_the_owner_are_loaded_from_the_agent_on_first_use() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("acme/text.lua", SimpleFileOptions::default()).unwrap();
    zip.write_all(b"return { shout = string.upper, fail = function()\n error('packed') end }").unwrap();
    let zip = zip.finish().unwrap().into_inner();
    let agent = Receiver::answering(move |_| http_response("application/zip", zip.clone()));
    let files = Files::new(&[
        ("main.lua", "print(require('acme.text').shout('x'), pcall(require, 'acme.none'))"),
        ("fails.lua", "require('acme.text').fail()"),
        ("own.lua", "print(require('mine'))"),
        ("mine.lua", "return 'mine'"),
    ]);
    let run = |file| exit_and_output(&files.command(&[file]).env("SVC_AGENT_URL", agent.url("/")).output().unwrap());
    let (code, out, err) = run("main.lua");
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "X\tfalse\tno module named `acme.none` in a program\n");
    assert_eq!(
        agent.received().iter().map(|request| request.path.as_str()).collect::<Vec<_>>(),
        ["/packages/user-libraries.zip"]
    );
    assert_eq!(run("fails.lua").2, "svc: acme/text.lua:2: packed\n");
    assert_eq!(run("own.lua").1, "mine\n");
    assert_eq!(agent.received().len(), 2, "a module beside the file needs no agent");
}

#[test]
fn a_program_in_a_space_uses_the_agent() {
    let agent = Receiver::answering(|request| {
        let body = match request.path.as_str() {
            "/event" => json!({"event_id": "e", "event_type": "custom.deploy"}),
            "/api/methods" => json!({"methods": [{"name": "echo"}]}),
            "/api/methods/call" => json!({"jsonrpc": "2.0", "result": {"seen": true}, "id": 1}),
            _ => json!({}),
        };
        http_response("application/json", body.to_string().into_bytes())
    });
    let files = Files::new(&[(
        "main.lua",
        "print(svc.event.emit('deploy', { v = 1 }).event_type, svc.client.list()[1].name, svc.client.call('echo', { a = 1 }).seen)",
    )]);
    let output = files.command(&["main.lua"]).env("SVC_AGENT_URL", agent.url("")).output().unwrap();
    assert_eq!(exit_and_output(&output), (0, "custom.deploy\techo\ttrue\n".to_owned(), String::new()));
    let (code, _, err) =
        exit_and_output(&files.command(&["main.lua"]).env("SVC_AGENT_URL", "http://127.0.0.1:1").output().unwrap());
    assert_eq!(code, 1);
    assert!(err.contains("main.lua:1: svc.event.emit: cannot reach the agent at http://127.0.0.1:1"), "{err}");
}

/// The answer of an agent without methods.
fn agent_without_methods() -> Receiver {
    Receiver::answering(|_| {
        let error = json!({"code": -32601, "message": "no method named `none`", "data": {"hint": "list"}});
        http_response("application/json", json!({"jsonrpc": "2.0", "error": error, "id": 1}).to_string().into_bytes())
    })
}

#[test]
fn an_error_of_a_called_method_is_returned_to_the_calling_handler() {
    let agent = agent_without_methods();
    let files = Files::new(&[
        (
            "setup.lua",
            "for _, name in { 'asks', 'again', 'caught', 'passes' } do runtime.jsonrpc.method(name, 'h.' .. name) end",
        ),
        (
            "h.lua",
            "local M = {}
             function M.asks() return svc.client.call('none', {}) end
             function M.again() local _, e = pcall(svc.call, 'none') error(e) end
             function M.caught() local _, e = pcall(svc.call, 'none') return { e.code, e.message, e.data, tostring(e) } end
             function M.passes() local _, e = pcall(svc.call, 'none') error { code = e.code, message = e.message } end
             return M",
        ),
        ("main.lua", "\nsvc.client.call('none')"),
        ("wrong.lua", "\nsvc.call('none')\nruntime.jsonrpc.method('asks', 'h.asks')"),
    ]);
    let command = |arguments: &[&str]| {
        let mut command = files.command(arguments);
        command.env("SVC_AGENT_URL", agent.url("")).stdin(Stdio::null());
        command
    };
    let inner = json!({"code": -32601, "message": "no method named `none`", "data": {"hint": "list"}});
    let mut server = MethodServer::start(command(&["--json-rpc", "setup.lua"]));
    for (method, line) in [("asks", 2), ("again", 3)] {
        let message = format!("h.lua:{line}: svc.client.call: no method named `none`");
        let answer = server.call(method, &json!({}));
        assert_eq!(answer["error"], json!({"code": -32603, "message": message, "data": inner}));
    }
    let seen = server.call("caught", &json!({}))["result"].clone();
    let text = "h.lua:4: svc.client.call: no method named `none`";
    assert_eq!(seen, json!([inner["code"], inner["message"], inner["data"], text]));
    let answer = server.call("passes", &json!({}));
    assert_eq!(answer["error"], json!({"code": -32601, "message": "no method named `none`"}));

    for (arguments, place) in [(&["main.lua"][..], "main.lua:2"), (&["--json-rpc", "wrong.lua"], "wrong.lua:2")] {
        let (code, _, err) = exit_and_output(&command(arguments).output().unwrap());
        assert_eq!((code, err), (1, format!("svc: {place}: svc.client.call: no method named `none`\n")));
    }
}

#[test]
fn a_program_whose_output_is_closed_ends() {
    let files = Files::new(&[
        ("endless.lua", "while true do print('y') end"),
        ("stubborn.lua", "while true do pcall(print, 'y') end"),
    ]);
    for file in ["endless.lua", "stubborn.lua"] {
        let mut child = files.command(&[file]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        drop(stdout);
        let status = eventually("it has ended", || child.try_wait().unwrap());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((line.as_str(), status.code(), err.as_str()), ("y\n", Some(1), ""), "{file}");

        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, _, err) = exit_and_output(&files.command(&[file]).stdout(full).output().unwrap());
        assert_eq!((code, err.as_str()), (1, "svc: cannot write to stdout: No space left on device (os error 28)\n"));
    }
}

#[test]
fn params_beyond_the_limits_are_invalid_params() {
    let files = notes();
    let mut server = files.serve(&["setup.lua"]);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let many = format!("[{}0]", "0,".repeat(200_000));
    let large = format!("[\"{}\"]", "x".repeat(8 << 20));
    for params in [deep, many, large] {
        let answer = server.request(&format!(r#"{{"jsonrpc":"2.0","method":"notes.echo","params":{params},"id":1}}"#));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("the params cannot be read: "), "{message}");
    }
}

#[test]
fn a_shebang_line_is_skipped() {
    let files = Files::new(&[
        ("main.lua", "#!/usr/bin/env -S svc run\nprint(require('lib'))\nerror('third')"),
        ("lib.lua", "#![[ no comment\nreturn 5"),
    ]);
    assert_eq!(files.run(&["main.lua"]), (1, "5\n".to_owned(), "svc: main.lua:3: third\n".to_owned()));
}
