//! The definition of a sink, as users write it in JSON or TOML, and every check that needs no Lua compiler.
//!
//! Each error names the field and the way out. `delivery::sinks` compiles the Lua and makes the stored sink.

use super::{
    batch_spec::{BatchSpec, BatchSpecError},
    body_template::BodyTemplate,
    configured_value::{ConfiguredValue, ValueReference, ValueReferenceError},
    event_filter::{EventFilter, EventFilterError},
    failure_policy::{OnFailure, OnGone},
    id::ScriptId,
    outbound_http::{UrlError, check_url, is_framing},
    owner::OwnerSpec,
    pattern::{PatternError, Patterns},
    webhook_secret::WebhookSecretError,
};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The longest name and description, in characters.
pub const MAX_NAME: usize = 64;
pub const MAX_DESCRIPTION: usize = 1024;

/// The most headers of a sink, and the longest value of one in bytes.
const MAX_HEADERS: usize = 32;
const MAX_HEADER_VALUE: usize = 4096;

/// Prefixes of headers that the daemon sets itself.
const RESERVED_PREFIXES: [&str; 2] = ["x-service-", "webhook-"];

/// A sink as users write it.
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
    /// A Lua expression over `event`, `space` and `actor`: an event for which it is false is not for this sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The pattern `*` matches the service's own reports too (`sink.failing`, `source.refusing`, `agent.lost` …).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    /// The consequence of the last failed attempt at an event: `dead-letter` if absent, or `hold`.
    #[serde(default, skip_serializing_if = "OnFailure::is_default")]
    pub on_failure: OnFailure,
    /// Absent: true for a new sink, unchanged for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptSinkSpec>,
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
    pub url: ConfiguredValue,
    /// Absent: generated for a new sink, unchanged for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ConfiguredValue>,
    #[serde(default)]
    pub headers: BTreeMap<String, ConfiguredValue>,
    /// Adds an Ed25519 signature (`v1a` of Standard Webhooks), which receivers verify with the sink's public key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ed25519: bool,
    /// Makes the body; or give `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<BodyTemplate>,
    /// The body without a template: `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<WebhookBody>,
    /// One request carries several events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchSpec>,
    /// The consequence of the status 410: `retry` if absent, or `pause`.
    #[serde(default, skip_serializing_if = "OnGone::is_default")]
    pub gone: OnGone,
    #[serde(default)]
    pub skip_tls_verify: bool,
}

/// The body of a webhook that has no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookBody {
    /// `event_id`, `event_type`, `event_ts` and `data`.
    Default,
    /// The whole event: `zone`, `space`, `user` and `actor` as well.
    Full,
}

/// The part of a sink of type `script`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScriptSpec")]
pub struct ScriptSinkSpec {
    /// The Lua itself; or give `script_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A stored script of kind `script`, the sink owner's or a global one. Each attempt runs its current version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_id: Option<ScriptId>,
}

/// A [`SinkSpec`] that passed every check except the compilation of its Lua and the choice of its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSinkSpec {
    pub name: String,
    pub description: String,
    pub events: Patterns,
    pub filter: Option<EventFilter>,
    pub internal: bool,
    pub on_failure: OnFailure,
    pub owner: OwnerSpec,
    pub active: Option<bool>,
    pub target: TargetSpec,
}

/// The one part that a sink of its kind has.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetSpec {
    /// The URL is normalized; URL and headers are legal.
    Webhook(Box<WebhookSpec>),
    ScriptSource(String),
    /// The caller checks that the script exists and is visible to the sink's owner.
    StoredScript(ScriptId),
    JsonRpc(BodyTemplate),
}

