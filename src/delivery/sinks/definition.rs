//! A sink as its user writes it, in JSON or TOML, and the checks that make it a [`Sink`].
//!
//! Every refusal names the field and what to do about it. Lua is compiled here, so that what was accepted runs.

use super::{
    Formatter, Script, Sink, Target, Webhook,
    compiled::{Compiled, ScriptSource},
    signature::{self, Secret, SecretError},
};
use crate::{
    model::{
        body_template::BodyTemplate,
        id::{ScriptId, SinkId, UserId},
        outbound_http::{UrlError, check_url, is_framing},
        owner::OwnerSpec,
        pattern::PatternError,
        timestamp::Timestamp,
    },
    scripting::lua::CompileError,
};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The longest name and description, in characters.
pub const MAX_NAME: usize = 64;
pub const MAX_DESCRIPTION: usize = 1024;

/// The most headers a sink may add, and the longest of their values in bytes.
const MAX_HEADERS: usize = 32;
const MAX_HEADER_VALUE: usize = 4096;

/// Headers that start so are ours.
const RESERVED_PREFIXES: [&str; 2] = ["x-service-", "webhook-"];

/// A sink as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkSpec {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Comma-separated patterns.
    pub events: String,
    #[serde(rename = "type")]
    pub kind: SinkKind,
    #[serde(default)]
    pub owner: OwnerSpec,
    /// Absent: true for a new sink, as it was for one that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptSpec>,
    /// For type `json-rpc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<BodyTemplate>,
}

/// The three kinds of sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SinkKind {
    Webhook,
    Script,
    JsonRpc,
}

/// The part of a sink of type `webhook`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookSpec {
    pub url: String,
    /// Absent: generated for a new sink, kept for one that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<BodyTemplate>,
    #[serde(default)]
    pub skip_tls_verify: bool,
}

/// The part of a sink of type `script`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptSpec {
    /// The Lua itself; or `script_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A stored script of kind `script`, the sink owner's or a global one. What it is by then is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_id: Option<ScriptId>,
}

/// How secrets are spelled in a [`SinkSpec`] made of a [`Sink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    Shown,
    Masked,
}

