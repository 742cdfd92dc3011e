//! Makes a [`Sink`] of a [`SinkSpec`] and chooses its secret. [`Sink::check_lua`] then compiles its Lua, so that a
//! stored sink runs.
//!
//! Every other rule is checked in [`crate::model::sink_spec`]. Each error names the field and the way out.

use super::{
    Formatter, Sink, SinkScript, SinkTarget, Webhook,
    ed25519_key::Ed25519Key,
    lazy_program::{LazyProgram, ScriptSource},
    webhook_secrets::{ClearSecrets, SigningSecret, WebhookSecrets},
};
use crate::{
    model::{
        configured_value::{ConfiguredValue, MASK},
        id::{SinkId, UserId},
        owner::{Owner, OwnerSpec},
        sink_spec::{SinkKind, SinkSpec, SinkSpecError, TargetSpec, WebhookSpec},
        timestamp::Timestamp,
        webhook_secret::{self, WebhookSecret},
    },
    platform::secret_keys::UnsealError,
    scripting::{
        lua::ScriptError,
        workers::{LuaWorkers, ProgramText},
    },
};
use std::collections::BTreeMap;

/// The form of secrets in a [`SinkSpec`] made of a [`Sink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    Shown,
    Masked,
}

/// The reason a spec makes no sink.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SinkDefinitionError {
    #[error(transparent)]
    Spec(#[from] SinkSpecError),
    #[error("`type` cannot change from \"{0}\": delete the sink and make another")]
    KindChanged(SinkKind),
    #[error("`webhook.secret`: give a new one, and the headers with it; the stored one cannot be used: {0}")]
    SecretLost(UnsealError),
    #[error("`webhook.headers.{0}`: give the value; `{MASK}` stands for one that the sink has already")]
    HeaderMasked(String),
}

/// The reason that the Lua of a sink was not compiled.
#[derive(Debug, thiserror::Error)]
#[error("`{field}`: {error}")]
pub struct SinkLuaError {
    pub field: &'static str,
    pub error: ScriptError,
}

impl Sink {
    /// Makes the sink that `spec` describes: a new one, or the next version of `previous` with the same id and creation
    /// time, and the same secret if the spec has none. `user` is the owner that `"owner": "me"` stands for.
    pub fn define(spec: SinkSpec, user: UserId, previous: Option<&Self>) -> Result<Self, SinkDefinitionError> {
        if let Some(kind) = previous.map(Self::kind).filter(|kind| *kind != spec.kind) {
            return Err(SinkDefinitionError::KindChanged(kind));
        }
        let spec = spec.check()?;
        let target = match spec.target {
            TargetSpec::Webhook(webhook) => {
                let webhook = Webhook::define(*webhook, previous.and_then(Self::webhook_secrets))?;
                // The rule of the spec, for a secret that it leaves out.
                if spec.owner == OwnerSpec::Me && webhook.has_secret_elsewhere() {
                    return Err(SinkSpecError::ReferenceOfUser("webhook.secret".to_owned()).into());
                }
                SinkTarget::Webhook(webhook)
            }
            TargetSpec::ScriptSource(source) => {
                SinkTarget::Script(SinkScript::Source(LazyProgram::new(ScriptSource(source))))
            }
            TargetSpec::StoredScript(id) => SinkTarget::Script(SinkScript::Stored(id)),
            TargetSpec::JsonRpc(template) => SinkTarget::JsonRpc(Formatter { template: LazyProgram::new(template) }),
        };
        let now = Timestamp::now();
        let active = spec.active.unwrap_or_else(|| previous.is_none_or(|sink| sink.active));
        Ok(Self {
            id: previous.map_or_else(SinkId::new, |sink| sink.id),
            name: spec.name.into(),
            description: spec.description.into(),
            events: spec.events,
            filter: spec.filter,
            internal: spec.internal,
            on_failure: spec.on_failure,
            owner: spec.owner.of(user),
            space: previous.and_then(|sink| sink.space),
            active,
            pause: previous.and_then(|sink| sink.pause.clone()).filter(|_| !active),
            created_at: previous.map_or(now, |sink| sink.created_at),
            updated_at: now,
            target,
        })
    }

