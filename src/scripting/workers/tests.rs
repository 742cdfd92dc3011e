//! Workers as real processes: their limits, their ends, and what becomes of their runs.

use super::{LuaWorkers, ProgramText, confinement};
use crate::{
    model::{id::UserId, owner::Owner, units::Span},
    platform::config::ScriptConfig,
    scripting::lua::{
        ToolCall, ToolContext, Verdict,
        test_support::{FakeHost, TestRuntime, event, input, lua},
    },
};
use serde_json::value::RawValue;
use std::{process::Command, sync::Arc, time::Duration};

/// The worker of the tests, which is this program with this one test.
#[test]
#[ignore = "a process that other tests start"]
fn a_worker_of_the_tests() {
    if std::env::var_os("SVC_TEST_LUA_WORKER").is_some() {
        let code = super::run_worker();
        std::process::exit(if code == std::process::ExitCode::SUCCESS { 0 } else { 1 });
    }
}

/// A script that burns processor time where no interrupt comes: each addition reads a number of 20 MB.
fn uninterruptible() -> String {
    format!("local a, x = ('1'):rep(2e7){}", " x = a + a".repeat(2000))
}

fn with_little_cpu() -> TestRuntime {
    TestRuntime::with(ScriptConfig { cpu: Span(Duration::from_millis(100)), ..ScriptConfig::default() })
}

fn user() -> Owner {
    Owner::User(UserId::new())
}

/// Starts a script, and returns once it has sent a request.
async fn begin(host: &TestRuntime, owner: Owner, source: &str) -> tokio::task::JoinHandle<Verdict> {
    let (workers, program) = (host.workers.clone(), ProgramText::script("script", source));
    let run = tokio::spawn(async move { workers.run_script(&program, owner, input(event())).await.verdict });
    host.http.requested().await;
    run
}

#[tokio::test]
async fn a_run_far_over_its_limit_is_killed_and_the_other_runs_of_its_worker_are_repeated() {
    let host = with_little_cpu();
    let waiting = begin(&host, Owner::Global, "return svc.skip(http.post('http://gate.test', 'x').body)").await;
    let killed = host.run_script(&uninterruptible()).await;
    let reason = "it took more than 100ms of processor time, and its process was killed";
    assert_eq!(killed.verdict, Verdict::Failed(reason.to_owned()));
    // The other run is there again, and nothing tells it from one that was never disturbed.
    host.http.requested().await;
    host.http.open_gate();
    assert_eq!(waiting.await.unwrap(), Verdict::Skip("x".to_owned()));
    assert_eq!(host.http.requests.lock().len(), 2);
    assert!(host.metrics.render([]).contains("svc_lua_workers_lost_total 1\n"));
}

#[tokio::test]
async fn a_tool_that_has_acted_is_not_repeated_when_another_run_ends_its_worker() {
    let host = with_little_cpu();
    let (workers, host_services) = (host.workers.clone(), Arc::new(FakeHost));
    let program = ProgramText::tool("tool", "return http.post('http://gate.test', 'x').body");
    let context = ToolContext { owner: Owner::Global, caller: host_services.clone(), emitter: host_services };
    let call = ToolCall { arguments: RawValue::from_string("{}".to_owned()).unwrap(), context };
    let tool = tokio::spawn(async move { workers.run_tool(&program, Owner::Global, call).await.result });
    host.http.requested().await;
    host.run_script(&uninterruptible()).await;
    let error = tool.await.unwrap().unwrap_err().to_string();
    assert!(error.starts_with("its process ended: another run ended it after this one had sent requests"), "{error}");
    assert_eq!(host.http.requests.lock().len(), 1);
}

