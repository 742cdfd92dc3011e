//! The log of a method server, and the warnings about its output.

use super::*;
use std::sync::OnceLock;

/// A logger that records the lines about method servers.
struct Recorder(Mutex<Vec<String>>);

impl log::Log for Recorder {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("svc::method") || record.target().contains("agent::method_server") {
            self.0.lock().push(format!("{} {}", record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}

fn recorder() -> &'static Recorder {
    static RECORDER: OnceLock<&Recorder> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = Box::leak(Box::new(Recorder(Mutex::default())));
        log::set_logger(recorder).expect("no other test logs");
        log::set_max_level(log::LevelFilter::Debug);
        recorder
    })
}

impl Recorder {
    fn lines(&self, part: &str) -> Vec<String> {
        self.0.lock().iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

async fn named(name: &str, fixture: &str) -> MethodServer {
    let definition = definition("python3", &[fixture], ServerMode::Concurrent, LONG);
    MethodServer::start_with(short_policy(), definition, fixtures(), ChildEnv::default(), name.into()).await.unwrap()
}

#[tokio::test]
async fn the_stderr_of_a_server_is_logged_under_the_name_of_its_space() {
    let recorder = recorder();
    let server = named("spoken", "echo.py").await;
    call(&server, "say", json!({"text": "two\nlines \u{e4}"})).await.unwrap();
    eventually("it is logged", || recorder.lines("INFO spoken: ").len() == 2).await;
    assert_eq!(recorder.lines("INFO spoken: "), ["INFO spoken: two", "INFO spoken: lines \u{e4}"]);
}

#[tokio::test]
async fn a_flood_on_stderr_neither_blocks_the_server_nor_fills_the_log() {
    let recorder = recorder();
    let server = named("flooding", "floods_stderr.py").await;
    assert_eq!(call(&server, "m", json!([1])).await, Ok(json!([1])));
    server.stop().await;
    let lines = recorder.lines("INFO flooding: ");
    assert!(lines.iter().all(|line| line.len() < 5000));
    assert!(lines.iter().any(|line| line.contains("lines more")));
    // The limit is per second, and a slow machine takes several.
    assert!(lines.len() < 20_000, "{} lines of 100100", lines.len());
}

#[tokio::test]
async fn skipped_lines_are_logged_within_bounds() {
    let recorder = recorder();
    let server = named("garbling", "malformed_lines.py").await;
    call(&server, "m", json!([])).await.unwrap();
    call(&server, "m", json!([])).await.unwrap();
    let lines = recorder.lines("space garbling wrote");
    for part in ["not UTF-8", "no JSON object: hello", "request of its own", "a line of 178", "without an id"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
    }
    assert!(lines.iter().all(|line| line.len() < 500), "{lines:#?}");
}
