//! A webhook sink: one signed POST per attempt, for one event or a batch; a 2xx response is success.

use super::{
    batch_body,
    body::{self, BodyError, EventBody},
    context::SinkContext,
    ed25519_key::Ed25519Key,
    lazy_program::LazyProgram,
    signature::WebhookSigner,
    webhook_headers::{self, ServiceHeaders},
    webhook_secrets::{ClearSecrets, SigningSecret, WebhookSecrets},
    webhook_url::{AttemptUrl, WebhookUrl},
};
use crate::{
    delivery::{CompletedAttempt, FailureKind, Postponed, RetryAfter},
    model::{
        batch_spec::BatchSpec,
        body_template::BodyTemplate,
        configured_value::ConfiguredValue,
        failure_policy::OnGone,
        outbound_http::CheckedUrl,
        owner::Owner,
        sequence::{join_oldest, missed_header},
        sink_spec::{WebhookBody, is_header_value},
        timestamp::Timestamp,
        webhook_secret::WebhookSecret,
    },
    platform::{
        egress::{self, EgressError, Tls},
        value_reader::read_value,
    },
    scripting::lua::EventInput,
};
use chrono::{DateTime, Utc};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_TYPE, LOCATION, RETRY_AFTER},
};
use serde::{Deserialize, Serialize};
use std::{sync::OnceLock, time::Duration};

/// The bytes of a receiver's response that are kept with the attempt.
const KEPT_RESPONSE: usize = 1 << 10;

/// The destination and options of a webhook sink. Checked by [`super::definition`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Webhook {
    pub url: WebhookUrl,
    #[serde(flatten)]
    pub secrets: WebhookSecrets,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Box<LazyProgram<BodyTemplate>>>,
    /// The body without a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<WebhookBody>,
    #[serde(default, skip_serializing_if = "OnGone::is_default")]
    pub gone: OnGone,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Box<BatchSpec>>,
    #[serde(default)]
    pub skip_tls_verify: bool,
    /// Made for the first delivery; `None` if a value is read for every delivery.
    #[serde(skip)]
    pub prepared: OnceLock<Option<Box<PreparedRequest>>>,
}

/// The parts of every request that are made once.
#[derive(Debug)]
pub struct PreparedRequest {
    /// `None` if it is read for every delivery.
    url: Option<CheckedUrl>,
    current: WebhookKeys,
    /// The keys before the last rotation, and the end of their grace.
    previous: Option<(WebhookKeys, Timestamp)>,
    /// The sink's own headers.
    own: HeaderMap,
}

/// The keys that belong to one secret.
#[derive(Debug)]
struct WebhookKeys {
    signer: WebhookSigner,
    ed25519: Option<Ed25519Key>,
}

impl Webhook {
    pub(super) async fn attempt(
        &self,
        context: &SinkContext,
        owner: Owner,
        inputs: &[EventInput],
        rendered: Option<EventBody>,
    ) -> Result<CompletedAttempt, Postponed> {
        let secrets = match self.secrets.read() {
            Ok(secrets) => secrets,
            Err(reason) => return Ok(CompletedAttempt::failed(format!("the secret of the webhook is lost: {reason}"))),
        };
        let fresh;
        let prepared = match self.prepared.get_or_init(|| PreparedRequest::of_stored(&self.url, secrets).map(Box::new))
        {
            Some(prepared) => prepared,
            None => match Box::pin(PreparedRequest::read(secrets)).await {
                Ok(prepared) => {
                    fresh = Box::new(prepared);
                    &fresh
                }
                Err(reason) => return Ok(CompletedAttempt::failed(reason)),
            },
        };
        let url = match &prepared.url {
            Some(url) => AttemptUrl::Shown(url.clone()),
            None => match self.url.read().await {
                Ok(url) => url,
                Err(reason) => return Ok(CompletedAttempt::failed(reason)),
            },
        };
        let body = match rendered {
            Some(body) => body,
            None => match Box::pin(self.render(context, owner, inputs)).await {
                Ok(body) => body,
                Err(error) => return error.into_attempt(),
            },
        };
        let request = egress::OutboundRequest {
            method: Method::POST,
            url: url.checked().clone(),
            headers: self.headers(prepared, inputs, &body, Timestamp::now()),
            body: body.bytes.clone(),
            timeout: context.timeout,
            tls: if self.skip_tls_verify { Tls::SkipVerify } else { Tls::Verify },
            keep: KEPT_RESPONSE,
            resend: egress::Resend::Allowed,
        };
        let completed = match context.egress.send(owner, request).await {
            Ok(response) => interpret(&response, self.gone, &url),
            Err(error @ EgressError::Denied { denial, .. }) if denial.is_lasting() => {
                CompletedAttempt::failed(url.told(&error)).of_kind(FailureKind::Lasting)
            }
            Err(error) => CompletedAttempt::failed(url.told(&error)),
        };
        Ok(CompletedAttempt { sent: Some(body.bytes), log: body.log, ..completed })
    }
}

