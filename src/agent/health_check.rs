//! Runs a space's health check, from inside the space.
//!
//! [`Checker::run`] checks at every interval and tells each result; who counts them, and what they mean, is the
//! server's business. A check that hangs has failed when its timeout is over, and leaves nothing behind.

use super::{
    child_env::Surroundings,
    method_server::child::{Launch, told},
};
use crate::{
    model::{
        health_check::{CheckResult, HealthCheck, Probe},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{
        config::{self, Span},
        egress::{Egress, Request, Tls},
        kv::Kv,
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

/// The longest detail that is told, in bytes.
const MAX_DETAIL: usize = 512;

/// How long the complaints of a command that has exited may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What checks are run with.
#[derive(Clone)]
pub struct Checker {
    egress: Egress,
    lua: Runtime,
    directory: PathBuf,
    surroundings: Surroundings,
    checked_space: CheckedSpace,
}

/// A check calls no methods: it is about this space alone.
struct NoMethods;

/// A check whose Lua, if it has any, is compiled.
struct Prepared<'a> {
    check: &'a HealthCheck,
    program: Option<Result<Program, String>>,
}

impl Checker {
    /// For the space at `checked_space`. Commands run in `directory`, among `surroundings`;
    /// `kv` is what Lua remembers things in.
    pub fn new(checked_space: CheckedSpace, directory: PathBuf, surroundings: Surroundings, kv: Kv) -> Self {
        let egress = Egress::new(&config::Egress::default());
        let libraries = HostServices {
            http: Arc::new(egress.clone()),
            kv: Some(kv),
            caller: Arc::new(NoMethods),
            modules: Arc::new(NoModules),
        };
        let lua = Runtime::new(&config::Script::default(), libraries, Arc::default());
        Self { egress, lua, directory, surroundings, checked_space }
    }

    /// Checks now and then at every interval, and tells each result, until nobody listens or the future is dropped.
    pub async fn run(&self, check: &HealthCheck, results: mpsc::Sender<CheckResult>) {
        let prepared = Prepared::new(check);
        let mut turns = interval(check.interval);
        // After a check that took long, the next is a whole interval later.
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            let result = self.once(&prepared).await;
            if results.send(result).await.is_err() {
                return;
            }
        }
    }

    /// Checks once.
    pub async fn check(&self, check: &HealthCheck) -> CheckResult {
        self.once(&Prepared::new(check)).await
    }

    async fn once(&self, prepared: &Prepared<'_>) -> CheckResult {
        let limit = prepared.check.timeout;
        let probed = timeout(limit, self.probe(prepared)).await;
        let failure = probed.unwrap_or_else(|_| Err(format!("it took longer than {}", Span(limit)))).err();
        CheckResult { ok: failure.is_none(), detail: failure.map(|detail| line(&detail)), checked_at: Timestamp::now() }
    }

    async fn probe(&self, prepared: &Prepared<'_>) -> Result<(), String> {
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
        let request = Request {
            method: Method::GET,
            url: url.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: limit,
            tls: Tls::Verify,
            keep: 0,
        };
        // Inside the space its own addresses are what a check is for.
        let response = self.egress.send(Owner::Global, request).await.map_err(|error| error.to_string())?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(format!("{url} answered {}", response.status)),
        }
    }

    async fn command(&self, command: &str, args: &[String]) -> Result<(), String> {
        let launch = Launch { command, args, directory: &self.directory, environment: &self.surroundings.variables() };
        // The process is killed with all of its group when it is dropped, which a timeout does.
        let (mut process, stderr) = launch.with_complaints().await.map_err(|error| error.to_string())?;
        let complaints = AbortOnDropHandle::new(tokio::spawn(first_of(stderr)));
        let status = process.exited().await;
        process.sweep().await;
        if status.as_ref().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        let said = timeout(LAST_WORDS, complaints).await.ok().and_then(Result::ok).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        Err(match said.trim() {
            "" => told(&status),
            said => format!("{}: {said}", told(&status)),
        })
    }

    async fn lua(&self, program: &Result<Program, String>) -> Result<(), String> {
        let program = program.as_ref().map_err(Clone::clone)?;
        match self.lua.run_check(program, Owner::Global, self.checked_space.clone()).await {
            Ok(CheckVerdict::Healthy) => Ok(()),
            Ok(CheckVerdict::Unhealthy(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl MethodCaller for NoMethods {
    fn call(&self, _: Owner, method: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let message = format!("a health check calls no methods, and so not `{method}`");
        Box::pin(std::future::ready(Err(message)))
    }
}

impl<'a> Prepared<'a> {
    fn new(check: &'a HealthCheck) -> Self {
        let program = match &check.probe {
            Probe::Lua { source } => Some(Program::script("script", source).map_err(|error| error.to_string())),
            _ => None,
        };
        Self { check, program }
    }
}

/// The beginning of a stream, all of which is read so that who writes it never has to wait.
async fn first_of(mut stream: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = (&mut stream).take(MAX_DETAIL as u64).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    kept
}

/// A detail in one bounded line.
fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text[..text.floor_char_boundary(MAX_DETAIL)].to_owned()
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

    /// The directory goes when this is dropped.
    struct World {
        checker: Checker,
        directory: PathBuf,
    }

    impl World {
        fn new() -> Self {
            let directory = std::env::temp_dir().join(format!("svc-health-{}", uuid::Uuid::now_v7()));
            let store = Store::open(&directory, 0, Arc::default()).unwrap();
            let checked_space = CheckedSpace { id: SpaceId::NIL, name: "web".to_owned() };
            let environment = vec![("SVC_AGENT_URL".to_owned(), "http://127.0.0.1:1".to_owned())];
            let checker = Checker::new(checked_space, directory.clone(), environment.into(), Kv::new(store).unwrap());
            Self { checker, directory }
        }

        /// What a check finds wrong.
        async fn detail(&self, check: Value) -> Option<String> {
            let result = self.checker.check(&read(check)).await;
            assert_eq!(result.ok, result.detail.is_none(), "{result:?}");
            result.detail
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
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
        let world = World::new();
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", None),
            ("HTTP/1.1 302 Found\r\nLocation: /up\r\nContent-Length: 0\r\n\r\n", Some("answered 302 Found")),
            ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", Some("answered 503 Service Unavailable")),
        ] {
            let receiver = Receiver::start(Behaviour::Answer(answer)).await;
            let detail = world.detail(json!({"type": "http", "url": receiver.url(), "timeout": "60s"})).await;
            match expected {
                None => assert_eq!(detail, None),
                Some(part) => assert!(detail.as_ref().is_some_and(|detail| detail.ends_with(part)), "{detail:?}"),
            }
            assert!(receiver.request(0).starts_with("GET / HTTP/1.1"));
        }
        let silent = Receiver::start(Behaviour::Silence).await;
        let detail = world.detail(json!({"type": "http", "url": silent.url(), "timeout": "200ms"})).await;
        assert!(detail.is_some());
    }

    #[tokio::test]
    async fn tcp_is_healthy_if_it_is_taken() {
        let world = World::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = json!({"type": "tcp", "port": port, "timeout": "60s"});
        assert_eq!(world.detail(check.clone()).await, None);
        drop(listener);
        assert!(world.detail(check).await.unwrap().starts_with(&format!("cannot connect to port {port}: ")));
    }

    #[tokio::test]
    async fn a_command_is_healthy_if_it_exits_with_0() {
        let world = World::new();
        assert_eq!(world.detail(shell("test \"$SVC_AGENT_URL\" = http://127.0.0.1:1", "60s")).await, None);
        assert_eq!(world.detail(shell("exit 3", "60s")).await.unwrap(), "it exited with status 3");
        let complaint = world.detail(shell("echo too >&2; echo hot >&2; exit 1", "60s")).await;
        assert_eq!(complaint.unwrap(), "it exited with status 1: too hot");
        assert_eq!(world.detail(shell("kill -9 $$", "60s")).await.unwrap(), "it was killed by signal 9");
        let flood = world.detail(shell("head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 1", "60s")).await.unwrap();
        assert!(flood.ends_with("xxx") && flood.len() <= MAX_DETAIL, "{flood}");
        let absent = json!({"type": "command", "command": "./absent"});
        assert!(world.detail(absent).await.unwrap().contains("`./absent`"));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_all_it_started() {
        let world = World::new();
        let file = world.directory.join("pid");
        let script = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let (mut detail, mut told) = (String::new(), false);
        // On a slow machine it may not come to start its child in time.
        while !told {
            detail = world.detail(shell(&script, "500ms")).await.unwrap();
            told = file.exists();
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
        let world = World::new();
        let lua = |source: &str| json!({"type": "lua", "source": source, "timeout": "60s"});
        assert_eq!(world.detail(lua("return space.name == 'web'")).await, None);
        assert_eq!(world.detail(lua("return false, 'too hot'")).await.unwrap(), "too hot");
        assert_eq!(world.detail(lua("error('broken')")).await.unwrap(), "script:1: broken");
        assert!(world.detail(lua("return (")).await.unwrap().starts_with("line 1: "));
        assert!(world.detail(lua("svc.call('m')")).await.unwrap().contains("no methods"));
        let hangs = json!({"type": "lua", "source": "while true do end", "timeout": "200ms"});
        assert!(world.detail(hangs).await.is_some());
    }

    #[tokio::test]
    async fn every_result_is_told_until_nobody_listens() {
        let world = World::new();
        let file = world.directory.join("up");
        let script = format!("test -e {}", file.display());
        let check = read(json!({"type": "command", "command": "sh", "args": ["-c", script], "interval": "100ms"}));
        let (sender, mut results) = mpsc::channel(1);
        let checker = world.checker.clone();
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
