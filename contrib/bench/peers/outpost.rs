//! Outpost with Redis, RabbitMQ and PostgreSQL beside it. It confirms an event once RabbitMQ has synced an entry for
//! each destination, delivers in no order, and sends the payload alone as the body of a webhook.
//!
//! For webhooks one process runs all its services; for emits the API alone, so that entries of the queue are not
//! delivered. The processor time is that of Outpost's own process, without the three services.

use crate::{
    backing_services::BackingServices,
    http_client::{HttpClient, HttpEmitter},
    server::{Emitter, Process, Server, free_address},
    work::{Body, PAYLOAD, Work},
};
use serde_json::json;
use std::{
    env,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

const API_KEY: &str = "a key of the benchmark";
/// Messages that it handles at once, as in its own load tests; without the setting it is one.
const CONCURRENCY: &str = "100";

pub struct Outpost {
    process: Process,
    address: SocketAddr,
    _services: BackingServices,
}

/// Whether Outpost can start.
///
/// # Errors
///
/// Names the programs that are absent.
pub fn check(binary: &Path) -> Result<(), String> {
    if !binary.with_file_name("outpost-server").is_file() {
        return Err(format!("`outpost-server` is not beside {}", binary.display()));
    }
    match BackingServices::missing().as_slice() {
        [] => Ok(()),
        missing => Err(format!("it needs programs that are not in PATH: {}", missing.join(", "))),
    }
}

impl Outpost {
    pub fn start(binary: &Path, work: Work) -> Self {
        let services = BackingServices::start();
        let address = free_address();
        let BackingServices { redis, rabbitmq, postgres, .. } = &services;
        let settings = [
            ("SERVICE", if work.is_webhook() { "all" } else { "api" }.to_owned()),
            ("API_PORT", address.port().to_string()),
            ("API_KEY", API_KEY.to_owned()),
            ("API_JWT_SECRET", "a secret of the benchmark".to_owned()),
            ("AES_ENCRYPTION_SECRET", "sixteen of bytes".to_owned()),
            ("TOPICS", "load".to_owned()),
            ("REDIS_HOST", redis.ip().to_string()),
            ("REDIS_PORT", redis.port().to_string()),
            ("RABBITMQ_SERVER_URL", format!("amqp://guest:guest@{rabbitmq}/")),
            ("POSTGRES_URL", format!("postgres://postgres@{postgres}/postgres?sslmode=disable")),
            ("DELIVERY_MAX_CONCURRENCY", CONCURRENCY.to_owned()),
            ("LOG_MAX_CONCURRENCY", CONCURRENCY.to_owned()),
            ("MAX_DESTINATIONS_PER_TENANT", "1000".to_owned()),
            ("DISABLE_TELEMETRY", "true".to_owned()),
            ("LOG_LEVEL", "error".to_owned()),
        ];
        // Its variables have common names: one from outside could change what is measured.
        let configure = |command: &mut Command, directory: &Path| {
            command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default()).env("HOME", directory);
            command.current_dir(directory).envs(settings.clone());
        };
        let mut process = Process::start(binary, |command, directory| {
            let mut migration = Command::new(binary);
            configure(&mut migration, directory);
            let migrated = migration.args(["migrate", "apply", "--yes"]).stdin(Stdio::null()).output();
            let migrated = migrated.expect("the binary starts");
            assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
            configure(command, directory);
            command.arg("serve");
        });
        process.await_listener(address);
        let outpost = Self { process, address, _services: services };
        let mut client = outpost.connect();
        let (status, answer) = client.request("PUT", "/api/v1/tenants/bench", "{}");
        assert_eq!(status, 201, "{answer}");
        outpost
    }

    fn connect(&self) -> HttpClient {
        HttpClient::connect(self.address, &format!("authorization: Bearer {API_KEY}"))
    }

    fn create_destinations(&self, destinations: usize, url: &str) {
        let mut client = self.connect();
        let destination = json!({ "type": "webhook", "topics": ["load"], "config": { "url": url } }).to_string();
        for _ in 0..destinations {
            let (status, answer) = client.post("/api/v1/tenants/bench/destinations", &destination);
            assert_eq!(status, 201, "{answer}");
        }
    }
}

impl Server for Outpost {
    fn process(&self) -> &Process {
        &self.process
    }

    fn emitter(&self) -> Box<dyn Emitter> {
        let body = format!(r#"{{"tenant_id":"bench","topic":"load","data":{PAYLOAD}}}"#);
        Box::new(HttpEmitter { client: self.connect(), path: "/api/v1/publish", body, accepted: 202 })
    }

    /// The destination is active, because Outpost stores no event for one that is disabled; nothing runs that would
    /// deliver.
    fn create_inactive_sink(&self) {
        self.create_destinations(1, "http://127.0.0.1:9/");
    }

    fn create_webhooks(&self, sinks: usize, url: &str, _: Body) {
        self.create_destinations(sinks, url);
    }
}
