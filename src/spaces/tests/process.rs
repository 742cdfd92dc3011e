//! The driver `process`, with shell scripts in the place of agents.

use super::*;
use crate::spaces::process_driver::{AgentLaunch, AgentRestartPolicy};
use std::os::unix::fs::PermissionsExt;

/// Writes its directory, environment and arguments to files, and stays until its stdin closes.
const STAYS: &str =
    r#"pwd > "$OUT/cwd"; env > "$OUT/env"; echo "$@" > "$OUT/args.new"; mv "$OUT/args.new" "$OUT/args"; cat"#;

/// A process driver whose agents are a shell script.
struct TestDriver {
    fixture: TestSpaces,
    supervisor: ProcessDriver,
    /// The directory that the script writes to.
    out: PathBuf,
}

impl TestDriver {
    async fn new(script: &str) -> Self {
        Self::over(TestSpaces::new().await, script)
    }

    fn over(fixture: TestSpaces, script: &str) -> Self {
        let out = fixture.store.directory().join("out");
        std::fs::create_dir_all(&out).unwrap();
        let program = out.join("agent.sh");
        std::fs::write(&program, format!("#!/bin/sh\nOUT={}\n{script}\n", out.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let quick = Duration::from_millis(10);
        let restart_policy = AgentRestartPolicy {
            first: quick,
            longest: quick,
            steady: Duration::from_secs(60),
            grace: Duration::from_secs(30),
        };
        let directory = fixture.store.directory().join("spaces");
        let launch = AgentLaunch {
            program,
            server: "http://127.0.0.1:7300".to_owned(),
            directory,
            environment: vec![("SVC_AGENT_HEARTBEAT", "3s".to_owned())],
            restart_policy,
        };
        let supervisor = ProcessDriver::new(fixture.spaces.clone(), launch);
        Self { fixture, supervisor, out }
    }

    async fn space(&self, settings: Value) -> Arc<Space> {
        let (space, token) = self.fixture.try_create("box", Driver::Process, settings).await.unwrap();
        assert!(token.is_none(), "the server hands it over itself");
        space
    }

    async fn start(&self, space: &Space) {
        self.fixture.spaces.start(self.fixture.ada.actor(), space.id).await.unwrap();
    }

    /// Waits for a file of the script and returns its text.
    async fn written(&self, file: &str) -> String {
        let path = self.out.join(file);
        eventually(&path.display().to_string(), || std::fs::read_to_string(&path).ok()).await.trim().to_owned()
    }

    async fn pid(&self, space: &Space) -> u32 {
        eventually("a process", || self.fixture.spaces.status(space.id).running?.pid).await
    }

    async fn close(self) {
        self.supervisor.shut_down().await;
        self.fixture.close().await;
    }
}

/// Returns true while a process runs; a zombie does not.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

/// The agent's token, as the script found it in its environment.
fn token_in(env: &str) -> String {
    env.lines().find_map(|line| line.strip_prefix("SVC_AGENT_TOKEN=")).unwrap().to_owned()
}

#[tokio::test]
async fn an_agent_is_run_with_its_token_in_its_environment_alone() {
    let driver = TestDriver::new(STAYS).await;
    driver.supervisor.follow();
    let space = driver.space(json!({"methods_file": "/srv/methods.toml"})).await;
    assert!(driver.fixture.spaces.status(space.id).running.is_none(), "not before it is started");
    driver.start(&space).await;
    let home = driver.fixture.store.directory().join("spaces").join(space.id.to_string());
    let args = driver.written("args").await;
    let expected = format!(
        "agent start --server http://127.0.0.1:7300 --listen 127.0.0.1:0 --data {} --methods-file /srv/methods.toml",
        home.join("agent").display()
    );
    assert_eq!(args, expected);
    assert_eq!(Path::new(&driver.written("cwd").await), std::fs::canonicalize(&home).unwrap());
    let env = driver.written("env").await;
    for line in ["SVC_AGENT_SUPERVISED=1", "SVC_AGENT_HEARTBEAT=3s"] {
        assert!(env.lines().any(|found| found == line), "{env}");
    }
    let token = token_in(&env);
    let caller = driver.fixture.caller(&token).expect("it opens the server");
    assert!(matches!(caller.via, crate::identity::Credential::Agent { space: found, .. } if found == space.id));
    // Its link deploys the space, and a stop ends both the process and its token.
    driver.fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    let pid = driver.pid(&space).await;
    let stopped = driver.fixture.spaces.stop(driver.fixture.ada.actor(), space.id).await.unwrap();
    assert_eq!((stopped.state, stopped.launched), (SpaceState::Stopped, false));
    assert!(driver.fixture.caller(&token).is_none());
    assert!(matches!(
        driver.fixture.spaces.linked(space.id, "n", AgentConnect::Started).await,
        Err(SpaceError::NotLaunched(_))
    ));
    eventually("its end", || (!lives(pid)).then_some(())).await;
    eventually("that to be noted", || driver.fixture.spaces.status(space.id).running.is_none().then_some(())).await;
    assert_eq!(driver.fixture.emitted_kinds(), ["space.created", "space.started", "space.stopped"]);
    driver.close().await;
}

#[tokio::test]
async fn an_agents_stdin_stays_open_for_as_long_as_it_is_to_run() {
    // `timeout` ends with 124 if `cat` still ran, which it does as long as stdin is open.
    let driver =
        TestDriver::new(r#"timeout 0.2 cat; echo $? > "$OUT/met.new"; mv "$OUT/met.new" "$OUT/met"; cat"#).await;
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    assert_eq!(driver.written("met").await, "124");
    assert_eq!(driver.fixture.spaces.status(space.id).running.unwrap().launches, 1);
    driver.close().await;
}

#[tokio::test]
async fn an_agent_that_ends_is_run_again_with_another_token() {
    let driver = TestDriver::new(
        r#"n=$(cat "$OUT/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n > "$OUT/n"; env > "$OUT/env$n"
           [ $n -ge 3 ] && { touch "$OUT/stays"; cat; }; exit 7"#,
    )
    .await;
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    driver.written("stays").await;
    let [first, third] = [driver.written("env1").await, driver.written("env3").await].map(|env| token_in(&env));
    assert!(driver.fixture.caller(&first).is_none() && driver.fixture.caller(&third).is_some());
    let running = driver.fixture.spaces.status(space.id).running.unwrap();
    assert_eq!(running.launches, 3);
    assert!(running.trouble.as_deref().is_some_and(|trouble| trouble.contains('7')), "{running:?}");
    let again = driver.fixture.spaces.start(driver.fixture.ada.actor(), space.id).await;
    assert!(matches!(again, Err(SpaceError::AlreadyStarted(_))));
    driver.close().await;
}

#[tokio::test]
async fn a_goodbye_of_an_agent_that_is_run_again_is_no_stop() {
    let driver = TestDriver::new(STAYS).await;
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    driver.fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    driver.fixture.spaces.goodbye(space.id).await.unwrap();
    driver.fixture.spaces.unlinked(space.id);
    assert_eq!(driver.fixture.spaces.get(space.id).unwrap().state, SpaceState::Deployed);
    assert_eq!(driver.fixture.emitted_kinds(), ["space.created", "space.started"]);
    driver.close().await;
}

#[tokio::test]
async fn an_agent_that_does_not_end_is_killed_with_its_children() {
    let script = r#"trap '' TERM; sleep 1000 & echo $! > "$OUT/child.new"; mv "$OUT/child.new" "$OUT/child"
                    while :; do sleep 1000; done"#;
    let mut driver = TestDriver::new(script).await;
    let launch = AgentLaunch {
        program: driver.out.join("agent.sh"),
        server: String::new(),
        directory: driver.fixture.store.directory().join("spaces"),
        environment: Vec::new(),
        restart_policy: AgentRestartPolicy { grace: Duration::from_millis(50), ..AgentRestartPolicy::default() },
    };
    driver.supervisor = ProcessDriver::new(driver.fixture.spaces.clone(), launch);
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    let child: u32 = driver.written("child").await.parse().unwrap();
    let pid = driver.pid(&space).await;
    driver.fixture.spaces.stop(driver.fixture.ada.actor(), space.id).await.unwrap();
    eventually("both to end", || (!lives(pid) && !lives(child)).then_some(())).await;
    assert_eq!(driver.fixture.emitted_kinds(), ["space.created"], "it was never deployed");
    driver.close().await;
}

#[tokio::test]
async fn stopping_the_server_ends_the_agents_and_the_next_start_runs_them_again() {
    let driver = TestDriver::new(STAYS).await;
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    driver.fixture.spaces.linked(space.id, "n", AgentConnect::Started).await.unwrap();
    driver.written("args").await;
    let pid = driver.pid(&space).await;
    driver.supervisor.shut_down().await;
    assert!(!lives(pid), "waited for");
    let TestDriver { fixture, supervisor, out } = driver;
    drop(supervisor);
    std::fs::remove_file(out.join("args")).unwrap();
    let driver = TestDriver::over(fixture.reopened(0).await, STAYS);
    assert_eq!(driver.fixture.spaces.get(space.id).unwrap().state, SpaceState::Deployed, "that was no stop");
    driver.fixture.spaces.resume().await;
    driver.supervisor.follow();
    driver.written("args").await;
    driver.pid(&space).await;
    driver.close().await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_run_says_why_and_a_stop_ends_the_tries() {
    let driver = TestDriver::new(STAYS).await;
    driver.supervisor.follow();
    let space = driver.space(json!({"directory": "/nowhere/at/all"})).await;
    driver.start(&space).await;
    let trouble = eventually("trouble", || driver.fixture.spaces.status(space.id).running?.trouble).await;
    assert!(trouble.contains("/nowhere/at/all"), "{trouble}");
    driver.fixture.spaces.stop(driver.fixture.ada.actor(), space.id).await.unwrap();
    eventually("the tries to end", || driver.fixture.spaces.status(space.id).running.is_none().then_some(())).await;
    assert_eq!(driver.fixture.spaces.get(space.id).unwrap().state, SpaceState::Created);
    driver.close().await;
}

#[tokio::test]
async fn deleting_a_space_ends_its_agent_and_removes_the_agents_data() {
    let driver = TestDriver::new(STAYS).await;
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    driver.written("args").await;
    let pid = driver.pid(&space).await;
    let home = driver.fixture.store.directory().join("spaces").join(space.id.to_string());
    std::fs::write(home.join("agent/spool"), "x").unwrap();
    driver.fixture.spaces.delete(driver.fixture.ada.actor(), space.id).await.unwrap();
    eventually("its end", || (!lives(pid)).then_some(())).await;
    eventually("its directory to go", || (!home.exists()).then_some(())).await;
    driver.close().await;
}

#[tokio::test]
async fn a_space_that_is_stopped_and_started_at_once_runs_once() {
    // Slow to end: the next one must wait for the directory.
    let script = r#"mkdir "$OUT/lock" || { touch "$OUT/clash"; exit 1; }
                    trap 'sleep 0.2; rmdir "$OUT/lock"; exit 0' TERM; touch "$OUT/up"; while :; do sleep 0.02; done"#;
    let driver = TestDriver::new(script).await;
    driver.supervisor.follow();
    let space = driver.space(json!({})).await;
    driver.start(&space).await;
    driver.written("up").await;
    let pid = driver.pid(&space).await;
    std::fs::remove_file(driver.out.join("up")).unwrap();
    driver.fixture.spaces.stop(driver.fixture.ada.actor(), space.id).await.unwrap();
    driver.start(&space).await;
    driver.written("up").await;
    assert_ne!(driver.pid(&space).await, pid);
    assert!(!lives(pid) && !driver.out.join("clash").exists());
    driver.close().await;
}
