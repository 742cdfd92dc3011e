//! Hostile scripts: endless loops, memory exhaustion, sandbox escapes. Each fails by itself, for the stated reason, and
//! the next run is not affected.

use super::{test_support::*, *};
use crate::{
    model::{id::UserId, owner::Owner, units::Span},
    platform::config,
    scripting::workers::ProgramText,
};
use std::time::Duration;

fn too_much_cpu() -> Verdict {
    Verdict::Failed("script:1: it took more than 100ms of processor time".to_owned())
}

fn too_much_memory() -> Verdict {
    Verdict::Failed("script:1: it needed more than 8MiB of memory".to_owned())
}

/// Runs each as a script and checks the verdict, and that the runtime still works afterwards.
async fn all_end_with(verdict: Verdict, sources: &[&str]) {
    let host = TestRuntime::strict();
    for source in sources {
        // One line, because the verdict names it.
        let source = source.replace('\n', " ");
        assert_eq!(host.run_script(&source).await.verdict, verdict, "{source}");
        assert_eq!(host.run_script("return svc.skip(tostring(1 + 1))").await.verdict, Verdict::Skip("2".to_owned()));
    }
}

/// Runs each as a script and checks that its error contains the text.
async fn all_fail_with(sources: &[(&str, &str)]) {
    let host = TestRuntime::strict();
    for (source, part) in sources {
        let Verdict::Failed(error) = host.run_script(source).await.verdict else { panic!("{source} did not fail") };
        assert!(error.contains(part), "{source}: {error}");
        assert_eq!(host.run_script("").await.verdict, Verdict::Ack);
    }
}

#[tokio::test]
async fn endless_loops_end() {
    all_end_with(
        too_much_cpu(),
        &[
            "while true do end",
            "for i = 1, math.huge do end",
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) while true do end end return t.x",
            "for _ in function() return 1 end do end",
            "for _ in setmetatable({}, {__iter = function() return function() return 1 end end}) do end",
            "string.gsub('x', 'x', function() while true do end end)",
            "return svc.skip(tostring(setmetatable({}, {__tostring = function() while true do end end})))",
            "print(setmetatable({}, {__tostring = function() while true do end end}))",
            "while true do http.request{ url = 'http://x.test' } end",
            "while true do json.decode('[]') end",
        ],
    )
    .await;
}

#[tokio::test]
async fn endless_loops_end_although_a_script_catches_errors() {
    all_end_with(
        too_much_cpu(),
        &[
            "while true do pcall(function() while true do end end) end",
            "pcall(function() while true do end end) return svc.skip('escaped')",
            "xpcall(function() while true do end end, function() while true do end end)",
            "xpcall(error, function() while true do end end)",
            "local function f() pcall(f) f() end f()",
            "while true do xpcall(error, error) end",
            "while true do pcall(string.rep, 'x', 1e8) end",
            "error(setmetatable({}, {__tostring = function() while true do end end}))",
            "while true do pcall(http.request, { url = 'http://refused.test' }) end",
        ],
    )
    .await;
}

#[tokio::test]
async fn endlessly_backtracking_patterns_end() {
    all_end_with(
        too_much_cpu(),
        &[
            "return string.match(('a'):rep(30), ('a?'):rep(30) .. ('a'):rep(30))",
            "return string.find(('a'):rep(30000), '.-.-.-.-b')",
            "return string.gsub(('a'):rep(30000), '(.-)*%1*b', '')",
            "for _ in string.gmatch(('a'):rep(30000), '.-.-.-b') do end",
            "return string.find(('a'):rep(100000), '(.*)(.*)(.*)%1%2%3b')",
        ],
    )
    .await;
}

#[tokio::test]
async fn sorting_ends() {
    all_end_with(
        too_much_cpu(),
        &[
            "table.sort({3, 2, 1}, function() while true do end end)",
            // Strings that differ only at their ends, compared over and over.
            "local a, b = ('x'):rep(1e6) .. 'a', ('x'):rep(1e6) .. 'b'
             local t = {} for i = 1, 2e4 do t[i] = if i % 2 == 0 then a else b end table.sort(t)",
        ],
    )
    .await;
    all_fail_with(&[
        ("table.sort({3, 1, 2, 5, 4, 9, 8, 7}, function() return true end)", "script:1: invalid order function"),
        ("local t = {3, 1, 2} table.sort(t, function() t[#t + 1] = 1 return true end)", "script:1: table modified"),
        ("table.sort({1, 2}, function() error('mine') end)", "script:1: mine"),
        ("\nstring.find()", "script:2: invalid argument #1 to 'find'"),
        ("table.sort({1, 'x'})", "script:1: attempt to compare"),
    ])
    .await;
}

