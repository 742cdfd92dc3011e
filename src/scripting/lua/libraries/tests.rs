//! Each library, as scripts use it.

use crate::{
    model::owner::Owner,
    scripting::lua::{Verdict, test_support::*},
};

/// Runs each as a script that must not fail.
async fn all_succeed(claims: &[&str]) {
    let host = TestRuntime::new();
    for claim in claims {
        let source = format!("local event = event {claim}");
        let run = host.run_script(&source).await;
        assert_eq!(run.verdict, Verdict::Ack, "{claim}");
    }
}

/// Runs each script and checks the error it ends with.
async fn all_fail(claims: &[(&str, &str)]) {
    let host = TestRuntime::new();
    for (source, error) in claims {
        assert_eq!(host.run_script(source).await.verdict, Verdict::Failed((*error).to_owned()), "{source}");
    }
}

#[tokio::test]
async fn json_encodes_and_decodes_without_loss() {
    all_succeed(&[
        "assert(json.encode({ a = { 1, 'x', json.null } }) == '{\"a\":[1,\"x\",null]}')",
        "assert(json.encode(json.decode('9007199254740993')) == '9007199254740993')",
        "assert(json.encode(json.array()) == '[]' and json.encode(json.array({})) == '[]' and json.encode({}) == '{}')",
        "assert(json.decode('null') == json.null and json.null ~= nil and json.null)",
        "assert(json.decode('{\"a\":[1]}').a[1] == 1)",
        "assert(json.encode(nil) == 'null')",
        "local ok, error = pcall(json.decode, '{') assert(not ok and type(error) == 'string')",
    ])
    .await;
    all_fail(&[
        (
            "\njson.decode('{')",
            "script:2: json.decode: this is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("json.encode({ a = print })", "script:1: json.encode: $.a is a function, which is not JSON"),
        ("json.decode(nil)", "script:1: json.decode: cannot take a nil as string (expected string or number)"),
    ])
    .await;
}

#[tokio::test]
async fn times_are_seconds_and_read_as_rfc_3339() {
    all_succeed(&[
        "assert(time.now() > 1.7e9)",
        "assert(time.format(1700000000.5) == '2023-11-14T22:13:20.500000Z')",
        "assert(time.format(1700000000, '%Y/%m/%d %H') == '2023/11/14 22')",
        "assert(time.parse('2023-11-14T23:13:20+01:00') == 1700000000)",
        "assert(time.parse(event.ts) == 1700000000)",
    ])
    .await;
    all_fail(&[
        ("time.parse('now')", "script:1: time.parse: `now` is no RFC 3339 time such as 2026-01-31T12:00:00Z"),
        ("time.format(1, '%Q')", "script:1: time.format: `%Q` is no strftime format"),
        ("time.format(0/0)", "script:1: time.format: NaN is no time this calendar knows"),
        ("time.format(1e300)", &format!("script:1: time.format: {} is no time this calendar knows", 1e300)),
    ])
    .await;
}

#[tokio::test]
async fn digests_and_encodings_are_the_standard_ones() {
    all_succeed(&[
        "assert(crypto.sha256('abc') == 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')",
        "assert(crypto.hmac_sha256('key', 'The quick brown fox jumps over the lazy dog')
            == 'f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8')",
        "assert(crypto.hex_decode(crypto.hex_encode('\\0\\xffx')) == '\\0\\xffx')",
        "assert(crypto.base64_encode('\\xff\\xfe') == '//4=' and crypto.base64_decode('//4=') == '\\xff\\xfe')",
        "assert(#crypto.random(16) == 16 and crypto.random(16) ~= crypto.random(16))",
        "assert(#crypto.uuid() == 36 and crypto.uuid() ~= crypto.uuid())",
        "assert(crypto.equal('a', 'a') and not crypto.equal('a', 'b') and not crypto.equal('a', 'ab'))",
    ])
    .await;
    all_fail(&[
        ("crypto.hex_decode('abc')", "script:1: crypto.hex_decode: the text is not hex"),
        ("crypto.random(1e9)", "script:1: crypto.random: at most 1024 bytes at once"),
        (
            "crypto.sha256(('x'):rep(5e6))",
            "script:1: crypto.sha256: the text has 5000000 bytes; at most 4194304 are taken",
        ),
    ])
    .await;
}

