//! Programs of a space: their libraries, and the isolation of their requests.

use super::{test_support::*, *};
use crate::{
    model::units::{Size, Span},
    platform::config,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Runs each as a program that must not fail.
async fn all_succeed(claims: &[&str]) {
    let host = TestRuntime::new();
    for claim in claims {
        let run = host.run_program(claim, &[]).await;
        assert!(run.result.is_ok(), "{claim}: {:?}", run.result);
    }
}

/// Runs each as a program and checks the error it ends with.
async fn all_fail(claims: &[(&str, &str)]) {
    let host = TestRuntime::new();
    for (source, error) in claims {
        let failed = host.run_program(source, &[]).await.result.unwrap_err();
        assert_eq!(failed.to_string(), *error, "{source}");
    }
}

/// A program whose handlers are in the library `handlers`.
fn server() -> Program {
    Program::for_space("setup.lua", "", Capabilities::Full).unwrap()
}

#[tokio::test]
async fn a_program_gets_its_arguments_and_its_output_is_captured() {
    let host = TestRuntime::new();
    let run = host.run_program("print(..., arg[2], #arg, arg[0]) log.info('x')", &["a", "b"]).await;
    assert!(run.result.is_ok());
    assert_eq!(run.log, ["a\tb\t2\tmain.lua", "info: x"]);
}

#[tokio::test]
async fn the_output_of_a_program_can_be_streamed() {
    #[derive(Default)]
    struct RecordingWriter(parking_lot::Mutex<Vec<String>>);
    impl OutputWriter for RecordingWriter {
        fn print(&self, line: &[u8]) {
            self.0.lock().push(format!("out {}", String::from_utf8_lossy(line)));
        }
        fn log(&self, line: &[u8]) {
            self.0.lock().push(format!("err {}", String::from_utf8_lossy(line)));
        }
    }
    let (host, writer) = (TestRuntime::new(), Arc::<RecordingWriter>::default());
    let context = host.program_context();
    let context = ProgramContext {
        directory: context.directory.clone(),
        environment: context.environment.clone(),
        agent: context.agent.clone(),
        output: ProgramOutput::Streamed(writer.clone()),
    };
    let program =
        Program::for_space("main.lua", "for i = 1, 1000 do print(i) end log.warn('done')", Capabilities::Full).unwrap();
    let run = host.runtime.run_program(&program, Arc::new(context), Vec::new()).await;
    assert!(run.result.is_ok() && run.log.is_empty());
    let lines = writer.0.lock();
    assert_eq!((lines.len(), lines[999].as_str(), lines[1000].as_str()), (1001, "out 1000", "err warn: done"));
}

#[tokio::test]
async fn files_can_be_read_and_changed() {
    all_succeed(&[
        "fs.write('a.txt', 'one') fs.append('a.txt', 'two\\0') assert(fs.read('a.txt') == 'onetwo\\0')",
        "fs.mkdir('d/e') fs.write('d/z', '') fs.write('d/b', '') assert(table.concat(fs.list('d'), ' ') == 'b e z')",
        "assert(json.encode(fs.list('.')) and not fs.exists('none') and fs.stat('none') == nil)",
        "fs.write('x.sh', 'x', '755') local s = fs.stat('x.sh') assert(s.kind == 'file' and s.size == 1 and s.mode == '755')",
        "fs.mkdir('m') assert(fs.stat('m').kind == 'directory' and fs.stat('m').modified > 1.7e9)",
        "fs.write('f', 'x') fs.rename('f', 'g') fs.copy('g', 'h') assert(not fs.exists('f') and fs.read('h') == 'x')",
        "fs.write('r', '') assert(fs.remove('r') and not fs.remove('r'))",
        "fs.mkdir('t/u') assert(not pcall(fs.remove, 't') and fs.remove('t', { recursive = true }) and not fs.exists('t'))",
        "assert(require('fs') == fs and require('process') == process)",
    ])
    .await;
    let host = TestRuntime::new();
    let error = host.run_program("\nfs.read('none.txt')", &[]).await.result.unwrap_err().to_string();
    assert!(
        error.starts_with("main.lua:2: fs.read: ")
            && error.ends_with("none.txt: No such file or directory (os error 2)"),
        "{error}"
    );
}

#[tokio::test]
async fn processes_can_be_run_and_started() {
    all_succeed(&[
        "local r = process.run{ cmd = 'sh', args = { '-c', 'cat; echo $GREETING $MORE >&2; exit 3' }, stdin = 'in', env = { MORE = 'x' } }
         assert(r.code == 3 and r.stdout == 'in' and r.stderr == 'hello x\\n' and r.signal == nil)",
        "fs.mkdir('dir') fs.write('dir/run', '#!/bin/sh\\npwd', '755')
         local r = process.run{ cmd = './run', cwd = 'dir' } assert(r.stdout:find('/dir\\n$') and r.code == 0)",
        "local r = process.run{ cmd = 'sh', args = { '-c', 'kill -9 $$' } } assert(r.signal == 9 and r.code == nil)",
        "local pid = process.spawn{ cmd = 'sh', args = { '-c', 'echo started' }, output = 'log' } assert(pid > 0)
         while not fs.exists('log') or fs.read('log') == '' do time.sleep(0.01) end assert(fs.read('log') == 'started\\n')",
        "assert(os.getenv('GREETING') == 'hello' and os.getenv('NONE') == nil and os.getenv('HOME') == nil)",
    ])
    .await;
    all_fail(&[
        (
            "process.run{ cmd = 'no-such-thing' }",
            "main.lua:1: process.run: cannot start `no-such-thing`: No such file or directory (os error 2)",
        ),
        ("process.run{ args = {} }", "main.lua:1: process.run: `cmd` is missing"),
        (
            "process.run{ cmd = 'ls', output = 'x' }",
            "main.lua:1: process.run: `output` means nothing here: it takes cmd, args, stdin, cwd, env, timeout",
        ),
        ("process.run{ cmd = 5 }", "main.lua:1: process.run: `cmd` must be a string"),
        (
            "process.run{ cmd = 'sleep', args = { '60' }, timeout = 0.05 }",
            "main.lua:1: process.run: `sleep` took longer than 50ms",
        ),
        ("process.run{ cmd = 'yes' }", "main.lua:1: process.run: `yes`: it printed more than 16777216 bytes"),
    ])
    .await;
}

#[tokio::test]
async fn a_sandboxed_program_has_no_files_processes_or_environment() {
    let host = TestRuntime::new();
    let source =
        "assert(fs == nil and process == nil and os == nil and io == nil and svc.client and kv.get and time.sleep)
        assert(rawget(svc, 'agent') == nil)
        for _, name in { 'fs', 'process', 'os', 'svc.agent' } do assert(not pcall(require, name)) end";
    let program = Program::for_space("main.lua", source, Capabilities::Sandboxed).unwrap();
    let run = host.runtime.run_program(&program, host.program_context(), Vec::new()).await;
    assert!(run.result.is_ok(), "{:?}", run.result);
}

#[tokio::test]
async fn programs_of_a_space_share_their_key_value_store() {
    all_succeed(&[
        "kv.set('a', { list = json.array(), none = json.null }) assert(kv.get('b') == nil)",
        "assert(json.encode(kv.get('a').list) == '[]' and kv.get('a').none == json.null and require('kv') == kv)",
        "assert(kv.add('once', true) and not kv.add('once', true))",
        "assert(kv.add('short', 1, 0) and kv.get('short') == nil and kv.add('short', 1))",
        "assert(kv.increment('n') == 1 and kv.increment('n', 5) == 6 and kv.get('n') == 6)",
        "assert(kv.delete('n') and not kv.delete('n'))",
        "kv.set('big', json.decode('9007199254740993')) assert(json.encode(kv.get('big')) == '9007199254740993')",
    ])
    .await;
}

#[tokio::test]
async fn a_program_calls_methods_emits_events_and_registers_through_its_agent() {
    all_succeed(&[
        "assert(svc.client.list()[1].name == 'echo')",
        "assert(svc.client.call('echo', { a = 9 }).a == 9 and svc.call('echo').a == nil)",
        "assert(svc.client.notify('echo', {}) == nil)",
        "local ok, e = pcall(svc.client.call, 'none') assert(not ok and e.code == -32601 and e.data[1] == 1)",
        "local b = svc.client.batch{ { 'echo', { a = 1 } }, { 'none' } } assert(b[1].result.a == 1 and b[2].error.code == -32601)",
        "assert(#svc.client.batch{} == 0)",
        "local ok, e = pcall(svc.client.batch, table.create(1001, { 'echo' })) assert(not ok and e.code == -32600)",
        "local e = svc.event.emit('deploy', { v = 1 }) assert(e.event_type == 'custom.deploy' and e.payload.v == 1)",
        "assert(require('svc.event').emit == svc.event.emit and require('svc.client') == svc.client)",
        "local r = require('svc.agent').register{ server = { command = 'x' } } assert(r.registration.server.command == 'x' and r.directory)",
        "assert(svc.agent.unregister('a').removed == 'a' and svc.agent.unregister().removed == json.null)",
    ])
    .await;
    all_fail(&[
        ("svc.agent.register{ wrong = 1 }", "main.lua:1: register: `server.command` is missing"),
        ("svc.client.call('none')", "main.lua:1: svc.client.call: no such method"),
        ("svc.client.batch(table.create(1001, { 'echo' }))", "main.lua:1: svc.client.batch: too many requests"),
        ("\nerror()", "main.lua:2: an error was raised without a message"),
        ("\nerror({})", "main.lua:2: an error was raised that is a table without a `message`"),
        ("\nerror(setmetatable({}, { __tostring = function() return 'told' end }))", "main.lua:2: told"),
        ("time.sleep(0)\nerror({ code = 'x' })", "main.lua:2: the `code` of an error must be an integer, not a string"),
        ("\ntable.insert(string, 1)", "main.lua:2: attempt to modify a readonly table"),
        ("\nstring.x = 1", "main.lua:2: attempt to modify a readonly table"),
        ("error('bare', 0)", "bare"),
    ])
    .await;
}

#[tokio::test]
async fn a_set_up_script_registers_only_handlers_that_exist() {
    let host = TestRuntime::new();
    host.modules.put("handlers", "return { search = function() end, limit = 5 }");
    host.modules.put("acme.notes", "return { add = function() end }");
    let setup = "runtime.jsonrpc.method('search', 'handlers.search') runtime.jsonrpc.method('add', 'acme.notes.add')";
    let run = host.run_program(setup, &[]).await;
    assert!(run.result.is_ok(), "{:?}", run.result);
    let named: Vec<_> = run.handlers.iter().map(|(name, h)| format!("{name}={}:{}", h.library, h.function)).collect();
    assert_eq!(named, ["add=acme.notes:add", "search=handlers:search"]);
    for (source, error) in [
        ("'search', 'handlers.find'", "the library `handlers` has no function `find`, which is to handle `search`"),
        ("'search', 'handlers.limit'", "the library `handlers` has no function `limit`, which is to handle `search`"),
        ("'search', 'none.find'", "the handler of `search` is not there: no module named `none` in a program"),
        (
            "'search', 'broken.find'",
            "the handler of `search` is not there: cannot load `broken`: its file cannot be read",
        ),
        ("'search', 'find'", "the handler of `search` must be a string such as \"library.function\""),
        ("5, 'a.b'", "the local name must be a string"),
    ] {
        let failed = host.run_program(&format!("\nruntime.jsonrpc.method({source})"), &[]).await.result.unwrap_err();
        assert_eq!(failed.to_string(), format!("main.lua:2: runtime.jsonrpc.method: {error}"));
    }
    let twice = "runtime.jsonrpc.method('a', 'handlers.search') runtime.jsonrpc.method('a', 'handlers.search')";
    let failed = host.run_program(twice, &[]).await.result.unwrap_err().to_string();
    assert_eq!(failed, "main.lua:1: runtime.jsonrpc.method: `a` has a handler already");
}

#[tokio::test]
async fn nothing_a_request_does_is_visible_to_another() {
    let host = TestRuntime::new();
    host.modules.put("helper", "local n = 0 return { list = {}, count = function() n += 1 return n end }");
    host.modules.put(
        "handlers",
        r#"
        local helper, calls = require("helper"), 0
        total = 0
        local M = { extra = nil }
        function M.search(params)
            calls += 1
            total += 1
            seen = (seen or 0) + 1
            table.insert(helper.list, params.q)
            local found = { calls, total, seen, helper.count(), #helper.list, params.q, M.extra ~= nil, ("x").shout ~= nil }
            M.extra, helper.count, _G_evil = true, nil, true
            pcall(function() string.shout = string.upper end)
            pcall(function() getmetatable("").__index = {} end)
            pcall(function() getmetatable("").__index.shout = string.upper end)
            pcall(function() _G.seen = 5 end)
            pcall(function() json.encode = nil end)
            pcall(function() require("json").null = nil end)
            pcall(function() svc.client.call = nil end)
            pcall(function() runtime.jsonrpc.method = nil end)
            params.q, arg, M.search, string, table = nil, nil, nil, nil, nil
            return found
        end
        return M"#,
    );
    let program = server();
    for n in 0..5 {
        let answer = host.call_handler(&program, "handlers.search", &format!("{{\"q\":{n}}}")).await.unwrap();
        assert_eq!(answer, format!("[1,1,1,1,1,{n},false,false]"));
    }
}

#[tokio::test]
async fn a_request_that_fails_names_its_line_and_the_next_is_served() {
    let host = TestRuntime::with(config::ScriptConfig {
        wall: Span(Duration::from_secs(60)),
        cpu: Span(Duration::from_millis(100)),
        memory: Size(8 << 20),
        ..config::ScriptConfig::default()
    });
    host.modules.put(
        "handlers",
        "local M = {}
function M.fails() error('no') end function M.returns() return nil, 'none' end
function M.loops()
    while true do end
end
function M.grows() local t = {}
    while true do t[#t + 1] = { #t } end
end
function M.large()
    return ('x'):rep(1e8)
end
function M.late() time.sleep(0.001)
    local t = {} while true do t[#t + 1] = { #t } end
end
function M.sorts()
    table.sort({ 1, 2 }, function() while true do end end)
end
function M.func() return print end
function M.cycle() local t = {} t.t = t return t end
function M.nan() return { a = 0/0 } end
function M.ok(params) return params end
return M",
    );
    let program = server();
    for (function, error) in [
        ("fails", "handlers:2: no"),
        ("returns", "none"),
        ("loops", "handlers:4: it took more than 100ms of processor time"),
        ("grows", "handlers:7: it needed more than 8MiB of memory"),
        ("large", "handlers:10: it needed more than 8MiB of memory"),
        ("sorts", "handlers:16: it took more than 100ms of processor time"),
        ("func", "handlers:18: the result of `handlers.func` cannot be sent: $ is a function, which is not JSON"),
        ("cycle", "handlers:19: the result of `handlers.cycle` cannot be sent: $.t contains itself, which is not JSON"),
        (
            "nan",
            "handlers:20: the result of `handlers.nan` cannot be sent: $.a is not a finite number, which is not JSON",
        ),
    ] {
        let failed = host.call_handler(&program, &format!("handlers.{function}"), "{}").await.unwrap_err();
        assert_eq!(failed.to_string(), error, "{function}");
        assert_eq!(host.call_handler(&program, "handlers.ok", "[1]").await.unwrap(), "[1]");
    }
    let failed = host.call_handler(&program, "handlers.late", "{}").await.unwrap_err().to_string();
    assert!(failed.ends_with("it needed more than 8MiB of memory"), "{failed}");
}

#[tokio::test]
async fn a_request_that_waits_too_long_names_its_line() {
    let host = TestRuntime::with(config::ScriptConfig {
        wall: Span(Duration::from_millis(300)),
        ..config::ScriptConfig::default()
    });
    host.modules.put("handlers", "return {\nwaits = function()\n  time.sleep(60)\nend }");
    let failed = host.call_handler(&server(), "handlers.waits", "{}").await.unwrap_err();
    assert_eq!(failed.to_string(), "handlers:3: it took longer than 300ms");
}

#[tokio::test]
async fn requests_run_at_the_same_time_and_wait_at_the_same_time() {
    let config = config::ScriptConfig { wall: Span(Duration::from_secs(600)), ..config::ScriptConfig::default() };
    let host = TestRuntime::with(config.clone());
    host.modules.put("handlers", "return { wait = function() http.get('http://gate.test') return 1 end }");
    let runtime = Runtime::new(&config, 2, host.runtime.0.states.services.clone());
    let (program, context) = (server(), host.program_context());
    let handler = MethodHandler { library: "handlers".to_owned(), function: "wait".to_owned() };
    let runs = (0..100).map(|_| runtime.call_handler(&program, context.clone(), handler.clone(), None));
    let all_wait = async {
        let deadline = Instant::now() + Duration::from_secs(60);
        while host.http.requests.lock().len() < 100 {
            assert!(Instant::now() < deadline, "{} wait", host.http.requests.lock().len());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        host.http.open_gate();
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(runs), all_wait);
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|json| json.get() == "1")), "{answers:?}");
    runtime.shut_down();
}
