//! The sinks in `sinks/`: each is read from its file, rendered in the real sandbox for ordinary and extreme events, and
//! checked against the documented format of the receiving service.

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use svc::{
    cli::{definition_files, sink_file},
    delivery::{
        CompletedAttempt,
        sinks::{self, Sink, SinkContext, SinkTarget},
    },
    model::{
        event::{Actor, ActorKind, Event, EventSpace},
        id::{EventId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{config, egress::Egress, kv::Kv, store::Store},
    routing::queue::AttemptOutcome,
    scripting::{
        lua::{EventInput, MethodCaller},
        scripts::Scripts,
        workers::{LuaWorkers, WorkerCommand, WorkerServices},
    },
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// A sandbox over a new store in a temporary directory.
struct SinkTest {
    context: SinkContext,
    /// Declared last, so that it is removed after the store is closed.
    directory: TempDir,
}

struct NoMethods;

impl MethodCaller for NoMethods {
    fn call(&self, _: Owner, method: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        std::future::ready(Err(format!("no method named `{method}`"))).boxed()
    }
}

impl SinkTest {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let egress = Egress::new(&config::EgressConfig::default());
        let scripts = Scripts::open(store.clone(), usize::MAX).unwrap();
        let kv = Kv::new(store).unwrap();
        let services = WorkerServices {
            http: Arc::new(egress.clone()),
            kv,
            caller: Arc::new(NoMethods),
            libraries: Arc::new(scripts.clone()),
        };
        let command = WorkerCommand::of_program(env!("CARGO_BIN_EXE_svc").into());
        let workers = LuaWorkers::new(&config::ScriptConfig::default(), command, services, Arc::default()).unwrap();
        Self { context: SinkContext { egress, workers, scripts, timeout: Duration::from_secs(10) }, directory }
    }

    /// The body that a webhook sink sends, as JSON.
    async fn body(&self, sink: &Sink, input: &EventInput) -> Value {
        let body = sinks::preview(&self.context, sink, input.clone()).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(body.content_type, "application/json");
        serde_json::from_slice(&body.bytes).unwrap()
    }

    async fn attempt(&self, sink: &Sink, input: &EventInput) -> CompletedAttempt {
        sinks::attempt(&self.context, sink, input.clone()).await.unwrap()
    }

    async fn outcome(&self, sink: &Sink, input: &EventInput) -> AttemptOutcome {
        self.attempt(sink, input).await.outcome
    }
}

/// Answers each request with the next status, then repeats the last one, and records the bodies.
struct Receiver {
    url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    async fn answering(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = bodies.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut text = String::new();
                let mut chunk = [0; 4096];
                while serde_json::from_str::<Value>(text.split_once("\r\n\r\n").map_or("", |parts| parts.1)).is_err() {
                    let count = stream.read(&mut chunk).await.unwrap();
                    text.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
                }
                let status = {
                    let mut bodies = kept.lock().unwrap();
                    let status = statuses[bodies.len().min(statuses.len() - 1)];
                    bodies.push(serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap());
                    status
                };
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, bodies }
    }

    fn count(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sinks")
}

/// The ready-made sink of this name, made global so that it may reach receivers on this machine.
fn read(name: &str, environment: &[(&str, &str)]) -> Sink {
    let look_up =
        |wanted: &str| environment.iter().find(|(key, _)| *key == wanted).map(|(_, value)| (*value).to_owned());
    let draft =
        sink_file::read(&folder().join(format!("{name}.toml")), look_up).unwrap_or_else(|error| panic!("{error}"));
    let mut spec = draft.resolve(|_, script| Err(script.to_owned())).unwrap();
    spec.owner = svc::model::owner::OwnerSpec::Global;
    Sink::define(spec, UserId::new(), None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn input(kind: &str, data: Value) -> EventInput {
    let space = kind.starts_with("space.").then(|| EventSpace {
        name: "wörk".to_owned(),
        urls: vec!["https://work.example".to_owned()],
        custom: [("CHANNEL".to_owned(), "#ops".to_owned())].into(),
    });
    let event = Event {
        id: EventId::new(),
        kind: kind.parse().unwrap(),
        ts: Timestamp::now(),
        zone: "default".into(),
        space_id: if space.is_some() { SpaceId::new() } else { SpaceId::NIL },
        user_id: UserId::new(),
        actor: Actor { id: uuid::Uuid::now_v7(), username: "ada".to_owned(), kind: ActorKind::User },
        space,
        data: serde_json::value::to_raw_value(&data).unwrap(),
    };
    EventInput { sequence: 42, ..EventInput::sample(Arc::new(event)) }
}

/// Events that a template must handle: an ordinary one, one without the fields it looks for, one with all of them of
/// the wrong type, and one with the longest possible values.
fn events() -> Vec<EventInput> {
    let long = "ü<&>\"\\\n".repeat(4_000);
    let mut many: Value = (0..500).map(|n| (format!("field{n}"), json!("v".repeat(300)))).collect();
    many[long[..400].to_owned()] = json!("long name");
    vec![
        input(
            "custom.deploy.done",
            json!({"message": "deployed <1.2> & more", "version": "1.2", "severity": "warning"}),
        ),
        input("space.unhealthy", json!({"space_name": "wörk", "consecutive_failures": 3, "checked_at": "now"})),
        input("custom.x", json!({})),
        input(
            "custom.alert.odd",
            json!({"text": 5, "message": [], "summary": {"a": null}, "severity": {}, "status": [1], "key": 7, "n": null,
                   "": "", "priority": "P9", "big": 9_007_199_254_740_993_u64, "nested": {"deep": [1, {"x": []}]}}),
        ),
        input(
            &format!("custom.{}", "long-segment.".repeat(18).trim_end_matches('.')),
            json!({"text": long, "source": long, "key": long, "component": long, "description": long}),
        ),
        input("custom.alert.many", many),
    ]
}

/// The text at `path`, which must exist and have at most `limit` characters.
fn text<'a>(body: &'a Value, path: &str, limit: usize) -> &'a str {
    let text = body.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no text at {path} in {body}"));
    assert!(!text.is_empty() && text.chars().count() <= limit, "{path} has {} characters", text.chars().count());
    text
}

fn optional(body: &Value, path: &str, limit: usize) {
    if body.pointer(path).is_some() {
        text(body, path, limit);
    }
}

fn fields(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

fn only(value: &Value, allowed: &[&str]) {
    let unknown: Vec<_> = fields(value).into_iter().filter(|field| !allowed.contains(field)).collect();
    assert!(unknown.is_empty(), "{unknown:?} in {value}");
}

fn url(sink: &Sink) -> &str {
    sink.url().unwrap_or_else(|| panic!("{} is no webhook with a URL", sink.name))
}

fn header<'a>(sink: &'a Sink, name: &str) -> &'a str {
    let SinkTarget::Webhook(webhook) = &sink.target else { panic!("{} is no webhook", sink.name) };
    webhook.secrets.read().unwrap().headers[name].text().unwrap()
}

#[test]
fn every_ready_made_sink_is_tested_and_documents_its_placeholders() {
    let files = definition_files::find(&folder()).unwrap();
    let names: Vec<_> = files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap()).collect();
    let tested =
        ["cloudevents", "dedup", "discord", "fan-out", "github-dispatch", "opsgenie", "pagerduty", "slack", "teams"];
    assert_eq!(names, tested);
    for (file, name) in files.iter().zip(names) {
        let toml = std::fs::read_to_string(file).unwrap();
        assert!(toml.starts_with("# ") && toml.contains("# Fill in: "), "{}", file.display());
        assert!(toml.contains(&format!("name = \"{name}\"")), "{}", file.display());
        assert!(std::fs::read_to_string(file.with_extension("lua")).unwrap().starts_with("-- "));
    }
}

