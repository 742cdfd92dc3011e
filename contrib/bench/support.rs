//! Shared by the benchmarks of the whole program: `svc server` as a child process, a plain blocking HTTP client whose
//! own cost is small, and the report of a requirement.
#![allow(dead_code, reason = "each benchmark uses only some of these items")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use svc::model::{
    event::{Actor, ActorKind, Event, EventType},
    id::{EventId, SpaceId, UserId},
    timestamp::Timestamp,
};
use tempfile::TempDir;

/// The payload of a typical event.
pub const PAYLOAD: &str = r#"{"service":"checkout","version":"2026.11.3","commit":"9f1c2ab","environment":"production","duration_ms":48211,"by":"ada","notes":"rolled out to all regions after the canary held for thirty minutes"}"#;

/// A typical event, as the emitter hands it to the queue engine.
pub fn event(id: EventId, user: UserId) -> Arc<Event> {
    Arc::new(Event {
        id,
        kind: EventType::custom("deploy.done").expect("a valid type"),
        ts: Timestamp::now(),
        zone: "default".into(),
        space_id: SpaceId::NIL,
        user_id: user,
        actor: Actor { id: uuid::Uuid::nil(), username: "admin".to_owned(), kind: ActorKind::User },
        space: None,
        data: serde_json::value::RawValue::from_string(PAYLOAD.to_owned()).expect("valid JSON"),
    })
}

/// A running `svc server` with a temporary data directory. Dropping it kills the process.
pub struct Daemon {
    pub directory: TempDir,
    pub address: SocketAddr,
    pub token: String,
    child: Child,
}

/// A keep-alive HTTP connection to the daemon, authenticated as `admin`.
pub struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    head: String,
    line: String,
    body: Vec<u8>,
}

impl Daemon {
    pub fn start(settings: &[(&str, &str)]) -> Self {
        let directory = temp_dir();
        let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["server", "--listen", "127.0.0.1:0", "--data"])
            .arg(directory.path())
            .envs(settings.iter().copied())
            .env("SVC_LOG_LEVEL", "error")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let line = stdout.lines().next().and_then(Result::ok).expect("the daemon starts");
        let address =
            line.trim_start_matches("listening on http://").parse().expect("the first line names the address");
        let token = std::fs::read_to_string(directory.path().join("admin.token")).expect("the first start writes it");
        Self { directory, address, token: token.trim().to_owned(), child }
    }

    pub fn connect(&self) -> Connection {
        let writer = TcpStream::connect(self.address).expect("the daemon listens");
        writer.set_nodelay(true).expect("the socket accepts the option");
        let reader = BufReader::new(writer.try_clone().expect("a socket can be cloned"));
        let head = format!("host: svc\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n", self.token);
        Connection { reader, writer, head, line: String::new(), body: Vec::new() }
    }

    /// The value of a counter in `/metrics`, summed over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let mut connection = self.connect();
        let (_, text) = connection.request("GET", "/metrics", "");
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        lines.sum()
    }

    /// Processor time of the daemon and its worker processes so far, in microseconds.
    pub fn cpu_micros(&self) -> f64 {
        let own = self.child.id().to_string();
        let entries = std::fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
        let pids =
            entries.filter_map(|entry| entry.file_name().into_string().ok().filter(|name| name.parse::<u32>().is_ok()));
        let ticks = pids.filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
            let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
            (pid == own || fields.get(1) == Some(&&*own)).then(|| number(11).zip(number(12))).flatten()
        });
        let ticks = ticks.map(|(user, system)| user + system);
        // The kernel counts in hundredths of a second.
        ticks.sum::<f64>() * 1e4
    }

    /// Bytes that the daemon has written to disk so far.
    pub fn written(&self) -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).expect("the daemon runs");
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:")).expect("Linux reports it");
        line.trim().parse().expect("a number of bytes")
    }

    /// Resident memory in MiB.
    pub fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the daemon runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux reports it");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number of kB") / 1024.0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Connection {
    /// Sends a request and returns the status and body of its response.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> (u16, &str) {
        let request = format!("{method} {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        self.writer.write_all(request.as_bytes()).expect("the daemon reads");
        let mut status = 0;
        let mut length = 0;
        loop {
            self.line.clear();
            self.reader.read_line(&mut self.line).expect("the daemon responds");
            let line = self.line.trim_end();
            if status == 0 {
                status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
            } else if line.is_empty() {
                break;
            } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            }
        }
        self.body.resize(length, 0);
        self.reader.read_exact(&mut self.body).expect("the body has its announced length");
        (status, std::str::from_utf8(&self.body).expect("responses are text"))
    }
}

/// A webhook receiver that answers every request and reports its arrival.
pub struct Receiver {
    pub url: String,
    arrivals: mpsc::Receiver<Instant>,
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let url = format!("http://{}/", listener.local_addr().expect("the listener is bound"));
        let (arrived, arrivals) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let arrived = arrived.clone();
                thread::spawn(move || receive(stream, &arrived));
            }
        });
        Self { url, arrivals }
    }

    /// Waits for the next webhook request, and returns the moment of its arrival.
    pub fn arrival(&self) -> Instant {
        self.arrivals.recv_timeout(Duration::from_secs(60)).expect("the event is delivered")
    }
}

/// Answers webhook requests on one connection and reports the arrival of each.
fn receive(stream: TcpStream, arrived: &mpsc::Sender<Instant>) {
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0;
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let now = Instant::now();
        while line.trim_end() != "" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            }
            line.clear();
            reader.read_line(&mut line).expect("the daemon sends a whole head");
        }
        reader.read_exact(&mut vec![0; length]).expect("the daemon sends a whole body");
        arrived.send(now).expect("the benchmark receives");
        writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("the daemon reads");
    }
}

pub fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("svc-bench-").tempdir().expect("the temporary directory is writable")
}

pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Prints one requirement with its measured value, and returns whether it was met.
pub fn requirement(what: &str, value: f64, unit: &str, met: bool, bound: &str) -> bool {
    let mark = if met { "met   " } else { "MISSED" };
    println!("{mark} {what}: {value:.2}{unit} ({bound})");
    met
}
