//! The server as a child process, and requests to it.

use super::eventually;
use isahc::{ReadResponseExt, Request, RequestExt, config::Configurable};
use serde_json::Value;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// A running `svc server` in a temporary directory. Dropping it kills the process.
pub struct Daemon {
    /// Holds the data directory and the log.
    directory: TempDir,
    data: PathBuf,
    settings: Vec<(String, String)>,
    child: Child,
    pub url: String,
}

/// A start that the server refused, with an account of its data directory before and after.
pub struct Refusal<T> {
    pub status: ExitStatus,
    /// Everything that it wrote to its standard error.
    pub log: String,
    pub before: T,
    pub after: T,
    /// The data directory that was refused, which is kept for as long as this.
    pub data: PathBuf,
    _directory: TempDir,
}

/// A response of the daemon.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub text: String,
}

impl Daemon {
    /// A daemon with default settings except for a short retry schedule.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A daemon with these settings, as environment variables without `SVC_`.
    pub fn with(settings: &[(&str, &str)]) -> Self {
        Self::on(|_| {}, settings)
    }

    /// A daemon on a data directory that `fill` makes at the path it is given.
    pub fn on(fill: impl FnOnce(&Path), settings: &[(&str, &str)]) -> Self {
        let started = Self::try_on(fill, settings, |_| ());
        started.unwrap_or_else(|refusal| panic!("the daemon did not start:\n{}", refusal.log))
    }

    /// Like [`Daemon::on`], for a directory that may be refused. `account` is taken of it before and after.
    pub fn try_on<T>(
        fill: impl FnOnce(&Path),
        settings: &[(&str, &str)],
        account: impl Fn(&Path) -> T,
    ) -> Result<Self, Refusal<T>> {
        let directory = temp_dir();
        let mut settings: Vec<(String, String)> =
            settings.iter().map(|(name, value)| (format!("SVC_{name}"), (*value).to_owned())).collect();
        if !settings.iter().any(|(name, _)| name == "SVC_DELIVERY_BACKOFF") {
            settings.push(("SVC_DELIVERY_BACKOFF".to_owned(), "20ms,40ms".to_owned()));
        }
        let data = directory.path().join("data");
        fill(&data);
        let before = data.exists().then(|| account(&data));
        let mut child = spawn(&data, &settings, &free_address());
        match first_line(&mut child) {
            Some(line) => Ok(Self { directory, data, settings, child, url: url(&line) }),
            None => {
                let status = child.wait().expect("the daemon ends");
                let log = std::fs::read_to_string(data.with_extension("log")).expect("the log is readable");
                let after = account(&data);
                let before = before.expect("only a filled directory is refused");
                Err(Refusal { status, log, before, after, data, _directory: directory })
            }
        }
    }

    /// A daemon whose changes of its data directory are recorded in `log` by this library. It is killed in the middle of them
    /// once there is a file `end`.
    pub fn recorded(library: &Path, log: &Path, end: &Path) -> Self {
        let directory = temp_dir();
        let data = std::fs::canonicalize(directory.path()).expect("it was just made").join("data");
        let variables = [("LD_PRELOAD", library), ("RECORD_DIR", &data), ("RECORD_LOG", log), ("RECORD_END", end)];
        let settings: Vec<(String, String)> =
            variables.map(|(name, path)| (name.to_owned(), path.display().to_string())).to_vec();
        let (child, url) = launch(&data, &settings, &free_address());
        Self { directory, data, settings, child, url }
    }