/// https://docs.slack.dev/reference/block-kit/blocks: a header has 150 characters of plain text, a section 3000.
#[tokio::test]
async fn slack_takes_the_message() {
    let sink = read("slack", &[("SLACK_WEBHOOK_URL", "https://hooks.slack.com/services/T/B/x")]);
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        only(&body, &["text", "blocks"]);
        text(&body, "/text", 4000);
        assert_eq!(body["blocks"][0]["type"], "header");
        assert_eq!(body["blocks"][0]["text"]["type"], "plain_text");
        text(&body, "/blocks/0/text/text", 150);
        assert_eq!(body["blocks"][1]["type"], "section");
        assert_eq!(body["blocks"][1]["text"]["type"], "mrkdwn");
        let shown = text(&body, "/blocks/1/text/text", 3000);
        assert!(!shown.contains('<') && !shown.contains('>'), "markup must be escaped: {shown}");
        assert_eq!(body["blocks"][2]["type"], "context");
        assert_eq!(body["blocks"][2]["elements"][0]["type"], "mrkdwn");
        text(&body, "/blocks/2/elements/0/text", 2000);
    }
    let body = test.body(&sink, &events()[0]).await;
    assert_eq!(body["blocks"][1]["text"]["text"], "deployed &lt;1.2&gt; &amp; more");
}