#[tokio::test]
async fn regular_expressions_match_replace_and_split() {
    all_succeed(&[
        "assert(re.test('^v\\\\d+', 'v12') and not re.test('^v\\\\d+', '12'))",
        "local m = re.match('(?<major>\\\\d+)\\\\.(\\\\d+)(-rc)?', 'v1.42')
         assert(m.text == '1.42' and m.first == 2 and m.last == 5 and m.named.major == '1')
         assert(json.encode(m.groups) == '[\"1\",\"42\",null]')",
        "assert(re.match('x', 'y') == nil)",
        "assert(json.encode(re.find_all('\\\\d', 'a1b2')) == '[\"1\",\"2\"]' and json.encode(re.find_all('x', '')) == '[]')",
        "assert(re.replace('(\\\\w+)@(\\\\w+)', 'a@b c@d', '$2:$1') == 'b:a d:c')",
        "assert(json.encode(re.split('\\\\s*,\\\\s*', 'a , b,c')) == '[\"a\",\"b\",\"c\"]')",
        "assert(re.escape('a.b') == 'a\\\\.b')",
    ])
    .await;
    let host = TestRuntime::new();
    let Verdict::Failed(error) = host.run_script("re.test('(', 'x')").await.verdict else { panic!() };
    assert!(error.starts_with("script:1: re.test: regex parse error"), "{error}");
}

#[tokio::test]
async fn a_replacement_that_grows_without_end_is_refused_before_it_is_built() {
    let too_long = "script:1: re.replace: the result has more than 4194304 bytes";
    all_fail(&[
        ("re.replace('(x+)', ('x'):rep(1e5), ('$1'):rep(6e4))", too_long),
        ("re.replace('(?<a>x+)', ('x'):rep(1e5), ('${a}'):rep(3e4))", too_long),
        ("re.replace('x', ('x'):rep(1e5), ('y'):rep(1e5))", too_long),
    ])
    .await;
    all_succeed(&[
        "assert(re.replace('(x)', ('x'):rep(1e5), '$1$1$$${1}') == ('xx$x'):rep(1e5))",
        "assert(re.replace('(a)|(?<name>b)', 'cabd', '<$1|$name|$9|$0>') == 'c<a|||a><|b||b>d')",
    ])
    .await;
}

#[tokio::test]
async fn a_text_in_the_message_of_an_error_is_bounded() {
    let host = TestRuntime::new();
    for source in ["time.parse(('x'):rep(5e6))", "http.request({ [('x'):rep(5e6)] = 1 })"] {
        let Verdict::Failed(error) = host.run_script(source).await.verdict else { panic!("{source}") };
        assert!(error.len() < 200, "{source}: {} bytes", error.len());
    }
}

#[tokio::test]
async fn an_integer_past_2_to_the_53_is_written_as_a_text() {
    all_succeed(&[
        "assert(tostring(integer.fromstring(\"9007199254740993\")) == '9007199254740993')",
        "assert(json.encode({integer.fromstring(\"9223372036854775807\")}) == '[9223372036854775807]')",
        "assert(json.encode({integer.fromstring(\"-9223372036854775808\")}) == '[-9223372036854775808]')",
    ])
    .await;
}

#[tokio::test]
async fn a_request_of_a_global_tool_is_sent_as_the_user_who_runs_the_tool() {
    let host = TestRuntime::new();
    let source = "
        http.get('http://x.test/a')
        http.post('http://x.test/b', 'x')
        return http.request{ url = 'http://x.test/c' }.status";
    assert!(host.run_tool(source, "{}").await.result.is_ok());
    assert!(matches!(host.run_script("http.get('http://x.test/d')").await.verdict, Verdict::Ack));
    let owners: Vec<_> = host.http.requests.lock().iter().map(|(owner, _)| *owner).collect();
    assert_eq!(owners, [tool_user(), tool_user(), tool_user(), Owner::Global]);
}

