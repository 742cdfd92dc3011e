//! Supervision of real processes, well-behaved and not, written in Python and shell.

use super::{MethodServer, fault::CallFault, supervisor::SupervisionPolicy};
use crate::{
    agent::child_env::ChildEnv,
    model::{
        agent_protocol::CallReply,
        jsonrpc::RpcResponse,
        method::{MethodServerHealth, ServerDefinition, ServerMode, ServerTransport},
    },
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json, value::RawValue};
use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::Instant;

mod faulty_answers;
mod logging;

const LONG: Duration = Duration::from_secs(60);

/// The timeout of calls that are to time out: short, and yet long enough for a process that answers.
const SHORT: Duration = Duration::from_secs(2);

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/methods")
}

fn short_policy() -> SupervisionPolicy {
    SupervisionPolicy {
        close: Duration::from_millis(100),
        terminate: Duration::from_millis(100),
        first_backoff: Duration::from_millis(10),
        longest_backoff: Duration::from_millis(40),
        ..SupervisionPolicy::default()
    }
}

fn definition(command: &str, args: &[&str], mode: ServerMode, timeout: Duration) -> ServerDefinition {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    ServerDefinition { transport: ServerTransport::Stdio, command: command.to_owned(), args, timeout, mode }
}

async fn python_with(args: &[&str], mode: ServerMode, timeout: Duration, policy: SupervisionPolicy) -> MethodServer {
    let definition = definition("python3", args, mode, timeout);
    let environment = vec![("SVC_AGENT_URL".to_owned(), "http://127.0.0.1:1".to_owned())];
    let started = MethodServer::start_with(policy, definition, fixtures(), environment.into(), args[0].into()).await;
    started.unwrap_or_else(|error| panic!("these tests need a python3 on the PATH: {error}"))
}