    /// Kills the process and starts it again with the same data.
    pub fn crash_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// Changes a setting for the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((format!("SVC_{name}"), value.to_owned()));
    }

    /// Changes a variable that is no setting for the next start.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the stopped daemon again, with the same data and address.
    pub fn restart(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        (self.child, self.url) = launch(&self.data, &self.settings, &address);
    }

    /// Starts the stopped daemon and kills it after this time, whether it listens by then or not.
    pub fn kill_during_start(&mut self, after: Duration) {
        let address = self.url.trim_start_matches("http://").to_owned();
        self.child = spawn(&self.data, &self.settings, &address);
        std::thread::sleep(after);
        self.kill();
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("the daemon can be killed");
        self.child.wait().expect("the daemon ends");
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits until the process has ended.
    pub fn ended(&mut self) -> ExitStatus {
        eventually("the daemon to end", || self.child.try_wait().expect("the daemon can be waited for"))
    }

    /// A second daemon with a copy of the data: it has the same users, spaces and tokens.
    pub fn twin(&mut self) -> Self {
        self.terminate();
        assert!(self.ended().success());
        let directory = temp_dir();
        let data = directory.path().join("data");
        let copied = Command::new("cp").arg("-r").args([&self.data, &data]).status();
        assert!(copied.expect("cp runs").success());
        let settings = self.settings.clone();
        let (child, url) = launch(&data, &settings, &free_address());
        self.restart();
        Self { directory, data, settings, child, url }
    }

    pub fn process_id(&self) -> u64 {
        self.child.id().into()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in KiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the daemon runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel reports it");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The time of the processor that it has used, without its worker processes, in steps of 10 ms.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the daemon runs");
        let (_, fields) = stat.rsplit_once(") ").expect("the name of the process is in parentheses");
        // The user time and the system time are the fields 14 and 15; the rest begins with field 3.
        let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// The process ids of the daemon's worker processes.
    pub fn workers(&self) -> Vec<u64> {
        let parent = self.child.id().to_string();
        let processes = std::fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        let is_worker = |pid: &u64| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = stat.rsplit_once(") ").filter(|(name, _)| name.ends_with("(svc-lua-worker"));
            fields.is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent) && !rest.starts_with('Z'))
        };
        pids.filter(is_worker).collect()
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.data
    }

    /// The log so far, of all its processes.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("data.log")).expect("the log is readable")
    }

    /// The token of the user `admin`.
    pub fn admin_token(&self) -> String {
        std::fs::read_to_string(self.data.join("admin.token")).expect("the first start writes it").trim().to_owned()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, Some(&self.admin_token()), None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, Some(&self.admin_token()), Some(body.to_string().into_bytes()))
    }

    pub fn put(&self, path: &str, body: &Value) -> Reply {
        self.send("PUT", path, Some(&self.admin_token()), Some(body.to_string().into_bytes()))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send("PATCH", path, Some(&self.admin_token()), Some(body.to_string().into_bytes()))
    }

    pub fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, Some(&self.admin_token()), None)
    }

    /// The items of all pages of a list.
    #[track_caller]
    pub fn items(&self, path: &str) -> Vec<Value> {
        let first = format!("{path}{}limit=100", if path.contains('?') { '&' } else { '?' });
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{first}{cursor}"));
            assert_eq!(page.status, 200, "{path}: {}", page.text);
            let page = page.json();
            items.extend(page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page}")).iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// Sends a request; the content type of a body is JSON.
    pub fn send(&self, method: &str, path: &str, token: Option<&str>, body: Option<Vec<u8>>) -> Reply {
        self.try_send(method, path, token, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Like [`Daemon::send`], for a daemon that may not run.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Result<Reply, isahc::Error> {
        let mut request =
            Request::builder().method(method).uri(format!("{}{path}", self.url)).timeout(Duration::from_secs(60));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let mut response = request.body(body.unwrap_or_default()).expect("the request is well-formed").send()?;
        let text = response.text()?;
        Ok(Reply { status: response.status().as_u16(), headers: response.headers().clone(), text })
    }

    /// Calls a method as the administrator and returns the JSON-RPC response.
    #[track_caller]
    pub fn call(&self, method: &str, params: &Value) -> Value {
        self.call_as(&self.admin_token(), method, params)
    }

    /// Calls a method with this token and returns the JSON-RPC response.
    #[track_caller]
    pub fn call_as(&self, token: &str, method: &str, params: &Value) -> Value {
        let call = serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params, "id": 1});
        let reply = self.send("POST", "/api/methods/call", Some(token), Some(call.to_string().into_bytes()));
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    }

    /// Waits until the method is available.
    #[track_caller]
    pub fn wait_method(&self, name: &str) {
        eventually(&format!("{name} to be available"), || {
            let reply = self.get(&format!("/api/methods/{name}"));
            (reply.status == 200 && reply.json()["available_count"] != 0).then_some(())
        });
    }

    /// Creates a sink and returns its id.
    #[track_caller]
    pub fn create_sink(&self, sink: &Value) -> String {
        let reply = self.post("/api/event-sinks", sink);
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.json()["id"].as_str().expect("a sink has an id").to_owned()
    }

    /// Emits an event and returns the response, which must be a 202.
    #[track_caller]
    pub fn emit(&self, kind: &str, payload: &Value) -> Value {
        let reply = self.post("/api/events/emit", &serde_json::json!({"type": kind, "payload": payload}));
        assert_eq!(reply.status, 202, "{}", reply.text);
        reply.json()
    }

    /// One event from the history.
    pub fn event(&self, id: &Value) -> Value {
        self.get(&format!("/api/events/{}", id.as_str().expect("an id is text"))).json()
    }

    /// Waits until the event's delivery to its only sink is in this state, and returns the delivery.
    #[track_caller]
    pub fn delivery(&self, id: &Value, state: &str) -> Value {
        eventually(&format!("event {id} to be {state}"), || {
            let delivery = self.event(id)["deliveries"][0].clone();
            (delivery["state"] == state).then_some(delivery)
        })
    }

    /// Creates a user with these permissions and returns a token of theirs.
    #[track_caller]
    pub fn create_user(&self, name: &str, permissions: &[&str]) -> String {
        let role = serde_json::json!({"name": format!("role-{name}"), "permissions": permissions});
        assert_eq!(self.post("/api/roles", &role).status, 201);
        let user = serde_json::json!({"name": name, "password": "correct horse", "roles": [format!("role-{name}")]});
        let reply = self.post("/api/users", &user);
        assert_eq!(reply.status, 201, "{}", reply.text);
        let login = serde_json::json!({"name": name, "password": "correct horse"});
        let login = self.send("POST", "/api/auth/login", None, Some(login.to_string().into_bytes()));
        assert_eq!(login.status, 200, "{}", login.text);
        let cookie = login.headers["set-cookie"].to_str().expect("a cookie is text").split(';').next();
        let mut response = Request::post(format!("{}/api/tokens", self.url))
            .header("cookie", cookie.expect("split yields something"))
            .header("content-type", "application/json")
            .body(r#"{"name":"test"}"#)
            .expect("the request is well-formed")
            .send()
            .expect("the daemon answers");
        let token: Value = serde_json::from_str(&response.text().expect("the answer is text")).expect("it is JSON");
        token["token"].as_str().unwrap_or_else(|| panic!("no token: {token}")).to_owned()
    }

    /// Runs the command line against this daemon.
    pub fn svc(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the binary runs")
    }

    /// A command line for this daemon, to be run by the test.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).env("SVC_SERVER", &self.url).env("SVC_TOKEN", self.admin_token());
        command.env("HOME", &self.data).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command.env_remove("XDG_STATE_HOME").env_remove("SVC_AGENT_URL");
        command
    }

    /// The value of a counter of `/metrics`, summed over its labels.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.send("GET", "/metrics", None, None).text;
        let lines =
            text.lines().filter_map(|line| line.strip_prefix(name)?.split_whitespace().last()?.parse::<f64>().ok());
        lines.sum()
    }
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The message of an error.
    #[track_caller]
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("no error in {}", self.text)).to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the daemon\n{}", self.log());
        }
    }
}

