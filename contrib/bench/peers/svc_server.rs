//! `svc server`: an emit is answered once the event is on disk.

use crate::{
    http_client::{HttpClient, HttpEmitter},
    server::{Emitter, Process, Server},
    work::{Body, PAYLOAD},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
};

const TEMPLATE: &str =
    r#","template":"return { text = event.data.service .. ' ' .. event.data.version, by = event.data.by }""#;

pub struct Svc {
    process: Process,
    address: SocketAddr,
    token: String,
}

impl Svc {
    pub fn start(binary: &Path) -> Self {
        let mut data = PathBuf::new();
        let mut process = Process::start(binary, |command, directory| {
            data = directory.join("data");
            command.args(["server", "--listen", "127.0.0.1:0", "--data"]).arg(&data).stdout(Stdio::piped());
            // No event of a burst may be refused because its sink is behind.
            command.env("SVC_DELIVERY_QUEUE", "100000000").env("SVC_LOG_LEVEL", "error");
        });
        let stdout = BufReader::new(process.child().stdout.take().expect("stdout is piped"));
        let line = stdout.lines().next().and_then(Result::ok).expect("svc starts");
        let address =
            line.trim_start_matches("listening on http://").parse().expect("the first line names the address");
        let token = fs::read_to_string(data.join("admin.token")).expect("the first start writes it").trim().to_owned();
        Self { process, address, token }
    }

    fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address, &format!("authorization: Bearer {}", self.token))
    }

    fn create_sink(client: &mut HttpClient, sink: &str) {
        let (status, answer) = client.post("/api/event-sinks", sink);
        assert_eq!(status, 201, "{answer}");
    }
}

impl Server for Svc {
    fn process(&self) -> &Process {
        &self.process
    }

    fn emitter(&self) -> Box<dyn Emitter> {
        let body = format!(r#"{{"type":"load","payload":{PAYLOAD}}}"#);
        Box::new(HttpEmitter { client: self.connect(), path: "/api/events/emit", body, accepted: 202 })
    }

    fn create_inactive_sink(&self) {
        let sink =
            r#"{"name":"s","events":"*","type":"script","owner":"global","active":false,"script":{"source":"return"}}"#;
        Self::create_sink(&mut self.connect(), sink);
    }

    fn create_webhooks(&self, sinks: usize, url: &str, body: Body) {
        let template = if body == Body::Default { "" } else { TEMPLATE };
        thread::scope(|scope| {
            for part in 0..16 {
                scope.spawn(move || {
                    let mut client = self.connect();
                    for n in (part..sinks).step_by(16) {
                        let sink = format!(
                            r#"{{"name":"sink {n}","events":"custom.load","type":"webhook","owner":"global","webhook":{{"url":"{url}"{template}}}}}"#
                        );
                        Self::create_sink(&mut client, &sink);
                    }
                });
            }
        });
    }
}