    /// Checks that the sink's Lua compiles, in a worker of this user. The Lua of the version before is not compiled
    /// again, so that a sink whose Lua keeps all workers busy can be made inactive.
    ///
    /// # Errors
    ///
    /// Fails with the field, and the line of a syntax error.
    pub async fn check_lua(
        &self,
        workers: &LuaWorkers,
        user: UserId,
        previous: Option<&Self>,
    ) -> Result<(), SinkLuaError> {
        let before = previous.map(Self::programs).unwrap_or_default();
        for (field, program) in self.programs() {
            if before.iter().any(|(_, before)| before.is_same_as(&program)) {
                continue;
            }
            let compiled = workers.compile(&program, Owner::User(user)).await;
            compiled.map_err(|error| SinkLuaError { field, error })?;
        }
        Ok(())
    }

    /// The sink's own programs, with the field that each is in.
    fn programs(&self) -> Vec<(&'static str, ProgramText)> {
        let own = match &self.target {
            SinkTarget::Webhook(Webhook { template: Some(template), .. }) => {
                Some(("webhook.template", template.program().clone()))
            }
            SinkTarget::Script(SinkScript::Source(source)) => Some(("script.source", source.program().clone())),
            SinkTarget::JsonRpc(formatter) => Some(("template", formatter.template.program().clone())),
            SinkTarget::Webhook(_) | SinkTarget::Script(SinkScript::Stored(_)) => None,
        };
        let filter = self.filter.as_ref().map(|filter| ("filter", ProgramText::filter(filter.as_str())));
        filter.into_iter().chain(own).collect()
    }

    /// The sink in the form in which users write it.
    pub fn spec(&self, secrets: Secrets) -> SinkSpec {
        let mut spec = SinkSpec {
            name: self.name.to_string(),
            description: self.description.to_string(),
            events: self.events.as_str().to_owned(),
            kind: self.kind(),
            owner: self.owner.into(),
            filter: self.filter.as_ref().map(|filter| filter.as_str().to_owned()),
            internal: self.internal,
            on_failure: self.on_failure,
            active: Some(self.active),
            webhook: None,
            script: None,
            template: None,
        };
        match &self.target {
            SinkTarget::Webhook(webhook) => spec.webhook = Some(webhook.spec(secrets)),
            SinkTarget::Script(script) => spec.script = Some(script.spec()),
            SinkTarget::JsonRpc(formatter) => spec.template = Some(formatter.template.source().clone()),
        }
        spec
    }

    pub(super) fn webhook_secrets(&self) -> Option<&WebhookSecrets> {
        match &self.target {
            SinkTarget::Webhook(webhook) => Some(&webhook.secrets),
            SinkTarget::Script(_) | SinkTarget::JsonRpc(_) => None,
        }
    }
}

impl Webhook {
    fn define(spec: WebhookSpec, kept: Option<&WebhookSecrets>) -> Result<Self, SinkDefinitionError> {
        let is_masked = spec.secret.as_ref().and_then(ConfiguredValue::text).is_some_and(webhook_secret::is_mask);
        let secret = match (spec.secret, kept) {
            (secret, Some(kept)) if secret.is_none() || is_masked => {
                kept.read().map_err(|reason| SinkDefinitionError::SecretLost(reason.clone()))?.secret.clone()
            }
            (None, _) => SigningSecret::Own(WebhookSecret::generate()),
            (Some(ConfiguredValue::Reference(reference)), _) => SigningSecret::Reference(Box::new(reference)),
            (Some(ConfiguredValue::Text(given)), _) => {
                SigningSecret::Own(WebhookSecret::parse(&given).map_err(SinkSpecError::from)?)
            }
        };
        let kept = kept.and_then(|kept| kept.read().ok());
        // A secret that its user sets replaces the one before at once; only a rotation has a grace.
        let unchanged = kept.filter(|kept| kept.secret == secret);
        let clear = ClearSecrets {
            previous: unchanged.and_then(|kept| kept.valid_previous(Timestamp::now()).cloned().map(Box::new)),
            ed25519: spec.ed25519.then(|| {
                kept.and_then(|kept| kept.ed25519.clone()).unwrap_or_else(|| Box::new(Ed25519Key::generate()))
            }),
            headers: unmask_headers(spec.headers, kept)?,
            secret,
        };
        let template = spec.template.map(|template| Box::new(LazyProgram::new(template)));
        Ok(Self {
            url: spec.url.into(),
            secrets: WebhookSecrets::new(clear),
            template,
            body: spec.body,
            batch: spec.batch.map(Box::new),
            gone: spec.gone,
            skip_tls_verify: spec.skip_tls_verify,
            prepared: std::sync::OnceLock::new(),
        })
    }

