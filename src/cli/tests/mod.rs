//! The command line as a whole: help, usage, and exit codes, against a fake server.

mod agent;
mod answers;
mod apply;
mod fake;
mod mcp;
mod method;
mod script;
mod words;

use super::{
    completions::CompletionShell,
    run_in,
    shell::{Shell, Stdin, Stdout, StdoutKind},
    table::Coloring,
};
use argh::ArgsInfo as _;
use fake::{FakeApi, SINK, SeenRequest, USER, emitted, error, event, list, sink, space};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    io::{self, Write},
    net::TcpListener,
};

/// The exit code and output of a command.
struct CommandOutput {
    code: u8,
    out: String,
    err: String,
}

/// Runs a command line with this stdin and environment.
fn run_with(words: &[&str], stdin: &str, environment: &dyn Fn(&str) -> Option<String>) -> CommandOutput {
    let (mut input, mut out, mut err) = (stdin.as_bytes(), Vec::new(), Vec::new());
    let code = {
        let screen = Stdout::new(&mut out, StdoutKind::File, None, Coloring::Bare);
        let mut shell = Shell { environment, input: Stdin::Piped(&mut input), out: screen, err: &mut err };
        run_in(&mut shell, words.iter().map(OsString::from))
    };
    CommandOutput { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn run(words: &[&str]) -> CommandOutput {
    run_with(words, "", &|_| None)
}

/// Every command, as the words that name it.
fn commands() -> Vec<Vec<&'static str>> {
    let mut all = vec![vec![]];
    for command in super::Svc::get_args_info().commands {
        all.push(vec![command.name]);
        all.extend(command.command.commands.iter().map(|inner| vec![command.name, inner.name]));
    }
    all
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in commands() {
        for trigger in ["--help", "-h"] {
            let words: Vec<&str> = command.iter().copied().chain([trigger]).collect();
            let ran = run(&words);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
            let (_, example) = ran.out.split_once("Examples:\n").unwrap_or_else(|| panic!("{words:?}: {}", ran.out));
            assert!(example.contains(format!("svc {}", command.join(" ")).trim_end()), "{words:?}: {example}");
            assert!(!ran.out.contains("{command_name}") && !ran.out.contains("'{{"), "{words:?}: {}", ran.out);
        }
    }
}

#[test]
fn help_names_only_roles_that_the_first_start_creates() {
    for command in commands() {
        let words: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let help = run(&words).out;
        let examples = help.split_once("Examples:\n").map_or("", |(_, examples)| examples);
        for role in examples.split("--role ").skip(1).filter_map(|rest| rest.split_whitespace().next()) {
            assert!(["admin", "member"].contains(&role), "{words:?} names the role {role}");
        }
    }
}

#[test]
fn completions_name_every_command() {
    for shell in CompletionShell::ALL {
        let script = shell.script(&super::Svc::get_args_info());
        let words: Vec<&str> = script.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
        for name in commands().concat() {
            assert!(words.contains(&name), "{shell:?} does not know {name}");
        }
    }
}

#[test]
fn completions_name_every_flag() {
    let scripts = CompletionShell::ALL.map(|shell| (shell, shell.script(&super::Svc::get_args_info())));
    for command in commands() {
        let words: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let help = run(&words).out;
        let options = help.split_once("Options:\n").map_or("", |(_, rest)| rest);
        let flags =
            options.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.trim().strip_prefix("--"));
        for flag in flags.map(|line| line.split([' ', ',']).next().unwrap()) {
            for (shell, script) in &scripts {
                let spelled = if *shell == CompletionShell::Fish { format!("-l {flag} ") } else { format!("--{flag}") };
                assert!(script.contains(&spelled), "{shell:?} does not know --{flag} of {command:?}");
            }
        }
    }
}