impl Webhook {
    /// Returns the body that is posted for an event, or for the events of a batch.
    pub(super) async fn render(
        &self,
        context: &SinkContext,
        owner: Owner,
        inputs: &[EventInput],
    ) -> Result<EventBody, BodyError> {
        let (workers, form) = (&context.workers, self.body.unwrap_or(WebhookBody::Default));
        match (&self.template, form) {
            (Some(template), _) if self.batch.is_some() => {
                body::render_batch(workers, template, owner, inputs.to_vec()).await
            }
            (Some(template), _) => body::render(workers, template, owner, inputs[0].clone()).await,
            (None, form) if self.batch.is_some() => Ok(batch_body::array(inputs, form)),
            (None, WebhookBody::Full) => Ok(body::full(&inputs[0].event)),
            (None, WebhookBody::Default) => Ok(body::default(&inputs[0].event)),
        }
    }

    /// Returns the service's headers and then the sink's own. Those may override only the content type: saving a sink
    /// refuses the names of the others.
    fn headers(
        &self,
        prepared: &PreparedRequest,
        inputs: &[EventInput],
        body: &EventBody,
        now: Timestamp,
    ) -> HeaderMap {
        let mut headers = ServiceHeaders::new();
        let id = self.identify(inputs, &mut headers);
        prepared.sign(&id, body, now, &mut headers);
        headers.add(webhook_headers::STANDARD_ID, id);
        let mut headers = headers.into_map();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(body.content_type));
        for (name, value) in &prepared.own {
            headers.insert(name, value.clone());
        }
        headers
    }

    /// Adds the headers that tell what a request carries, and returns its id, which is the same in every attempt.
    fn identify(&self, inputs: &[EventInput], headers: &mut ServiceHeaders) -> String {
        let first = &inputs[0];
        headers.add(webhook_headers::ATTEMPT, first.attempt);
        // In a batch, each event says in the body if it is sent again, and by which job.
        if let Some(replay) = first.replay.filter(|replay| inputs.iter().all(|input| input.replay == Some(*replay))) {
            headers.add(webhook_headers::REPLAY, replay);
        }
        // In a batch, a joined range may span numbers that are in the body.
        let mut missed: Vec<_> = inputs.iter().flat_map(|input| &input.missed).copied().collect();
        join_oldest(&mut missed);
        if !missed.is_empty() {
            headers.add(webhook_headers::MISSED, missed_header(&missed));
        }
        if self.batch.is_some() {
            headers.add(webhook_headers::BATCH, inputs.len());
            return batch_body::id(inputs);
        }
        let (event, id) = (&first.event, first.event.id.to_string());
        headers.add(webhook_headers::EVENT_ID, &id);
        headers.add(webhook_headers::EVENT_TYPE, &event.kind);
        headers.add(webhook_headers::EVENT_TS, event.ts);
        headers.add(webhook_headers::SEQUENCE, first.sequence);
        id
    }
}

impl PreparedRequest {
    /// The parts of a webhook whose values are all in its definition.
    fn of_stored(url: &WebhookUrl, secrets: &ClearSecrets) -> Option<Self> {
        let SigningSecret::Own(secret) = &secrets.secret else { return None };
        let mut own = HeaderMap::with_capacity(secrets.headers.len());
        for (name, value) in &secrets.headers {
            insert_header(&mut own, name, value.text()?);
        }
        Some(Self::new(url.parse(), secrets, secret, own))
    }