/// Why a spec makes no sink.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    #[error(
        "`name` must be 1 to {MAX_NAME} characters: a letter or digit, then letters, digits, spaces and any of `_.-`"
    )]
    Name,
    #[error("`type` cannot change from \"{0}\": delete the sink and make another")]
    KindChanged(SinkKind),
    #[error("`description` has more than {MAX_DESCRIPTION} characters: shorten it")]
    Description,
    #[error("`events`: {0}")]
    Events(#[from] PatternError),
    #[error("`{field}` is required for a sink of type \"{kind}\"")]
    Missing { field: &'static str, kind: SinkKind },
    #[error("`{field}` does not belong to a sink of type \"{kind}\": remove it, or change `type`")]
    Misplaced { field: &'static str, kind: SinkKind },
    #[error("`webhook.url`: {0}")]
    Url(#[from] UrlError),
    #[error("`webhook.secret` {0}")]
    Secret(#[from] SecretError),
    #[error("`webhook.headers.{name}` {fault}")]
    Header { name: String, fault: HeaderFault },
    #[error("`webhook.headers` has more than {MAX_HEADERS} entries: remove some")]
    TooManyHeaders,
    #[error("`script`: give either `source` or `script_id`")]
    Script,
    #[error("`{field}` does not compile: {error}")]
    Lua { field: &'static str, error: CompileError },
}

/// What is wrong with a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    #[error("is no legal header name")]
    Name,
    #[error("is set by the service itself: remove it")]
    Reserved,
    #[error("appears twice: header names do not tell upper from lower case")]
    Twice,
    #[error("has an illegal value: use up to {MAX_HEADER_VALUE} printable ASCII characters")]
    Value,
}

impl SinkSpec {
    /// The sink this describes, with a new id; or, over `previous`, with its id and age, and its secret if none
    /// is given. `user` is who `"owner": "me"` means.
    ///
    /// # Errors
    ///
    /// Fails on the first field that breaks a rule.
    pub fn define(self, user: UserId, previous: Option<&Sink>) -> Result<Sink, SpecError> {
        check_name(&self.name)?;
        if self.description.chars().count() > MAX_DESCRIPTION {
            return Err(SpecError::Description);
        }
        let events = self.events.parse()?;
        let owner = self.owner.of(user);
        if let Some(kind) = previous.map(Sink::kind).filter(|kind| *kind != self.kind) {
            return Err(SpecError::KindChanged(kind));
        }
        self.check_parts()?;
        let missing = |field| SpecError::Missing { field, kind: self.kind };
        let target = match self.kind {
            SinkKind::Webhook => {
                let spec = self.webhook.ok_or_else(|| missing("webhook"))?;
                let kept = previous.and_then(|sink| match &sink.target {
                    Target::Webhook(webhook) => Some(&webhook.secret),
                    Target::Script(_) | Target::JsonRpc(_) => None,
                });
                Target::Webhook(spec.define(kept)?)
            }
            SinkKind::Script => {
                let spec = self.script.ok_or_else(|| missing("script"))?;
                Target::Script(spec.define()?)
            }
            SinkKind::JsonRpc => {
                let compiled = Compiled::new(self.template.ok_or_else(|| missing("template"))?);
                let template = compiled.map_err(|error| SpecError::Lua { field: "template", error })?;
                Target::JsonRpc(Formatter { template })
            }
        };
        let now = Timestamp::now();
        Ok(Sink {
            id: previous.map_or_else(SinkId::new, |sink| sink.id),
            name: self.name,
            description: self.description,
            events,
            owner,
            active: self.active.unwrap_or_else(|| previous.is_none_or(|sink| sink.active)),
            created_at: previous.map_or(now, |sink| sink.created_at),
            updated_at: now,
            target,
        })
    }

    /// Refuses a part that belongs to another type, rather than forget it silently.
    fn check_parts(&self) -> Result<(), SpecError> {
        for (field, present, home) in [
            ("webhook", self.webhook.is_some(), SinkKind::Webhook),
            ("script", self.script.is_some(), SinkKind::Script),
            ("template", self.template.is_some(), SinkKind::JsonRpc),
        ] {
            if present && self.kind != home {
                return Err(SpecError::Misplaced { field, kind: self.kind });
            }
        }
        Ok(())
    }
}

impl WebhookSpec {
    fn define(self, kept: Option<&Secret>) -> Result<Webhook, SpecError> {
        let url = check_url(&self.url)?;
        check_headers(&self.headers)?;
        let secret = match (self.secret.as_deref(), kept) {
            (None | Some(signature::MASK), Some(kept)) => kept.clone(),
            (None, None) => Secret::generate(),
            (Some(given), _) => Secret::parse(given)?,
        };
        let compiled = self.template.map(Compiled::new).transpose();
        Ok(Webhook {
            url: url.as_str().into(),
            secret,
            headers: self.headers,
            template: compiled.map_err(|error| SpecError::Lua { field: "webhook.template", error })?,
            skip_tls_verify: self.skip_tls_verify,
        })
    }
}

impl ScriptSpec {
    /// Whether a stored script is there, and for this sink, is for those to check who know the stored ones.
    fn define(self) -> Result<Script, SpecError> {
        match (self.source, self.script_id) {
            (Some(source), None) => {
                let compiled = Compiled::new(ScriptSource(source));
                compiled.map(Script::Source).map_err(|error| SpecError::Lua { field: "script.source", error })
            }
            (None, Some(id)) => Ok(Script::Stored(id)),
            _ => Err(SpecError::Script),
        }
    }
}

impl Sink {
    /// The sink as its user would write it.
    pub fn spec(&self, secrets: Secrets) -> SinkSpec {
        let mut spec = SinkSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            events: self.events.as_str().to_owned(),
            kind: self.kind(),
            owner: self.owner.into(),
            active: Some(self.active),
            webhook: None,
            script: None,
            template: None,
        };
        match &self.target {
            Target::Webhook(webhook) => spec.webhook = Some(webhook.spec(secrets)),
            Target::Script(script) => spec.script = Some(script.spec()),
            Target::JsonRpc(formatter) => spec.template = Some(formatter.template.source().clone()),
        }
        spec
    }
}

impl Webhook {
    fn spec(&self, secrets: Secrets) -> WebhookSpec {
        WebhookSpec {
            url: self.url.clone().into(),
            secret: Some(match secrets {
                Secrets::Shown => self.secret.reveal().to_owned(),
                Secrets::Masked => signature::MASK.to_owned(),
            }),
            headers: match secrets {
                Secrets::Shown => self.headers.clone(),
                // Often an Authorization header.
                Secrets::Masked => self.headers.keys().map(|name| (name.clone(), "****".to_owned())).collect(),
            },
            template: self.template.as_ref().map(|template| template.source().clone()),
            skip_tls_verify: self.skip_tls_verify,
        }
    }
}

impl fmt::Display for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Webhook => "webhook",
            Self::Script => "script",
            Self::JsonRpc => "json-rpc",
        })
    }
}