#[test]
fn bad_usage_is_code_2_and_one_line_that_says_where_to_look() {
    for (words, hint) in [
        (&[][..], "`svc --help`"),
        (&["fly"], "`svc --help`"),
        (&["sink", "fly"], "`svc sink --help`"),
        (&["sink", "list", "--fly"], "`svc sink list --help`"),
        (&["sink", "create", "--name", "x"], "`svc sink create --help`"),
        (&["event", "list", "--state", "lost"], "queued, delivered"),
        (&["event", "show", "nonsense"], "`svc event show --help`"),
        (&["event"], "TYPE"),
        (&["event", "list", "--limit", "0"], "'--limit'"),
        (&["audit", "--limit", "0"], "'--limit'"),
        (&["sink", "dead-letters", "x", "--limit", "0"], "'--limit'"),
        (&["event", "a..b"], "position 3"),
        (&["event", "a", "[1]"], "JSON object"),
        (&["space", "create", "web", "--port", "8080"], "NAME=PORT"),
        (&["space", "create", "web", "--driver", "docker"], "external or process"),
        (&["space", "update", "web"], "nothing to change"),
        (&["space", "list", "--state", "lost"], "created, deployed, stopped"),
        (&["template", "create", "web", "--interval", "1s"], "--health-http"),
        (&["user", "create", "ada"], "--password-stdin"),
        (&["whoami", "--server", "ftp://x"], "http://127.0.0.1:7300"),
        (&["event", "list", "--pattern", "a*"], "'--pattern'"),
        (&["event", "tail", "--pattern", "a*"], "'--pattern'"),
        (&["event", "list", "--limit", "many"], "1 or more"),
        (&["event", "show", "xyz"], "a UUID, such as"),
        (&["sink", "test", "x", "--type", "a b"], "'--type'"),
        (&["sink", "create", "--name", "x", "--events", "*", "--url", "http://a", "--batch", "0"], "must be 1 to 100"),
        (
            &[
                "sink", "create", "--name", "x", "--events", "*", "--url", "http://a", "--header", "A: 1", "--header",
                "A: 2",
            ],
            "twice",
        ),
        (&["token", "create", "x", "--scope", "all"], "methods, mcp"),
        (&["token", "create", "x", "--expires", "999999999d"], "at most 36500d"),
        (&["space", "create", "web", "--health-tcp", "0"], "1 to 65535"),
        (&["space", "create", "web", "--custom", "A=1", "--custom", "A=2"], "twice"),
        (&["server", "--listen", "127.0.0.1"], "IP:PORT"),
    ] {
        let ran = run(words);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}: {}", ran.err);
        assert!(ran.err.starts_with("svc: ") && ran.err.contains(hint), "{words:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {}", ran.err);
    }
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(run(&["--version"]).out, concat!("svc ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn done_is_code_0() {
    let fake = FakeApi::always(202, emitted());
    let ran = fake.run(&["event", "a", "{\"n\": 1.50}"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77  custom.a  1 sink\n");
    let seen = &fake.seen()[0];
    assert_eq!(seen.line, "POST /api/events/emit");
    assert_eq!(seen.body, "{\"type\":\"a\",\"payload\":{\"n\": 1.50}}");
    let has = |header: &str| seen.headers.iter().any(|line| line.eq_ignore_ascii_case(header));
    assert!(has("authorization: Bearer svc_test") && has("content-type: application/json"), "{:?}", seen.headers);
}

#[test]
fn a_rejected_request_is_code_1_with_the_reason() {
    let ran = FakeApi::always(409, error("conflict", "a group named `web` exists")).run(&["group", "create", "web"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "svc: a group named `web` exists (409 conflict)\n"));
    let ran = FakeApi::always(502, "<html>".into()).run(&["whoami"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("check that it is an svc server"), "{}", ran.err);
}

#[test]
fn an_error_of_the_server_points_to_its_log_unless_it_says_itself_what_to_do() {
    for (status, code, more) in [
        (500, "internal", ": the server's log says more"),
        (500, "damaged_record", ""),
        (503, "store_stopped", ": the server's log says more"),
        (503, "store_unreadable", ": the server's log says more"),
        (503, "unavailable", ": the server's log says more"),
        (503, "disk_full", ""),
        (503, "stopping", ""),
    ] {
        let ran = FakeApi::always(status, error(code, "this is why")).run(&["group", "create", "web"]);
        assert_eq!((ran.code, ran.err), (1, format!("svc: this is why ({status} {code}){more}\n")));
    }
}

#[test]
fn a_server_that_is_not_there_is_code_3() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = run(&["whoami", "--server", &address]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains(&address) && ran.err.contains("svc server"), "{}", ran.err);
}

#[test]
fn being_refused_is_code_4_with_advice() {
    let ran = FakeApi::always(401, error("unauthorized", "this token is not known")).run(&["whoami"]);
    assert_eq!(ran.code, 4);
    assert!(ran.err.contains("SVC_TOKEN") && ran.err.contains("svc login"), "{}", ran.err);
    let ran = FakeApi::always(403, error("forbidden", "needs view_audit_log")).run(&["audit"]);
    assert_eq!(ran.code, 4);
    assert!(ran.err.contains("view_audit_log"), "{}", ran.err);
    let ran =
        FakeApi::always(403, error("insufficient_scope", "this token has the scope mcp: use another")).run(&["audit"]);
    assert_eq!((ran.code, ran.err.as_str()), (4, "svc: this token has the scope mcp: use another\n"));
    let fake = FakeApi::always(401, error("unauthorized", "no token"));
    let ran = run(&["whoami", "--server", &fake.url]);
    assert!(ran.code == 4 && ran.err.contains("no token to show"), "{}", ran.err);
}

#[test]
fn a_closed_stdout_is_no_failure() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for words in [&["--help"][..], &["config", "show", "--default"], &["completions", "bash"]] {
        let (mut closed, mut err) = (Closed, Vec::new());
        let out = Stdout::new(&mut closed, StdoutKind::File, None, Coloring::Bare);
        let mut shell = Shell { environment: &|_| None, input: Stdin::Terminal, out, err: &mut err };
        assert_eq!(run_in(&mut shell, words.iter().map(OsString::from)), 0);
        assert!(err.is_empty(), "{words:?}");
    }
}

#[test]
fn a_payload_comes_from_stdin_only_if_it_is_asked_for() {
    let fake = FakeApi::always(202, emitted());
    fake.run_piped(&["event", "a", "--stdin"], "{\"from\": \"stdin\"}\n");
    fake.run_piped(&["event", "a", "-"], "{\"from\": \"dash\"}");
    fake.run_piped(&["event", "a"], "{\"from\": \"a loop\"}");
    let payloads: Vec<Value> = fake.seen().iter().map(|seen| seen.json()["payload"].clone()).collect();
    assert_eq!(payloads, [json!({ "from": "stdin" }), json!({ "from": "dash" }), json!({})]);
}

#[test]
fn waiting_ends_when_every_sink_has_settled() {
    let answer = |last: &'static str| {
        FakeApi::new(move |line, before| match line {
            "POST /api/events/emit" => (202, emitted()),
            _ if before < 2 => (200, event("queued")),
            _ => (200, event(last)),
        })
    };
    let ran = answer("delivered").run(&["event", "a", "--wait"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.ends_with("delivered  slack  1 attempt  the receiver answered 500\n"), "{}", ran.out);
    for lost in ["dead", "dropped"] {
        let ran = answer(lost).run(&["event", "--wait", "a"]);
        assert_eq!(ran.code, 1);
        assert!(ran.out.contains(lost) && ran.err.contains("svc event show"), "{} {}", ran.out, ran.err);
    }
}

#[test]
fn waiting_ends_with_code_1_when_it_takes_too_long() {
    let fake = FakeApi::new(|line, _| match line {
        "POST /api/events/emit" => (202, emitted()),
        _ => (200, event("queued")),
    });
    let ran = fake.run(&["event", "a", "--wait", "--timeout", "50ms"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("still queued for slack after 50ms"), "{}", ran.err);
}

#[test]
fn methods_are_counted_and_explained_beside_sinks() {
    let target = |name: &str| json!({ "sink_id": SINK, "name": name });
    for (matched, line) in [
        (vec![], "no sink matches"),
        (vec![target("notes/m")], "1 method"),
        (vec![target("a"), target("b"), target("notes/m"), target("notes/n")], "2 sinks, 2 methods"),
    ] {
        let mut answer = emitted();
        answer["matched"] = json!(matched);
        let ran = FakeApi::always(202, answer).run(&["event", "a"]);
        assert!(ran.out.ends_with(&format!("  custom.a  {line}\n")), "{}", ran.out);
    }
    let mut answer = emitted();
    answer["dropped"] = json!([target("notes/m")]);
    let ran = FakeApi::always(202, answer).run(&["event", "a"]);
    assert_eq!(ran.err, "dropped for `notes/m`: its queue is full (see `svc subscription list`)\n");

    let method = json!({ "sink_id": SINK, "name": "notes/m", "owner": "me", "events": "*", "type": "method",
                         "active": true, "matches": true, "reason": "`*` matches" });
    let ran =
        FakeApi::always(200, json!({ "event_type": "custom.a", "sinks": [method] })).run(&["event", "a", "--explain"]);
    let expected = "\
custom.a would go to 1 of 1 sinks and methods
SINK     OWNER  TYPE    EVENTS  MATCH  WHY
notes/m  me     method  *       yes    `*` matches
";
    assert_eq!(ran.out, expected);
}

#[test]
fn subscriptions_are_listed_and_their_queues_found_by_space_and_method() {
    let id = "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78";
    let subscription = json!({
        "id": id, "space_id": USER, "space": "notes", "method": "notes.on_deploy", "events": "custom.deploy.*",
        "event_sinks": ["a", "b"], "queue": { "depth": 3, "next_sequence": 9, "dead": 1 }, "open": false
    });
    let fake = FakeApi::new(move |line, _| match line {
        "GET /api/subscriptions?limit=200" => (200, list(std::slice::from_ref(&subscription))),
        line if line.ends_with("/redeliver") => (200, json!({ "redelivered": 1, "remaining": 0 })),
        _ => (200, list(&[])),
    });
    let ran = fake.run(&["subscription", "list"]);
    let expected = "\
NAME                   EVENTS           FILTER  FORMATTERS  SERVED  QUEUED  DEAD  ID
notes/notes.on_deploy  custom.deploy.*          a, b        away    3       1     01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78
";
    assert_eq!((ran.code, ran.out.as_str()), (0, expected), "{}", ran.err);
    assert!(fake.run(&["subscription", "list", "--json"]).out.contains("\"event_sinks\":[\"a\",\"b\"]"));
    for (words, line) in [
        (&["sink", "dead-letters"][..], format!("GET /api/event-sinks/{id}/dead-letters?limit=50")),
        (&["sink", "redeliver"], format!("POST /api/event-sinks/{id}/redeliver")),
        (&["event", "list", "--sink"], format!("GET /api/events?sink={id}&limit=50")),
    ] {
        for name in ["notes/notes.on_deploy", id] {
            let words: Vec<&str> = words.iter().copied().chain([name]).collect();
            let ran = fake.run(&words);
            assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
            assert_eq!(fake.seen().last().unwrap().line, line, "{words:?}");
        }
    }
    let ran = fake.run(&["sink", "dead-letters", "notes/other"]);
    assert!(ran.code == 1 && ran.err.contains("`svc subscription list`"), "{}", ran.err);
}

#[test]
fn explaining_sends_nothing() {
    let fake = FakeApi::always(
        200,
        json!({ "event_type": "custom.a", "sinks": [
            { "sink_id": SINK, "name": "slack", "owner": "me", "events": "*", "type": "webhook", "active": true,
              "matches": true, "reason": "`*` matches" },
            { "sink_id": USER, "name": "siem", "owner": "global", "events": "x", "type": "script", "active": true,
              "matches": false, "reason": "no pattern matches" },
        ] }),
    );
    let ran = fake.run(&["event", "a", "--explain"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let expected = "\
custom.a would go to 1 of 2 sinks
SINK   OWNER   TYPE     EVENTS  MATCH  WHY
slack  me      webhook  *       yes    `*` matches
siem   global  script   x       no     no pattern matches
";
    assert_eq!(ran.out, expected);
    let lines: Vec<String> = fake.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["POST /api/events/explain"]);
}

#[test]
fn json_is_what_the_server_said() {
    let fake = FakeApi::always(200, event("dead"));
    let ran = fake.run(&["event", "show", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77", "--json"]);
    assert_eq!(ran.out, format!("{}\n", event("dead")));
}

#[test]
fn an_event_is_shown_with_its_attempts_and_no_control_characters() {
    let fake = FakeApi::always(200, event("dead"));
    let ran = fake.run(&["event", "show", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("slack: dead  #7\n"), "{}", ran.out);
    assert!(ran.out.contains("  1  2026-01-31T12:00:01Z  failed  12 ms  the receiver answered 500\n"), "{}", ran.out);
    assert!(ran.out.contains("     | tried\\u{1b}[2J\n"), "{}", ran.out);
    assert!(!ran.out.contains("accepted"), "{}", ran.out);
    let mut late = event("dead");
    late["accepted_at"] = json!("2026-01-31T13:00:00.000000Z");
    let ran = FakeApi::always(200, late).run(&["event", "show", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"]);
    assert!(ran.out.contains("accepted  2026-01-31T13:00:00.000000Z\n"), "{}", ran.out);
}

#[test]
fn a_list_goes_over_as_many_pages_as_it_needs() {
    let fake = FakeApi::new(|line, _| match line.contains("cursor=") {
        false => (200, json!({ "items": [{ "id": "1", "name": "a" }], "next": "c d" })),
        true => (200, json!({ "items": [{ "id": "2", "name": "b" }], "next": null })),
    });
    let ran = fake.run(&["group", "list", "--json"]);
    assert_eq!(ran.out, "{\"items\":[{\"id\":\"1\",\"name\":\"a\"},{\"id\":\"2\",\"name\":\"b\"}],\"next\":null}\n");
    let lines: Vec<String> = fake.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["GET /api/groups?limit=200", "GET /api/groups?limit=200&cursor=c%20d"]);
}

#[test]
fn an_object_is_found_by_name_or_by_id() {
    let fake = FakeApi::new(|line, _| match line {
        "GET /api/event-sinks?name=slack&limit=200" => (200, list(&[sink()])),
        "GET /api/event-sinks/01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78" => (200, sink()),
        "GET /api/event-sinks?name=twice&limit=200" => {
            (200, list(&[json!({ "id": "1", "name": "twice" }), json!({ "id": "2", "name": "twice" })]))
        }
        _ => (200, list(&[])),
    });
    for name in ["slack", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78"] {
        let ran = fake.run(&["sink", "show", name]);
        assert!(ran.code == 0 && ran.out.contains("whsec_abc"), "{name}: {} {}", ran.out, ran.err);
    }
    let ran = fake.run(&["sink", "show", "nobody"]);
    assert!(ran.code == 1 && ran.err.contains("`svc sink list`"), "{}", ran.err);
    let ran = fake.run(&["sink", "delete", "twice"]);
    assert!(ran.code == 1 && ran.err.contains("use the id"), "{}", ran.err);
}

#[test]
fn a_test_that_is_not_delivered_is_code_1() {
    for (outcome, code) in [("delivered", 0), ("skipped", 0), ("failed", 1), ("dead", 1)] {
        let fake = FakeApi::always(
            200,
            json!({ "number": 1, "at": "2026-01-31T12:00:01.000000Z", "duration_ms": 3.0, "outcome": outcome, "log": [],
                    "sent": "{\"text\":\"hello\"}" }),
        );
        let ran = fake.run(&["sink", "test", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78", "{\"a\":1}", "--type", "x"]);
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.out.contains(outcome) && ran.out.contains("\"text\": \"hello\""), "{}", ran.out);
        assert_eq!(fake.seen()[0].json(), json!({ "type": "x", "payload": { "a": 1 } }));
    }
}

#[test]
fn a_new_space_prints_its_agent_token_alone_and_what_to_do_with_it() {
    let fake = FakeApi::always(201, space("sva_secret".into()));
    let words = ["space", "create", "web", "--template", "t", "--host", "box", "--port", "web=80", "--custom", "A=b"];
    let ran = fake.run(&words);
    assert_eq!((ran.code, ran.out.as_str()), (0, "sva_secret\n"));
    assert!(ran.err.contains("svc agent start") && ran.err.contains(&fake.url), "{}", ran.err);
    let port = json!({ "name": "web", "port": 80, "protocol": "http" });
    let expected = json!({ "name": "web", "template": "t", "host": "box", "ports": [port], "custom": { "A": "b" } });
    assert_eq!(fake.seen()[0].json(), expected);
    let fake = FakeApi::always(201, space(Value::Null));
    let ran = fake.run(&["space", "create", "web", "--driver", "process", "--methods-file", "/srv/m.toml"]);
    assert!(ran.out.starts_with("created space web  ") && ran.err.contains("svc space start web"), "{}", ran.err);
    assert_eq!(fake.seen()[0].json(), json!({ "name": "web", "driver": "process", "methods_file": "/srv/m.toml" }));
}

#[test]
fn a_space_of_the_caller_is_found_before_those_of_others() {
    let fake = FakeApi::new(|line, _| match line {
        "GET /api/spaces?name=mine&owner=me&limit=200" => (200, list(&[json!({ "id": "1", "name": "mine" })])),
        "GET /api/spaces?name=theirs&limit=200" => (200, list(&[json!({ "id": "2", "name": "theirs" })])),
        _ if line.starts_with("GET") => (200, list(&[])),
        _ => (200, space(Value::Null)),
    });
    for (name, id) in [("mine", "1"), ("theirs", "2")] {
        let ran = fake.run(&["space", "stop", name]);
        assert_eq!((ran.code, ran.out.split(' ').next()), (0, Some("stopped")), "{}", ran.err);
        assert_eq!(fake.seen().last().unwrap().line, format!("POST /api/spaces/{id}/stop"));
    }
}

#[test]
fn a_space_is_shown_with_the_state_of_its_agent() {
    let ran = FakeApi::always(200, space(Value::Null)).run(&["space", "show", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a79"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "state        deployed",
        "process      waiting to be run again, launched 3 times",
        "trouble      it ended with exit status: 7",
        "check        http 8080 /healthz every 10s within 5s unhealthy after 3 failures",
        "failures     2 in a row",
        "last check   2026-01-31T12:00:01Z  the agent is not connected",
        "url          http://localhost:8080",
        "custom       TEAM=ops",
    ] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let table = FakeApi::always(200, list(&[space(Value::Null)])).run(&["space", "list"]).out;
    assert!(table.lines().nth(1).unwrap().starts_with("web   ada    deployed  healthy  no"), "{table}");
}

#[test]
fn an_applied_template_replaces_the_one_of_its_name() {
    let template = json!({ "id": "7", "name": "web" });
    let there = template.clone();
    let fake = FakeApi::new(move |line, before| match line {
        "GET /api/templates?name=web&limit=200" if before == 0 => (200, list(&[])),
        "GET /api/templates?name=web&limit=200" => (200, list(std::slice::from_ref(&there))),
        _ => (200, template.clone()),
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web.toml");
    std::fs::write(&path, "name = \"web\"\n[custom]\nTEAM = \"ops\"\n").unwrap();
    let apply = || fake.run(&["template", "apply", path.to_str().unwrap()]).out;
    assert_eq!([apply(), apply()], ["created template web  7\n", "replaced template web  7\n"]);
    let lines: Vec<String> = fake.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!((lines[1].as_str(), lines[3].as_str()), ("POST /api/templates", "PUT /api/templates/7"));
    assert_eq!(fake.seen()[3].json()["custom"], json!({ "TEAM": "ops" }));
}

#[test]
fn a_new_token_is_alone_on_stdout() {
    let fake = FakeApi::always(
        201,
        json!({ "id": USER, "name": "ci", "scopes": [], "created_at": "2026-01-31T12:00:00.000000Z",
                "last_used_at": null, "expires_at": null, "token": "svc_secret" }),
    );
    let ran = fake.run(&["token", "create", "ci", "--scope", "methods"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "svc_secret\n"));
    assert_eq!(fake.seen()[0].json(), json!({ "name": "ci", "scopes": ["methods"] }));
}

#[test]
fn a_login_makes_a_token_with_the_password_and_saves_it() {
    let fake = FakeApi::new(|line, _| match line {
        "POST /api/tokens" => (
            201,
            json!({ "id": USER, "name": "x", "scopes": [], "created_at": "2026-01-31T12:00:00.000000Z",
                    "last_used_at": null, "expires_at": null, "token": "svc_new" }),
        ),
        _ => (
            200,
            json!({ "id": USER, "name": "ada", "roles": [], "groups": [], "permissions": [], "via": "token", "scopes": [] }),
        ),
    });
    let home = tempfile::tempdir().unwrap();
    let environment = |name: &str| (name == "HOME").then(|| home.path().to_str().unwrap().to_owned());
    let words = ["login", "--server", &fake.url, "--name", "ada", "--password-stdin"];
    let ran = run_with(&words, "open sesame\n", &environment);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let kept = std::fs::read_to_string(home.path().join(".config/svc/client.toml")).unwrap();
    let after = run_with(&["whoami", "--json"], "", &environment);
    assert_eq!(kept, format!("server = \"{}\"\ntoken = \"svc_new\"\ntoken_id = \"{USER}\"\n", fake.url));
    assert_eq!(after.code, 0, "{}", after.err);
    let seen = fake.seen();
    let lines: Vec<&str> = seen.iter().map(|seen| seen.line.as_str()).collect();
    let all =
        ["POST /api/auth/login", "POST /api/tokens", "POST /api/auth/logout", "GET /api/whoami", "GET /api/whoami"];
    assert_eq!(lines, all);
    assert_eq!(seen[0].json(), json!({ "name": "ada", "password": "open sesame" }));
    let has = |seen: &SeenRequest, header: &str| seen.headers.iter().any(|line| line.eq_ignore_ascii_case(header));
    assert!(has(&seen[1], "cookie: svc_session=crumb") && has(&seen[4], "authorization: Bearer svc_new"), "{seen:?}");
}

#[test]
fn a_wrong_password_is_code_4_and_nothing_is_saved() {
    let fake = FakeApi::always(401, error("unauthorized", "name or password is wrong"));
    let words = ["login", "--server", &fake.url, "--name", "ada", "--password-stdin"];
    let ran = run_with(&words, "guess\n", &|name| (name == "HOME").then(|| "/nonexistent".to_owned()));
    assert_eq!((ran.code, ran.out.as_str()), (4, ""));
    assert_eq!(ran.err, "svc: name or password is wrong\n", "it is said once");
}

#[test]
fn a_config_file_is_checked_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("svc.toml");
    std::fs::write(&path, "zone = \"eu\"\n").unwrap();
    let file = path.to_str().unwrap();
    let home = |name: &str| (name == "HOME").then(|| "/home/ada".to_owned());
    let checked = run_with(&["config", "check", file], "", &home);
    let shown = run_with(&["config", "show", "--config", file, "--json"], "", &home);
    std::fs::write(&path, "zon = \"eu\"\n").unwrap();
    let wrong = run_with(&["config", "check", file], "", &home);
    assert_eq!((checked.code, checked.out), (0, format!("{file} is right\n")));
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&shown["zone"], &shown["data"]), (&json!("eu"), &json!("/home/ada/.local/share/svc")));
    assert_eq!(wrong.code, 1);
    assert!(wrong.err.contains("zon") && wrong.err.contains("line 1"), "{}", wrong.err);
    for (text, why) in [
        ("listen = \"127.0.0.1\"", "such as 127.0.0.1:7300"),
        ("[agent]\nlisten = \"0.0.0.0:7301\"", "`agent.listen`: expected a loopback address"),
        ("[agent]\nserver = [\"ftp://x\"]", "`agent.server`: `ftp://x` is no server address"),
        ("[mcp]\norigins = [\"x\"]", "`mcp.origins`: `x` is no origin"),
        ("[mcp]\nhosts = [\"http://x\"]", "`mcp.hosts`: `http://x` is no host"),
    ] {
        std::fs::write(&path, text).unwrap();
        let wrong = run_with(&["config", "check", file], "", &home);
        assert!(wrong.code == 1 && wrong.err.contains(why), "{text}: {}", wrong.err);
    }
}
