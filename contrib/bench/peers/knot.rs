//! knot as a single server with BadgerDB, without TLS: events and their deliveries are kept in memory alone, in no
//! order.

use crate::{
    http_client::{HttpClient, HttpEmitter},
    server::{Emitter, Process, Server, free_address},
    work::{Body, PAYLOAD},
};
use serde_json::{Value, json};
use std::{net::SocketAddr, path::Path};

const TEMPLATE: &str =
    r#"{"text":"${{ .event.data.service }} ${{ .event.data.version }}","by":"${{ .event.data.by }}"}"#;
const EMAIL: &str = "bench@example.com";
const PASSWORD: &str = "a password of the benchmark";
/// The role that every installation has.
const ADMIN: &str = "00000000-0000-0000-0000-000000000000";

pub struct Knot {
    process: Process,
    address: SocketAddr,
    token: String,
}

impl Knot {
    pub fn start(binary: &Path) -> Self {
        let (address, agents) = (free_address(), free_address());
        let mut process = Process::start(binary, |command, directory| {
            let settings = [
                ("KNOT_LISTEN", address.to_string()),
                ("KNOT_LISTEN_AGENT", agents.to_string()),
                ("KNOT_AGENT_ENDPOINT", agents.to_string()),
                ("KNOT_URL", format!("http://{address}")),
                ("KNOT_USE_TLS", "false".to_owned()),
                ("KNOT_AGENT_USE_TLS", "false".to_owned()),
                ("KNOT_ZONE", "bench".to_owned()),
                ("KNOT_TIMEZONE", "UTC".to_owned()),
                ("KNOT_LOGLEVEL", "error".to_owned()),
                ("KNOT_BADGERDB_ENABLED", "true".to_owned()),
                ("KNOT_BADGERDB_PATH", directory.join("badger").display().to_string()),
            ];
            command.arg("server").envs(settings);
        });
        process.await_listener(address);
        // The first user may be created by anybody.
        let mut client = HttpClient::connect(address, "");
        let user = json!({
            "username": "bench", "email": EMAIL, "password": PASSWORD, "active": true, "roles": [ADMIN], "groups": [],
            "preferred_shell": "bash", "timezone": "UTC",
        });
        post(&mut client, "/api/users", &user, 201);
        let login = post(&mut client, "/api/auth", &json!({ "email": EMAIL, "password": PASSWORD }), 200);
        let session = login["token"].as_str().expect("a login returns a session").to_owned();
        let mut client = HttpClient::connect(address, &format!("__KNOT_WEBUI_SESSION: {session}"));
        let created = post(&mut client, "/api/tokens", &json!({ "name": "bench" }), 201);
        let token = created["token_id"].as_str().expect("a created token is returned").to_owned();
        Self { process, address, token }
    }

    fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address, &format!("authorization: Bearer {}", self.token))
    }
}

impl Server for Knot {
    fn process(&self) -> &Process {
        &self.process
    }

    fn emitter(&self) -> Box<dyn Emitter> {
        let body = format!(r#"{{"type":"load","payload":{PAYLOAD}}}"#);
        Box::new(HttpEmitter { client: self.connect(), path: "/api/events/emit", body, accepted: 200 })
    }

    fn create_inactive_sink(&self) {
        let sink = json!({
            "name": "inactive", "events": ["*"], "sink_type": "webhook", "active": false,
            "webhook": { "url": "http://127.0.0.1:9/" },
        });
        post(&mut self.connect(), "/api/event-sinks", &sink, 201);
    }

    fn create_webhooks(&self, sinks: usize, url: &str, body: Body) {
        let template = if body == Body::Default { "" } else { TEMPLATE };
        let mut client = self.connect();
        for n in 0..sinks {
            let sink = json!({
                "name": format!("sink{n}"), "events": ["custom.load"], "sink_type": "webhook", "active": true,
                "webhook": { "url": url, "body_template": template },
            });
            post(&mut client, "/api/event-sinks", &sink, 201);
        }
    }
}

/// Posts a value, asserts the status and returns the response.
fn post(client: &mut HttpClient, path: &str, value: &Value, expected: u16) -> Value {
    let (status, answer) = client.post(path, &value.to_string());
    assert_eq!(status, expected, "{path}: {answer}");
    serde_json::from_str(answer).unwrap_or_default()
}