fn check_name(name: &str) -> Result<(), SpecError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ' ' | '-');
    let good =
        name.len() <= MAX_NAME && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(legal);
    if good { Ok(()) } else { Err(SpecError::Name) }
}

fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), SpecError> {
    if headers.len() > MAX_HEADERS {
        return Err(SpecError::TooManyHeaders);
    }
    let mut seen = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let wrong = |fault| SpecError::Header { name: name.clone(), fault };
        let parsed: HeaderName = name.parse().map_err(|_| wrong(HeaderFault::Name))?;
        let lower = parsed.as_str();
        if is_framing(&parsed) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
            return Err(wrong(HeaderFault::Reserved));
        }
        let printable = HeaderValue::from_str(value).is_ok_and(|value| value.to_str().is_ok());
        if !printable || value.len() > MAX_HEADER_VALUE {
            return Err(wrong(HeaderFault::Value));
        }
        if seen.contains(&parsed) {
            return Err(wrong(HeaderFault::Twice));
        }
        seen.push(parsed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::owner::Owner;
    use serde_json::{Value, json};

    fn define(value: Value) -> Result<Sink, String> {
        let spec: SinkSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
        spec.define(UserId::new(), None).map_err(|error| error.to_string())
    }

    fn webhook(webhook: Value) -> Value {
        json!({"name": "hook", "events": "*", "type": "webhook", "webhook": webhook})
    }

    fn with(mut base: Value, field: &str, value: Value) -> Value {
        base[field] = value;
        base
    }

    fn plain() -> Value {
        webhook(json!({"url": "https://a.example/x"}))
    }

    #[test]
    fn a_sink_needs_only_what_has_no_default() {
        let sink = define(plain()).unwrap();
        assert!(sink.active && matches!(sink.owner, Owner::User(_)));
        let Target::Webhook(webhook) = &sink.target else { panic!("{sink:?}") };
        assert!(webhook.secret.reveal().starts_with("whsec_"));
    }

    #[test]
    fn each_refusal_names_its_field() {
        let lua = |source: &str| json!({"url": "https://a.example", "template": source});
        let header = |name: &str, value: &str| webhook(json!({"url": "https://a.example", "headers": {name: value}}));
        for (value, field) in [
            (with(plain(), "name", json!("")), "`name`"),
            (with(plain(), "name", json!("-x")), "`name`"),
            (with(plain(), "name", json!("a/b")), "`name`"),
            (with(plain(), "name", json!("é")), "`name`"),
            (with(plain(), "name", json!("x".repeat(65))), "`name`"),
            (with(plain(), "description", json!("x".repeat(1025))), "`description`"),
            (with(plain(), "events", json!("a.*.b")), "`events`"),
            (with(plain(), "events", json!("")), "`events`"),
            (with(plain(), "type", json!("email")), "`webhook`, `script`, `json-rpc`"),
            (with(plain(), "owner", json!("you")), "`me` or `global`"),
            (with(plain(), "colour", json!(1)), "`colour`"),
            (with(plain(), "script", json!({"source": ""})), "`script`"),
            (with(plain(), "template", json!("return 1")), "`template`"),
            (with(plain(), "type", json!("script")), "`webhook` does not belong"),
            (json!({"name": "x", "events": "*", "type": "webhook"}), "`webhook` is required"),
            (json!({"name": "x", "events": "*", "type": "script"}), "`script` is required"),
            (json!({"name": "x", "events": "*", "type": "json-rpc"}), "`template` is required"),
            (webhook(json!({"url": "ftp://a"})), "`webhook.url`"),
            (webhook(json!({"url": "http://u:p@a/"})), "`webhook.url`"),
            (webhook(json!({"url": "http://a", "verify": false})), "`verify`"),
            (webhook(json!({"url": "http://a", "secret": ""})), "`webhook.secret`"),
            (webhook(json!({"url": "http://a", "secret": "whsec_?"})), "`webhook.secret`"),
            (webhook(json!({"url": "http://a", "secret": "whsec_****"})), "`webhook.secret`"),
            (webhook(lua("return {")), "`webhook.template`"),
            (json!({"name": "x", "events": "*", "type": "script", "script": {"source": "x ="}}), "`script.source`"),
            (json!({"name": "x", "events": "*", "type": "json-rpc", "template": "x ="}), "`template`"),
            (json!({"name": "x", "events": "*", "type": "script", "script": {}}), "`script`: give either"),
            (
                json!({"name": "x", "events": "*", "type": "script",
                    "script": {"source": "", "script_id": ScriptId::new()}}),
                "`script`: give either",
            ),
            (header("X-Service-Event-Id", "1"), "`webhook.headers.X-Service-Event-Id`"),
            (header("webhook-id", "1"), "`webhook.headers.webhook-id`"),
            (header("Host", "b"), "`webhook.headers.Host`"),
            (header("Content-Length", "1"), "`webhook.headers.Content-Length`"),
            (header("a b", "1"), "`webhook.headers.a b`"),
            (header("X-A", "line\nbreak"), "`webhook.headers.X-A`"),
            (header("X-A", "é"), "`webhook.headers.X-A`"),
        ] {
            let error = define(value.clone()).expect_err(&value.to_string());
            assert!(error.contains(field), "{value}: {error}");
        }
    }

    #[test]
    fn a_header_given_in_two_spellings_is_refused() {
        let error = define(webhook(json!({"url": "http://a", "headers": {"X-A": "1", "x-a": "2"}}))).unwrap_err();
        assert!(error.contains("twice"), "{error}");
    }

    #[test]
    fn the_content_type_may_be_chosen() {
        define(webhook(json!({"url": "http://a", "headers": {"Content-Type": "application/x-www-form-urlencoded"}})))
            .unwrap();
    }

    #[test]
    fn a_syntax_error_tells_its_line() {
        let error = define(webhook(json!({"url": "http://a", "template": "local a = 1\nreturn {"}))).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn a_new_version_keeps_id_age_and_an_unmentioned_secret() {
        let first = define(plain()).unwrap();
        for secret in [None, Some(signature::MASK)] {
            let mut spec = first.spec(Secrets::Masked);
            assert_eq!(spec.webhook.as_ref().unwrap().secret.as_deref(), Some(signature::MASK));
            spec.webhook.as_mut().unwrap().secret = secret.map(str::to_owned);
            let second = spec.define(UserId::new(), Some(&first)).unwrap();
            assert_eq!((second.id, second.created_at), (first.id, first.created_at));
            assert_eq!(
                second.spec(Secrets::Shown).webhook.unwrap().secret,
                first.spec(Secrets::Shown).webhook.unwrap().secret
            );
        }
    }

    #[test]
    fn a_stored_sink_reads_back_as_it_was() {
        for value in [
            webhook(json!({"url": "http://a/", "headers": {"X-A": "1"}, "template": {"lang": "text", "source": "hi"}})),
            json!({"name": "x", "events": "a.*, b", "type": "script", "owner": "global", "script": {"source": "return"}}),
            json!({"name": "x", "events": "*", "type": "script", "script": {"script_id": ScriptId::new()}}),
            json!({"name": "x", "events": "*", "type": "json-rpc", "active": false, "template": "return {}"}),
        ] {
            let sink = define(value).unwrap();
            let stored = serde_json::to_vec(&sink).unwrap();
            let read: Sink = serde_json::from_slice(&stored).unwrap();
            assert_eq!(read.spec(Secrets::Shown), sink.spec(Secrets::Shown));
            assert_eq!((read.id, read.owner, read.updated_at), (sink.id, sink.owner, sink.updated_at));
        }
    }
}
