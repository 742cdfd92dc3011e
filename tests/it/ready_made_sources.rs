//! The sources in `contrib/sources`: each is applied from its file, and gets requests as its provider documents and
//! signs them.

use crate::support::{Daemon, success};
use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use isahc::{ReadResponseExt, Request, RequestExt};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::Stdio,
    time::{SystemTime, UNIX_EPOCH},
};

const SECRETS: [(&str, &str); 7] = [
    ("GITHUB_WEBHOOK_SECRET", "It's a Secret to Everybody"),
    ("GITLAB_WEBHOOK_TOKEN", "gitlab-secret-token"),
    ("STRIPE_SIGNING_SECRET", "whsec_5Ijgx9rz2lpBUZWB5vsd"),
    ("SLACK_SIGNING_SECRET", "8f742231b10e8888abcd99yyyzzz85a5"),
    ("ALERTMANAGER_TOKEN", "alertmanager-token"),
    ("GRAFANA_HMAC_SECRET", "grafana-hmac-secret"),
    ("CLOUDEVENTS_TOKEN", "cloudevents-token"),
];

/// A daemon with one ready-made source.
struct SourceTest {
    daemon: Daemon,
    slug: &'static str,
}

impl SourceTest {
    fn of(slug: &'static str) -> Self {
        let daemon = Daemon::start();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("contrib/sources/{slug}.toml"));
        let mut command = daemon.command(&["source", "apply", file.to_str().unwrap()]);
        let applied = success(&command.envs(SECRETS).stdin(Stdio::null()).output().unwrap());
        assert!(applied.starts_with("created"), "{applied}");
        Self { daemon, slug }
    }

    fn send(&self, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> (u16, Value) {
        let mut request = Request::post(format!("{}/in/{}", self.daemon.url, self.slug));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.body(body.into()).unwrap().send().unwrap();
        let text = response.text().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Sends a request that must be accepted and become events.
    #[track_caller]
    fn accepted(&self, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Value {
        let (status, answer) = self.send(headers, body);
        assert!(status == 202 && answer.get("dead_letter").is_none(), "{status} {answer} {}", self.letters());
        answer
    }

    fn letters(&self) -> Value {
        let id = self.daemon.get("/api/sources").json()["items"][0]["id"].as_str().unwrap().to_owned();
        self.daemon.get(&format!("/api/sources/{id}/dead-letters")).json()["items"].clone()
    }

    /// The types of all events of sources, oldest first.
    fn types(&self) -> Vec<String> {
        let mut items = self.daemon.items("/api/events?pattern=custom.*");
        items.reverse();
        items.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    fn last_payload(&self) -> Value {
        self.daemon.items("/api/events?pattern=custom.*")[0]["data"].clone()
    }
}

fn secret(name: &str) -> &'static str {
    SECRETS.iter().find(|(known, _)| *known == name).unwrap().1
}

fn hex_hmac(name: &str, text: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret(name).as_bytes()), text.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string()
}

#[test]
fn every_ready_made_source_is_tested_here() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/sources");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut names: Vec<_> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["alertmanager", "cloudevents", "github", "gitlab", "grafana", "slack", "stripe"]);
}