/// A random loopback address, so that no other process takes the port while the daemon is down.
fn free_address() -> String {
    let random = uuid::Uuid::new_v4().into_bytes();
    format!("127.{}.{}.{}:0", random[0], random[1], random[2] / 2 + 1)
}

fn temp_dir() -> TempDir {
    let directory = tempfile::Builder::new().prefix("svc-it-").tempdir();
    directory.expect("the temporary directory is writable")
}

/// Starts a server with this data directory. Its log is beside it.
fn launch(data: &Path, settings: &[(String, String)], address: &str) -> (Child, String) {
    let mut child = spawn(data, settings, address);
    let line = first_line(&mut child).unwrap_or_else(|| {
        panic!("the daemon did not start:\n{}", std::fs::read_to_string(data.with_extension("log")).unwrap())
    });
    (child, url(&line))
}

/// The address in the first line of a server.
fn url(line: &str) -> String {
    line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected first line: {line}")).to_owned()
}

fn spawn(data: &Path, settings: &[(String, String)], address: &str) -> Child {
    let log = File::options().create(true).append(true).open(data.with_extension("log"));
    Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["server", "--listen", address, "--data"])
        .arg(data)
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.expect("the log can be written"))
        .spawn()
        .expect("the binary starts")
}

/// The first line that a process prints.
pub(super) fn first_line(child: &mut Child) -> Option<String> {
    BufReader::new(child.stdout.take().expect("it is piped")).lines().next()?.ok()
}