/// The rule that a spec breaks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SinkSpecError {
    #[error(
        "`name` must be 1 to {MAX_NAME} characters: a letter or digit, then letters, digits, spaces and any of `_.-`"
    )]
    Name,
    #[error("`description` has more than {MAX_DESCRIPTION} characters: shorten it")]
    Description,
    #[error("`events`: {0}")]
    Events(#[from] PatternError),
    #[error("`filter`: {0}")]
    Filter(#[from] EventFilterError),
    #[error("`{field}` is required for a sink of type \"{kind}\"")]
    Missing { field: &'static str, kind: SinkKind },
    #[error("`{field}` does not belong to a sink of type \"{kind}\": remove it, or change `type`")]
    Misplaced { field: &'static str, kind: SinkKind },
    #[error("`webhook.url`: {0}")]
    Url(#[from] UrlError),
    #[error("`webhook.secret` {0}")]
    Secret(#[from] WebhookSecretError),
    #[error("`webhook.headers.{name}` {error}")]
    Header { name: String, error: HeaderError },
    #[error("`webhook.headers` has more than {MAX_HEADERS} entries: remove some")]
    TooManyHeaders,
    #[error("`{field}` {error}")]
    Reference { field: String, error: ValueReferenceError },
    #[error(
        "`{0}`: only a global sink reads the server's environment, files and credentials: give the value itself, or make the sink global"
    )]
    ReferenceOfUser(String),
    #[error("`webhook`: give either `template` or `body`")]
    TemplateAndBody,
    #[error(transparent)]
    Batch(#[from] BatchSpecError),
    #[error("`script`: give either `source` or `script_id`")]
    Script,
}

/// The rule that a header breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("is no legal header name")]
    Name,
    #[error("is set by the service itself: remove it")]
    Reserved,
    #[error("appears twice: header names do not tell upper from lower case")]
    Duplicate,
    #[error("has an illegal value: use up to {MAX_HEADER_VALUE} printable ASCII characters")]
    Value,
}

impl SinkSpec {
    /// Checks every field and reports the first that breaks a rule.
    pub fn check(self) -> Result<CheckedSinkSpec, SinkSpecError> {
        check_name(&self.name)?;
        if self.description.chars().count() > MAX_DESCRIPTION {
            return Err(SinkSpecError::Description);
        }
        let events = self.events.parse()?;
        let filter = self.filter.as_deref().map(str::parse).transpose()?;
        self.check_parts()?;
        let missing = |field| SinkSpecError::Missing { field, kind: self.kind };
        let target = match self.kind {
            SinkKind::Webhook => self.webhook.ok_or_else(|| missing("webhook"))?.check()?,
            SinkKind::Script => self.script.ok_or_else(|| missing("script"))?.check()?,
            SinkKind::JsonRpc => TargetSpec::JsonRpc(self.template.ok_or_else(|| missing("template"))?),
        };
        if let (OwnerSpec::Me, TargetSpec::Webhook(webhook)) = (self.owner, &target)
            && let Some((field, _)) = webhook.references().next()
        {
            return Err(SinkSpecError::ReferenceOfUser(field));
        }
        let Self { name, description, internal, on_failure, owner, active, .. } = self;
        Ok(CheckedSinkSpec { name, description, events, filter, internal, on_failure, owner, active, target })
    }

    /// Rejects a part that belongs to another type, instead of ignoring it.
    fn check_parts(&self) -> Result<(), SinkSpecError> {
        for (field, present, kind) in [
            ("webhook", self.webhook.is_some(), SinkKind::Webhook),
            ("script", self.script.is_some(), SinkKind::Script),
            ("template", self.template.is_some(), SinkKind::JsonRpc),
        ] {
            if present && self.kind != kind {
                return Err(SinkSpecError::Misplaced { field, kind: self.kind });
            }
        }
        // A formatter receives no events.
        for (field, present) in [("on_failure", !self.on_failure.is_default()), ("internal", self.internal)] {
            if present && self.kind == SinkKind::JsonRpc {
                return Err(SinkSpecError::Misplaced { field, kind: self.kind });
            }
        }
        Ok(())
    }
}

impl WebhookSpec {
    /// The values that are kept elsewhere on the server, by the names of their fields.
    pub fn references(&self) -> impl Iterator<Item = (String, &ValueReference)> {
        let secret = self.secret.iter().map(|secret| ("webhook.secret".to_owned(), secret));
        let own = std::iter::once(("webhook.url".to_owned(), &self.url)).chain(secret);
        let headers = self.headers.iter().map(|(name, value)| (format!("webhook.headers.{name}"), value));
        own.chain(headers).filter_map(|(field, value)| Some((field, value.reference()?)))
    }

    /// Tells if a header has the mask of its value.
    pub fn has_masked_header(&self) -> bool {
        self.headers.values().any(ConfiguredValue::is_mask)
    }

    fn check(self) -> Result<TargetSpec, SinkSpecError> {
        let url = match &self.url {
            ConfiguredValue::Text(url) => ConfiguredValue::Text(check_url(url)?.into()),
            reference @ ConfiguredValue::Reference(_) => reference.clone(),
        };
        check_headers(&self.headers)?;
        for (field, reference) in self.references() {
            reference.place().map_err(|error| SinkSpecError::Reference { field, error })?;
        }
        if self.template.is_some() && self.body.is_some() {
            return Err(SinkSpecError::TemplateAndBody);
        }
        self.batch.iter().try_for_each(BatchSpec::check)?;
        Ok(TargetSpec::Webhook(Box::new(Self { url, ..self })))
    }
}

impl ScriptSinkSpec {
    fn check(self) -> Result<TargetSpec, SinkSpecError> {
        match (self.source, self.script_id) {
            (Some(source), None) => Ok(TargetSpec::ScriptSource(source)),
            (None, Some(id)) => Ok(TargetSpec::StoredScript(id)),
            _ => Err(SinkSpecError::Script),
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

fn check_name(name: &str) -> Result<(), SinkSpecError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ' ' | '-');
    let good =
        name.len() <= MAX_NAME && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(legal);
    if good { Ok(()) } else { Err(SinkSpecError::Name) }
}

/// Tells if a text can be the value of a header.
pub fn is_header_value(text: &str) -> bool {
    text.len() <= MAX_HEADER_VALUE && HeaderValue::from_str(text).is_ok_and(|value| value.to_str().is_ok())
}

fn check_headers(headers: &BTreeMap<String, ConfiguredValue>) -> Result<(), SinkSpecError> {
    if headers.len() > MAX_HEADERS {
        return Err(SinkSpecError::TooManyHeaders);
    }
    let mut seen = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let wrong = |error| SinkSpecError::Header { name: name.clone(), error };
        let parsed: HeaderName = name.parse().map_err(|_| wrong(HeaderError::Name))?;
        let lower = parsed.as_str();
        if is_framing(&parsed) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
            return Err(wrong(HeaderError::Reserved));
        }
        if value.text().is_some_and(|value| !is_header_value(value)) {
            return Err(wrong(HeaderError::Value));
        }
        if seen.contains(&parsed) {
            return Err(wrong(HeaderError::Duplicate));
        }
        seen.push(parsed);
    }
    Ok(())
}

impl fmt::Display for WebhookBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Full => "full",
        })
    }
}

impl std::str::FromStr for WebhookBody {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Default, Self::Full].into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| "expected default or full".to_owned())
    }
}

impl std::str::FromStr for SinkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Webhook, Self::Script, Self::JsonRpc].into_iter().find(|known| known.to_string() == text);
        known.ok_or_else(|| "expected webhook, script or json-rpc".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check_headers_of(headers: Value) -> Result<CheckedSinkSpec, SinkSpecError> {
        let webhook = json!({"url": "http://a", "headers": headers});
        let spec = json!({"name": "hook", "events": "*", "type": "webhook", "webhook": webhook});
        serde_json::from_value::<SinkSpec>(spec).unwrap().check()
    }

    #[test]
    fn a_header_given_in_two_spellings_is_refused() {
        let error = check_headers_of(json!({"X-A": "1", "x-a": "2"})).unwrap_err().to_string();
        assert!(error.contains("twice"), "{error}");
    }

    #[test]
    fn the_content_type_may_be_chosen() {
        check_headers_of(json!({"Content-Type": "application/x-www-form-urlencoded"})).unwrap();
    }
}