#[tokio::test]
async fn memory_is_limited() {
    all_end_with(
        too_much_memory(),
        &[
            "local t = {} while true do t[#t + 1] = {} end",
            "local t = {} for i = 1, 1e9 do t[i] = i end",
            "local s = 'x' while true do s = s .. s end",
            "return string.rep('x', 1e9)",
            "return ('x'):rep(1e6):rep(1e3)",
            "return table.create(6e7, 1)",
            "return buffer.create(1e9)",
            "local t = table.create(1000, ('x'):rep(1e5)) return table.concat(t)",
            "return string.gsub(('x'):rep(1e5), 'x', ('y'):rep(1e5))",
            "return string.format('%s%s', ('x'):rep(4e6), ('x'):rep(4e6))",
            "local t = {} for i = 1, 1e9 do t['k' .. i] = i end",
            "return string.split(('x'):rep(2e6), '')",
            "local function f(...) return f(1, ...) end f()",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_script_may_catch_a_lack_of_memory_but_its_state_is_not_reused() {
    let host = TestRuntime::strict();
    let source = "big = {} local ok = pcall(function() while true do big[#big + 1] = ('x'):rep(1e5) .. #big end end)
        return not ok";
    let program = Program::script("script", source).unwrap();
    assert_eq!(host.check(&program).await, CheckVerdict::Healthy);
    assert!(!host.runtime.0.states.was_kept(&program));
}

#[tokio::test]
async fn a_lack_of_memory_is_reported_even_if_none_is_left_for_the_location() {
    let host = TestRuntime::strict();
    let source =
        "big = {} pcall(function() while true do big[#big + 1] = {} end end) local t = { {}, { {} } } t[4] = {}
        while true do big[#big + 1] = {} end";
    let is_about_memory = |text: &str| text.ends_with("it needed more than 8MiB of memory");
    let Verdict::Failed(error) = host.run_script(source).await.verdict else { panic!("the script did not fail") };
    assert!(is_about_memory(&error), "{error}");
    let error = host.run_tool(source, "{}").await.result.unwrap_err().to_string();
    assert!(is_about_memory(&error), "{error}");
}

#[tokio::test]
async fn uninterruptible_work_is_refused_when_it_would_take_long() {
    all_fail_with(&[
        (
            "local a = ('a'):rep(1e6) return string.find(a, a .. 'b', 1, true)",
            "script:1: string.find: the text and the pattern",
        ),
        ("local a = ('a'):rep(1e6) return a:find(a .. 'b')", "script:1: string.find: the text and the pattern"),
        ("local a = ('a'):rep(1e6) return a:match('[' .. ('b'):rep(1e6) .. ']*')", "string.match: the text and"),
        ("local a = ('a'):rep(1e6) return a:gsub('[' .. ('b'):rep(1e6) .. ']*', '')", "string.gsub: the text and"),
        ("local a = ('a'):rep(1e6) return a:gmatch('[' .. ('b'):rep(1e6) .. ']*')", "string.gmatch: the text and"),
        ("local a = ('a'):rep(1e6) return a:split(a:sub(1, 5e5) .. 'b')", "string.split: the text and the pattern"),
        ("table.move({}, 1, 1e9, 1, {})", "table.move: at most 1000000 elements"),
        ("table.move({}, -1e9, 1e9, 1, {})", "table.move: at most 1000000 elements"),
        ("table.move({}, '-100000000', '-1', -1000000000, {})", "table.move: at most 1000000 elements"),
        ("table.move({}, 0/0, 1e9, 1, {})", "table.move: at most 1000000 elements"),
        ("table.move({}, 1, 0/0, 1, {})", "table.move: at most 1000000 elements"),
        ("table.move({}, 'x', 1, 1, {})", "script:1: invalid argument #2 to 'move' (number expected, got string)"),
        ("return math.max(unpack(table.create(1e5, ('9'):rep(1e4))))", "math.max: the arguments are too long"),
        ("return bit32.bor(unpack(table.create(1e5, ('0'):rep(1e4))))", "bit32.bor: the arguments are too long"),
        ("return string.char(unpack(table.create(1e5, ('0'):rep(1e4))))", "string.char: the arguments are too long"),
        ("return utf8.char(unpack(table.create(1e5, ('0'):rep(1e4))))", "utf8.char: the arguments are too long"),
        (
            "return ('%d'):rep(200):format(unpack(table.create(200, ('0'):rep(1e6))))",
            "string.format: the arguments are",
        ),
        ("return ('%*'):rep(300):format(unpack(table.create(300, '')))", "string.format: at most 250 arguments"),
        ("return table.create(1e8, 1)", "table overflow"),
        ("return json.encode(('x'):rep(2e6))", "json.encode: there are more than 1048576 bytes"),
        ("return re.test('((a{1,100}){1,100}){1,100}', 'a')", "re.test: "),
        ("return re.test('a', ('a'):rep(1e6))", "re.test: the text has 1000000 bytes"),
        ("return re.match(('()'):rep(180) .. '[ab]*a[ab]{1800}', ('ab'):rep(65e3))", "more than 32 groups"),
        (
            "return re.match(('()'):rep(32) .. '[ab]*a[ab]{1800}', ('ab'):rep(65e3))",
            "script:1: re.match: the text and the pattern are too long for each other",
        ),
        (
            "return re.replace(('()'):rep(32) .. '[ab]*a[ab]{1800}', ('ab'):rep(65e3), '')",
            "re.replace: the text and the pattern are too long for each other",
        ),
    ])
    .await;
}

#[tokio::test]
async fn functions_that_built_in_functions_call_repeatedly_are_interrupted() {
    let cpu = Span(Duration::from_millis(100));
    let host = TestRuntime::with(config::ScriptConfig { cpu, ..config::ScriptConfig::default() });
    for source in [
        "table.sort(table.create(4e5, 0), bit32.btest)",
        "local m = { __eq = table.find } local a = setmetatable(table.create(1e5, 1), m)
         table.find(table.create(1e5, a), setmetatable(table.create(1e5, a), m))",
        "local t = setmetatable(table.create(2e5, ''), { __tostring = table.concat })
         return ('%*'):rep(250):format(unpack(table.create(249, t)))",
        "local t = setmetatable(table.create(2e5, ''), { __tostring = unpack })
         return ('%*'):rep(250):format(unpack(table.create(249, t)))",
    ] {
        let run = host.run_script(&source.replace('\n', " ")).await;
        assert_eq!(run.verdict, too_much_cpu(), "{source}");
        assert!(run.cpu < Duration::from_millis(500), "{source}: {:?}", run.cpu);
    }
}

#[tokio::test]
async fn json_is_checked_for_size_before_it_is_written() {
    let host = TestRuntime::new();
    let source = "local name, t = ('\\1'):rep(4e6), {} for i = 1, 20 do t = {[name] = t} end return json.encode(t)";
    let run = host.run_script(source).await;
    let Verdict::Failed(error) = run.verdict else { panic!("it was written") };
    assert_eq!(error, "script:1: json.encode: there are more than 1048576 bytes of JSON");
    assert!(run.cpu < Duration::from_millis(500), "{:?}", run.cpu);
}

#[tokio::test]
async fn a_request_is_checked_for_size_before_it_is_copied() {
    all_fail_with(&[
        (
            "local big, headers = ('x'):rep(1e6), {} for i = 1, 1e4 do headers['x' .. i] = big end
             http.request{ url = 'http://x.test', headers = headers }",
            "http.request: the headers have more than 65536 bytes",
        ),
        ("http.request{ url = ('x'):rep(1e6) }", "http.request: the url has 1000000 bytes"),
        ("http.request(table.create(1e5, {}))", "http.request: the request has fields that mean nothing here"),
    ])
    .await;
}

#[tokio::test]
async fn extreme_numbers_do_not_crash_the_host() {
    let host = TestRuntime::strict();
    for number in ["1e19", "1e300", "-1e300", "1/0", "-1/0", "0/0", "-1", "2^53", "2^63", "2^64", "1e-320", "'1e19'"] {
        for call in [
            "http.request{ url = 'http://x.test', timeout = N }",
            "kv.set('a', 1, N)",
            "kv.add('b', 1, N)",
            "kv.increment('c', 1, N)",
            "kv.increment('d', N)",
            "crypto.random(N)",
            "time.format(N)",
            "time.format(N, '%c %s %f')",
        ] {
            // The run goes on to its end, with or without an error.
            let source = format!("local _ = pcall(function() return {} end)", call.replace('N', number));
            assert_eq!(host.run_script(&source).await.verdict, Verdict::Ack, "{source}");
        }
        let verdict = host.run_script(&format!("return svc.retry({number})")).await.verdict;
        assert!(matches!(verdict, Verdict::Retry { .. } | Verdict::Failed(_)), "{number}: {verdict:?}");
    }
    let requests = std::mem::take(&mut *host.http.requests.lock());
    assert!(!requests.is_empty());
    for (_, request) in requests {
        assert!(request.timeout.unwrap() <= Duration::from_secs(10), "{:?}", request.timeout);
    }
}

#[tokio::test]
async fn the_slowest_allowed_searches_end_in_time() {
    let host = TestRuntime::strict();
    // These are the slowest that are allowed: each must end by itself or at the limit, on a slow machine with its
    // process.
    let killed = "it took more than 100ms of processor time, and its process was killed";
    let at_limit = [too_much_cpu(), Verdict::Failed(killed.to_owned())];
    for source in [
        "local a = ('a'):rep(1e6) return a:find(('a'):rep(60) .. 'b', 1, true)",
        "local a = ('a'):rep(1e6) return a:match('[' .. ('b'):rep(60) .. ']*c')",
        "return re.test('(a?){500}[^a]', ('a'):rep(1e5))",
        "return re.test('(?:a|b)*a(?:a|b){200}[^ab]', noise)",
        "return re.match('((a|b)*)a((a|b){200})[^ab]', noise)",
        "return re.match('(.*)(.*)(.*)(.*)(.*)[^ab]', noise)",
        "return re.test('[\\\\w\\\\d]*(\\\\w|é){3}[^\\\\w]', ('aé'):rep(4e4))",
        "return re.match(('()'):rep(32) .. '[ab]*a[ab]{100}', noise)",
        "return re.match('[ab]*a[ab]{800}[^ab]', noise)",
        "return re.replace(('()'):rep(32) .. '[ab]*a[ab]{100}', noise, '')",
        "return re.find_all('.*[^A-Z]|[A-Z]', ('A'):rep(1e5))",
        "return re.replace('.*[^A-Z]|[A-Z]', ('A'):rep(1e5), '$0')",
    ] {
        let noise = "local t, n = table.create(1e5), 1 for i = 1, 1e5 do
            n = n * 16807 % 2147483647 t[i] = if n % 2 == 0 then 'a' else 'b' end local noise = table.concat(t)"
            .replace('\n', " ");
        let source = source.replace("return", "local _ =");
        let run = host.run_script(&format!("{noise} {source}")).await;
        assert!(run.cpu < Duration::from_secs(2), "{source}: {:?}", run.cpu);
        assert!(run.verdict == Verdict::Ack || at_limit.contains(&run.verdict), "{source}: {:?}", run.verdict);
    }
}

#[tokio::test]
async fn recursion_is_limited() {
    all_fail_with(&[
        ("local function f() return 1 + f() end f()", "script:1: stack overflow"),
        ("local function f() return f() end f()", "script:1: stack overflow"),
        ("local function f() return (string.gsub('x', 'x', f)) end f()", "stack overflow"),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end return t.x",
            "stack overflow",
        ),
        ("local t = {} t.__index = t setmetatable(t, t) return t.x", "'__index' chain too long"),
        ("local function f() table.sort({1, 2}, f) end f()", "stack overflow"),
        ("return unpack({}, 1, 1e7)", "too many results"),
    ])
    .await;
}

#[tokio::test]
async fn errors_of_any_type_fail_the_run() {
    let host = TestRuntime::strict();
    for (source, starts) in [
        ("error({ code = 1 })", "script:1: an error was raised that is a table without a `message`"),
        ("error({ message = 'no' })", "script:1: no"),
        ("error(nil)", "script:1: an error was raised without a message"),
        ("error()", "script:1: an error was raised without a message"),
        ("error(json.null)", "userdata"),
        ("error(setmetatable({}, { __tostring = function() return 'mine' end }))", "script:1: mine"),
        ("error(print)", "script:1: function"),
        ("error(svc.skip('x'))", ""),
        ("error(('x'):rep(1e6))", "script:1: xxx"),
    ] {
        let Verdict::Failed(error) = host.run_script(source).await.verdict else { panic!("{source} did not fail") };
        assert!(error.starts_with(starts) && error.len() <= 5000, "{source}: {error}");
    }
    let looping = "error(setmetatable({}, { __tostring = function() error('again') end }))";
    assert!(matches!(host.run_script(looping).await.verdict, Verdict::Failed(_)));
    assert_eq!(host.run_script("").await.verdict, Verdict::Ack);
}

#[tokio::test]
async fn dangerous_globals_are_absent() {
    let host = TestRuntime::strict();
    let absent = "io os debug package load loadstring loadfile dofile getfenv setfenv newproxy collectgarbage gcinfo \
                  coroutine vector emit _VERSION";
    let names = absent.split_whitespace().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
    let source = format!(
        "local there = {{}} for _, name in {{{names}}} do
        if _G[name] ~= nil then table.insert(there, name) end end return svc.skip(table.concat(there, ' '))"
    );
    assert_eq!(host.run_script(&source).await.verdict, Verdict::Skip(String::new()));
    for library in ["http", "kv", "svc"] {
        let rendered = host.render(&format!("return type({library})")).await.unwrap();
        assert_eq!(rendered.body, "nil", "{library} is for scripts");
        let error = host.render(&format!("return require('{library}')")).await.unwrap_err().to_string();
        assert_eq!(error, format!("template:1: no module named `{library}` in a template"));
    }
    assert_eq!(host.render("return type(string.dump) .. type(table.foreachi)").await.unwrap().body, "nilnil");
}

#[tokio::test]
async fn nothing_shared_can_be_changed() {
    let host = TestRuntime::strict();
    // Every one of these must raise an error; the verdict names those that do not.
    let source = r#"
        local attempts = {
            function() string.upper = nil end,
            function() string.evil = 1 end,
            function() rawset(string, "upper", nil) end,
            function() getmetatable("").__index = nil end,
            function() getmetatable("").__add = print end,
            function() rawset(getmetatable(""), "__index", nil) end,
            function() setmetatable(string, {}) end,
            function() _G.evil = 1 end,
            function() rawset(_G, "evil", 1) end,
            function() setmetatable(_G, {}) end,
            function() math.floor = nil end,
            function() json.null = 1 end,
            function() json.encode = nil end,
            function() rawset(json, "encode", nil) end,
            function() table.clear(json) end,
            function() table.insert(json, 1) end,
            function() table.move({ 1 }, 1, 1, 1, json) end,
            function() json.array(json) end,
            function() require("json").decode = nil end,
            function() require("svc.event").id = nil end,
            function() require("svc").call = nil end,
            function() svc.retry = nil end,
            function() log.info = nil end,
            function() kv.get = nil end,
            function() http.request = nil end,
            function() setmetatable(event.data.list, nil) end,
            function() getmetatable(event.data.list).x = 1 end,
            function() setmetatable(svc.skip("x"), {}) end,
            function() svc.skip("x").kind = "ack" end,
        }
        local lived = {}
        for i, attempt in attempts do
            if pcall(attempt) then table.insert(lived, i) end
        end
        local verdict = svc.skip(table.concat(lived, " ") .. tostring(evil) .. string.upper("x") .. type(json.null))
        -- A run's own globals may hide the shared ones for the rest of the run.
        evil, string, json, table, svc = 1, nil, nil, nil, nil
        return verdict
    "#;
    let program = ProgramText::script("script", source);
    for _ in 0..3 {
        let run = host.workers.run_script(&program, Owner::Global, input(event())).await;
        assert_eq!(run.verdict, Verdict::Skip("nilXuserdata".to_owned()));
    }
}

#[tokio::test]
async fn changes_to_the_environment_or_the_event_are_gone_with_the_run() {
    let host = TestRuntime::strict();
    let program = lua("
        local before = { evil = evil, version = event.data.version, own = event.own, shout = ('x').shout }
        evil, event.own, event.data.version = 1, 2, 3
        return before
    ");
    for _ in 0..3 {
        let rendered = host.workers.render(&program, Owner::Global, input(event())).await.unwrap();
        assert_eq!(rendered.body, r#"{"version":"1.2"}"#);
    }
}

#[tokio::test]
async fn a_random_seed_set_by_one_run_does_not_affect_the_next() {
    let host = TestRuntime::strict();
    let program = lua("local drawn = tostring(math.random(1e9)) math.randomseed(42) return drawn");
    let mut drawn = Vec::new();
    for _ in 0..3 {
        drawn.push(host.workers.render(&program, Owner::Global, input(event())).await.unwrap().body);
    }
    assert!(drawn[1] != drawn[2], "{drawn:?}");
}

#[tokio::test]
async fn metamethods_of_a_script_are_not_called_by_the_host() {
    let host = TestRuntime::strict();
    for (source, body) in [
        // Luau has no finalisers.
        ("setmetatable({}, { __gc = function() error('gc') end }) return 'fine'", "fine"),
        ("return setmetatable({ a = 1 }, { __index = function() while true do end end })", r#"{"a":1}"#),
        ("return setmetatable({}, { __len = function() return 1e9 end })", "{}"),
        ("return setmetatable({}, { __metatable = 'array' })", "{}"),
        ("event = setmetatable({}, { __index = error }) return require('svc.event') and 'fine'", "fine"),
    ] {
        assert_eq!(host.render(source).await.unwrap().body, body, "{source}");
    }
}

#[tokio::test]
async fn a_run_that_waits_too_long_is_ended() {
    let wall = Span(Duration::from_millis(100));
    let host = TestRuntime::with(config::ScriptConfig { wall, ..config::ScriptConfig::default() });
    let slow = Verdict::Failed("script:1: it took longer than 100ms".to_owned());
    assert_eq!(host.run_script("http.request{ url = 'http://never.test' }").await.verdict, slow);
    assert_eq!(host.run_script("pcall(http.request, { url = 'http://never.test' })").await.verdict, slow);
    assert_eq!(host.run_script("while true do end").await.verdict, slow);
    assert_eq!(host.run_script("").await.verdict, Verdict::Ack);
}

/// A runtime whose limits are never reached.
fn without_limits() -> TestRuntime {
    let long = Span(Duration::from_secs(600));
    TestRuntime::with(config::ScriptConfig { wall: long, cpu: long, ..config::ScriptConfig::default() })
}

#[tokio::test]
async fn while_one_owner_loops_another_is_served() {
    let host = without_limits();
    let busy = Owner::User(UserId::new());
    let looping = ProgramText::script("script", "http.request{ url = 'http://x.test' } while true do end");
    let loops: Vec<_> = (0..20)
        .map(|_| {
            let (workers, looping) = (host.workers.clone(), looping.clone());
            tokio::spawn(async move { workers.run_script(&looping, busy, input(event())).await })
        })
        .collect();
    host.http.requested().await;
    for _ in 0..100 {
        host.render("return event.type").await.unwrap();
    }
    assert!(loops.iter().all(|run| !run.is_finished()));
}

#[tokio::test]
async fn a_dropped_future_frees_the_thread_its_loop_was_on() {
    let host = without_limits();
    let looping = ProgramText::script("script", "http.request{ url = 'http://x.test' } while true do end");
    for _ in 0..5 {
        let run = host.workers.run_script(&looping, Owner::Global, input(event()));
        tokio::select! {
            _ = run => panic!("it never ends by itself"),
            () = host.http.requested() => {}
        }
    }
    // Returns only if this owner's one thread is free again.
    assert_eq!(host.run_script("").await.verdict, Verdict::Ack);
}