    fn has_secret_elsewhere(&self) -> bool {
        self.secrets.read().is_ok_and(|clear| matches!(clear.secret, SigningSecret::Reference(_)))
    }

    fn spec(&self, secrets: Secrets) -> WebhookSpec {
        let masked = || ConfiguredValue::Text(webhook_secret::MASK.to_owned());
        let (secret, headers) = match self.secrets.read() {
            Ok(clear) => {
                let secret = match (&clear.secret, secrets) {
                    (SigningSecret::Own(secret), Secrets::Shown) => secret.reveal().to_owned().into(),
                    (SigningSecret::Own(_), Secrets::Masked) => masked(),
                    (SigningSecret::Reference(reference), _) => ConfiguredValue::Reference((**reference).clone()),
                };
                let shown = |value: &ConfiguredValue| match (value, secrets) {
                    // A header value is often a credential, such as Authorization.
                    (ConfiguredValue::Text(_), Secrets::Masked) => ConfiguredValue::Text(MASK.to_owned()),
                    (value, _) => value.clone(),
                };
                (secret, clear.headers.iter().map(|(name, value)| (name.clone(), shown(value))).collect())
            }
            Err(_) => (masked(), BTreeMap::new()),
        };
        WebhookSpec {
            url: ConfiguredValue::from(&self.url),
            secret: Some(secret),
            headers,
            ed25519: self.secrets.read().is_ok_and(|clear| clear.ed25519.is_some()),
            template: self.template.as_ref().map(|template| template.source().clone()),
            body: self.body,
            batch: self.batch.as_deref().copied(),
            gone: self.gone,
            skip_tls_verify: self.skip_tls_verify,
        }
    }
}

