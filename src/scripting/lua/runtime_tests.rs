//! The behaviour of the runtime as its callers rely on it. `hostile_script_tests` covers misbehaving scripts.

use super::{test_support::*, *};
use crate::{
    model::{body_template::BodyTemplate, event::Event, id::SpaceId, owner::Owner, units::Span},
    platform::config,
    scripting::workers::ProgramText,
};
use serde_json::value::RawValue;
use std::time::Duration;

#[tokio::test]
async fn a_template_makes_json_of_a_table_and_leaves_a_string_alone() {
    let host = TestRuntime::new();
    let source =
        r#"return { text = ("%s deployed %s"):format(actor.username, event.data.version), channel = custom.CHANNEL }"#;
    let rendered = host.render(source).await.unwrap();
    assert_eq!(rendered.kind, BodyFormat::Json);
    assert_eq!(rendered.body, r#"{"channel":"ops","text":"ada deployed 1.2"}"#);
    let rendered = host.render("return event.type .. '!'").await.unwrap();
    assert_eq!((rendered.kind, &*rendered.body), (BodyFormat::Text, &b"custom.deploy.done!"[..]));
}

#[tokio::test]
async fn a_template_has_event_space_actor_and_custom_in_scope() {
    let host = TestRuntime::new();
    let rendered = host.render("return { event = event, space = space, actor = actor, custom = custom }").await;
    let seen: serde_json::Value = serde_json::from_slice(&rendered.unwrap().body).unwrap();
    let event = event();
    assert_eq!(
        seen,
        serde_json::json!({
            "event": {
                "id": seen["event"]["id"],
                "type": "custom.deploy.done",
                "ts": "2023-11-14T22:13:20.000000Z",
                "sequence": 7,
                "attempt": 1,
                "data": serde_json::from_str::<serde_json::Value>(event.data.get()).unwrap(),
            },
            "space": { "id": event.space_id.to_string(), "name": "web", "urls": ["http://web"] },
            "actor": { "id": "00000000-0000-0000-0000-000000000000", "username": "ada", "kind": "user" },
            "custom": { "CHANNEL": "ops" },
        })
    );
}

/// Runs a transform on a body of this content type.
async fn transform(host: &TestRuntime, source: &str, content_type: &str, body: String) -> Result<String, String> {
    let headers = vec![("content-type".to_owned(), content_type.to_owned())];
    let input = TransformInput { slug: "a".to_owned(), headers, query: Vec::new(), body: body.into() };
    let run = host.workers.run_transform(&ProgramText::transform(source), Owner::Global, input).await;
    run.result.map_err(|error| error.to_string())
}

#[tokio::test]
async fn only_a_transform_that_uses_the_json_of_a_body_fails_if_lua_cannot_read_it() {
    let host = TestRuntime::new();
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (body, why) in [
        (nested(65), "transform:2: request.json: $ is nested deeper than 64 levels"),
        (format!("[{}1]", "1,".repeat(100_000)), "transform:2: request.json: there are more than 100000 values"),
        (
            format!("\"{}\"", "x".repeat(2 << 20)),
            "transform:2: request.json: there are more than 1048576 bytes of JSON",
        ),
        (
            "{\"a\": 1e999}".to_owned(),
            "transform:2: request.json: the body cannot be read: number out of range at line 1 column 11",
        ),
    ] {
        let length = body.len().to_string();
        let read = transform(&host, "return #request.body", "application/json", body.clone()).await;
        assert_eq!(read, Ok(length), "{why}");
        let used = transform(&host, "local a = 1\nreturn request.json", "application/json", body).await;
        assert_eq!(used, Err(why.to_owned()));
    }
    for body in ["x".repeat(2 << 20), format!("{}x", nested(65)), "1e999x".to_owned(), String::new()] {
        let other = "return request.json == nil and request.other == nil and request.form == nil";
        assert_eq!(transform(&host, other, "application/json", body).await, Ok("true".to_owned()), "it is no JSON");
    }
    let whole = transform(&host, "return request", "a/b", "{\"a\": [9007199254740993]}".to_owned()).await.unwrap();
    assert!(whole.contains("\"json\":{\"a\":[9007199254740993]}"), "{whole}");
}

#[tokio::test]
async fn a_form_is_known_by_its_content_type_in_any_case() {
    let host = TestRuntime::new();
    for content_type in ["application/x-www-form-urlencoded", "Application/X-WWW-Form-Urlencoded ; charset=UTF-8"] {
        let form = transform(&host, "return request.form.a", content_type, "a=1%20".to_owned()).await;
        assert_eq!(form, Ok("\"1 \"".to_owned()), "{content_type}");
    }
}

#[tokio::test]
async fn data_passes_through_lua_unchanged() {
    let host = TestRuntime::new();
    assert_eq!(host.render("return event.data").await.unwrap().body, event().data.get());
}

#[tokio::test]
async fn a_template_that_names_its_fields_gets_them_as_one_that_reads_the_whole_data_does() {
    let host = TestRuntime::new();
    let json =
        r#"{"first":{"data":[1,{"a":null}],"b":9007199254740993},"s\u0065cond":"x","gone":[],"first":{"c":1.5}}"#;
    let render = async |source: &str| {
        let event = Event { data: RawValue::from_string(json.to_owned()).unwrap(), ..event() };
        host.workers.render(&lua(source), Owner::Global, input(event)).await.unwrap().body
    };
    for fields in ["{event.data.first, event.data.second}", "{event.data.third or 0}", "{event.data.first.c}"] {
        let whole = fields.replace("event.data.", "data.");
        assert_eq!(
            render(&format!("return {fields}")).await,
            render(&format!("local data = event.data return {whole}")).await
        );
    }
    assert_eq!(render("return {event.data.second, event.data.first}").await, r#"["x",{"c":1.5}]"#);
    assert_eq!(render("event.data.new = event.data.second return {event.data.new}").await, r#"["x"]"#);
}

#[tokio::test]
async fn fields_that_a_program_does_not_name_are_not_read() {
    let host = TestRuntime::new();
    let json = format!(r#"{{"deep":{}{},"a":1}}"#, "[".repeat(100), "]".repeat(100));
    let event = Event { data: RawValue::from_string(json).unwrap(), ..event() };
    let render = async |source: &str| host.workers.render(&lua(source), Owner::Global, input(event.clone())).await;
    assert_eq!(render("return {event.data.a}").await.unwrap().body, "[1]");
    let error = render("local data = event.data return {data.a}").await.unwrap_err();
    assert!(error.to_string().contains("nested deeper than 64 levels"), "{error}");
}

#[tokio::test]
async fn an_event_from_no_space_has_an_empty_space() {
    let host = TestRuntime::new();
    let event = Event { space: None, ..event() };
    let program = lua("return { space = space.name, urls = space.urls, custom = custom }");
    let rendered = host.workers.render(&program, Owner::Global, input(event)).await.unwrap();
    assert_eq!(rendered.body, r#"{"custom":{},"space":"","urls":[]}"#);
}

#[tokio::test]
async fn a_text_template_fills_strings_in_as_they_are_and_the_rest_as_json() {
    let host = TestRuntime::new();
    let render = async |source: &str| {
        let program = ProgramText::template(&BodyTemplate::Text(source.to_owned()));
        host.workers.render(&program, Owner::Global, input(event())).await
    };
    let source =
        "{\"v\": \"${{ event.data.version }}\",\n\"n\": ${{ event.data.big }}, \"e\": ${{ {} }}, \"x\": ${{ nil }}}";
    let rendered = render(source).await.unwrap();
    assert_eq!(rendered.kind, BodyFormat::Text);
    assert_eq!(rendered.body, "{\"v\": \"1.2\",\n\"n\": 9007199254740993, \"e\": {}, \"x\": null}");
    let error = render("one\ntwo ${{ 1 }}\n${{ missing.x }}").await.unwrap_err();
    assert_eq!(error.to_string(), "template:3: attempt to index nil with 'x'");
    let error = render("one\n${{ print }}").await.unwrap_err();
    assert_eq!(error.to_string(), "template:2: $ is a function, which is not JSON");
}

#[tokio::test]
async fn a_result_that_is_no_body_is_an_error_that_names_its_type() {
    let host = TestRuntime::new();
    for (source, error) in [
        ("return", "the result must be a table or a string, not nil"),
        ("return 5", "the result must be a table or a string, not integer"),
        ("return print", "the result must be a table or a string, not function"),
        ("return { a = { print } }", "the result cannot be sent: $.a[1] is a function, which is not JSON"),
        ("local t = {} t.t = t return t", "the result cannot be sent: $.t contains itself, which is not JSON"),
        ("\nerror('no')", "template:2: no"),
        ("return string.rep('x', 2^20 + 1)", "the result cannot be sent: there are more than 1048576 bytes of JSON"),
    ] {
        assert_eq!(host.render(source).await.unwrap_err().to_string(), error, "{source}");
    }
}

#[tokio::test]
async fn a_script_decides_by_what_it_returns_or_raises() {
    let host = TestRuntime::new();
    for (source, verdict) in [
        ("", Verdict::Ack),
        ("return 5", Verdict::Ack),
        ("local a = 1\nerror('boom')", Verdict::Failed("script:2: boom".into())),
        ("error('boom', 0)", Verdict::Failed("boom".into())),
        ("local x = nil\n\nx.y = 1", Verdict::Failed("script:3: attempt to index nil with 'y'".into())),
        ("return svc.retry(1.5, 'later')", Verdict::Retry { after: Duration::from_millis(1500), why: "later".into() }),
        ("return svc.skip('mine not')", Verdict::Skip("mine not".into())),
        ("return svc.dead()", Verdict::Dead(String::new())),
        (
            "return svc.retry(-1)",
            Verdict::Failed("script:1: svc.retry: the wait must be a number of seconds from 0 up".into()),
        ),
    ] {
        assert_eq!(host.run_script(source).await.verdict, verdict, "{source}");
    }
}

#[tokio::test]
async fn a_verdict_that_is_made_and_not_returned_counts_and_the_log_says_so() {
    let host = TestRuntime::new();
    let retry = || Verdict::Retry { after: Duration::from_secs(30), why: "later".into() };
    for (source, verdict, name) in [
        ("svc.retry(30, 'later')", retry(), Some("svc.retry")),
        ("if true then svc.retry(30, 'later') end\nreturn true", retry(), Some("svc.retry")),
        ("svc.skip('not mine') print('on')", Verdict::Skip("not mine".into()), Some("svc.skip")),
        ("svc.dead('hopeless') return {}", Verdict::Dead("hopeless".into()), Some("svc.dead")),
        ("pcall(function() svc.retry(30, 'later') error('x') end)", retry(), Some("svc.retry")),
        ("svc.retry(30, 'later') svc.skip()", retry(), Some("svc.retry")),
        ("svc.retry(30, 'later') return svc.skip('done')", Verdict::Skip("done".into()), None),
        ("svc.skip('x') error('boom', 0)", Verdict::Failed("boom".into()), None),
        ("svc.skip('x') return nil, 'why'", Verdict::Failed("why".into()), None),
    ] {
        let run = host.run_script(source).await;
        assert_eq!(run.verdict, verdict, "{source}");
        let warning = name.map(|name| format!("warn: {name} was called without `return`: write `return {name}(…)`"));
        assert_eq!(run.log.iter().find(|line| line.starts_with("warn: ")), warning.as_ref(), "{source}");
    }
    // Nothing of it is left for the next run in the same state.
    let program = ProgramText::script("script", "if event.attempt == 1 then svc.retry(1) end");
    for (attempt, verdict) in
        [(1, Verdict::Retry { after: Duration::from_secs(1), why: String::new() }), (2, Verdict::Ack)]
    {
        let input = EventInput { attempt, ..input(event()) };
        assert_eq!(host.workers.run_script(&program, Owner::Global, input).await.verdict, verdict);
    }
}

#[tokio::test]
async fn a_failure_that_a_script_returns_is_no_ack() {
    let host = TestRuntime::new();
    for (source, error) in [
        ("return nil, 'why'", "why"),
        ("return false", "the script returned false"),
        ("return false, 'why'", "why"),
        ("return pcall(error, 'inner', 0)", "inner"),
        ("return nil, { message = 'why' }", "why"),
        ("return nil, 5", "it returned nil and a reason that is no text"),
        ("return svc.retry", "the script returned a function: call it, as in `return svc.retry(30, \"why\")`"),
    ] {
        assert_eq!(host.run_script(source).await.verdict, Verdict::Failed(error.into()), "{source}");
    }
    let wrapped = host.run_script("return nil, svc.dead('x')").await;
    assert_eq!(wrapped.verdict, Verdict::Dead("x".into()));
    for source in ["return", "return nil", "return true", "return {}, 'note'", "return 0, 'note'", "return 'ok', 5"] {
        assert_eq!(host.run_script(source).await.verdict, Verdict::Ack, "{source}");
    }
}

#[tokio::test]
async fn a_failure_that_a_template_or_a_tool_returns_is_its_error() {
    let host = TestRuntime::new();
    for (source, error) in [("return nil, 'no channel'", "no channel"), ("return false, 'no'", "no")] {
        assert_eq!(host.render(source).await.unwrap_err().to_string(), error, "{source}");
        assert_eq!(host.run_tool(source, "{}").await.result.unwrap_err().to_string(), error, "{source}");
        let program = host.run_program(source, &[]).await;
        assert_eq!(program.result.unwrap_err().to_string(), error, "{source}");
    }
    let raised =
        host.run_tool("return nil, { code = 7, message = 'full', data = { 1 } }", "{}").await.result.unwrap_err();
    assert!(matches!(&raised, ScriptError::RaisedWith { code: Some(7), message, data: Some(_) } if message == "full"));
    for (source, result) in [("return false", "false"), ("return nil", "null"), ("return 1, 'note'", "1")] {
        assert_eq!(host.run_tool(source, "{}").await.result.unwrap().get(), result, "{source}");
    }
}

#[tokio::test]
async fn the_output_of_a_script_is_kept_also_when_it_fails() {
    let host = TestRuntime::new();
    let run = host.run_script("print('a', 1, nil)\nlog.warn('hot', true)\nerror('x')").await;
    assert_eq!(run.log, ["a\t1\tnil", "warn: hot\ttrue"]);
    assert_eq!(run.verdict, Verdict::Failed("script:3: x".into()));
    assert_eq!(host.render("log.info('hi') return ''").await.unwrap().log, ["info: hi"]);
    let run = host.run_script("for i = 1, 1000 do print(i) end").await;
    assert_eq!((run.log.len(), run.log[200].as_str()), (201, "… truncated"));
}

#[tokio::test]
async fn runs_of_one_program_share_a_state_and_nothing_else() {
    let host = TestRuntime::new();
    let program = lua("count = (count or 0) + 1 return { count }");
    for _ in 0..3 {
        let rendered = host.workers.render(&program, Owner::Global, input(event())).await.unwrap();
        assert_eq!(rendered.body, "[1]");
    }
}

#[tokio::test]
async fn every_run_is_measured() {
    let host = TestRuntime::new();
    host.run_script("").await;
    host.render("return ''").await.unwrap();
    let text = host.metrics.render([]);
    assert!(text.contains("svc_lua_cpu_seconds_count 2\n"), "{text}");
    assert!(host.run_script("for i = 1, 1e5 do end").await.cpu > Duration::ZERO);
}

#[tokio::test]
async fn a_dropped_future_ends_its_run_although_it_waits() {
    let host = TestRuntime::new();
    let program = ProgramText::script("script", "http.request{ url = 'http://never.test' }");
    let run = host.workers.run_script(&program, Owner::Global, input(event()));
    tokio::select! {
        _ = run => panic!("nothing answers"),
        () = host.http.requested() => {}
    }
    // The request is dropped with the run, long before its time limit.
    host.http.abandoned().await;
}

#[tokio::test]
async fn a_runtime_that_shuts_down_ends_waiting_runs_and_accepts_no_more() {
    let host = TestRuntime::new();
    let program = ProgramText::script("script", "http.request{ url = 'http://never.test' }");
    let workers = host.workers.clone();
    let run = tokio::spawn(async move { workers.run_script(&program, Owner::Global, input(event())).await });
    host.http.requested().await;
    host.workers.shut_down();
    assert_eq!(run.await.unwrap().verdict, Verdict::NotRun("the server shuts down".into()));
    let later = host.run_script("").await.verdict;
    assert_eq!(later, Verdict::NotRun("the server shuts down".into()));
}

#[tokio::test]
async fn the_path_of_a_value_that_is_not_json_is_bounded() {
    let error = TestRuntime::new().render("return { [string.rep('x', 1e6)] = print }").await.unwrap_err().to_string();
    assert!(error.contains("$.xxx") && error.contains("is a function"), "{}", &error[..100]);
    assert!(error.len() < 5 << 10, "{} bytes", error.len());
}

#[tokio::test]
async fn a_check_is_healthy_if_it_returns_true() {
    let host = TestRuntime::new();
    let check = async |source: &str| {
        let space = CheckedSpace { id: SpaceId::NIL, name: "web".to_owned() };
        host.runtime.run_check(&Program::script("script", source).unwrap(), space).await
    };
    assert_eq!(check("return space.name == 'web' and event == nil").await.unwrap(), CheckVerdict::Healthy);
    assert_eq!(
        check("return http.request{ url = 'http://up.test' }.status == 201").await.unwrap(),
        CheckVerdict::Healthy
    );
    for (source, why) in [
        ("return false", "it did not return true"),
        ("return", "it did not return true"),
        ("return 1", "it did not return true"),
        ("return false, 'too hot'", "too hot"),
        ("return nil, ('x'):rep(10000)", &"x".repeat(4096)),
    ] {
        assert_eq!(check(source).await.unwrap(), CheckVerdict::Unhealthy(why.to_owned()), "{source}");
    }
    assert_eq!(check("\nerror('no')").await.unwrap_err().to_string(), "script:2: no");
    assert!(matches!(check("while true do end").await, Err(ScriptError::Limit(_))));
}

#[tokio::test]
async fn a_tool_takes_arguments_and_returns_any_json() {
    let host = TestRuntime::new();
    for (source, arguments, result) in [
        ("return params", r#"{"big":9007199254740993,"list":[]}"#, r#"{"big":9007199254740993,"list":[]}"#),
        ("local arguments = ... return arguments == params", "{}", "true"),
        ("return 5, 6", "{}", "5"),
        ("return 'text'", "{}", r#""text""#),
        ("return", "{}", "null"),
        ("return json.null", "{}", "null"),
        ("return {}", "{}", "{}"),
        ("return svc.call('echo', params)", r#"{"a":1}"#, r#"{"a":1}"#),
        ("return require('svc.event') == svc.event and type(event)", "{}", r#""nil""#),
        ("return { rawget(svc, 'retry'), rawget(svc, 'skip') }", "{}", "{}"),
    ] {
        assert_eq!(host.run_tool(source, arguments).await.result.unwrap().get(), result, "{source}");
    }
    let evaluated = host.run_tool("print('seen') log.warn('too') return 1", "{}").await;
    assert_eq!(evaluated.log, ["seen", "warn: too"]);
    assert!(evaluated.cpu > Duration::ZERO);
}

#[tokio::test]
async fn a_tool_emits_events_as_the_user_who_runs_it() {
    let host = TestRuntime::new();
    let Owner::User(user) = tool_user() else { panic!("it is a user") };
    let evaluated = host.run_tool("return svc.event.emit('deploy.done', { n = 1 })", "{}").await;
    let emitted = serde_json::json!({"owner": {"user": user}, "payload": {"n": 1}, "type": "deploy.done"});
    assert_eq!(evaluated.result.unwrap().get(), emitted.to_string());
    let evaluated = host.run_tool("return require('svc.event').emit('x').payload", "{}").await;
    assert_eq!(evaluated.result.unwrap().get(), "{}");
    for (source, error) in [
        ("svc.event.emit('refused')", "tool:1: svc.event.emit: no such thing"),
        ("svc.event.emit('x', 5)", "tool:1: svc.event.emit: cannot take a integer as table"),
        ("svc.event.emit('x', { f = print })", "tool:1: svc.event.emit: $.f is a function, which is not JSON"),
    ] {
        assert_eq!(host.run_tool(source, "{}").await.result.unwrap_err().to_string(), error, "{source}");
    }
}

#[tokio::test]
async fn a_tool_that_fails_says_why_and_keeps_its_output() {
    let host = TestRuntime::strict();
    for (source, error) in [
        ("\nerror('no')", "tool:2: no"),
        ("error(setmetatable({}, { __tostring = function() return 'mine' end }))", "tool:1: mine"),
        ("return print", "tool: the result cannot be sent: $ is a function, which is not JSON"),
        ("return { a = 0/0 }", "tool: the result cannot be sent: $.a is not a finite number, which is not JSON"),
        ("local t = {} t.t = t return t", "tool: the result cannot be sent: $.t contains itself, which is not JSON"),
        ("\nwhile true do end", "tool:2: it took more than 100ms of processor time"),
        ("return ('x'):rep(1e8)", "tool:1: it needed more than 8MiB of memory"),
        ("error({ code = 'x' })", "tool:1: the `code` of an error must be an integer, not a string"),
        ("error({ message = {} })", "tool:1: the `message` of an error must be a string, not a table"),
        (
            "error({ message = 'no', data = print })",
            "tool:1: no (and its `data` cannot be sent: $ is a function, which is not JSON)",
        ),
    ] {
        let evaluated = host.run_tool(&format!("print('before') {source}"), "{}").await;
        assert_eq!(evaluated.result.unwrap_err().to_string(), error, "{source}");
        assert_eq!(evaluated.log, ["before"], "{source}");
    }
}

#[tokio::test]
async fn a_structured_error_keeps_its_code_message_and_data() {
    let host = TestRuntime::new();
    let raised = async |source: &str| match host.run_tool(source, "{}").await.result {
        Err(ScriptError::RaisedWith { code, message, data }) => (code, message, data.map(|data| data.get().to_owned())),
        other => panic!("{source}: {other:?}"),
    };
    let whole = raised("error({ code = 404, message = 'no such note', data = { id = 7 } })").await;
    assert_eq!(whole, (Some(404), "no such note".to_owned(), Some(r#"{"id":7}"#.to_owned())));
    assert_eq!(raised("error({ message = 'no' })").await, (None, "no".to_owned(), None));
    let coded = raised("error({ code = -1 }, 0)").await;
    assert_eq!(coded, (Some(-1), "the script raised an error without a message".to_owned(), None));
    host.modules.put("lib", "return function() error({ code = 1, message = 'from afar', data = json.null }) end");
    assert_eq!(raised("require('lib')()").await, (Some(1), "from afar".to_owned(), Some("null".to_owned())));
}

#[tokio::test]
async fn the_error_of_an_exceeded_limit_names_the_line() {
    let host = TestRuntime::strict();
    host.modules.put("lib", "return {\nloop = function()\n  while true do end\nend }");
    let grow = "\n\nlocal t = {} while true do t[#t + 1] = { #t } end";
    for (source, problem) in [
        ("\n\nwhile true do end", ":3: it took more than 100ms of processor time"),
        (grow, ":3: it needed more than 8MiB of memory"),
        ("\npcall(function()\n  while true do end\nend)", ":3: it took more than 100ms of processor time"),
    ] {
        let tool = ProgramText::tool("greet", source);
        assert_eq!(
            host.call_tool(&tool, "{}").await.result.unwrap_err().to_string(),
            format!("greet{problem}"),
            "{source}"
        );
        let script = ProgramText::script("acme.nightly", source);
        let run = host.workers.run_script(&script, Owner::Global, input(event())).await;
        assert_eq!(run.verdict, Verdict::Failed(format!("acme.nightly{problem}")), "{source}");
    }
    let source = "\n\n\n\nrequire('lib').loop()";
    let problem = "lib:3: it took more than 100ms of processor time";
    assert_eq!(host.run_tool(source, "{}").await.result.unwrap_err().to_string(), problem);
    assert_eq!(host.run_script(source).await.verdict, Verdict::Failed(problem.to_owned()));
}

#[tokio::test]
async fn the_error_of_a_run_that_waits_too_long_names_the_line() {
    let wall = Span(Duration::from_millis(300));
    let host = TestRuntime::with(config::ScriptConfig { wall, ..config::ScriptConfig::default() });
    let source = "\nhttp.request{ url = 'http://never.test' }";
    let problem = ":2: it took longer than 300ms";
    assert_eq!(host.run_tool(source, "{}").await.result.unwrap_err().to_string(), format!("tool{problem}"));
    assert_eq!(host.run_script(source).await.verdict, Verdict::Failed(format!("script{problem}")));
}

#[tokio::test]
async fn the_errors_of_a_stored_program_begin_with_its_name() {
    let host = TestRuntime::new();
    let tool = ProgramText::tool("greet", "\nerror('no')");
    assert_eq!(host.call_tool(&tool, "{}").await.result.unwrap_err().to_string(), "greet:2: no");
    let tool = ProgramText::tool("greet", "return { a = print }");
    let problem = "greet: the result cannot be sent: $.a is a function, which is not JSON";
    assert_eq!(host.call_tool(&tool, "{}").await.result.unwrap_err().to_string(), problem);
    let script = ProgramText::script("acme.nightly", "string.find()");
    let Verdict::Failed(problem) = host.workers.run_script(&script, Owner::Global, input(event())).await.verdict else {
        panic!("the script did not fail");
    };
    assert!(problem.starts_with("acme.nightly:1: invalid argument"), "{problem}");
}