/// https://discord.com/developers/docs/resources/webhook#execute-webhook and the embed limits.
#[tokio::test]
async fn discord_takes_the_embed() {
    let sink = read("discord", &[("DISCORD_WEBHOOK_URL", "https://discord.com/api/webhooks/1/x")]);
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        only(&body, &["username", "embeds", "allowed_mentions"]);
        text(&body, "/username", 80);
        assert_eq!(body["allowed_mentions"], json!({"parse": []}));
        let embed = &body["embeds"][0];
        only(embed, &["title", "description", "color", "timestamp", "fields", "footer"]);
        let mut total = text(embed, "/title", 256).chars().count();
        optional(embed, "/description", 4096);
        total += embed["description"].as_str().map_or(0, |text| text.chars().count());
        total += text(embed, "/footer/text", 2048).chars().count();
        assert!(embed["color"].as_u64().unwrap() <= 0xFF_FFFF);
        embed["timestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
        let list = embed["fields"].as_array().expect("an array, also when empty");
        assert!(list.len() <= 25);
        for field in list {
            only(field, &["name", "value", "inline"]);
            total += text(field, "/name", 256).chars().count() + text(field, "/value", 1024).chars().count();
            assert!(field["inline"].is_boolean());
        }
        assert!(total <= 6000, "an embed has at most 6000 characters, not {total}");
    }
}

/// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using: a message with
/// one Adaptive Card, 28 KB at most.
#[tokio::test]
async fn teams_takes_the_card() {
    let sink = read("teams", &[("TEAMS_WORKFLOW_URL", "https://prod.westus.logic.azure.com/workflows/x")]);
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        assert!(body.to_string().len() <= 28 << 10, "{} bytes", body.to_string().len());
        only(&body, &["type", "attachments"]);
        assert_eq!(body["type"], "message");
        let attachment = &body["attachments"][0];
        only(attachment, &["contentType", "contentUrl", "content"]);
        assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
        assert_eq!(attachment["contentUrl"], Value::Null);
        let card = &attachment["content"];
        assert_eq!(card["$schema"], "http://adaptivecards.io/schemas/adaptive-card.json");
        assert_eq!((&card["type"], &card["version"]), (&json!("AdaptiveCard"), &json!("1.4")));
        for element in card["body"].as_array().unwrap() {
            match element["type"].as_str().unwrap() {
                "TextBlock" => {
                    text(element, "/text", 4000);
                    let colours = ["Default", "Dark", "Light", "Accent", "Good", "Warning", "Attention"];
                    assert!(element.get("color").is_none_or(|colour| colours.contains(&colour.as_str().unwrap())));
                }
                "FactSet" => {
                    for fact in element["facts"].as_array().unwrap() {
                        only(fact, &["title", "value"]);
                        assert!(fact["title"].is_string() && fact["value"].is_string(), "{fact}");
                    }
                }
                other => panic!("an element of type {other}"),
            }
        }
    }
}