    /// Reads the values that the definition only refers to.
    async fn read(secrets: &ClearSecrets) -> Result<Self, String> {
        let secret = match &secrets.secret {
            SigningSecret::Own(secret) => secret.clone(),
            SigningSecret::Reference(reference) => {
                let text = read_value(reference).await.map_err(|error| format!("`webhook.secret`: {error}"))?;
                WebhookSecret::parse(&text).map_err(|error| format!("`webhook.secret`: the value read {error}"))?
            }
        };
        let mut own = HeaderMap::with_capacity(secrets.headers.len());
        for (name, value) in &secrets.headers {
            match value {
                ConfiguredValue::Text(text) => insert_header(&mut own, name, text),
                ConfiguredValue::Reference(reference) => {
                    let read =
                        read_value(reference).await.map_err(|error| format!("`webhook.headers.{name}`: {error}"))?;
                    if !is_header_value(&read) {
                        return Err(format!("`webhook.headers.{name}`: the value read is no legal header value"));
                    }
                    insert_header(&mut own, name, &read);
                }
            }
        }
        Ok(Self::new(None, secrets, &secret, own))
    }

    fn new(url: Option<CheckedUrl>, secrets: &ClearSecrets, secret: &WebhookSecret, own: HeaderMap) -> Self {
        let keys = |secret: &WebhookSecret, ed25519: Option<&Ed25519Key>| WebhookKeys {
            signer: WebhookSigner::new(secret),
            ed25519: ed25519.cloned(),
        };
        let previous = secrets
            .previous
            .as_ref()
            .map(|previous| (keys(&previous.secret, previous.ed25519.as_ref()), previous.until));
        Self { url, current: keys(secret, secrets.ed25519.as_deref()), previous, own }
    }

    /// Adds the signatures of a request, also with the keys before a rotation while their grace lasts.
    fn sign(&self, id: &str, body: &EventBody, now: Timestamp, headers: &mut ServiceHeaders) {
        let previous = self.previous.as_ref().filter(|(_, until)| *until > now).map(|(keys, _)| keys);
        let keys = std::iter::once(&self.current).chain(previous);
        let standard: Vec<_> = keys.flat_map(|keys| keys.sign_standard(id, now.seconds(), &body.bytes)).collect();
        headers.add(webhook_headers::SIGNATURE, self.current.signer.sign_body(&body.bytes));
        headers.add(webhook_headers::STANDARD_TIMESTAMP, now.seconds());
        headers.add(webhook_headers::STANDARD_SIGNATURE, standard.join(" "));
        if let Some(keys) = previous {
            headers.add(webhook_headers::SIGNATURE_PREVIOUS, keys.signer.sign_body(&body.bytes));
        }
    }
}

impl WebhookKeys {
    /// The entries of `webhook-signature` for this message.
    fn sign_standard(&self, id: &str, timestamp: i64, body: &[u8]) -> impl Iterator<Item = String> {
        let symmetric = self.signer.sign_standard(id, timestamp, body);
        let asymmetric = self.ed25519.as_ref().map(|key| key.sign(id, timestamp, body));
        std::iter::once(symmetric).chain(asymmetric)
    }
}

/// Adds a header that was checked when the sink was saved.
fn insert_header(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
        headers.insert(name, value);
    }
}

/// Turns the receiver's response into the result of the attempt.
fn interpret(response: &egress::OutboundResponse, on_gone: OnGone, url: &AttemptUrl) -> CompletedAttempt {
    let status = response.status;
    let completed = if status.is_success() {
        CompletedAttempt::delivered()
    } else if status.is_redirection() {
        let target = response.headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("elsewhere");
        CompletedAttempt::failed(format!(
            "HTTP {} to {}: redirects are not followed, set the sink's url to it",
            status.as_u16(),
            url.redirect(target)
        ))
    } else if status == StatusCode::GONE && on_gone == OnGone::Pause {
        let error =
            "HTTP 410: the receiver is gone; correct the sink's url if it has moved, and activate the sink with `svc sink activate`".to_owned();
        CompletedAttempt::failed(error).of_kind(FailureKind::Gone)
    } else {
        let honoured = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let header = response.headers.get(RETRY_AFTER).filter(|_| honoured);
        let wait = header.and_then(|value| retry_after(value.to_str().ok()?, Utc::now()));
        CompletedAttempt::failed(format!("HTTP {}", status.as_u16())).with_retry_after(wait.map(RetryAfter::AtLeast))
    };
    let is_kept = url.shows_response() && !response.body.is_empty();
    let text = is_kept.then(|| String::from_utf8_lossy(&response.body).into_owned());
    CompletedAttempt { status: Some(status.as_u16()), response: text, ..completed }
}