#[tokio::test]
async fn a_program_that_kills_three_workers_in_a_row_is_quarantined_until_it_is_changed() {
    let host = with_little_cpu();
    for _ in 0..3 {
        let Verdict::Failed(why) = host.run_script(&uninterruptible()).await.verdict else { panic!("it was killed") };
        assert!(why.ends_with("its process was killed"), "{why}");
    }
    let workers = host.workers.pids();
    let Verdict::Failed(why) = host.run_script(&uninterruptible()).await.verdict else { panic!("it was run") };
    assert!(why.starts_with("it is quarantined until 2") && why.contains("3 times in a row"), "{why}");
    assert_eq!(host.workers.pids(), workers, "nothing was started");
    let quarantined = host.workers.quarantined(&ProgramText::script("script", &uninterruptible()), Owner::Global);
    assert_eq!(quarantined.unwrap().count, 3);
    assert_eq!(host.run_script("return svc.skip('changed')").await.verdict, Verdict::Skip("changed".to_owned()));
}

#[tokio::test]
async fn a_program_in_quarantine_is_compiled_and_stays_in_quarantine() {
    let host = TestRuntime::new();
    let program = ProgramText::script("script", "while true do end");
    let key = super::places::WorkerKey::of_owner(Owner::Global);
    for _ in 0..3 {
        host.workers.0.quarantine.record_fault(key, &program, "it was killed".to_owned());
    }
    assert_eq!(host.workers.compile(&program, Owner::Global).await.map_err(|error| error.to_string()), Ok(()));
    assert!(host.workers.quarantined(&program, Owner::Global).is_some());
    let Verdict::Failed(why) = host.run_script("while true do end").await.verdict else { panic!("it was run") };
    assert!(why.starts_with("it is quarantined until 2"), "{why}");
}

#[tokio::test]
async fn a_worker_that_is_killed_from_outside_has_its_runs_repeated() {
    let host = TestRuntime::new();
    let waiting = begin(&host, Owner::Global, "return svc.skip(http.post('http://gate.test', 'x').body)").await;
    let [worker] = host.workers.pids()[..] else { panic!("there is one worker") };
    // SAFETY: the process is a child that nobody has waited for.
    assert_eq!(unsafe { libc::kill(worker.cast_signed(), libc::SIGKILL) }, 0);
    host.http.requested().await;
    assert!(!host.workers.pids().contains(&worker));
    host.http.open_gate();
    assert_eq!(waiting.await.unwrap(), Verdict::Skip("x".to_owned()));
    assert!(!host.workers.any_quarantined());
}

#[tokio::test]
async fn scripts_that_wait_leave_places_to_templates() {
    let host = TestRuntime::with(ScriptConfig { workers: 4, ..ScriptConfig::default() });
    let mut waiting = Vec::new();
    // Three users fill all places for scripts, and a fourth waits for one.
    for _ in 0..3 {
        waiting.push(begin(&host, user(), "http.get('http://gate.test')").await);
    }
    let workers = host.workers.clone();
    let fourth = tokio::spawn(async move {
        workers.run_script(&ProgramText::script("script", ""), user(), input(event())).await.verdict
    });
    for owner in [user(), user()] {
        let rendered = host.workers.render(&lua("return event.type"), owner, input(event())).await.unwrap();
        assert_eq!(rendered.body, "custom.deploy.done");
    }
    assert!(waiting.iter().all(|run| !run.is_finished()) && !fourth.is_finished());
    host.http.open_gate();
    assert_eq!(fourth.await.unwrap(), Verdict::Ack);
    for run in waiting {
        assert_eq!(run.await.unwrap(), Verdict::Ack);
    }
}

#[tokio::test]
async fn a_worker_serves_one_owner_and_gives_way_to_another() {
    let host = TestRuntime::with(ScriptConfig { workers: 2, ..ScriptConfig::default() });
    let render = async |workers: &LuaWorkers, owner| {
        let program = lua("return 'x'");
        workers.render(&program, owner, input(event())).await.unwrap();
        workers.pids()
    };
    let (one, two) = (user(), user());
    let first = render(&host.workers, one).await;
    assert_eq!(render(&host.workers, one).await, first, "the owner's next run is in the same process");
    let both = render(&host.workers, two).await;
    assert!(both.len() == 2 && both.contains(&first[0]));
    let later = render(&host.workers, user()).await;
    assert!(later.len() == 2 && !later.contains(&first[0]), "the worker idle for longest ended");
}

