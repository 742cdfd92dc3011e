//! Runs the health check of the space, from inside it.
//!
//! [`HealthChecker::run`] checks at every interval and reports each result; the server counts failures and decides on
//! the space's health. A check that hangs fails with its timeout, and its process group is killed.

use super::{child_env::ChildEnv, child_process::ChildCommand};
use crate::{
    model::{
        health_check::{CheckResult, HealthCheck, Probe},
        outbound_http::check_url,
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{
        config::{self, Span},
        egress::{Egress, OutboundRequest, Resend, Tls},
        kv::Kv,
        one_line::one_line,
        process_group::describe_exit,
        task,
    },
    scripting::lua::{CheckVerdict, CheckedSpace, HostServices, MethodCaller, NoModules, Program, Runtime},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use serde_json::value::RawValue;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    process::ChildStderr,
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// The longest reported detail, in bytes.
const MAX_DETAIL: usize = 512;

/// Time for the rest of the stderr of a command that has exited.
const LAST_OUTPUT: Duration = Duration::from_millis(200);

/// Runs health checks.
#[derive(Clone)]
pub struct HealthChecker {
    egress: Egress,
    lua: Runtime,
    directory: PathBuf,
    child_env: ChildEnv,
    checked_space: CheckedSpace,
}

/// The method caller of checks, which refuses: a check is about this space alone.
struct NoMethodCalls;

/// A check, with its Lua compiled if it has any.
struct PreparedCheck<'a> {
    check: &'a HealthCheck,
    program: Option<Result<Program, String>>,
}

impl HealthChecker {
    /// A checker for this space. Commands run in `directory` with `child_env`; Lua keeps its values in `kv`.
    pub fn new(checked_space: CheckedSpace, directory: PathBuf, child_env: ChildEnv, kv: Kv) -> Self {
        let egress = Egress::new(&config::EgressConfig::default());
        let libraries = HostServices {
            http: Arc::new(egress.clone()),
            kv: Some(Arc::new(kv)),
            caller: Arc::new(NoMethodCalls),
            modules: Arc::new(NoModules),
        };
        let lua = Runtime::new(&config::ScriptConfig::default(), 0, libraries);
        Self { egress, lua, directory, child_env, checked_space }
    }

    /// Checks at once and then at every interval, until the receiver of the results is gone.
    pub async fn run(&self, check: &HealthCheck, results: mpsc::Sender<CheckResult>) {
        let prepared = PreparedCheck::new(check);
        let mut ticks = interval(check.interval);
        // A check that took long is followed by a whole interval.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let result = self.once(&prepared).await;
            if results.send(result).await.is_err() {
                return;
            }
        }
    }

    async fn once(&self, prepared: &PreparedCheck<'_>) -> CheckResult {
        let limit = prepared.check.timeout;
        let probed = timeout(limit, self.probe(prepared)).await;
        let failure = probed.unwrap_or_else(|_| Err(format!("it took longer than {}", Span(limit)))).err();
        CheckResult {
            ok: failure.is_none(),
            detail: failure.map(|detail| one_line(&detail, MAX_DETAIL)),
            checked_at: Timestamp::now(),
        }
    }

    async fn probe(&self, prepared: &PreparedCheck<'_>) -> Result<(), String> {
        match &prepared.check.probe {
            Probe::Http(target) => self.http(&target.url(), prepared.check.timeout).await,
            Probe::Tcp { port } => {
                let connected = TcpStream::connect(("127.0.0.1", port.get())).await;
                connected.map(drop).map_err(|error| format!("cannot connect to port {port}: {error}"))
            }
            Probe::Command { command, args } => self.command(command, args).await,
            Probe::Lua { .. } => self.lua(prepared.program.as_ref().expect("Lua is compiled")).await,
        }
    }

    async fn http(&self, url: &str, limit: Duration) -> Result<(), String> {
        let request = OutboundRequest {
            method: Method::GET,
            url: check_url(url).map_err(|error| error.to_string())?,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: limit,
            tls: Tls::Verify,
            keep: 0,
            resend: Resend::IfIdempotent,
        };
        // A check is meant for the space's own addresses, so no egress rule applies.
        let response = self.egress.send(Owner::Global, request).await.map_err(|error| error.to_string())?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(format!("{url} answered {}", response.status)),
        }
    }

    async fn command(&self, command: &str, args: &[String]) -> Result<(), String> {
        let environment = self.child_env.variables();
        let command = ChildCommand { command, args, directory: &self.directory, environment: &environment };
        // A timeout drops the process, which kills its group.
        let (mut process, stderr) = command.spawn_with_stderr().await.map_err(|error| error.to_string())?;
        let stderr = AbortOnDropHandle::new(task::spawn(beginning_of(stderr)));
        let status = process.exited().await;
        process.sweep().await;
        if status.as_ref().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        let stderr = timeout(LAST_OUTPUT, stderr).await.ok().and_then(Result::ok).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr);
        Err(match stderr.trim() {
            "" => describe_exit(&status),
            text => format!("{}: {text}", describe_exit(&status)),
        })
    }

    async fn lua(&self, program: &Result<Program, String>) -> Result<(), String> {
        let program = program.as_ref().map_err(Clone::clone)?;
        match self.lua.run_check(program, self.checked_space.clone()).await {
            Ok(CheckVerdict::Healthy) => Ok(()),
            Ok(CheckVerdict::Unhealthy(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl MethodCaller for NoMethodCalls {
    fn call(&self, _: Owner, method: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let message = format!("a health check calls no methods, and so not `{method}`");
        Box::pin(std::future::ready(Err(message)))
    }
}

impl<'a> PreparedCheck<'a> {
    fn new(check: &'a HealthCheck) -> Self {
        let program = match &check.probe {
            Probe::Lua { source } => Some(Program::script("script", source).map_err(|error| error.to_string())),
            _ => None,
        };
        Self { check, program }
    }
}

/// The beginning of a stream, all of which is read so that its writer never blocks.
async fn beginning_of(mut stream: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = (&mut stream).take(MAX_DETAIL as u64).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::id::SpaceId,
        platform::{
            egress::receiver::{Behaviour, Receiver},
            store::Store,
        },
    };
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    struct CheckerFixture {
        checker: HealthChecker,
        directory: tempfile::TempDir,
    }

    impl CheckerFixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
            let checked_space = CheckedSpace { id: SpaceId::NIL, name: "web".to_owned() };
            let environment = vec![("SVC_AGENT_URL".to_owned(), "http://127.0.0.1:1".to_owned())];
            let checker = HealthChecker::new(
                checked_space,
                directory.path().to_owned(),
                environment.into(),
                Kv::new(store).unwrap(),
            );
            Self { checker, directory }
        }

        /// The detail of a failed check; `None` if it passed.
        async fn detail(&self, check: Value) -> Option<String> {
            let result = self.checker.once(&PreparedCheck::new(&read(check))).await;
            assert_eq!(result.ok, result.detail.is_none(), "{result:?}");
            result.detail
        }
    }

    fn read(mut check: Value) -> HealthCheck {
        if check["interval"].is_null() {
            check["interval"] = json!("60s");
        }
        serde_json::from_value(check).unwrap()
    }

    fn shell(script: &str, timeout: &str) -> Value {
        json!({"type": "command", "command": "sh", "args": ["-c", script], "timeout": timeout})
    }

    #[tokio::test]
    async fn http_is_healthy_with_any_2xx_and_nothing_else() {
        let fixture = CheckerFixture::new();
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", None),
            ("HTTP/1.1 302 Found\r\nLocation: /up\r\nContent-Length: 0\r\n\r\n", Some("answered 302 Found")),
            ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Some("answered 503 Service Unavailable")),
        ] {
            let receiver = Receiver::start(Behaviour::Answer(answer)).await;
            let detail = fixture.detail(json!({"type": "http", "url": receiver.url(), "timeout": "60s"})).await;
            match expected {
                None => assert_eq!(detail, None),
                Some(part) => assert!(detail.as_ref().is_some_and(|detail| detail.ends_with(part)), "{detail:?}"),
            }
            assert!(receiver.request(0).starts_with("GET / HTTP/1.1"));
        }
        let silent = Receiver::start(Behaviour::Silence).await;
        let detail = fixture.detail(json!({"type": "http", "url": silent.url(), "timeout": "200ms"})).await;
        assert!(detail.is_some());
    }

    #[tokio::test]
    async fn tcp_is_healthy_if_the_connection_is_accepted() {
        let fixture = CheckerFixture::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = json!({"type": "tcp", "port": port, "timeout": "60s"});
        assert_eq!(fixture.detail(check.clone()).await, None);
        drop(listener);
        assert!(fixture.detail(check).await.unwrap().starts_with(&format!("cannot connect to port {port}: ")));
    }

    #[tokio::test]
    async fn a_command_is_healthy_if_it_exits_with_0() {
        let fixture = CheckerFixture::new();
        assert_eq!(fixture.detail(shell("test \"$SVC_AGENT_URL\" = http://127.0.0.1:1", "60s")).await, None);
        assert_eq!(fixture.detail(shell("exit 3", "60s")).await.unwrap(), "it exited with status 3");
        let complaint = fixture.detail(shell("echo too >&2; echo hot >&2; exit 1", "60s")).await;
        assert_eq!(complaint.unwrap(), "it exited with status 1: too hot");
        assert_eq!(fixture.detail(shell("kill -9 $$", "60s")).await.unwrap(), "it was killed by signal 9");
        let flood = fixture.detail(shell("head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 1", "60s")).await.unwrap();
        assert!(flood.ends_with("xxx") && flood.len() <= MAX_DETAIL, "{flood}");
        let absent = json!({"type": "command", "command": "./absent"});
        assert!(fixture.detail(absent).await.unwrap().contains("`./absent`"));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_all_it_started() {
        let fixture = CheckerFixture::new();
        let file = fixture.directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let mut detail = String::new();
        // On a slow machine it may not start its child in time.
        for _ in 0..60 {
            if !file.exists() {
                detail = fixture.detail(shell(&script, "500ms")).await.unwrap();
            }
        }
        assert_eq!(detail, "it took longer than 500ms");
        let child: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while runs() {
            assert!(tokio::time::Instant::now() < deadline, "{child} still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn lua_is_healthy_if_it_returns_true() {
        let fixture = CheckerFixture::new();
        let lua = |source: &str| json!({"type": "lua", "source": source, "timeout": "60s"});
        assert_eq!(fixture.detail(lua("return space.name == 'web'")).await, None);
        assert_eq!(fixture.detail(lua("return false, 'too hot'")).await.unwrap(), "too hot");
        assert_eq!(fixture.detail(lua("error('broken')")).await.unwrap(), "script:1: broken");
        assert!(fixture.detail(lua("return (")).await.unwrap().starts_with("line 1: "));
        assert!(fixture.detail(lua("svc.call('m')")).await.unwrap().contains("no methods"));
        let hangs = json!({"type": "lua", "source": "while true do end", "timeout": "200ms"});
        assert!(fixture.detail(hangs).await.is_some());
    }

    #[tokio::test]
    async fn every_result_is_reported_until_the_receiver_is_gone() {
        let fixture = CheckerFixture::new();
        let file = fixture.directory.path().join("up");
        let script = format!("test -e {}", file.display());
        let check = read(json!({"type": "command", "command": "sh", "args": ["-c", script], "interval": "100ms"}));
        let (sender, mut results) = mpsc::channel(1);
        let checker = fixture.checker.clone();
        let running = tokio::spawn(async move { checker.run(&check, sender).await });
        let first = results.recv().await.unwrap();
        assert!(!first.ok && !results.recv().await.unwrap().ok);
        std::fs::write(&file, "").unwrap();
        while !results.recv().await.unwrap().ok {}
        let last = results.recv().await.unwrap();
        assert!(last.ok && last.checked_at > first.checked_at);
        drop(results);
        running.await.unwrap();
    }
}