async fn python(args: &[&str], mode: ServerMode, timeout: Duration) -> MethodServer {
    python_with(args, mode, timeout, short_policy()).await
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

async fn call(server: &MethodServer, method: &str, params: Value) -> Result<Value, CallFault> {
    match server.call(method, Some(&raw(&params))).await? {
        RpcResponse::Result(result) => Ok(serde_json::from_str(result.get()).unwrap()),
        RpcResponse::Error(error) => panic!("{method} answered {error}"),
    }
}

/// Calls until there is an answer: while it starts, a process may take longer than a short timeout.
async fn answer(server: &MethodServer, method: &str, params: Value) -> Value {
    loop {
        match call(server, method, params.clone()).await {
            Ok(result) => return result,
            Err(CallFault::NotRunning(_) | CallFault::Timeout(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("{method}: {other}"),
        }
    }
}

async fn health(server: &MethodServer, wanted: impl Fn(&MethodServerHealth) -> bool) -> MethodServerHealth {
    let mut health = server.health();
    tokio::time::timeout(LONG, health.wait_for(|health| wanted(health))).await.expect("in time").unwrap().clone()
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns whether a process runs. A zombie does not.
fn runs(id: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with(['Z', 'X']))
}

fn is_idle(server: &MethodServer) -> bool {
    server.0.queue.is_empty()
}

#[tokio::test]
async fn a_conforming_server_is_called_notified_and_stopped() {
    let server = python(&["echo.py", "one", "two words"], ServerMode::Concurrent, LONG).await;
    assert_eq!(call(&server, "add", json!({"a": 1, "b": 2.5})).await, Ok(json!(3.5)));
    assert_eq!(call(&server, "arguments", json!([])).await, Ok(json!(["one", "two words"])));
    assert_eq!(call(&server, "directory", json!([])).await, Ok(json!(fixtures().canonicalize().unwrap())));
    let awkward = json!({"text": "line\nend \u{2028} \u{1f600} \"quoted\" \\", "deep": [[[[null]]]]});
    assert_eq!(call(&server, "echo", awkward.clone()).await, Ok(awkward));
    assert!(matches!(server.call("echo", None).await, Ok(RpcResponse::Result(result)) if result.get() == "null"));

    server.notify("remember", Some(&raw(&json!(["first"])))).await.unwrap();
    server.notify("nothing", None).await.unwrap();
    server.notify("remember", Some(&raw(&json!(["second"])))).await.unwrap();
    assert_eq!(call(&server, "remembered", json!([])).await, Ok(json!([["first"], ["second"]])));

    let pid = call(&server, "pid", json!([])).await.unwrap().as_i64().unwrap();
    assert!(runs(pid) && *server.health().borrow() == MethodServerHealth::Running);
    server.stop().await;
    assert!(!runs(pid));
    assert_eq!(*server.health().borrow(), MethodServerHealth::Stopped);
    assert!(matches!(call(&server, "pid", json!([])).await, Err(CallFault::NotRunning(_))));
    assert!(matches!(server.notify("pid", None).await, Err(CallFault::NotRunning(_))));
    server.stop().await;
    server.retire().await;
}

#[tokio::test]
async fn a_servers_errors_pass_through_unchanged() {
    let server = python(&["echo.py"], ServerMode::Concurrent, LONG).await;
    for (method, params, expected) in [
        ("fail", json!({"why": [1, 2.50]}), r#"{"code": -1234, "message": "as you wish", "data": {"why": [1, 2.5]}}"#),
        ("absent", json!({}), r#"{"code": -32601, "message": "no method absent"}"#),
        ("add", json!({"a": "x"}), r#"{"code": -32602, "message": "`a` and `b` must be numbers"}"#),
    ] {
        let outcome = server.call(method, Some(&raw(&params))).await.unwrap();
        assert!(matches!(&outcome, RpcResponse::Error(error) if error.get() == expected), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_server_in_shell_gets_a_relative_path_and_raw_params() {
    let definition = definition("./echo.sh", &[], ServerMode::Concurrent, LONG);
    let server = MethodServer::start(definition, fixtures(), ChildEnv::default(), "shell").await.unwrap();
    let params = RawValue::from_string("{\n  \"n\": 1.50e2,\r\n  \"big\": 123456789012345678901234567890 }".to_owned());
    let outcome = server.call("any", Some(&params.unwrap())).await.unwrap();
    let expected = "{   \"n\": 1.50e2,    \"big\": 123456789012345678901234567890 }";
    assert!(matches!(&outcome, RpcResponse::Result(result) if result.get() == expected), "{outcome:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_command_that_cannot_run_is_an_error_that_names_it() {
    for (command, directory, part) in [
        ("svc-no-such-command", fixtures(), "`svc-no-such-command`"),
        ("./no-such-file", fixtures(), "`./no-such-file`"),
        ("./echo.py", fixtures(), "`./echo.py`"),
        ("python3 echo.py", fixtures(), "its arguments go into `args`"),
        ("python3", fixtures().join("nowhere"), "nowhere"),
    ] {
        let definition = definition(command, &[], ServerMode::Concurrent, LONG);
        let error =
            MethodServer::start(definition, directory, ChildEnv::default(), "x").await.err().expect("it cannot run");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn answers_in_reverse_find_their_calls() {
    let server = python(&["reverse_order.py", "50"], ServerMode::Concurrent, LONG).await;
    let calls = (0..50).map(|number| call(&server, "m", json!([number])));
    let results: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, (0..50).map(|number| json!([number])).collect::<Vec<_>>());
}

#[tokio::test]
async fn repeated_and_unrequested_answers_are_skipped() {
    let server = python(&["duplicate_ids.py"], ServerMode::Concurrent, LONG).await;
    for number in 0..20 {
        assert_eq!(call(&server, "m", json!([number])).await, Ok(json!([number])));
    }
    assert!(is_idle(&server));
}

#[tokio::test]
async fn large_requests_and_answers_pass_both_ways() {
    let server = python(&["echo.py"], ServerMode::Concurrent, LONG).await;
    let large = json!(["x".repeat(5 << 20)]);
    let results = join_all((0..3).map(|_| call(&server, "echo", large.clone()))).await;
    assert!(results.into_iter().all(|result| result == Ok(large.clone())));
}

#[tokio::test]
async fn calls_to_a_server_that_never_reads_time_out_and_fill_no_memory() {
    let server = python(&["never_reads.py"], ServerMode::Concurrent, SHORT).await;
    let large = raw(&json!(["x".repeat(10 << 20)]));
    let calls: Vec<_> = (0..10).map(|_| server.call("m", Some(&large))).collect();
    let notification = server.notify("m", None);
    let (faults, notified) = tokio::join!(join_all(calls), notification);
    let refused = faults.iter().filter(|fault| matches!(fault, Err(CallFault::TooManyWaiting))).count();
    let timed_out = faults.iter().filter(|fault| matches!(fault, Err(CallFault::Timeout(SHORT)))).count();
    assert!((3..=4).contains(&refused) && refused + timed_out == 10, "{refused} refused, {timed_out} timed out");
    assert_eq!(notified, Err(CallFault::Timeout(SHORT)));
    assert!(is_idle(&server), "nothing is kept of them");
    server.stop().await;
}

#[tokio::test]
async fn a_crash_fails_its_calls_and_the_next_process_takes_over() {
    let server = python(&["exits_on_request.py"], ServerMode::Concurrent, LONG).await;
    let first = answer(&server, "pid", json!([])).await;
    let faults = {
        let exit = server.call("exit", Some(&raw(&json!({"status": 3}))));
        let others: Vec<_> = (0..5).map(|_| server.call("pid", None)).collect();
        let (exit, others) = tokio::join!(exit, join_all(others));
        others.into_iter().chain([exit]).map(|outcome| outcome.unwrap_err()).collect::<Vec<_>>()
    };
    for fault in faults {
        // Requests that were still queued when it died were not sent.
        let (CallFault::Died(why) | CallFault::NotRunning(why)) = &fault else { panic!("{fault}") };
        assert_eq!(&**why, "it exited with status 3");
    }
    assert!(is_idle(&server));
    let second = answer(&server, "pid", json!([])).await;
    assert_ne!(first, second);
    assert_eq!(*server.health().borrow(), MethodServerHealth::Running);
}

#[tokio::test]
async fn calls_to_a_server_that_is_down_fail_at_once_with_the_reason() {
    let policy = SupervisionPolicy { first_backoff: LONG * 60, longest_backoff: LONG * 60, ..short_policy() };
    let server = python_with(&["exits_on_request.py"], ServerMode::Concurrent, LONG, policy).await;
    let died = call(&server, "exit", json!({"status": 4})).await;
    assert_eq!(died, Err(CallFault::Died("it exited with status 4".into())));
    let health = health(&server, |health| *health != MethodServerHealth::Running).await;
    assert!(
        matches!(&health, MethodServerHealth::Restarting { reason } if reason == "it exited with status 4"),
        "{health:?}"
    );
    let refused = call(&server, "pid", json!([])).await;
    assert_eq!(refused, Err(CallFault::NotRunning("it exited with status 4".into())));
    // Stopping does not wait for the next start.
    server.stop().await;
    assert_eq!(*server.health().borrow(), MethodServerHealth::Stopped);
}

#[tokio::test]
async fn the_reason_of_a_server_killed_by_a_signal_names_the_signal() {
    let policy = SupervisionPolicy { first_backoff: LONG * 60, ..short_policy() };
    let server = python_with(&["holds_calls.py"], ServerMode::Concurrent, LONG, policy).await;
    let pid = answer(&server, "pid", json!([])).await.as_i64().unwrap();
    let held = server.call("hold", None);
    assert_eq!(answer(&server, "pid", json!([])).await, json!(pid));
    unsafe { libc::kill(pid.try_into().unwrap(), libc::SIGKILL) };
    assert!(matches!(held.await, Err(CallFault::Died(why)) if &*why == "it was killed by signal 9"));
}

#[tokio::test]
async fn a_server_that_closes_its_stdout_is_restarted() {
    let server = python(&["exits_on_request.py"], ServerMode::Concurrent, LONG).await;
    let first = answer(&server, "pid", json!([])).await;
    let died = call(&server, "close", json!([])).await;
    assert_eq!(died, Err(CallFault::Died("it closed its standard output".into())));
    assert_ne!(answer(&server, "pid", json!([])).await, first);
    assert!(!runs(first.as_i64().unwrap()));
}

#[tokio::test]
async fn a_command_that_disappears_is_tried_again_until_it_is_back() {
    let scratch = TempDir::new().unwrap();
    let directory = scratch.path().to_owned();
    let (here, away) = (directory.join("server.py"), directory.join("away.py"));
    let python = Command::new("sh").args(["-c", "command -v python3"]).output().unwrap().stdout;
    let source = std::fs::read_to_string(fixtures().join("exits_on_request.py")).unwrap();
    std::fs::write(&here, format!("#!{}\n{source}", String::from_utf8(python).unwrap().trim())).unwrap();
    std::fs::set_permissions(&here, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let definition = definition("./server.py", &[], ServerMode::Concurrent, LONG);
    let server = MethodServer::start_with(short_policy(), definition, directory, ChildEnv::default(), "gone".into())
        .await
        .unwrap();
    answer(&server, "pid", json!([])).await;
    std::fs::rename(&here, &away).unwrap();
    assert!(matches!(call(&server, "exit", json!({"status": 1})).await, Err(CallFault::Died(_))));
    let cannot = |health: &MethodServerHealth| matches!(health, MethodServerHealth::Restarting { reason } if reason.contains("cannot start"));
    health(&server, cannot).await;
    let refused = call(&server, "pid", json!([])).await.unwrap_err();
    assert!(matches!(&refused, CallFault::NotRunning(why) if why.contains("./server.py")), "{refused}");
    let told = CallReply::from(refused);
    assert!(matches!(&told, CallReply::Unavailable(why) if why == "the method server is not running"), "{told:?}");
    std::fs::rename(&away, &here).unwrap();
    answer(&server, "pid", json!([])).await;
    server.stop().await;
}

#[tokio::test]
async fn grandchildren_end_with_the_server() {
    let server = python(&["forks_child.py"], ServerMode::Concurrent, LONG).await;
    let grandchild = answer(&server, "grandchild", json!([])).await.as_i64().unwrap();
    assert!(runs(grandchild));
    server.stop().await;
    assert!(!runs(grandchild));
}

#[tokio::test]
async fn grandchildren_end_with_a_server_that_dies_and_do_not_delay_the_failure_of_its_calls() {
    let server = python(&["forks_child.py"], ServerMode::Concurrent, LONG).await;
    let grandchild = answer(&server, "grandchild", json!([])).await.as_i64().unwrap();
    assert!(matches!(call(&server, "exit", json!([])).await, Err(CallFault::Died(_))));
    let next = answer(&server, "grandchild", json!([])).await.as_i64().unwrap();
    assert!(next != grandchild && !runs(grandchild));
}

#[tokio::test]
async fn a_server_that_ignores_sigterm_is_killed() {
    let server = python(&["ignores_sigterm.py"], ServerMode::Concurrent, LONG).await;
    let pid = answer(&server, "pid", json!([])).await.as_i64().unwrap();
    server.stop().await;
    assert!(!runs(pid));
}

#[tokio::test]
async fn dropping_the_handle_ends_the_process() {
    let server = python(&["forks_child.py"], ServerMode::Concurrent, LONG).await;
    let grandchild = answer(&server, "grandchild", json!([])).await.as_i64().unwrap();
    let clone = server.clone();
    drop(server);
    assert_eq!(call(&clone, "grandchild", json!([])).await, Ok(json!(grandchild)));
    drop(clone);
    eventually("the process ends", || !runs(grandchild)).await;
}

#[test]
fn dropping_the_runtime_ends_its_processes() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (server, pid) = runtime.block_on(async {
        let server = python(&["ignores_sigterm.py"], ServerMode::Concurrent, LONG).await;
        let pid = answer(&server, "pid", json!([])).await.as_i64().unwrap();
        (server, pid)
    });
    drop(runtime);
    let deadline = std::time::Instant::now() + LONG;
    while runs(pid) {
        assert!(std::time::Instant::now() < deadline, "{pid} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(server);
}

/// The agent process of the next tests. It prints facts about its two method servers, one of which ignores SIGTERM.
#[tokio::test]
#[ignore = "runs for ever: the next tests start it, and kill it"]
async fn an_agent_to_kill() {
    if std::env::var_os("SVC_AGENT_TO_KILL").is_none() {
        return;
    }
    let (stays, tells) = tokio::join!(
        python(&["ignores_sigterm.py"], ServerMode::Concurrent, LONG),
        python(&["echo.py"], ServerMode::Concurrent, LONG)
    );
    println!("pid={}", answer(&stays, "pid", json!([])).await);
    let names = json!(["SVC_AGENT_URL", "SVC_AGENT_TOKEN", "SVC_TOKEN", "SVC_TEST"]);
    println!("environment={}", answer(&tells, "environment", names).await);
    std::future::pending::<()>().await;
}

/// Starts that agent, kills it once it has printed everything, and returns what it printed.
fn killed_agent(environment: &[(&str, &str)]) -> (i64, String) {
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "agent::method_server::tests::an_agent_to_kill", "--ignored", "--nocapture"])
        .env("SVC_AGENT_TO_KILL", "yes")
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told = |name| lines.find_map(|line| Some(line.split_once(name)?.1.to_owned())).expect("it tells");
    let (pid, environment) = (told("pid=").parse().unwrap(), told("environment="));
    assert!(runs(pid));
    agent.kill().unwrap();
    agent.wait().unwrap();
    (pid, environment)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_does_not_outlive_an_agent_that_is_killed() {
    let (pid, _) = killed_agent(&[]);
    eventually("the server ends", || !runs(pid)).await;
}

#[test]
fn a_server_inherits_the_agents_environment_without_its_secrets() {
    let own = [("SVC_AGENT_TOKEN", "sva_secret"), ("SVC_TOKEN", "svc_secret"), ("SVC_TEST", "kept")];
    assert_eq!(killed_agent(&own).1, r#"["http://127.0.0.1:1",null,null,"kept"]"#);
}

#[tokio::test]
async fn retiring_lets_calls_finish_and_takes_no_more() {
    let server = python(&["holds_calls.py"], ServerMode::Concurrent, LONG).await;
    let pid = answer(&server, "pid", json!([])).await.as_i64().unwrap();
    let (held, released) = (server.call("hold", None), server.call("release", None));
    let retired = tokio::spawn({
        let server = server.clone();
        async move { server.retire().await }
    });
    assert!(matches!(held.await, Ok(RpcResponse::Result(result)) if result.get() == "\"late\""));
    assert!(matches!(released.await, Ok(RpcResponse::Result(_))));
    retired.await.unwrap();
    assert!(!runs(pid));
    assert!(matches!(call(&server, "pid", json!([])).await, Err(CallFault::NotRunning(_))));
}

#[tokio::test]
async fn a_retiring_server_keeps_its_stdin_open_for_calls_in_flight_and_refuses_others() {
    let server = python(&["holds_calls.py"], ServerMode::Concurrent, LONG).await;
    answer(&server, "pid", json!([])).await;
    let held = tokio::spawn(server.call("hold", None));
    let retired = tokio::spawn({
        let server = server.clone();
        async move { server.retire().await }
    });
    loop {
        match server.call("pid", None).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(CallFault::NotRunning(_)) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(!held.is_finished() && !retired.is_finished());
    assert_eq!(*server.health().borrow(), MethodServerHealth::Running);
    // Stopping overrides retiring.
    server.stop().await;
    assert!(matches!(held.await.unwrap(), Err(CallFault::Died(_))));
    retired.await.unwrap();
}

#[tokio::test]
async fn a_retiring_server_that_dies_is_not_restarted() {
    let server = python(&["holds_calls.py"], ServerMode::Concurrent, LONG).await;
    let pid = answer(&server, "pid", json!([])).await.as_i64().unwrap();
    let held = server.call("hold", None);
    assert_eq!(answer(&server, "pid", json!([])).await, json!(pid));
    let retiring = server.retire();
    let kill = async { unsafe { libc::kill(pid.try_into().unwrap(), libc::SIGKILL) } };
    let (held, ()) = tokio::join!(async { tokio::join!(held, kill).0 }, retiring);
    assert!(matches!(held, Err(CallFault::Died(_))));
    assert_eq!(*server.health().borrow(), MethodServerHealth::Stopped);
}

#[tokio::test]
async fn an_answer_after_its_timeout_is_skipped_and_its_server_goes_on() {
    let server = python(&["holds_calls.py"], ServerMode::Concurrent, SHORT).await;
    let pid = answer(&server, "pid", json!([])).await;
    assert_eq!(call(&server, "hold", json!([])).await, Err(CallFault::Timeout(SHORT)));
    assert!(is_idle(&server));
    assert_eq!(answer(&server, "release", json!([])).await, pid);
    assert_eq!(answer(&server, "pid", json!([])).await, pid);
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing_in_the_queue() {
    let server = python(&["holds_calls.py"], ServerMode::Concurrent, LONG).await;
    let pid = answer(&server, "pid", json!([])).await;
    let held = tokio::spawn(server.call("hold", None));
    assert_eq!(call(&server, "pid", json!([])).await.as_ref(), Ok(&pid), "the call before was sent");
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    assert!(is_idle(&server));
    assert_eq!(call(&server, "release", json!([])).await, Ok(pid));
}

/// A file whose existence releases a held call.
struct SignalFile(TempDir);

impl SignalFile {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("signal")
    }

    fn params(&self) -> Value {
        json!([self.path()])
    }

    fn create(&self) {
        std::fs::write(self.path(), "").unwrap();
    }
}

#[tokio::test]
async fn a_serial_server_gets_one_call_at_a_time_in_the_order_of_calling() {
    let server = python(&["serial.py"], ServerMode::Serial, LONG).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let calls = (0..20).map(|number| {
        let (call, order) = (server.call("work", Some(&raw(&json!([number])))), order.clone());
        async move {
            let RpcResponse::Result(result) = call.await.unwrap() else { panic!("an error") };
            let result: Value = serde_json::from_str(result.get()).unwrap();
            assert_eq!((&result["hurried"], &result["params"]), (&json!(false), &json!([number])));
            order.lock().push(number);
        }
    });
    join_all(calls.collect::<Vec<_>>()).await;
    assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_thousand_calls_wait_for_a_serial_server_and_the_next_is_refused() {
    let server = python(&["serial.py"], ServerMode::Serial, LONG).await;
    let signal = SignalFile::new();
    let held = server.call("hold", Some(&raw(&signal.params())));
    eventually("the call is sent", || server.0.queue.busy_since().is_some()).await;
    let waiting: Vec<_> = (0..1000).map(|_| server.call("m", None)).collect();
    assert!(matches!(server.call("m", None).await, Err(CallFault::TooManyWaiting)));
    assert!(matches!(server.notify("m", None).await, Err(CallFault::TooManyWaiting)));
    signal.create();
    assert!(held.await.is_ok());
    assert!(join_all(waiting).await.into_iter().all(|outcome| outcome.is_ok()));
    assert!(server.call("m", None).await.is_ok());
}

#[tokio::test]
async fn waiting_for_a_serial_server_does_not_count_and_a_late_answer_frees_it() {
    let server = python(&["serial.py"], ServerMode::Serial, SHORT).await;
    let pid = answer(&server, "m", json!([])).await["pid"].clone();
    let signal = SignalFile::new();
    let held = async {
        let held = call(&server, "hold", signal.params()).await;
        assert!(server.0.queue.busy_since().is_some(), "it still works on what nobody waits for");
        signal.create();
        held
    };
    let began = Instant::now();
    let (held, waited) = tokio::join!(held, call(&server, "m", json!([7])));
    assert_eq!(held, Err(CallFault::Timeout(SHORT)));
    assert!(began.elapsed() >= SHORT, "the other waited as long as that");
    let waited = waited.unwrap();
    assert_eq!((&waited["pid"], &waited["params"]), (&pid, &json!([7])), "it was not started again");
}

#[tokio::test]
async fn a_serial_server_that_hangs_is_restarted_once_and_the_next_process_answers_the_waiting_calls() {
    let server = python(&["serial.py"], ServerMode::Serial, SHORT).await;
    let pid = answer(&server, "m", json!([])).await["pid"].clone();
    let never = SignalFile::new();
    let hung = async {
        assert_eq!(call(&server, "hold", never.params()).await, Err(CallFault::Timeout(SHORT)));
        let health = health(&server, |health| *health != MethodServerHealth::Running).await;
        assert!(
            matches!(&health, MethodServerHealth::Restarting { reason } if reason.contains("not answered")),
            "{health:?}"
        );
    };
    let waiting = join_all((0..5).map(|number| call(&server, "m", json!([number]))));
    let ((), waiting) = tokio::join!(hung, waiting);
    let next = waiting[0].clone().unwrap()["pid"].clone();
    assert_ne!(next, pid);
    for (number, answered) in waiting.into_iter().enumerate() {
        assert_eq!(answered.unwrap(), json!({"pid": next, "hurried": false, "params": [number]}));
    }
    assert!(!runs(pid.as_i64().unwrap()));
}
