//! A space of a daemon and the real agent in it.

use super::{Daemon, daemon::first_line, eventually};
use serde_json::{Value, json};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
};
use tempfile::TempDir;

/// The directory of the method servers for tests.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/methods");

/// A space with a temporary directory. Dropping it kills its agent.
pub struct Space {
    pub id: String,
    pub name: String,
    pub token: String,
    directory: TempDir,
    agent: Option<Child>,
    /// The URL of the agent's API, while it runs.
    pub url: String,
}

impl Space {
    /// A new space of the administrator, without an agent yet.
    #[track_caller]
    pub fn create(daemon: &Daemon, name: &str) -> Self {
        Self::create_with(daemon, &daemon.admin_token(), json!({ "name": name }))
    }

    /// A new space with these fields, of the user with this token.
    #[track_caller]
    pub fn create_with(daemon: &Daemon, token: &str, fields: Value) -> Self {
        let reply = daemon.send("POST", "/api/spaces", Some(token), Some(fields.to_string().into_bytes()));
        assert_eq!(reply.status, 201, "{}", reply.text);
        let made = reply.json();
        let text = |field: &str| made[field].as_str().unwrap_or_else(|| panic!("no {field} in {made}")).to_owned();
        Self::in_temp_dir(text("id"), text("name"), text("agent_token"))
    }

    /// An existing space.
    pub fn of(id: &str, name: &str, token: &str) -> Self {
        Self::in_temp_dir(id.to_owned(), name.to_owned(), token.to_owned())
    }

    /// The same space with the same token and a directory of its own, for a second agent.
    pub fn twin(&self) -> Self {
        Self::in_temp_dir(self.id.clone(), self.name.clone(), self.token.clone())
    }

    fn in_temp_dir(id: String, name: String, token: String) -> Self {
        let directory = tempfile::Builder::new().prefix("svc-it-space-").tempdir();
        let directory = directory.expect("the temporary directory is writable");
        Self { id, name, token, directory, agent: None, url: String::new() }
    }

    /// Starts an agent and waits until it is connected to the daemon.
    #[track_caller]
    pub fn start(&mut self, daemon: &Daemon, arguments: &[&str]) {
        self.launch(&daemon.url, arguments);
        self.wait_linked(daemon);
    }

    /// Starts an agent; the server need not be reachable.
    #[track_caller]
    pub fn launch(&mut self, server: &str, arguments: &[&str]) {
        self.launch_as(self.agent_command(server, arguments));
    }

    /// Starts an agent with a command from [`Space::agent_command`].
    #[track_caller]
    pub fn launch_as(&mut self, mut command: Command) {
        assert!(self.agent.is_none(), "there is an agent already");
        let mut child = command.spawn().expect("the binary starts");
        let line = first_line(&mut child).unwrap_or_else(|| panic!("the agent did not start:\n{}", self.log()));
        self.url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected line: {line}")).to_owned();
        self.agent = Some(child);
    }

    /// The command that starts an agent of this space.
    pub fn agent_command(&self, server: &str, arguments: &[&str]) -> Command {
        let log = File::options().create(true).append(true).open(self.directory.path().join("agent.log"));
        let binary = Path::new(env!("CARGO_BIN_EXE_svc"));
        let mut command = Command::new(binary);
        // A method server may be `svc run`.
        let path = std::env::var("PATH").expect("it is set");
        command.env("PATH", format!("{}:{path}", binary.parent().expect("it is in a directory").display()));
        command
            .args(["agent", "start", "--listen", "127.0.0.1:0", "--server", server, "--data"])
            .arg(self.directory.path().join("data"))
            .args(arguments)
            .env("SVC_AGENT_TOKEN", &self.token)
            .env_remove("SVC_METHODS_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("the log can be written"));
        command
    }

    #[track_caller]
    pub fn wait_linked(&self, daemon: &Daemon) {
        eventually("the agent to be linked", || (self.view(daemon)["linked"] == true).then_some(()));
        // The server knows before the agent does.
        eventually("the agent to know that it is linked", || {
            let status = self.svc(&["agent", "status", "--json"]).stdout;
            let status: Value = serde_json::from_slice(&status).ok()?;
            status["servers"].as_array()?.iter().any(|server| server["connected"] == true).then_some(())
        });
    }

    /// Waits until the agent has its registration on disk. The server publishes it a moment before.
    #[track_caller]
    pub fn wait_saved(&self) {
        eventually("the registration to be saved", || {
            let status: Value = serde_json::from_slice(&self.svc(&["agent", "status", "--json"]).stdout).ok()?;
            (!status["registration"].is_null()).then_some(())
        });
    }

    /// The space as the API returns it.
    pub fn view(&self, daemon: &Daemon) -> Value {
        daemon.get(&format!("/api/spaces/{}", self.id)).json()
    }

    /// Sends SIGKILL and waits until the agent has ended.
    pub fn kill(&mut self) {
        let mut agent = self.agent.take().expect("there is an agent");
        agent.kill().expect("it can be killed");
        agent.wait().expect("it ends");
    }

    /// Suspends the agent.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Resumes the agent.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.agent.as_ref().expect("there is an agent").id();
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().expect("kill runs").success());
    }

    /// Sends SIGTERM and waits until the agent has ended.
    #[track_caller]
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("-TERM");
        self.ended()
    }

    /// Waits until the agent has ended by itself.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let agent = self.agent.as_mut().expect("there is an agent");
        let status = eventually("the agent to end", || agent.try_wait().expect("it can be waited for"));
        self.agent = None;
        status
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("agent.log")).unwrap_or_default()
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file into the directory of the space.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        path
    }

    /// Runs the command line as a program of the space.
    pub fn svc(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command
            .args(arguments)
            .env("SVC_AGENT_URL", &self.url)
            .env("HOME", self.directory.path())
            .current_dir(self.directory.path());
        for variable in ["SVC_SERVER", "SVC_TOKEN", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null()).output().expect("the binary runs")
    }

    /// Registers the methods of this text, which must succeed.
    #[track_caller]
    pub fn register(&self, registration: &str) {
        let output = self.try_register(registration);
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
    }

    pub fn try_register(&self, registration: &str) -> Output {
        let path = self.write("methods.toml", registration);
        self.svc(&["methods", "register", path.to_str().expect("the path is text")])
    }
}

/// A registration whose methods a fixture serves (its file, with arguments behind it). The local name of a method is
/// the last part of its name. `server` and the second text of each method are added to their tables.
pub fn registration(fixture: &str, server: &str, methods: &[(&str, &str)]) -> String {
    let command = if fixture.contains(".py") { "python3" } else { "sh" };
    let args: Vec<&str> = fixture.split(' ').collect();
    let args =
        [&[format!("{FIXTURES}/{}", args[0])], &args[1..].iter().map(ToString::to_string).collect::<Vec<_>>()[..]]
            .concat();
    let args = format!("{args:?}");
    let mut text = format!("[server]\ncommand = \"{command}\"\nargs = {args}\n{server}\n");
    for (name, fields) in methods {
        let local = name.rsplit('.').next().expect("split yields something");
        text +=
            &format!("[[methods]]\nname = \"{name}\"\nlocal_name = \"{local}\"\ndescription = \"Does it\"\n{fields}\n");
    }
    text
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the agent of {}\n{}", self.name, self.log());
        }
    }
}