#[tokio::test]
async fn a_request_is_sent_as_its_owner_and_its_response_returned() {
    let host = TestRuntime::new();
    let source = "
        local r = http.request{ url = 'http://x.test/a', json = { a = 1 }, headers = { Authorization = 'Bearer t' }, timeout = 2.5 }
        assert(r.status == 201 and r.body == '{\"a\":1}' and r.headers['x-seen'] == '1, 2')
        local r = http.request{ url = 'http://x.test/b' }
        assert(r.body == '')
    ";
    assert_eq!(host.run_script(source).await.verdict, Verdict::Ack);
    let requests = std::mem::take(&mut *host.http.requests.lock());
    let (owner, first) = &requests[0];
    assert_eq!((*owner, first.method.as_str(), first.url.as_str()), (Owner::Global, "POST", "http://x.test/a"));
    assert_eq!(first.timeout, Some(std::time::Duration::from_millis(2500)));
    let headers = [("Authorization", "Bearer t"), ("Content-Type", "application/json")];
    assert_eq!(first.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(requests[1].1.method, "GET");
    all_fail(&[
        ("http.request{}", "script:1: http.request: `url` is missing"),
        ("http.request{ url = 5 }", "script:1: http.request: `url` must be a string"),
        ("http.request{ uri = 'x' }", "script:1: http.request: `uri` means nothing here"),
        ("http.request{ url = 'http://refused.test' }", "script:1: http.request: refused.test may not be reached"),
        (
            "http.request{ url = 'x', body = 'a', json = 1 }",
            "script:1: http.request: `body` and `json` exclude each other",
        ),
        (
            "http.request{ url = 'x', body = ('x'):rep(2e6) }",
            "script:1: http.request: the body has 2000000 bytes; at most 1048576 are sent",
        ),
    ])
    .await;
    all_succeed(&["local ok, why = pcall(http.request, { url = 'http://refused.test' })
        assert(not ok and why == 'http.request: refused.test may not be reached')"])
    .await;
}

#[tokio::test]
async fn each_http_method_has_a_short_form() {
    let host = TestRuntime::new();
    let source = "
        assert(http.get('http://x.test/a').status == 201)
        http.delete('http://x.test/b', { headers = { A = 'b' }, timeout = 1 })
        assert(http.post('http://x.test/c', { n = 1 }).body == '{\"n\":1}')
        assert(http.put('http://x.test/d', 'text', { headers = { ['Content-Type'] = 'text/plain' } }).body == 'text')
        assert(http.patch('http://x.test/e', nil, { json = json.array() }).body == '[]')
        assert(http.post('http://x.test/f').body == '')
    ";
    assert_eq!(host.run_script(source).await.verdict, Verdict::Ack);
    assert!(host.run_program(source, &[]).await.result.is_ok());
    let requests = std::mem::take(&mut *host.http.requests.lock());
    let seen: Vec<_> = requests.iter().map(|(_, request)| (&request.method[..], &request.url[14..])).collect();
    let expected =
        [("GET", "a"), ("DELETE", "b"), ("POST", "c"), ("PUT", "d"), ("PATCH", "e"), ("POST", "f")].repeat(2);
    assert_eq!(seen, expected);
    let headers: Vec<_> = requests[1..5].iter().map(|(_, request)| request.headers.clone()).collect();
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let json = pair("Content-Type", "application/json");
    assert_eq!(headers, [pair("A", "b"), json.clone(), pair("Content-Type", "text/plain"), json]);
    assert_eq!(requests[1].1.timeout, Some(std::time::Duration::from_secs(1)));
    let long = format!("http.post('x', ('x'):rep({}))", 2_000_000);
    all_fail(&[
        ("http.get()", "script:1: http.get: cannot take a nil as string (expected string or number)"),
        ("http.get('')", "script:1: http.get: `url` is missing"),
        ("http.get{ url = 'x' }", "script:1: http.get: cannot take a table as string (expected string or number)"),
        ("http.get('x', { url = 'y' })", "script:1: http.get: `url` is no option here: it is in the call"),
        ("http.get('x', { heders = {} })", "script:1: http.get: `heders` means nothing here"),
        ("http.get('http://refused.test')", "script:1: http.get: refused.test may not be reached"),
        ("http.put('x', 5)", "script:1: http.put: the body must be a string, or a table that is sent as JSON"),
        ("http.post('x', 'a', { json = 1 })", "script:1: http.post: the body is given twice: leave the option out"),
        (long.as_str(), "script:1: http.post: the body has 2000000 bytes; at most 1048576 are sent"),
    ])
    .await;
}

#[tokio::test]
async fn a_missing_member_of_a_library_is_named_with_the_members_there_are() {
    let http = "delete, get, patch, post, put, request";
    all_fail(&[
        ("\nhttp.fetch('x')", &format!("script:2: http has no `fetch`: it has {http}")),
        ("if http.fetch then end", &format!("script:1: http has no `fetch`: it has {http}")),
        ("svc.rerty(5)", "script:1: svc has no `rerty`: it has call, dead, retry, skip"),
        ("kv.put('a', 1)", "script:1: kv has no `put`: it has add, delete, get, increment, set"),
        ("json.parse('1')", "script:1: json has no `parse`: it has array, decode, encode, null"),
        ("log.warning('x')", "script:1: log has no `warning`: it has debug, error, info, warn"),
        ("time.time()", "script:1: time has no `time`: it has format, now, parse"),
        ("re.gsub('a', 'b', 'c')", "script:1: re has no `gsub`: it has escape, find_all, match, replace, split, test"),
        ("crypto[5]()", "script:1: crypto has no `5`: it has base64_decode, base64_encode, equal, hex_decode, hex_encode, hmac_sha256, random, sha256, uuid"),
        (
            "require('svc.event').get('x')",
            "script:1: svc.event has no `get`: it has actor, custom, get_bool, get_dict, get_int, get_list, get_string, id, \
             missed, replay, space, space_urls, ts, type",
        ),
    ])
    .await;
    all_succeed(&[
        "assert(rawget(http, 'fetch') == nil and rawget(http, 'get') == http.get)",
        "local n = 0 for name, f in pairs(http) do n += 1 end assert(n == 6)",
        "assert(not pcall(setmetatable, http, {}) and not pcall(rawset, http, 'x', 1))",
        "assert(getmetatable(http) == 'library' and not pcall(function() http.get = nil end))",
        "assert(not pcall(function() return svc.nope end))",
    ])
    .await;
    let host = TestRuntime::new();
    for (source, error) in [
        (
            "fs.open('x')",
            "fs has no `open`: it has append, copy, exists, list, mkdir, read, remove, rename, stat, write",
        ),
        ("process.start{}", "process has no `start`: it has run, spawn"),
        ("os.time()", "os has no `time`: it has getenv"),
        ("svc.clent.list()", "svc has no `clent`: it has agent, call, client, event"),
        ("svc.client.get()", "svc.client has no `get`: it has batch, call, list, notify"),
        ("svc.event.raise('x')", "svc.event has no `raise`: it has emit"),
        ("require('svc.agent').go()", "svc.agent has no `go`: it has register, unregister"),
        ("runtime.json.method()", "runtime has no `json`: it has jsonrpc"),
        ("runtime.jsonrpc.handler()", "runtime.jsonrpc has no `handler`: it has method"),
        ("time.wait(1)", "time has no `wait`: it has format, now, parse, sleep"),
    ] {
        let run = host.run_program(source, &[]).await;
        assert_eq!(run.result.unwrap_err().to_string(), format!("main.lua:1: {error}"), "{source}");
    }
    let rendered = host.render("return { json.stringify(event) }").await.unwrap_err();
    assert_eq!(rendered.to_string(), "template:1: json has no `stringify`: it has array, decode, encode, null");
    let tool = host.run_tool("svc.event.raise('x')", "{}").await.result.unwrap_err();
    assert_eq!(tool.to_string(), "tool:1: svc.event has no `raise`: it has emit");
}

#[tokio::test]
async fn values_are_kept_between_runs() {
    let host = TestRuntime::new();
    assert_eq!(
        host.run_script("kv.set('a', { n = 9007199254740993 or 1, list = json.array() })").await.verdict,
        Verdict::Ack
    );
    for claim in [
        "assert(json.encode(kv.get('a').list) == '[]' and kv.get('b') == nil)",
        "assert(kv.add('once', true) and not kv.add('once', true))",
        "assert(kv.add('short', 1, 0) and kv.get('short') == nil and kv.add('short', 1))",
        "assert(kv.increment('n') == 1 and kv.increment('n', 5) == 6 and kv.get('n') == 6)",
        "assert(kv.delete('n') and not kv.delete('n'))",
        "kv.set('big', json.decode('9007199254740993')) assert(json.encode(kv.get('big')) == '9007199254740993')",
    ] {
        assert_eq!(host.run_script(claim).await.verdict, Verdict::Ack, "{claim}");
    }
    let long = format!("kv.set('a', ('v'):rep({}))", crate::platform::kv::MAX_VALUE);
    for (source, error) in [
        (long.as_str(), "script:1: kv.set: a value has at most 65536 bytes of JSON; this one has 65538"),
        ("kv.set('a', nil)", "script:1: kv.set: the value is nil: use kv.delete"),
        ("kv.set('a', print)", "script:1: kv.set: $ is a function, which is not JSON"),
        ("kv.get(('k'):rep(300))", "script:1: kv.get: a key has at most 256 bytes; this one has 300"),
        ("kv.increment('a')", "script:1: kv.increment: the value under `a` is no integer, or would grow past 2^53"),
        ("kv.set('a', 1, -5)", "script:1: kv.set: the time to live must be a number of seconds from 0 up"),
    ] {
        assert_eq!(host.run_script(source).await.verdict, Verdict::Failed(error.to_owned()), "{source}");
        // A program of a space gets the same error.
        let run = host.run_program(source, &[]).await;
        assert_eq!(run.result.unwrap_err().to_string(), error.replace("script:", "main.lua:"), "{source}");
    }
}

#[tokio::test]
async fn a_method_can_be_called() {
    all_succeed(&[
        "assert(json.encode(svc.call('echo', { a = { 1 } })) == '{\"a\":[1]}')",
        "assert(json.encode(svc.call('echo', json.decode('9007199254740993'))) == '9007199254740993')",
        "assert(svc.call('echo') == json.null)",
    ])
    .await;
    all_fail(&[("svc.call('nope')", "script:1: svc.call: no method named `nope`")]).await;
}

#[tokio::test]
async fn the_fields_of_an_event_are_read_by_name() {
    all_succeed(&[
        "local e = require 'svc.event'
         assert(e.id() == event.id and e.type() == event.type and e.ts() == event.ts)
         assert(e.space().name == 'web' and e.space_urls()[1] == 'http://web')
         assert(e.actor().username == 'ada' and e.custom().CHANNEL == 'ops')",
        "local e = require 'svc.event'
         assert(e.get_string('version') == '1.2' and e.get_string('nope', 'x') == 'x' and e.get_string('ok') == nil)
         assert(e.get_string('none', 'x') == 'x')
         assert(e.get_bool('ok') == true and e.get_bool('nope', false) == false)
         assert(e.get_int('items.2.x') == 2 and e.get_int('version', 3) == 3)
         assert(tostring(e.get_int('big')) == '9007199254740993')
         assert(#e.get_list('items') == 2 and #e.get_list('list') == 0 and e.get_list('empty') == nil)
         assert(next(e.get_dict('empty')) == nil and e.get_dict('list') == nil and e.get_dict('items.1').x == 1)
         assert(e.get_string('version.x.y') == nil)",
        "assert(require 'json' == json and require 'svc' == svc and require 'log' == log)",
    ])
    .await;
    all_fail(&[("require 'socket'", "script:1: no module named `socket` in a script")]).await;
}

#[tokio::test]
async fn the_reason_of_a_verdict_is_bounded() {
    let host = TestRuntime::new();
    for call in ["svc.skip(why)", "svc.dead(why)", "svc.retry(1, why)", "error(why, 0)"] {
        let run = host.run_script(&format!("local why = string.rep('é', 1e6) return {call}")).await;
        let (Verdict::Skip(why) | Verdict::Dead(why) | Verdict::Retry { why, .. } | Verdict::Failed(why)) = run.verdict
        else {
            panic!("{call} is an ack")
        };
        assert_eq!((why.len(), why.trim_end_matches('é')), (4 << 10, ""), "{call}");
    }
}