#[test]
fn github() {
    let test = SourceTest::of("github");
    let send = |event: &str, delivery: &str, body: &str| {
        let signature = format!("sha256={}", hex_hmac("GITHUB_WEBHOOK_SECRET", body));
        let headers =
            [("X-GitHub-Event", event), ("X-GitHub-Delivery", delivery), ("X-Hub-Signature-256", signature.as_str())];
        test.accepted(&headers, body)
    };
    // The documented example of a signature, with the documented body, which is no JSON: verified, and kept.
    let documented = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let (status, kept) = test.send(&[("X-GitHub-Event", "push"), ("X-Hub-Signature-256", documented)], "Hello, World!");
    assert!(status == 202 && kept["dead_letter"].is_string(), "{kept}");
    assert_eq!(send("ping", "1", r#"{"zen": "Keep it logically awesome."}"#)["events"], json!([]));
    let issue =
        r#"{"action": "opened", "issue": {"number": 1347}, "repository": {"full_name": "octocat/Hello-World"}}"#;
    let first = send("issues", "72d3162e-cc78-11e3-81ab-4c9367dc0958", issue);
    assert_eq!(send("issues", "72d3162e-cc78-11e3-81ab-4c9367dc0958", issue), first, "a redelivery raises nothing");
    send("push", "2", r#"{"ref": "refs/heads/main", "commits": []}"#);
    assert_eq!(test.types(), ["custom.github.issues.opened", "custom.github.push"]);
    assert_eq!(test.last_payload(), json!({"ref": "refs/heads/main", "commits": []}));
    assert_eq!(test.send(&[("X-GitHub-Event", "push")], "{}").0, 401);
}

#[test]
fn gitlab() {
    let test = SourceTest::of("gitlab");
    let headers =
        [("X-Gitlab-Token", "gitlab-secret-token"), ("X-Gitlab-Event", "Push Hook"), ("Idempotency-Key", "f5e1")];
    let push = r#"{"object_kind": "push", "event_name": "push", "ref": "refs/heads/master", "user_id": 4}"#;
    let first = test.accepted(&headers, push);
    assert_eq!(test.accepted(&headers, push), first);
    let merge = r#"{"object_kind": "merge_request", "object_attributes": {"iid": 1, "action": "open"}}"#;
    test.accepted(&[headers[0], ("Idempotency-Key", "f5e2")], merge);
    assert_eq!(test.types(), ["custom.gitlab.push", "custom.gitlab.merge_request.open"]);
    assert_eq!(test.send(&[("X-Gitlab-Token", "another")], push).0, 401);
    assert!(!test.last_payload().to_string().contains("gitlab-secret-token"));
}

#[test]
fn stripe() {
    let test = SourceTest::of("stripe");
    let send = |at: &str, body: &str| {
        let signature = hex_hmac("STRIPE_SIGNING_SECRET", &format!("{at}.{body}"));
        test.send(&[("Stripe-Signature", &format!("t={at},v1={signature},v0=6ffbb59b"))], body)
    };
    let event = r#"{"id": "evt_1NG8Du2eZvKYlo2CUI79vXWy", "object": "event", "type": "setup_intent.created", "data": {"object": {"id": "seti_1"}}}"#;
    let (status, first) = send(&now(), event);
    assert_eq!(status, 202, "{first}");
    let earlier = (now().parse::<u64>().unwrap() - 60).to_string();
    assert_eq!(send(&earlier, event), (202, first), "Stripe signs a retry anew; the event is the same");
    assert_eq!(send("1492774577", event).0, 401, "the documented example is years old");
    assert_eq!(test.types(), ["custom.stripe.setup_intent.created"]);
    assert_eq!(test.last_payload()["data"]["object"]["id"], "seti_1");
}

#[test]
fn slack() {
    let test = SourceTest::of("slack");
    let send = |kind: &str, body: &str| {
        let at = now();
        let signature = format!("v0={}", hex_hmac("SLACK_SIGNING_SECRET", &format!("v0:{at}:{body}")));
        let headers = [("X-Slack-Request-Timestamp", at.as_str()), ("X-Slack-Signature", signature.as_str())];
        test.send(&[headers[0], headers[1], ("Content-Type", kind)], body)
    };
    let (json_type, form_type) = ("application/json", "application/x-www-form-urlencoded");
    let challenge = r#"{"token": "x", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P", "type": "url_verification"}"#;
    let answer = json!("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P");
    assert_eq!(send(json_type, challenge), (200, answer));
    let mention =
        r#"{"type": "event_callback", "event_id": "Ev08MFMKH6", "event": {"type": "app_mention", "text": "hi"}}"#;
    let (status, first) = send(json_type, mention);
    assert_eq!((status, send(json_type, mention)), (202, (202, first)));
    assert_eq!(send(form_type, "command=%2Fweather&text=94070"), (200, json!("")));
    assert_eq!(test.last_payload(), json!({"command": "/weather", "text": "94070"}));
    let interaction = "payload=%7B%22type%22%3A%22block_actions%22%2C%22actions%22%3A%5B%5D%7D";
    assert_eq!(send(form_type, interaction).0, 200);
    assert_eq!(test.types(), ["custom.slack.app_mention", "custom.slack.command", "custom.slack.block_actions"]);
    let documented = [
        ("X-Slack-Request-Timestamp", "1531420618"),
        ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    ];
    let (status, refused) = test.send(&documented, "token=xyzz0WbapA4vBCDEFasx0q6G");
    assert!(status == 401 && refused["error"]["message"].as_str().unwrap().contains("ago"), "{refused}");
}

/// A notification as Alertmanager documents it, version 4.
fn alerts(status: &str, ends_at: &str) -> String {
    json!({
        "version": "4", "groupKey": "{}:{alertname=\"Down\"}", "status": status, "receiver": "svc",
        "groupLabels": {"alertname": "Down"}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am:9093",
        "orgId": 1, "title": "[FIRING:1]",
        "alerts": [
            {"status": status, "labels": {"alertname": "Down", "instance": "a"}, "annotations": {"summary": "a is down"},
                "startsAt": "2026-01-31T12:00:00Z", "endsAt": ends_at, "generatorURL": "http://p:9090", "fingerprint": "aa",
                "values": {"B": 22.9}},
            {"status": "firing", "labels": {"alertname": "Down", "instance": "b"}, "annotations": {},
                "startsAt": "2026-01-31T12:01:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "", "fingerprint": "bb"},
        ],
    })
    .to_string()
}

const NEVER: &str = "0001-01-01T00:00:00Z";

#[test]
fn alertmanager() {
    let test = SourceTest::of("alertmanager");
    let headers = [("Authorization", "Bearer alertmanager-token"), ("Content-Type", "application/json")];
    let first = test.accepted(&headers, alerts("firing", NEVER));
    assert_eq!(test.accepted(&headers, alerts("firing", NEVER)), first, "a repeated group raises nothing");
    test.accepted(&headers, alerts("resolved", "2026-01-31T13:00:00Z"));
    assert_eq!(
        test.types(),
        ["custom.alertmanager.firing", "custom.alertmanager.firing", "custom.alertmanager.resolved"]
    );
    let resolved = test.last_payload();
    assert_eq!((&resolved["labels"]["instance"], &resolved["ends_at"]), (&json!("a"), &json!("2026-01-31T13:00:00Z")));
    assert_eq!(test.send(&[("Authorization", "Bearer wrong")], alerts("firing", NEVER)).0, 401);
    assert_eq!(test.send(&[], alerts("firing", NEVER)).0, 401);
    let (status, kept) = test.send(&headers, r#"{"alerts": 7}"#);
    assert!(status == 202 && kept["dead_letter"].is_string(), "{kept}");
}

#[test]
fn grafana() {
    let test = SourceTest::of("grafana");
    let body = alerts("firing", NEVER);
    let send = |at: &str, body: &str| {
        let signature = hex_hmac("GRAFANA_HMAC_SECRET", &format!("{at}:{body}"));
        test.send(&[("X-Grafana-Alerting-Timestamp", at), ("X-Grafana-Alerting-Signature", &signature)], body)
    };
    assert_eq!(send(&now(), &body).0, 202);
    assert_eq!(test.types(), ["custom.grafana.firing"; 2]);
    assert_eq!(test.daemon.items("/api/events?pattern=custom.*")[1]["data"]["values"], json!({"B": 22.9}));
    assert_eq!(send("1700000000", &body).0, 401, "an old request");
    let signature = hex_hmac("GRAFANA_HMAC_SECRET", &body);
    assert_eq!(test.send(&[("X-Grafana-Alerting-Signature", &signature)], body).0, 401, "without a timestamp");
}

/// A notification with this many alerts, of which every tenth is resolved.
fn many_alerts(count: usize) -> Value {
    let alert = |n: usize| {
        let status = if n.is_multiple_of(10) { "resolved" } else { "firing" };
        json!({"status": status, "labels": {"n": n.to_string()}, "startsAt": "2026-01-01T00:00:00Z", "endsAt": NEVER,
            "fingerprint": format!("f{n}")})
    };
    json!({"receiver": "svc", "groupKey": "{}:{}", "externalURL": "http://alerts.test", "title": "many",
        "alerts": (1..=count).map(alert).collect::<Vec<_>>()})
}

#[test]
fn a_group_of_more_than_100_alerts_raises_the_first_99_and_an_event_with_the_numbers() {
    for slug in ["alertmanager", "grafana"] {
        let test = SourceTest::of(slug);
        let send = |body: &Value| {
            let (at, body) = (now(), body.to_string());
            let signature = hex_hmac("GRAFANA_HMAC_SECRET", &format!("{at}:{body}"));
            let headers = [
                ("Authorization", "Bearer alertmanager-token"),
                ("X-Grafana-Alerting-Timestamp", at.as_str()),
                ("X-Grafana-Alerting-Signature", signature.as_str()),
            ];
            test.accepted(&headers, body)["events"].clone()
        };
        let raised = send(&many_alerts(150));
        assert_eq!(raised.as_array().unwrap().len(), 100, "{slug}");
        let truncated = || test.daemon.items(&format!("/api/events?pattern=custom.{slug}.truncated"));
        let mut numbers = json!({"alerts": 150, "raised": 99, "left_out": {"firing": 45, "resolved": 6},
            "receiver": "svc", "group_key": "{}:{}", "external_url": "http://alerts.test"});
        assert_eq!(truncated()[0]["data"], numbers);
        assert_eq!(send(&many_alerts(150)), raised, "a repeated notification raises nothing");
        assert_eq!(send(&many_alerts(100)).as_array().unwrap().len(), 100);
        assert_eq!(truncated().len(), 1, "a group of 100 is whole");
        let mut cut_by_sender = many_alerts(2);
        cut_by_sender["truncatedAlerts"] = json!(7);
        assert_eq!(send(&cut_by_sender).as_array().unwrap().len(), 3, "the sender says that it left out alerts");
        numbers["alerts"] = json!(2);
        numbers["raised"] = json!(2);
        numbers["left_out"] = json!({"firing": 0, "resolved": 0, "by_sender": 7});
        assert_eq!(truncated()[0]["data"], numbers);
    }
}

#[test]
fn cloudevents_structured_batched_and_binary() {
    let test = SourceTest::of("cloudevents");
    let token = ("Authorization", "Bearer cloudevents-token");
    let event = json!({"specversion": "1.0", "type": "com.github.pull_request.opened", "source": "https://github.com/cloudevents/spec/pull",
        "subject": "123", "id": "A234-1234-1234", "time": "2018-04-05T17:31:00Z", "comexampleextension1": "value",
        "datacontenttype": "application/json", "data": {"number": 7}});
    let structured = [token, ("Content-Type", "application/cloudevents+json; charset=UTF-8")];
    let first = test.accepted(&structured, event.to_string());
    assert_eq!(test.last_payload(), event);
    let batch = [token, ("Content-Type", "application/cloudevents-batch+json")];
    let mut second = event.clone();
    second["id"] = json!("B234");
    second["type"] = json!("com.example/odd..type.");
    let batched = test.accepted(&batch, json!([event, second]).to_string());
    assert_eq!(batched["events"][0], first["events"][0], "the same event is raised once");
    let binary = [
        token,
        ("Content-Type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-type", "com.example.someevent"),
        ("ce-source", "/mycontext"),
        ("ce-id", "C234"),
        ("ce-subject", "Euro%20%E2%82%AC"),
    ];
    test.accepted(&binary, r#"{"much": "wow"}"#);
    let expected = json!({"specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "id": "C234",
        "subject": "Euro €", "datacontenttype": "application/json", "data": {"much": "wow"}});
    assert_eq!(test.last_payload(), expected);
    let mut bytes = binary;
    bytes[1] = ("Content-Type", "application/octet-stream");
    bytes[5] = ("ce-id", "D234");
    test.accepted(&bytes, &b"\xff\x00\x01"[..]);
    assert_eq!(test.last_payload()["data_base64"], json!(STANDARD.encode(b"\xff\x00\x01")));
    assert_eq!(
        test.types(),
        [
            "custom.cloudevents.com.github.pull_request.opened",
            "custom.cloudevents.com.example_odd.type",
            "custom.cloudevents.com.example.someevent",
            "custom.cloudevents.com.example.someevent",
        ]
    );
    for (headers, body) in [
        (vec![token], "{}"),
        (vec![token, ("Content-Type", "application/cloudevents+json")], "{\"specversion\": \"1.0\"}"),
        (vec![token, ("Content-Type", "application/cloudevents+avro")], ""),
    ] {
        let (status, kept) = test.send(&headers, body);
        assert!(status == 202 && kept["dead_letter"].is_string(), "{headers:?}: {kept}");
    }
    assert_eq!(test.letters().as_array().unwrap().len(), 3);
}
