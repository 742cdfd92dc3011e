//! Sources over HTTP: managing them, and requests at their addresses, good and bad.

use super::{TestResponse, TestServer};
use crate::model::id::UserId;
use aws_lc_rs::hmac;
use isahc::Request;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SECRET: &str = "It's a Secret to Everybody";

fn hex(algorithm: hmac::Algorithm, secret: &str, text: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), text);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn github_signature(secret: &str, body: &[u8]) -> String {
    format!("sha256={}", hex(hmac::HMAC_SHA256, secret, body))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl TestServer {
    /// Makes a source and returns it.
    async fn source(&self, spec: Value) -> Value {
        let made = self.post("/api/sources", spec).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.body
    }

    /// Sends a request to a source.
    async fn hook(&self, slug: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> TestResponse {
        let mut request = self.request("POST", &format!("/in/{slug}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    /// Sends a delivery with this id, as GitHub signs it.
    async fn github(&self, slug: &str, delivery: &str, body: &str) -> TestResponse {
        let signature = github_signature(SECRET, body.as_bytes());
        self.hook(slug, &[("X-Hub-Signature-256", &signature), ("X-GitHub-Delivery", delivery)], body).await
    }

    /// The events of users in the history, oldest first, as type and data.
    async fn history(&self) -> Vec<(String, Value)> {
        let mut items = self.get("/api/events?pattern=custom.*").await.body["items"].as_array().unwrap().clone();
        items.reverse();
        items.into_iter().map(|event| (event["type"].as_str().unwrap().to_owned(), event["data"].clone())).collect()
    }
}

fn github(slug: &str) -> Value {
    json!({"slug": slug, "verify": {"type": "github", "secret": SECRET}})
}

fn open(slug: &str, transform: &str) -> Value {
    json!({"slug": slug, "transform": transform, "verify": {"type": "none", "insecure": true}})
}

#[tokio::test]
async fn a_source_is_made_shown_changed_and_deleted_and_never_shows_its_secret() {
    let server = TestServer::start().await;
    let made = server.source(github("github")).await;
    let path = format!("/api/sources/{}", made["id"].as_str().unwrap());
    assert_eq!((&made["path"], &made["active"], &made["rate"]), (&json!("/in/github"), &json!(true), &json!(100)));
    assert_eq!(made["verify"], json!({"type": "github", "secret": "****", "overlap": "1d"}));
    let changed = server.call(&server.token, "PATCH", &path, Some(json!({"description": "hooks", "rate": 5}))).await;
    assert_eq!((changed.status, &changed.body["rate"]), (200, &json!(5)), "{changed:?}");
    let replaced = json!({"slug": "github", "verify": {"type": "github"}});
    let replaced = server.call(&server.token, "PUT", &path, Some(replaced)).await;
    assert_eq!(
        (replaced.status, &replaced.body["rate"], &replaced.body["description"]),
        (200, &json!(100), &json!(""))
    );
    assert_eq!(server.github("github", "1", "{}").await.status, 202, "the secret stayed");
    let listed = server.get("/api/sources?slug=github").await.body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["activity"]["accepted"], 1);
    assert_eq!(server.get("/api/sources?slug=other").await.body["items"], json!([]));
    let audit = server.get("/api/audit").await.body.to_string();
    for text in [made.to_string(), changed.body.to_string(), listed.to_string(), audit] {
        assert!(!text.contains(SECRET), "{text}");
    }
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(server.get(&path).await.code(), "not_found");
    assert_eq!(server.github("github", "2", "{}").await.code(), "not_found");
    server.stop().await;
}

#[tokio::test]
async fn bad_definitions_are_refused_with_the_field_and_change_nothing() {
    let server = TestServer::start().await;
    server.source(github("taken")).await;
    for (spec, status, why) in [
        (github("taken"), 409, "`taken` is taken"),
        (json!({"slug": "a", "verify": {"type": "github"}}), 400, "`verify.secret` is required"),
        (json!({"slug": "a", "verify": {"type": "none"}}), 400, "`verify.insecure`"),
        (json!({"slug": "A", "verify": {"type": "none", "insecure": true}}), 400, "`slug`"),
        (open("a", "return {"), 400, "`transform` does not compile: line 1"),
        (json!({"slug": "a"}), 400, "verify"),
    ] {
        let refused = server.post("/api/sources", spec.clone()).await;
        assert_eq!(refused.status, status, "{spec}: {refused:?}");
        assert!(refused.message().contains(why), "{spec}: {}", refused.message());
    }
    assert_eq!(server.get("/api/sources").await.body["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn sources_of_others_look_absent_and_global_ones_need_their_permission() {
    let server = TestServer::start_with(Duration::from_secs(5), |config| config.limits.sources = 1).await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let (_, bob) = server.user("bob", &["member"]).await;
    let made = server.call(&ada, "POST", "/api/sources", Some(github("of-ada"))).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = format!("/api/sources/{}", made.text("id"));
    for (method, body) in [("GET", None), ("PATCH", Some(json!({"rate": 1}))), ("DELETE", None)] {
        let refused = server.call(&bob, method, &path, body).await;
        assert_eq!((refused.code(), refused.message()), ("not_found", "there is no such source"), "{method}");
    }
    assert_eq!(server.call(&bob, "GET", "/api/sources", None).await.body["items"], json!([]));
    let mut global = github("global");
    global["owner"] = json!("global");
    assert_eq!(server.call(&ada, "POST", "/api/sources", Some(global.clone())).await.code(), "forbidden");
    let second = server.call(&ada, "POST", "/api/sources", Some(github("second"))).await;
    assert!(second.code() == "conflict" && second.message().contains("limits.sources"), "{second:?}");
    assert_eq!(server.post("/api/sources", global).await.status, 201);
    // An event of ada's source is ada's; one of a global source belongs to nobody.
    assert_eq!(server.github("of-ada", "1", r#"{"n": 1}"#).await.status, 202);
    assert_eq!(server.github("global", "2", r#"{"n": 2}"#).await.status, 202);
    let of_ada = server.call(&ada, "GET", "/api/events", None).await.body;
    assert_eq!(of_ada["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&of_ada["items"][0]["actor"]["username"], &of_ada["items"][0]["data"]),
        (&json!("ada"), &json!({"n": 1}))
    );
    let all = server.get("/api/events").await.body;
    let global = all["items"].as_array().unwrap().iter().find(|event| event["data"] == json!({"n": 2})).unwrap();
    assert_eq!(global["user_id"], json!(UserId::NIL));
    assert_eq!(global["actor"]["kind"], "system");
    server.stop().await;
}

#[tokio::test]
async fn the_json_body_is_the_payload_of_one_event_and_a_repeated_delivery_raises_nothing() {
    let server = TestServer::start().await;
    server.source(github("ci")).await;
    let first = server.github("ci", "delivery-1", r#"{"z": 18446744073709551616, "a": 1.50}"#).await;
    assert_eq!(first.status, 202, "{first:?}");
    let again = server.github("ci", "delivery-1", r#"{"z": 18446744073709551616, "a": 1.50}"#).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    let other = server.github("ci", "delivery-2", r#"{"n": 2}"#).await;
    assert_ne!(other.body["events"], first.body["events"]);
    let history = server.history().await;
    assert_eq!(history.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["custom.source.ci"; 2]);
    assert_eq!(history[1].1, json!({"n": 2}));
    server.stop().await;
}

#[tokio::test]
async fn wrong_missing_doubled_and_replayed_signatures_are_refused_and_raise_nothing() {
    let server = TestServer::start().await;
    server.source(github("hub")).await;
    let right = github_signature(SECRET, b"{}");
    let wrong = github_signature("another secret", b"{}");
    for (headers, why) in [
        (vec![], "the header x-hub-signature-256 is missing"),
        (vec![("X-Hub-Signature-256", wrong.as_str())], "the signature is wrong"),
        (vec![("X-Hub-Signature-256", "sha256=zz")], "the signature is wrong"),
        (vec![("X-Hub-Signature-256", right.as_str()), ("X-Hub-Signature-256", right.as_str())], "more than once"),
        (vec![("X-Hub-Signature", right.as_str())], "is missing"),
    ] {
        let refused = server.hook("hub", &headers, "{}").await;
        assert_eq!(refused.code(), "unverified", "{headers:?}");
        assert!(refused.message().contains(why), "{headers:?}: {}", refused.message());
    }
    let tampered = server.hook("hub", &[("X-Hub-Signature-256", &right)], "{ }").await;
    assert_eq!(tampered.code(), "unverified");
    let shown = server.get("/api/sources?slug=hub").await.body;
    assert_eq!(shown["items"][0]["activity"]["refused"], 6);
    assert_eq!(shown["items"][0]["activity"]["last_refusal"]["reason"], "not verified: the signature is wrong");
    server.source(json!({"slug": "stripe", "verify": {"type": "stripe", "secret": "whsec_stripe"}})).await;
    let stripe =
        |at: u64| format!("t={at},v1={}", hex(hmac::HMAC_SHA256, "whsec_stripe", format!("{at}.{{}}").as_bytes()));
    let old = server.hook("stripe", &[("Stripe-Signature", &stripe(seconds() - 301))], "{}").await;
    assert!(old.code() == "unverified" && old.message().contains("ago"), "{old:?}");
    let fresh = stripe(seconds());
    let taken = server.hook("stripe", &[("Stripe-Signature", &fresh)], "{}").await;
    let replayed = server.hook("stripe", &[("Stripe-Signature", &fresh)], "{}").await;
    assert_eq!((taken.status, replayed.status), (202, 202));
    assert_eq!(taken.body, replayed.body, "a replay within the window is the same delivery");
    assert_eq!(server.history().await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_replaced_secret_is_valid_for_the_overlap_and_no_longer() {
    let server = TestServer::start().await;
    let made = server.source(github("hub")).await;
    let path = format!("/api/sources/{}", made["id"].as_str().unwrap());
    let signed = |secret: &'static str| {
        let signature = github_signature(secret, b"{}");
        let server = &server;
        async move { server.hook("hub", &[("X-Hub-Signature-256", &signature)], "{}").await.status }
    };
    let new = json!({"verify": {"type": "github", "secret": "a new secret", "overlap": "1h"}});
    let rotated = server.call(&server.token, "PATCH", &path, Some(new)).await;
    assert_eq!(rotated.body["former_secrets"].as_array().unwrap().len(), 1, "{rotated:?}");
    assert_eq!((signed(SECRET).await, signed("a new secret").await, signed("neither").await), (202, 202, 401));
    let at_once = json!({"verify": {"type": "github", "secret": "the third secret", "overlap": "0s"}});
    assert_eq!(server.call(&server.token, "PATCH", &path, Some(at_once)).await.status, 200);
    assert_eq!((signed("a new secret").await, signed("the third secret").await), (401, 202));
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_not_json_not_utf_8_too_large_or_compressed_are_refused() {
    let server = TestServer::start_with(Duration::from_secs(5), |config| {
        config.limits.body = "64KiB".parse().unwrap();
        config.limits.payload = "16KiB".parse().unwrap();
    })
    .await;
    server.source(github("hub")).await;
    let send = |body: Vec<u8>, more: &'static [(&'static str, &'static str)]| {
        let server = &server;
        async move {
            let signature = github_signature(SECRET, &body);
            let headers: Vec<_> =
                [("X-Hub-Signature-256", signature.as_str())].into_iter().chain(more.iter().copied()).collect();
            server.hook("hub", &headers, body).await
        }
    };
    for (body, why) in [
        (&b"not json"[..], "the body is no JSON object"),
        (b"[1]", "it is JSON, but no object"),
        (b"", "the body is no JSON object"),
        (b"{\"a\": \"\xff\"}", "it is not UTF-8"),
    ] {
        let refused = send(body.to_vec(), &[]).await;
        assert_eq!(refused.code(), "bad_request", "{body:?}");
        assert!(refused.message().contains(why) && refused.message().contains("transform"), "{}", refused.message());
    }
    let payload = send(format!("{{\"a\": \"{}\"}}", "x".repeat(17 << 10)).into_bytes(), &[]).await;
    assert!(payload.code() == "too_large" && payload.message().contains("`payload`"), "{payload:?}");
    let body = send(vec![b' '; 65 << 10], &[]).await;
    assert!(body.code() == "too_large" && body.message().contains("65536"), "{body:?}");
    let compressed = send(b"\x1f\x8b\x08".to_vec(), &[("Content-Encoding", "gzip")]).await;
    assert!(compressed.code() == "unsupported_media_type" && compressed.message().contains("gzip"), "{compressed:?}");
    let plain = send(b"{}".to_vec(), &[("Content-Encoding", "identity"), ("Content-Type", "text/plain")]).await;
    assert_eq!(plain.status, 202, "the content type does not matter");
    assert_eq!(server.history().await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_transform_sees_the_request_without_its_credential_and_returns_events() {
    let server = TestServer::start().await;
    let transform = r#"
        assert(request.headers["authorization"] == nil and request.query.key == nil)
        return {
            { type = "seen." .. source.slug, payload = {
                header = request.headers["x-name"], query = request.query.a, bytes = #request.body,
                json = request.json ~= nil, form = request.form and request.form.b } },
            { type = "again", id = "x-" .. request.query.a },
        }"#;
    let spec = json!({"slug": "lua", "transform": transform, "verify":
        {"type": "token", "header": "Authorization", "prefix": "Bearer ", "secret": "s3cret-s3cret"}});
    server.source(spec).await;
    let headers = [
        ("Authorization", "Bearer s3cret-s3cret"),
        ("X-Name", "one"),
        ("X-Name", "two"),
        ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
    ];
    let taken = server.hook("lua?a=1%20&b=2", &headers, &b"b=%C3%BC&c=\xff"[..]).await;
    assert_eq!((taken.status, taken.body["events"].as_array().map(Vec::len)), (202, Some(2)), "{taken:?}");
    let expected = json!({"header": "one, two", "query": "1 ", "bytes": 12, "json": false, "form": "ü"});
    let history = server.history().await;
    assert_eq!(history[0], ("custom.seen.lua".to_owned(), expected));
    assert_eq!(history[1], ("custom.again".to_owned(), json!({})));
    let repeated = server.hook("lua?a=1%20&b=2", &headers, "").await;
    assert_eq!(repeated.body["events"][1], taken.body["events"][1], "an id of the transform recognises its event");
    assert_eq!(server.history().await.len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_transform_answers_a_challenge_and_may_raise_nothing() {
    let server = TestServer::start().await;
    let transform = r#"
        if request.json.challenge then
            return { response = { body = request.json.challenge } }
        end
        return {}"#;
    server.source(open("challenge", transform)).await;
    let answered = server.hook("challenge", &[], r#"{"challenge": "<b>3eZbrw1a</b>"}"#).await;
    assert_eq!((answered.status, &answered.body), (200, &json!("<b>3eZbrw1a</b>")));
    assert_eq!(answered.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(answered.header("x-content-type-options"), "nosniff");
    let nothing = server.hook("challenge", &[], "{}").await;
    assert_eq!((nothing.status, &nothing.body), (202, &json!({"events": []})));
    assert_eq!(server.history().await, []);
    server.stop().await;
}

#[tokio::test]
async fn a_failed_transform_keeps_the_request_until_it_is_mended_and_redelivered() {
    let server = TestServer::start_with(Duration::from_secs(5), |config| config.limits.source_letters = 3).await;
    let mut spec = github("hub");
    spec["transform"] = json!("print('looking')\nerror('not yet')");
    let made = server.source(spec.clone()).await;
    let path = format!("/api/sources/{}", made["id"].as_str().unwrap());
    for n in 1..=4 {
        let kept = server.github("hub", &format!("d{n}"), &format!("{{\"n\": {n}}}")).await;
        assert_eq!((kept.status, &kept.body["events"]), (202, &json!([])), "{kept:?}");
        assert!(kept.body["dead_letter"].is_string());
    }
    let letters = server.get(&format!("{path}/dead-letters")).await.body;
    let items = letters["items"].as_array().unwrap();
    assert_eq!(items.len(), 3, "the oldest made room: {letters}");
    assert_eq!((&items[0]["body"], &items[0]["delivery_id"]), (&json!("{\"n\": 2}"), &json!("d2")));
    assert_eq!((&items[0]["reason"], &items[0]["log"]), (&json!("transform:2: not yet"), &json!(["looking"])));
    let redeliver = format!("{path}/redeliver");
    let again = server.post(&redeliver, json!({})).await;
    assert_eq!(again.body, json!({"redelivered": 0, "failed": 3, "remaining": 3}));
    let mended = json!({"transform": "if request.json.n == 3 then error('still') end return {type = 'n', payload = request.json}"});
    assert_eq!(server.call(&server.token, "PATCH", &path, Some(mended)).await.status, 200);
    let one = json!({"letter_ids": [items[2]["id"]]});
    assert_eq!(server.post(&redeliver, one).await.body, json!({"redelivered": 1, "failed": 0, "remaining": 2}));
    assert_eq!(server.post(&redeliver, json!({})).await.body, json!({"redelivered": 1, "failed": 1, "remaining": 1}));
    let kinds: Vec<_> = server.history().await.into_iter().map(|(_, data)| data["n"].clone()).collect();
    assert_eq!(kinds, [4, 2]);
    let rest = server.get(&format!("{path}/dead-letters")).await.body;
    assert!(rest["items"][0]["reason"].as_str().unwrap().contains("still"), "{rest}");
    // A delivery that the provider repeats after its letter was redelivered raises nothing more.
    assert_eq!(server.github("hub", "d4", "{\"n\": 4}").await.status, 202);
    assert_eq!(server.history().await.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn results_that_are_no_events_are_dead_letters_with_the_reason() {
    let server = TestServer::start().await;
    for (transform, why) in [
        ("return 7", "neither an event"),
        ("return { kind = 'a' }", "without `type`"),
        ("return { type = 'a b' }", "event 1: `type`"),
        ("return { { type = 'a' }, { type = 'b', payload = { 1, 2 } } }", "event 2: `payload` must be a JSON object"),
        ("return { type = 'a', payload = { f = print } }", "is a function"),
        ("return nil, 'no such thing'", "no such thing"),
        ("return { type = 'a', payload = { text = ('x'):rep(300 * 1024) } }", "the limit is 262144"),
        ("return http.get('http://127.0.0.1')", "attempt to index nil"),
    ] {
        let made = server.source(open("wrong", transform)).await;
        let path = format!("/api/sources/{}", made["id"].as_str().unwrap());
        let kept = server.hook("wrong", &[], "{}").await;
        assert!(kept.status == 202 && kept.body["dead_letter"].is_string(), "{transform}: {kept:?}");
        let letters = server.get(&format!("{path}/dead-letters")).await.body;
        let reason = letters["items"][0]["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{transform}: {reason}");
        server.call(&server.token, "DELETE", &path, None).await;
    }
    assert_eq!(server.history().await, [], "of a list with a wrong event none is raised");
    server.stop().await;
}

#[tokio::test]
async fn a_transform_that_loops_is_ended_and_its_request_kept_while_others_go_on() {
    let server =
        TestServer::start_with(Duration::from_secs(30), |config| config.script.cpu = "200ms".parse().unwrap()).await;
    server.source(open("loops", "while true do end")).await;
    server.source(open("works", "return { type = 'fine' }")).await;
    let began = Instant::now();
    let kept = server.hook("loops", &[], "{}").await;
    assert!(kept.status == 202 && kept.body["dead_letter"].is_string(), "{kept:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let letters = server.get("/api/sources?slug=loops").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    let letters = server.get(&format!("/api/sources/{letters}/dead-letters")).await.body;
    assert!(letters["items"][0]["reason"].as_str().unwrap().contains("200ms"), "{letters}");
    assert_eq!(server.hook("works", &[], "{}").await.status, 202);
    assert_eq!(server.history().await, [("custom.fine".to_owned(), json!({}))]);
    server.stop().await;
}

#[tokio::test]
async fn more_verified_requests_than_the_rate_are_refused_and_strangers_use_up_nothing() {
    let server = TestServer::start().await;
    let mut spec = github("hub");
    spec["rate"] = json!(2);
    server.source(spec).await;
    for _ in 0..20 {
        assert_eq!(server.hook("hub", &[], "{}").await.code(), "unverified");
    }
    let mut statuses = Vec::new();
    for n in 0..10 {
        statuses.push(server.github("hub", &n.to_string(), "{}").await);
    }
    let refused = statuses.iter().find(|response| response.status == 429).expect("ten requests exceed two a second");
    assert_eq!((refused.code(), refused.header("retry-after")), ("too_many_requests", "1"));
    assert!(statuses.iter().filter(|response| response.status == 202).count() >= 2);
    server.stop().await;
}

#[tokio::test]
async fn an_inactive_source_looks_absent_and_its_requests_are_not_read() {
    let server = TestServer::start().await;
    let mut spec = github("off");
    spec["active"] = json!(false);
    server.source(spec).await;
    let inactive = server.github("off", "1", "{}").await;
    let absent = server.github("nowhere", "1", "{}").await;
    assert_eq!((inactive.status, &inactive.body), (404, &absent.body));
    // A body over the limit is not even noticed.
    let request = Request::post(format!("http://{}/in/off", server.address)).body("x".repeat(100)).unwrap();
    assert_eq!(server.send(request).await.body, absent.body);
    assert_eq!(server.get("/api/sources?slug=off").await.body["items"][0]["activity"]["refused"], 0);
    for (method, path) in [("GET", "/in/off"), ("PUT", "/in/off")] {
        assert_eq!(server.call(&server.token, method, path, None).await.code(), "method_not_allowed");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_source_is_tried_out_without_raising_anything() {
    let server = TestServer::start().await;
    let made = server
        .source(open(
            "try",
            "print('here')\nreturn { type = 'tried', payload = { h = request.headers['x-a'] }, id = 7 }",
        ))
        .await;
    let path = format!("/api/sources/{}/test", made["id"].as_str().unwrap());
    let tried = server.post(&path, json!({"headers": {"X-A": "1"}, "query": "a=1", "body": "{}"})).await;
    assert_eq!(tried.status, 200, "{tried:?}");
    assert_eq!(
        (&tried.body["events"][0]["type"], &tried.body["events"][0]["payload"]),
        (&json!("custom.tried"), &json!({"h": "1"}))
    );
    assert_eq!(tried.body["log"], json!(["here"]));
    let wrong = server.post(&path, json!({"headers": {"a b": "1"}})).await;
    assert!(wrong.code() == "bad_request" && wrong.message().contains("`headers.a b`"), "{wrong:?}");
    assert_eq!(server.history().await, []);
    server.stop().await;
}

#[tokio::test]
async fn an_owner_who_may_not_raise_events_any_more_has_its_requests_refused() {
    let server = TestServer::start().await;
    let (id, ada) = server.user("ada", &["member"]).await;
    assert_eq!(server.call(&ada, "POST", "/api/sources", Some(github("hub"))).await.status, 201);
    assert_eq!(server.github("hub", "1", "{}").await.status, 202);
    let user = format!("/api/users/{id}");
    assert_eq!(server.call(&server.token, "PATCH", &user, Some(json!({"active": false}))).await.status, 200);
    assert_eq!(server.github("hub", "2", "{}").await.code(), "forbidden");
    assert_eq!(server.call(&server.token, "DELETE", &user, None).await.status, 204);
    assert_eq!(server.github("hub", "3", "{}").await.code(), "not_found", "sources are deleted with their user");
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_cannot_be_stored_is_never_confirmed() {
    let server = TestServer::start().await;
    server.source(github("hub")).await;
    server.source(open("fails", "error('always')")).await;
    assert_eq!(server.github("hub", "1", "{}").await.status, 202);
    server.services.store.close().await;
    assert_eq!(server.github("hub", "2", "{}").await.code(), "stopping");
    assert_eq!(server.hook("fails", &[], "{}").await.code(), "stopping", "a dead letter is stored or not confirmed");
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_delivery_that_fails_is_kept_once() {
    let server = TestServer::start().await;
    let mut spec = github("hub");
    spec["transform"] = json!("error('always')");
    let made = server.source(spec).await;
    let first = server.github("hub", "1", "{}").await;
    assert_eq!(server.github("hub", "1", "{}").await.body, first.body);
    server.github("hub", "2", "{}").await;
    let shown = server.get(&format!("/api/sources/{}", made["id"].as_str().unwrap())).await;
    assert_eq!((&shown.body["dead_letters"], &shown.body["activity"]["failed"]), (&json!(2), &json!(3)));
    server.stop().await;
}

#[tokio::test]
async fn a_record_whose_lua_stays_is_changed_without_a_worker() {
    let server = TestServer::start().await;
    let source = server.source(open("busy", "while true do end")).await;
    let sink =
        json!({"name": "s", "events": "*", "type": "script", "filter": "true", "script": {"source": "print(1)"}});
    let sink = server.post("/api/event-sinks", sink).await;
    let tool = server.post("/api/scripts", json!({"name": "t", "kind": "tool", "content": "return 1"})).await;
    server.services.workers.shut_down();
    for (path, id, lua) in [
        ("sources", &source["id"], json!({"transform": "return nil"})),
        ("event-sinks", &sink.body["id"], json!({"script": {"source": "print(2)"}})),
        ("event-sinks", &sink.body["id"], json!({"filter": "false"})),
        ("scripts", &tool.body["id"], json!({"content": "return 2"})),
    ] {
        let path = format!("/api/{path}/{}", id.as_str().unwrap());
        let inactive = server.call(&server.token, "PATCH", &path, Some(json!({"active": false}))).await;
        assert_eq!((inactive.status, &inactive.body["active"]), (200, &json!(false)), "{path}: {inactive:?}");
        assert_eq!(server.call(&server.token, "PATCH", &path, Some(lua)).await.status, 503, "{path}");
    }
    server.stop().await;
}