/// https://developer.pagerduty.com/docs/send-alert-event
#[tokio::test]
async fn pagerduty_takes_triggers_and_resolves() {
    let key = "0123456789abcdef0123456789abcdef";
    let sink = read("pagerduty", &[("PAGERDUTY_ROUTING_KEY", key)]);
    assert_eq!(url(&sink), "https://events.pagerduty.com/v2/enqueue");
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        only(&body, &["routing_key", "event_action", "dedup_key", "payload", "client"]);
        assert_eq!((&body["routing_key"], &body["event_action"]), (&json!(key), &json!("trigger")));
        text(&body, "/dedup_key", 255);
        let payload = &body["payload"];
        let allowed = ["summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"];
        only(payload, &allowed);
        text(payload, "/summary", 1024);
        text(payload, "/source", 1024);
        let severity = payload["severity"].as_str().unwrap();
        assert!(["critical", "error", "warning", "info"].contains(&severity), "{severity}");
        payload["timestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
        let data: Value = serde_json::from_str(input.event.data.get()).unwrap();
        assert_eq!(payload["custom_details"], data);
    }
    for (opens, closes) in [
        (input("custom.disk.full", json!({})), input("custom.disk.resolved", json!({}))),
        (
            input("custom.a.b", json!({"dedup_key": "k"})),
            input("custom.c.d", json!({"key": "k", "status": "resolved"})),
        ),
    ] {
        let opened = test.body(&sink, &opens).await;
        let closed = test.body(&sink, &closes).await;
        assert_eq!((&closed["event_action"], &closed["dedup_key"]), (&json!("resolve"), &opened["dedup_key"]));
        only(&closed, &["routing_key", "event_action", "dedup_key"]);
    }
    let healthy = test.body(&sink, &input("space.healthy", json!({}))).await;
    assert_eq!(healthy["event_action"], "resolve");
}

/// https://docs.opsgenie.com/docs/alert-api#create-alert
#[tokio::test]
async fn opsgenie_takes_the_alert() {
    let sink = read("opsgenie", &[("OPSGENIE_API_KEY", "k")]);
    assert_eq!((url(&sink), header(&sink, "Authorization")), ("https://api.opsgenie.com/v2/alerts", "GenieKey k"));
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        let allowed = ["message", "alias", "description", "priority", "source", "entity", "user", "tags", "details"];
        only(&body, &allowed);
        text(&body, "/message", 130);
        text(&body, "/alias", 512);
        text(&body, "/description", 15_000);
        text(&body, "/source", 100);
        text(&body, "/user", 100);
        optional(&body, "/entity", 512);
        assert!(["P1", "P2", "P3", "P4", "P5"].contains(&body["priority"].as_str().unwrap()), "{body}");
        let tags = body["tags"].as_array().unwrap();
        assert!(tags.len() <= 20 && tags.iter().all(|tag| tag.as_str().unwrap().len() <= 50));
        let details = body["details"].as_object().unwrap();
        let length = |(name, value): (&String, &Value)| name.chars().count() + value.as_str().unwrap().chars().count();
        assert!(details.iter().map(length).sum::<usize>() <= 8000);
    }
}

/// https://docs.github.com/rest/repos/repos#create-a-repository-dispatch-event
#[tokio::test]
async fn github_takes_the_dispatch() {
    let sink = read("github-dispatch", &[("GITHUB_TOKEN", "t")]);
    assert!(url(&sink).starts_with("https://api.github.com/repos/") && url(&sink).ends_with("/dispatches"));
    assert_eq!(header(&sink, "Authorization"), "Bearer t");
    assert_eq!(header(&sink, "Accept"), "application/vnd.github+json");
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        only(&body, &["event_type", "client_payload"]);
        text(&body, "/event_type", 100);
        assert!(fields(&body["client_payload"]).len() <= 10);
        assert!(body["client_payload"].to_string().len() < 65_536);
        assert_eq!(body["client_payload"]["sequence"], 42);
        let data: Value = serde_json::from_str(input.event.data.get()).unwrap();
        let sent = if data.to_string().len() > 60_000 { Value::Null } else { data };
        assert_eq!(body["client_payload"]["data"], sent);
    }
}

/// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
#[tokio::test]
async fn a_cloudevent_has_every_required_attribute_and_no_illegal_name() {
    let sink = read("cloudevents", &[("CLOUDEVENTS_URL", "https://events.example/")]);
    assert_eq!(header(&sink, "Content-Type"), "application/cloudevents+json; charset=utf-8");
    let test = SinkTest::new();
    for input in events() {
        let body = test.body(&sink, &input).await;
        assert_eq!(body["specversion"], "1.0");
        assert_eq!(body["id"], input.event.id.to_string());
        assert_eq!(body["type"], input.event.kind.as_str());
        assert_eq!(body["datacontenttype"], "application/json");
        text(&body, "/source", 1024);
        body["time"].as_str().unwrap().parse::<Timestamp>().unwrap();
        for name in fields(&body) {
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            assert!(name.len() <= 20 && name.chars().all(legal), "{name}");
        }
        optional(&body, "/subject", 1024);
        assert_eq!(body["sequence"], "00000000000000000042");
        let data: Value = serde_json::from_str(input.event.data.get()).unwrap();
        assert_eq!(body["data"], data);
    }
}