#[tokio::test]
async fn a_busy_owner_does_not_keep_the_last_place_from_others() {
    let host = TestRuntime::with(ScriptConfig { workers: 2, ..ScriptConfig::default() });
    let workers = host.workers.clone();
    let busy = tokio::spawn(async move {
        let (owner, program) = (user(), lua("return 'x'"));
        loop {
            let runs = (0..8).map(|_| workers.render(&program, owner, input(event())));
            futures_util::future::join_all(runs).await;
        }
    });
    let scripts = begin(&host, user(), "http.get('http://never.test')").await;
    for owner in [user(), user(), user()] {
        host.workers.render(&lua("return 'x'"), owner, input(event())).await.unwrap();
    }
    busy.abort();
    scripts.abort();
}

#[tokio::test]
async fn verdicts_that_a_script_hoards_are_bounded() {
    let host = TestRuntime::new();
    let source = "local kept = {} for i = 1, 250000 do kept[i] = svc.skip(('x'):rep(4096) .. i) end";
    let verdict = host.run_script(source).await.verdict;
    assert_eq!(verdict, Verdict::Failed("script:1: svc.skip: a run makes at most 100 verdicts".to_owned()));
}

#[tokio::test]
async fn runs_that_use_up_the_memory_of_their_worker_fail_and_the_next_is_served() {
    let host = TestRuntime::new();
    let source = "local kept = ('x'):rep(3e7) http.get('http://gate.test') return svc.skip(tostring(#kept))";
    let program = ProgramText::script("script", source);
    let runs = (0..16).map(|_| host.workers.run_script(&program, Owner::Global, input(event())));
    let opened = async {
        while host.http.requests.lock().len() < 5 {
            host.http.requested().await;
        }
        host.http.open_gate();
    };
    let (runs, ()) = tokio::join!(futures_util::future::join_all(runs), opened);
    for run in runs {
        let told = format!("{:?}", run.verdict);
        assert!(told.contains("30000000") || told.contains("memory"), "{told}");
    }
    assert_eq!(host.run_script("").await.verdict, Verdict::Ack);
}

/// Gives up what a worker gives up and tries to get something back. Its exit code is 0 if all attempts fail.
#[test]
#[ignore = "a process that another test starts"]
fn a_confined_process_tries_to_get_out() {
    if std::env::var_os("SVC_TEST_CONFINED").is_none() {
        return;
    }
    let path = c"/etc/hostname".as_ptr();
    // SAFETY: the call takes no memory.
    let parent = unsafe { libc::getppid() };
    // SAFETY: the calls take no memory but the path.
    let attempts = || unsafe {
        [
            libc::open(path, libc::O_RDONLY),
            libc::openat(libc::AT_FDCWD, c"/tmp/svc-confined".as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600),
            libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0),
            libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0),
            libc::execv(c"/bin/true".as_ptr(), [std::ptr::null()].as_ptr()),
            libc::fork(),
            libc::dup(0),
            libc::kill(parent, 0),
            libc::syscall(libc::SYS_tgkill, parent, parent, 0) as i32,
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) as i32,
            libc::fcntl(1, libc::F_GETFD),
            libc::fcntl(2, libc::F_GETFD),
        ]
    };
    // SAFETY: the call asks for the version and takes no memory.
    let landlock = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) } > 0;
    confinement::confine_process(8 << 20).expect("the process confines itself");
    // SAFETY: the size is large enough for the limit to refuse it.
    let too_much = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), 1 << 30, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    // Landlock alone refuses files, if the kernel has it.
    // SAFETY: as above.
    let opened = unsafe { libc::open(path, libc::O_RDONLY) };
    confinement::confine_system_calls().expect("the system calls are refused");
    let escaped = attempts().iter().any(|result| *result >= 0);
    let code =
        i32::from(escaped) + 2 * i32::from(landlock && opened >= 0) + 4 * i32::from(too_much != libc::MAP_FAILED);
    std::process::exit(code);
}

#[test]
fn a_worker_cannot_open_a_file_or_a_socket_or_start_a_program_or_take_more_memory() {
    let test = "scripting::workers::tests::a_confined_process_tries_to_get_out";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env("SVC_TEST_CONFINED", "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