/// Headers with the texts that the sink has in place of masks. A value that is kept elsewhere is never shown as a mask,
/// so that a mask does not stand for it: the rules for who may name its place hold.
fn unmask_headers(
    headers: BTreeMap<String, ConfiguredValue>,
    kept: Option<&ClearSecrets>,
) -> Result<BTreeMap<String, ConfiguredValue>, SinkDefinitionError> {
    let unmask = |(name, value): (String, ConfiguredValue)| {
        if !value.is_mask() {
            return Ok((name, value));
        }
        let of_name = |(kept, _): &(&String, &ConfiguredValue)| kept.eq_ignore_ascii_case(&name);
        match kept.and_then(|kept| kept.headers.iter().find(of_name)) {
            Some((_, value @ ConfiguredValue::Text(_))) => Ok((name, value.clone())),
            _ => Err(SinkDefinitionError::HeaderMasked(name)),
        }
    };
    headers.into_iter().map(unmask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::sinks::test_support::SinkFixture, model::id::ScriptId};
    use serde_json::{Value, json};

    fn define(value: Value) -> Result<Sink, String> {
        let spec: SinkSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
        Sink::define(spec, UserId::new(), None).map_err(|error| error.to_string())
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
        let SinkTarget::Webhook(webhook) = &sink.target else { panic!("{sink:?}") };
        let SigningSecret::Own(secret) = &webhook.secrets.read().unwrap().secret else { panic!("{sink:?}") };
        assert!(secret.reveal().starts_with("whsec_"));
    }

    #[test]
    fn each_refusal_names_its_field() {
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
            (with(plain(), "filter", json!("  ")), "`filter`: write"),
            (with(plain(), "filter", json!("x".repeat(4097))), "`filter`: has more"),
            (with(plain(), "filter", json!(true)), "invalid type"),
            (with(plain(), "type", json!("email")), "`webhook`, `script`, `json-rpc`"),
            (with(plain(), "owner", json!("you")), "`me` or `global`"),
            (with(plain(), "on_failure", json!("drop")), "`dead-letter` or `hold`"),
            (
                json!({"name": "x", "events": "*", "type": "json-rpc", "template": "return 1", "on_failure": "hold"}),
                "`on_failure` does not belong to a sink of type \"json-rpc\"",
            ),
            (
                json!({"name": "x", "events": "*", "type": "json-rpc", "template": "return 1", "internal": true}),
                "`internal` does not belong",
            ),
            (with(plain(), "internal", json!("yes")), "expected a boolean"),
            (webhook(json!({"url": "http://a", "batch": {"max": 0}})), "`webhook.batch.max` must be 1 to 100"),
            (webhook(json!({"url": "http://a", "batch": {"max": 101}})), "`webhook.batch.max` must be 1 to 100"),
            (
                webhook(json!({"url": "http://a", "batch": {"max": 5, "wait": "2m"}})),
                "`webhook.batch.wait` must be at most 1m",
            ),
            (webhook(json!({"url": "http://a", "batch": {"max": 5, "wait": 1}})), "invalid type"),
            (webhook(json!({"url": "http://a", "batch": {"max": 5, "size": 1}})), "`size`"),
            (webhook(json!({"url": "http://a", "batch": {}})), "`max`"),
            (webhook(json!({"url": "http://a", "batch": 5})), "invalid type"),
            (with(plain(), "batch", json!({"max": 5})), "`batch`"),
            (webhook(json!({"url": "http://a", "gone": "delete"})), "`retry` or `pause`"),
            (
                json!({"name": "x", "events": "*", "type": "script", "script": {"source": "", "gone": "pause"}}),
                "`gone`",
            ),
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
            (webhook(json!({"url": "http://a", "body": "whole"})), "`default` or `full`"),
            (webhook(json!({"url": "http://a", "body": "full", "template": "return {}"})), "`webhook`: give either"),
            (json!({"name": "x", "events": "*", "type": "script", "script": {}}), "`script`: give either"),
            (
                json!({"name": "x", "events": "*", "type": "script",
                    "script": {"source": "", "script_id": ScriptId::new()}}),
                "`script`: give either",
            ),
            (webhook(json!({"url": "http://a", "secret": {"env": "A"}})), "`webhook.secret`: only a global sink"),
            (webhook(json!({"url": {"env": "A"}})), "`webhook.url`: only a global sink"),
            (
                with(webhook(json!({"url": {"file": "a"}})), "owner", json!("global")),
                "`webhook.url` must have an absolute path",
            ),
            (
                with(webhook(json!({"url": "http://a", "headers": {"X-A": {"file": "a"}}})), "owner", json!("global")),
                "`webhook.headers.X-A` must have an absolute path",
            ),
            (
                webhook(json!({"url": "http://a", "headers": {"X-A": {"file": "/a"}}})),
                "`webhook.headers.X-A`: only a global",
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

    #[tokio::test]
    async fn a_syntax_error_names_its_field_and_its_line() {
        let fixture = SinkFixture::new();
        let script = |source: &str| json!({"name": "x", "events": "*", "type": "script", "script": {"source": source}});
        for (value, field) in [
            (webhook(json!({"url": "http://a", "template": "local a = 1\nreturn {"})), "`webhook.template`"),
            (script("\nx ="), "`script.source`"),
            (with(script("return"), "filter", json!("event.type ==\n== 1")), "`filter`"),
            (json!({"name": "x", "events": "*", "type": "json-rpc", "template": "\nx ="}), "`template`"),
        ] {
            let checked = define(value).unwrap().check_lua(&fixture.context.workers, UserId::new(), None).await;
            let error = checked.unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field}: it does not compile: line 2: ")), "{error}");
        }
        let fine = define(script("return")).unwrap().check_lua(&fixture.context.workers, UserId::new(), None).await;
        assert!(fine.is_ok(), "{fine:?}");
    }

    #[test]
    fn a_new_version_keeps_id_age_and_an_unmentioned_secret() {
        let first = define(plain()).unwrap();
        for secret in [None, Some(webhook_secret::MASK)] {
            let mut spec = first.spec(Secrets::Masked);
            assert_eq!(spec.webhook.as_ref().unwrap().secret, Some(webhook_secret::MASK.to_owned().into()));
            spec.webhook.as_mut().unwrap().secret = secret.map(|secret| secret.to_owned().into());
            let second = Sink::define(spec, UserId::new(), Some(&first)).unwrap();
            assert_eq!((second.id, second.created_at), (first.id, first.created_at));
            assert_eq!(
                second.spec(Secrets::Shown).webhook.unwrap().secret,
                first.spec(Secrets::Shown).webhook.unwrap().secret
            );
        }
    }

    #[test]
    fn a_masked_header_keeps_the_value_that_the_sink_has() {
        let headers = json!({"Authorization": "Bearer abc", "X-Team": "ops"});
        let first = define(webhook(json!({"url": "http://a/", "headers": headers}))).unwrap();
        let masked = first.spec(Secrets::Masked);
        assert_eq!(masked.webhook.as_ref().unwrap().headers["Authorization"].text(), Some(MASK));
        let second = Sink::define(masked.clone(), UserId::new(), Some(&first)).unwrap();
        assert_eq!(second.spec(Secrets::Shown), first.spec(Secrets::Shown));
        let mut other = masked;
        let headers = &mut other.webhook.as_mut().unwrap().headers;
        *headers = BTreeMap::from([("authorization".to_owned(), MASK.to_owned().into())]);
        let third = Sink::define(other, UserId::new(), Some(&first)).unwrap();
        let shown = third.spec(Secrets::Shown).webhook.unwrap().headers;
        assert_eq!(shown, BTreeMap::from([("authorization".to_owned(), "Bearer abc".to_owned().into())]));
        let refused = define(webhook(json!({"url": "http://a/", "headers": {"A": MASK}}))).unwrap_err();
        assert!(refused.starts_with("`webhook.headers.A`: give the value"), "{refused}");
    }

    #[test]
    fn nothing_that_a_change_leaves_out_or_masks_stands_for_a_value_on_the_server() {
        let global = |target| with(webhook(target), "owner", json!("global"));
        let define_over = |first: &Sink, value: Value| {
            let spec: SinkSpec = serde_json::from_value(value).unwrap();
            Sink::define(spec, UserId::new(), Some(first)).map(|_| ()).map_err(|error| error.to_string())
        };
        let header = define(global(json!({"url": "http://a/", "headers": {"X": {"env": "PASSWORD"}}}))).unwrap();
        for owner in ["me", "global"] {
            let masked = webhook(json!({"url": "http://b/", "headers": {"X": MASK}}));
            let refused = define_over(&header, with(masked, "owner", json!(owner))).unwrap_err();
            assert!(refused.starts_with("`webhook.headers.X`: give the value"), "{refused}");
        }
        let secret = define(global(json!({"url": "http://a/", "secret": {"env": "SECRET"}}))).unwrap();
        assert_eq!(define_over(&secret, global(json!({"url": "http://b/"}))), Ok(()));
        for masked in [json!(null), json!(webhook_secret::MASK), json!(MASK)] {
            let refused = define_over(&secret, webhook(json!({"url": "http://b/", "secret": masked}))).unwrap_err();
            assert!(refused.starts_with("`webhook.secret`: only a global sink"), "{refused}");
        }
    }

    #[test]
    fn a_stored_sink_reads_back_as_it_was() {
        for value in [
            webhook(json!({"url": "http://a/", "body": "full"})),
            webhook(json!({"url": "http://a/", "ed25519": true})),
            with(webhook(json!({"url": {"file": "/run/url"}})), "owner", json!("global")),
            with(
                webhook(json!({"url": "http://a/", "secret": {"credential": "hook"},
                    "headers": {"Authorization": {"file": "/run/token", "prefix": "Bearer "}}})),
                "owner",
                json!("global"),
            ),
            with(plain(), "filter", json!("event.data.n > 1")),
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