#[tokio::test]
async fn dedup_passes_on_the_first_of_several_like_events() {
    let receiver = Receiver::answering(&[200]).await;
    let sink = read("dedup", &[("DEDUP_URL", &receiver.url)]);
    let test = SinkTest::new();
    for (key, passes) in [("a", true), ("a", false), ("b", true), ("a", false)] {
        let before = receiver.count();
        let outcome = test.outcome(&sink, &input("custom.alert.disk", json!({"key": key, "at": before}))).await;
        match passes {
            true => assert_eq!((outcome, receiver.count()), (AttemptOutcome::Delivered, before + 1)),
            false => {
                assert_eq!(outcome, AttemptOutcome::Skipped);
                assert_eq!(receiver.count(), before);
            }
        }
    }
    let other = test.outcome(&sink, &input("custom.alert.memory", json!({"key": "a"}))).await;
    assert_eq!(other, AttemptOutcome::Delivered, "another type is not alike");
    only(&receiver.bodies.lock().unwrap()[0], &["event_id", "event_type", "event_ts", "data"]);
}

#[tokio::test]
async fn dedup_does_not_mistake_a_second_attempt_for_a_second_event() {
    let receiver = Receiver::answering(&[500, 200]).await;
    let sink = read("dedup", &[("DEDUP_URL", &receiver.url)]);
    let test = SinkTest::new();
    let event = input("custom.alert.disk", json!({"key": "a"}));
    let failed = test.attempt(&sink, &event).await;
    assert_eq!((failed.outcome, failed.retry_after), (AttemptOutcome::Failed, None));
    assert_eq!(failed.error.as_deref(), Some("HTTP 500"));
    assert_eq!(test.outcome(&sink, &event).await, AttemptOutcome::Delivered);
    assert_eq!(receiver.count(), 2);
}

#[tokio::test]
async fn fan_out_repeats_only_where_it_failed() {
    let (good, bad) = (Receiver::answering(&[200]).await, Receiver::answering(&[503, 204]).await);
    let toml = std::fs::read_to_string(folder().join("fan-out.toml")).unwrap();
    let toml = toml.replace("https://one.example/hook", &good.url).replace("https://two.example/hook", &bad.url);
    let test = SinkTest::new();
    let directory = test.directory.path();
    std::fs::write(directory.join("fan-out.toml"), toml).unwrap();
    std::fs::copy(folder().join("fan-out.lua"), directory.join("fan-out.lua")).unwrap();
    let draft = sink_file::read(&directory.join("fan-out.toml"), |_| None).unwrap();
    let mut spec = draft.resolve(|_, script| Err(script.to_owned())).unwrap();
    spec.owner = svc::model::owner::OwnerSpec::Global;
    let sink = Sink::define(spec, UserId::new(), None).unwrap();

    let event = input("custom.deploy.done", json!({"version": "1.2"}));
    let failed = test.attempt(&sink, &event).await;
    assert_eq!(failed.outcome, AttemptOutcome::Failed);
    let why = failed.error.unwrap();
    assert!(why.contains("HTTP 503") && why.contains(&bad.url), "{why}");
    assert_eq!(test.outcome(&sink, &event).await, AttemptOutcome::Delivered);
    assert_eq!((good.count(), bad.count()), (1, 2));
    let expected = json!({
        "event_id": event.event.id, "event_type": "custom.deploy.done", "event_ts": event.event.ts,
        "data": {"version": "1.2"},
    });
    assert_eq!(good.bodies.lock().unwrap()[0], expected);
    // The keys are deleted when every URL has the event.
    assert_eq!(test.outcome(&sink, &event).await, AttemptOutcome::Delivered);
    assert_eq!(good.count(), 2);
}