/// Parses a `Retry-After` header: seconds, any number of them, or an HTTP date. A date that has passed asks for no
/// wait.
fn retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::sinks::{
            SinkTarget, attempt,
            test_support::{SinkFixture, input, sink},
        },
        model::{event::EventSpace, id::SpaceId},
        platform::egress::receiver::{Behaviour, Receiver},
        routing::queue::AttemptOutcome,
    };
    use serde_json::json;
    use std::sync::Arc;

    const OK: Behaviour = Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");

    /// Attempts a delivery to a receiver that sends this response.
    async fn attempted(head: &'static str) -> CompletedAttempt {
        let receiver = Receiver::start(Behaviour::Answer(head)).await;
        SinkFixture::new().attempt(&sink(json!({"type": "webhook", "webhook": {"url": receiver.url()}}))).await
    }

    fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
        let head = request.split_once("\r\n\r\n").unwrap().0;
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
    }

    #[tokio::test]
    async fn a_delivery_carries_the_default_body_and_every_header() {
        let receiver = Receiver::start(OK).await;
        let sink = sink(json!({"type": "webhook", "webhook": {"url": receiver.url(), "headers": {"X-Team": "ops"}}}));
        let (fixture, input) = (SinkFixture::new(), input());
        let attempted = attempt(&fixture.context, &sink, input.clone()).await.unwrap();
        assert_eq!(
            (attempted.outcome, attempted.status, attempted.error),
            (AttemptOutcome::Delivered, Some(200), None)
        );
        assert_eq!(attempted.response.as_deref(), Some("fine"));

        let request = receiver.request(0);
        let id = input.event.id.to_string();
        let body = format!(
            "{{\"event_id\":\"{id}\",\"event_type\":\"custom.deploy.done\",\
             \"event_ts\":\"2023-11-14T22:13:20.000000Z\",\"data\":{}}}",
            input.event.data.get()
        );
        assert_eq!(request.split_once("\r\n\r\n").unwrap().1, body);
        assert_eq!(attempted.sent.unwrap(), body);
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-service-event-id", id.as_str()),
            ("x-service-event-type", "custom.deploy.done"),
            ("x-service-event-ts", "2023-11-14T22:13:20.000000Z"),
            ("x-service-sequence", "7"),
            ("x-service-attempt", "2"),
            ("webhook-id", id.as_str()),
            ("x-team", "ops"),
        ] {
            assert_eq!(header(&request, name), Some(value), "{name}");
        }
        let SinkTarget::Webhook(webhook) = &sink.target else { panic!("{sink:?}") };
        let stamp: i64 = header(&request, "webhook-timestamp").unwrap().parse().unwrap();
        assert!((Timestamp::now().seconds() - stamp).abs() < 60);
        let SigningSecret::Own(secret) = &webhook.secrets.read().unwrap().secret else { panic!("{sink:?}") };
        let signer = WebhookSigner::new(secret);
        let standard = signer.sign_standard(&id, stamp, body.as_bytes());
        assert_eq!(header(&request, "webhook-signature"), Some(standard.as_str()));
        assert_eq!(header(&request, "x-service-signature"), Some(signer.sign_body(body.as_bytes()).as_str()));
    }

    #[tokio::test]
    async fn a_full_body_says_whose_event_it_is() {
        let receiver = Receiver::start(OK).await;
        let sink = sink(json!({"type": "webhook", "webhook": {"url": receiver.url(), "body": "full"}}));
        let (fixture, mut input) = (SinkFixture::new(), input());
        attempt(&fixture.context, &sink, input.clone()).await.unwrap();
        let (id, user) = (input.event.id, input.event.user_id);
        let body = |space: &str| {
            format!(
                "{{\"event_id\":\"{id}\",\"event_type\":\"custom.deploy.done\",\
                 \"event_ts\":\"2023-11-14T22:13:20.000000Z\",\"zone\":\"default\",\"space\":{space},\
                 \"user\":{{\"id\":\"{user}\"}},\
                 \"actor\":{{\"id\":\"00000000-0000-0000-0000-000000000000\",\"username\":\"ada\",\"kind\":\"user\"}},\
                 \"data\":{{\"n\": 12345678901234567890, \"version\":\"1.0\"}}}}"
            )
        };
        assert_eq!(receiver.request(0).split_once("\r\n\r\n").unwrap().1, body("null"));

        let event = Arc::get_mut(&mut input.event).unwrap();
        event.space_id = SpaceId::new();
        event.space =
            Some(EventSpace { name: "web".to_owned(), urls: vec!["http://web".to_owned()], custom: [].into() });
        let space = format!("{{\"id\":\"{}\",\"name\":\"web\",\"urls\":[\"http://web\"]}}", event.space_id);
        attempt(&fixture.context, &sink, input).await.unwrap();
        assert_eq!(receiver.request(1).split_once("\r\n\r\n").unwrap().1, body(&space));
    }

    #[tokio::test]
    async fn a_template_makes_the_body_and_its_content_type() {
        for (template, body, content_type) in [
            (json!("return {v = event.data.version}"), r#"{"v":"1.0"}"#, "application/json"),
            (json!("return 'v' .. event.data.version"), "v1.0", "text/plain; charset=utf-8"),
            (json!({"lang": "text", "source": "{\"v\":${{ 1 }}}"}), r#"{"v":1}"#, "application/json"),
        ] {
            let receiver = Receiver::start(OK).await;
            let webhook = json!({"url": receiver.url(), "template": template});
            let attempted = SinkFixture::new().attempt(&sink(json!({"type": "webhook", "webhook": webhook}))).await;
            assert_eq!(attempted.outcome, AttemptOutcome::Delivered, "{attempted:?}");
            let request = receiver.request(0);
            assert_eq!(request.split_once("\r\n\r\n").unwrap().1, body);
            assert_eq!(header(&request, "content-type"), Some(content_type));
        }
    }

    #[tokio::test]
    async fn the_sinks_own_content_type_wins() {
        let receiver = Receiver::start(OK).await;
        let webhook = json!({"url": receiver.url(), "headers": {"Content-Type": "application/cloudevents+json"}});
        SinkFixture::new().attempt(&sink(json!({"type": "webhook", "webhook": webhook}))).await;
        assert_eq!(header(&receiver.request(0), "content-type"), Some("application/cloudevents+json"));
    }

    #[tokio::test]
    async fn a_template_that_fails_fails_the_attempt_with_its_line() {
        let receiver = Receiver::start(OK).await;
        let webhook = json!({"url": receiver.url(), "template": "local a\nreturn a.b"});
        let attempted = SinkFixture::new().attempt(&sink(json!({"type": "webhook", "webhook": webhook}))).await;
        assert_eq!((attempted.outcome, attempted.retry_after), (AttemptOutcome::Failed, None), "{attempted:?}");
        assert!(attempted.error.unwrap().contains(":2:"));
        assert_eq!(receiver.connections(), 0);
    }

    #[tokio::test]
    async fn a_response_other_than_2xx_is_a_failure_with_its_status() {
        let attempted = attempted("HTTP/1.1 500 Oops\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\noops").await;
        assert_eq!((attempted.outcome, attempted.retry_after), (AttemptOutcome::Failed, None));
        assert_eq!((attempted.status, attempted.response.as_deref()), (Some(500), Some("oops")));
        assert_eq!(attempted.error.as_deref(), Some("HTTP 500"));
    }

    #[tokio::test]
    async fn a_busy_receiver_sets_the_time_of_the_retry() {
        let wait = Some(RetryAfter::AtLeast(Duration::from_secs(7)));
        let busy = attempted("HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!((busy.outcome, busy.retry_after), (AttemptOutcome::Failed, wait));
        assert_eq!(busy.error.as_deref(), Some("HTTP 429"));
        let away = attempted("HTTP/1.1 503 Away\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!((away.outcome, away.retry_after), (AttemptOutcome::Failed, None));
        assert_eq!(away.error.as_deref(), Some("HTTP 503"));
    }

    #[tokio::test]
    async fn a_receiver_that_is_gone_fails_the_attempt_as_its_sink_asks() {
        for (gone, kind) in [("pause", FailureKind::Gone), ("retry", FailureKind::Passing)] {
            let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")).await;
            let webhook = json!({"url": receiver.url(), "gone": gone});
            let attempted = SinkFixture::new().attempt(&sink(json!({"type": "webhook", "webhook": webhook}))).await;
            let seen = (attempted.outcome, attempted.status, attempted.failure_kind);
            assert_eq!(seen, (AttemptOutcome::Failed, Some(410), kind));
        }
    }

    #[test]
    fn a_batch_tells_of_a_replay_only_if_it_is_that_of_all_and_of_a_bounded_number_of_gaps() {
        use crate::model::{
            id::ReplayId,
            sequence::{MissReason, MissedRange},
        };
        let spec = json!({"type": "webhook", "webhook": {"url": "http://a/", "batch": {"max": 100}}});
        let SinkTarget::Webhook(webhook) = sink(spec).target else { panic!("a webhook") };
        let told = |inputs: &[EventInput], name: &str| {
            let mut headers = ServiceHeaders::new();
            webhook.identify(inputs, &mut headers);
            headers.into_map().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let (job, input) = (ReplayId::new(), input());
        let replayed = EventInput { replay: Some(job), ..input.clone() };
        assert_eq!(told(&[replayed.clone(), replayed.clone()], "x-service-replay"), Some(job.to_string()));
        assert_eq!(told(&[replayed, input.clone()], "x-service-replay"), None);
        let after_gap = |n: u64| {
            let missed = vec![MissedRange { from: 2 * n, to: 2 * n, reason: MissReason::QueueFull }];
            EventInput { sequence: 2 * n + 1, missed, ..input.clone() }
        };
        let inputs: Vec<_> = (1..=22).map(after_gap).collect();
        let header = told(&inputs, "x-service-missed").unwrap();
        assert!(header.starts_with("2-6;several, 8;queue-full, 10;queue-full, "), "{header}");
        assert_eq!((header.split(", ").count(), header.ends_with(", 44;queue-full")), (20, true));
        assert_eq!(told(&[input], "x-service-missed"), None);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = DateTime::parse_from_rfc3339("2015-10-21T07:27:00Z").unwrap().to_utc();
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(60)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(
            retry_after("99999999999999999999", now),
            Some(Duration::MAX.saturating_sub(Duration::from_nanos(999_999_999)))
        );
        assert_eq!(retry_after("-5", now), None);
        assert_eq!(retry_after("tomorrow", now), None);
    }

    #[tokio::test]
    async fn a_redirect_is_a_failure_that_names_its_target() {
        let attempted = attempted("HTTP/1.1 302 Moved\r\nLocation: http://b/\r\nContent-Length: 0\r\n\r\n").await;
        let error = attempted.error.unwrap();
        assert!(error.contains("HTTP 302 to http://b/") && error.contains("not followed"), "{error}");
    }

    #[tokio::test]
    async fn a_receiver_that_never_responds_fails_the_attempt_at_the_timeout() {
        let receiver = Receiver::start(Behaviour::Silence).await;
        let mut fixture = SinkFixture::new();
        fixture.context.timeout = Duration::from_millis(200);
        let attempted = fixture.attempt(&sink(json!({"type": "webhook", "webhook": {"url": receiver.url()}}))).await;
        assert_eq!((attempted.outcome, attempted.retry_after), (AttemptOutcome::Failed, None), "{attempted:?}");
        assert!(attempted.error.unwrap().contains("200ms"));
    }

    #[tokio::test]
    async fn an_endless_response_counts_by_its_status() {
        let receiver = Receiver::start(Behaviour::Endless("HTTP/1.1 200 OK\r\n\r\n")).await;
        let attempted =
            SinkFixture::new().attempt(&sink(json!({"type": "webhook", "webhook": {"url": receiver.url()}}))).await;
        assert_eq!(attempted.outcome, AttemptOutcome::Delivered);
        assert_eq!(attempted.response.map(|text| text.len()), Some(KEPT_RESPONSE));
    }

    #[tokio::test]
    async fn a_users_webhook_does_not_reach_this_machine() {
        let receiver = Receiver::start(OK).await;
        let spec = json!({"type": "webhook", "owner": "me", "webhook": {"url": receiver.url()}});
        let attempted = SinkFixture::new().attempt(&sink(spec)).await;
        assert_eq!(attempted.failure_kind, FailureKind::Lasting);
        assert!(attempted.error.unwrap().contains("not allowed"));
        assert_eq!(receiver.connections(), 0);
    }
}
