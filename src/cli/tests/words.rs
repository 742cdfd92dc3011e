//! Words of the command line that are not what they look like: dashes, equals signs and typos.

use super::{FakeApi, list, run, run_with, sink};
use serde_json::json;

/// The words that create a sink with this description.
fn create_described(description: &str) -> [&str; 10] {
    let [name, events, url] = ["--name", "--events", "--url"];
    ["sink", "create", name, "slack", events, "*", url, "https://x.example", "--description", description]
}

#[test]
fn a_dash_is_stdin_only_where_a_payload_is_taken() {
    for words in [&["token", "create", "-"][..], &["backup", "verify", "-"], &["backup", "-"], &["sink", "show", "-"]] {
        let ran = run(words);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}: {}", ran.err);
        assert!(!ran.err.contains("@-") && ran.err.contains("`-`"), "{words:?}: {}", ran.err);
    }
    let fake = FakeApi::always(201, sink());
    fake.run(&create_described("-"));
    assert_eq!(fake.seen()[0].json()["description"], "-");
}

#[test]
fn the_word_after_a_flag_that_takes_a_value_is_left_alone() {
    let fake = FakeApi::always(201, sink());
    for value in ["--foo=bar", "--help", "help", "-h"] {
        assert_eq!(fake.run(&create_described(value)).code, 0, "{value}");
        assert_eq!(fake.seen().last().unwrap().json()["description"], value);
    }
}

#[test]
fn a_mistyped_command_is_told_with_the_one_that_was_meant() {
    for (words, meant) in [
        (&["evnet", "x"][..], "did you mean `svc event`?"),
        (&["sinks"], "did you mean `svc sink`?"),
        (&["sink", "lst"], "did you mean `svc sink list`?"),
        (&["sink", "dead-leters", "x"], "did you mean `svc sink dead-letters`?"),
        (&["backup", "verfy", "f"], "Unrecognized argument: f"),
        (&["fly"], "see `svc --help`"),
    ] {
        let ran = run(words);
        assert!(ran.code != 0 && ran.err.contains(meant), "{words:?}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {}", ran.err);
    }
}

#[test]
fn an_at_sign_needs_a_file_name() {
    let ran = run(&["event", "x", "@"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("@FILE"), "{}", ran.err);
}

#[test]
fn an_agent_url_that_names_a_server_is_told_with_the_next_step() {
    let fake = FakeApi::always(404, super::error("not_found", "there is no such path"));
    let ran = run_with(&["event", "x"], "", &|name| (name == "SVC_AGENT_URL").then(|| fake.url.clone()));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("SVC_AGENT_URL") && ran.err.contains("SVC_SERVER"), "{}", ran.err);
}

#[test]
fn a_request_that_only_reads_cannot_have_taken_effect() {
    let cut = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = cut.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in cut.incoming() {
            // The request is read, so that the connection ends without a reset.
            let _ = std::io::Read::read(&mut stream.unwrap(), &mut [0; 4096]);
        }
    });
    let ran = run(&["whoami", "--server", &address]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("no answer") && !ran.err.contains("taken effect"), "{}", ran.err);
    let ran = run(&["group", "create", "web", "--server", &address]);
    assert!(ran.code == 3 && ran.err.contains("taken effect"), "{}", ran.err);
}

#[test]
fn a_deactivated_sink_is_named_by_its_command() {
    let fake = FakeApi::new(|line, _| match line {
        line if line.starts_with("PATCH") => (200, sink()),
        _ => (200, list(&[sink()])),
    });
    let ran = fake.run(&["sink", "deactivate", "slack"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fake.seen().last().unwrap().json(), json!({"active": false}));
}
