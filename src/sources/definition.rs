//! Makes a [`Source`] of a [`SourceSpec`] and rotates its secret. [`Source::check_lua`] then compiles its Lua, so that
//! a stored source runs.
//!
//! Every other rule is checked in [`crate::model::source_spec`]. Each error names the field and the way out.

use super::{
    secrets::{RotatedSecret, SourceSecrets},
    source::{Source, Transform},
};
use crate::{
    model::{
        configured_value::{ConfiguredValue, MASK},
        id::{SourceId, UserId},
        owner::{Owner, OwnerSpec},
        source_spec::{SourceSpec, SourceSpecError, VerifySpec},
        timestamp::Timestamp,
        units::Span,
        verifier::{SignedPart, TokenPlace, Verifier, check_secret},
    },
    platform::secret_keys::UnsealError,
    scripting::{lua::ScriptError, workers::LuaWorkers},
};

/// The reason a spec makes no source.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceDefinitionError {
    #[error(transparent)]
    Spec(#[from] SourceSpecError),
    #[error("`verify.secret` is required: the secret that the provider signs with or sends")]
    SecretMissing,
    #[error("`verify.secret`: give a new one; the stored one cannot be used: {0}")]
    SecretLost(UnsealError),
    #[error(
        "`verify.overlap`: the former secret is read on the server, which only a global source does: end it with \"0s\", or make the source global"
    )]
    FormerReference,
}

impl Source {
    /// Makes the source that `spec` describes: a new one, or the next version of `previous` with the same id, creation
    /// time and secrets. A secret that differs from the current one replaces it with overlap. `user` is the owner that
    /// `"owner": "me"` stands for.
    pub fn define(spec: SourceSpec, user: UserId, previous: Option<&Self>) -> Result<Self, SourceDefinitionError> {
        let spec = spec.check()?;
        let now = Timestamp::now();
        // A source of a user that has one from an older version does not read it, and can be changed.
        let is_kept = spec.secret.is_none() && previous.is_some_and(|source| source.owner != Owner::Global);
        let secrets = match (&spec.verifier, spec.secret, previous) {
            (Verifier::Insecure { .. }, ..) => SourceSecrets::new(None),
            (_, None, None) => return Err(SourceDefinitionError::SecretMissing),
            (_, Some(secret), None) => SourceSecrets::new(Some(secret)),
            (_, Some(secret), Some(previous)) => match previous.secrets.read() {
                Ok(before) if before.first().is_some_and(|current| current.secret == secret) => {
                    SourceSecrets::copied(before, spec.overlap, now)
                }
                Ok(before) => SourceSecrets::rotated(before, secret, spec.overlap, now),
                // The old ones are lost; the new one mends the source.
                Err(_) => SourceSecrets::new(Some(secret)),
            },
            (verifier, None, Some(previous)) => {
                let lost = |reason: &UnsealError| SourceDefinitionError::SecretLost(reason.clone());
                let before = previous.secrets.read().map_err(lost)?;
                let current = before.first().ok_or(SourceDefinitionError::SecretMissing)?;
                // Another scheme may need another form.
                if let Some(text) = current.secret.text() {
                    check_secret(verifier, text).map_err(SourceSpecError::Secret)?;
                }
                SourceSecrets::copied(before, spec.overlap, now)
            }
        };
        if spec.owner != OwnerSpec::Global && !is_kept {
            refuse_references(&secrets)?;
        }
        Ok(Self {
            id: previous.map_or_else(SourceId::new, |source| source.id),
            slug: spec.slug,
            description: spec.description,
            owner: spec.owner.of(user),
            active: spec.active.unwrap_or_else(|| previous.is_none_or(|source| source.active)),
            verifier: spec.verifier,
            secrets,
            overlap: Span(spec.overlap),
            transform: spec.transform.map(Transform::new),
            rate: spec.rate,
            created_at: previous.map_or(now, |source| source.created_at),
            updated_at: now,
        })
    }

    /// Checks that the source's Lua compiles, in a worker of this user. The Lua of the version before is not compiled
    /// again, so that a source whose Lua keeps all workers busy can be made inactive.
    ///
    /// # Errors
    ///
    /// Fails with the line of a syntax error.
    pub async fn check_lua(
        &self,
        workers: &LuaWorkers,
        user: UserId,
        previous: Option<&Self>,
    ) -> Result<(), ScriptError> {
        let before = previous.and_then(|source| source.transform.as_ref()).map(Transform::source);
        match &self.transform {
            Some(transform) if before != Some(transform.source()) => {
                workers.compile(transform.program(), Owner::User(user)).await
            }
            _ => Ok(()),
        }
    }

    /// The source in the form in which users write it, with a mask in place of its secret.
    pub fn spec(&self) -> SourceSpec {
        SourceSpec {
            slug: self.slug.clone(),
            description: self.description.clone(),
            owner: self.owner.into(),
            active: Some(self.active),
            verify: self.verify_spec(),
            transform: self.transform.as_ref().map(|transform| transform.source().to_owned()),
            rate: self.rate,
        }
    }

    /// A mask in place of a secret that is stored; the place of one that is not.
    fn shown_secret(&self) -> ConfiguredValue {
        let current = self.secrets.read().ok().and_then(<[_]>::first);
        let reference = current.and_then(|current| current.secret.reference());
        reference.map_or_else(|| MASK.to_owned().into(), |reference| ConfiguredValue::Reference(reference.clone()))
    }

    fn verify_spec(&self) -> VerifySpec {
        let has_secret = self.verifier.has_secret();
        let mut spec = VerifySpec {
            kind: self.verifier.kind(),
            secret: has_secret.then(|| self.shown_secret()),
            overlap: has_secret.then_some(self.overlap),
            ..VerifySpec::default()
        };
        match &self.verifier {
            Verifier::StandardWebhooks { tolerance }
            | Verifier::Gitlab { tolerance }
            | Verifier::Stripe { tolerance }
            | Verifier::Slack { tolerance } => spec.tolerance = Some(*tolerance),
            Verifier::Github => {}
            Verifier::Token { place, id_header } => {
                match place {
                    TokenPlace::Header { name, prefix } => {
                        spec.header = Some(name.clone());
                        spec.prefix = Some(prefix.clone()).filter(|prefix| !prefix.is_empty());
                    }
                    TokenPlace::Query { name } => spec.query = Some(name.clone()),
                }
                spec.id_header.clone_from(id_header);
            }
            Verifier::Basic { username, id_header } => {
                spec.username = Some(username.clone());
                spec.id_header.clone_from(id_header);
            }
            Verifier::Hmac(scheme) => {
                spec.header = Some(scheme.header.clone());
                spec.algorithm = Some(scheme.algorithm);
                spec.encoding = Some(scheme.encoding);
                spec.prefix = Some(scheme.prefix.clone()).filter(|prefix| !prefix.is_empty());
                spec.signed = Some(scheme.signed.iter().map(written_part).collect());
                if let Some((name, tolerance)) = &scheme.timestamp {
                    spec.timestamp = Some(name.clone());
                    spec.tolerance = Some(*tolerance);
                }
                spec.id_header.clone_from(&scheme.id_header);
            }
            Verifier::Insecure { id_header } => {
                spec.insecure = true;
                spec.id_header.clone_from(id_header);
            }
        }
        spec
    }

    /// The same source with its secrets to be encrypted anew, if they can be read.
    pub(super) fn with_new_secrets(&self) -> Option<Self> {
        let secrets = SourceSecrets::copied(self.secrets.read().ok()?, self.overlap.0, Timestamp::now());
        Some(Self {
            slug: self.slug.clone(),
            description: self.description.clone(),
            verifier: self.verifier.clone(),
            secrets,
            transform: self.transform.as_ref().map(|transform| Transform::new(transform.source().to_owned())),
            ..*self
        })
    }
}

/// The rule of the spec for the secret of a user's source, for secrets that are kept from a version that was global.
fn refuse_references(secrets: &SourceSecrets) -> Result<(), SourceDefinitionError> {
    let kept = secrets.read().unwrap_or_default();
    match kept.iter().find(|secret| secret.secret.reference().is_some()) {
        None => Ok(()),
        Some(RotatedSecret { until: None, .. }) => Err(SourceSpecError::ReferenceOfUser.into()),
        Some(RotatedSecret { until: Some(_), .. }) => Err(SourceDefinitionError::FormerReference),
    }
}

fn written_part(part: &SignedPart) -> String {
    match part {
        SignedPart::Body => "body".to_owned(),
        SignedPart::Header(name) => format!("header:{name}"),
        SignedPart::Text(text) => format!("text:{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn define(value: Value, previous: Option<&Source>) -> Result<Source, String> {
        let spec: SourceSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
        Source::define(spec, UserId::new(), previous).map_err(|error| error.to_string())
    }

    fn github(secret: Value) -> Value {
        json!({"slug": "github", "verify": {"type": "github", "secret": secret}})
    }

    fn valid(source: &Source) -> Vec<&str> {
        source.secrets.valid(Timestamp::now()).unwrap().filter_map(ConfiguredValue::text).collect()
    }

    #[test]
    fn a_new_source_needs_a_secret_and_shows_none() {
        assert!(define(github(Value::Null), None).unwrap_err().contains("`verify.secret` is required"));
        assert!(define(github(json!(MASK)), None).unwrap_err().contains("`verify.secret` is required"));
        let source = define(github(json!("first-secret")), None).unwrap();
        assert!(source.active && matches!(source.owner, Owner::User(_)));
        assert_eq!(source.spec().verify.secret, Some(MASK.to_owned().into()));
        assert!(!format!("{source:?}").contains("first-secret"));
    }

    #[test]
    fn a_new_version_keeps_an_unmentioned_secret_and_a_new_secret_overlaps_with_the_old() {
        let first = define(github(json!("first-secret")), None).unwrap();
        for secret in [Value::Null, json!(MASK), json!("first-secret")] {
            let same = define(github(secret), Some(&first)).unwrap();
            assert_eq!((same.id, same.created_at), (first.id, first.created_at));
            assert_eq!(valid(&same), ["first-secret"]);
        }
        let second = define(github(json!("second-secret")), Some(&first)).unwrap();
        assert_eq!(valid(&second), ["second-secret", "first-secret"]);
        let at_once =
            json!({"slug": "github", "verify": {"type": "github", "secret": "third-secret", "overlap": "0s"}});
        assert_eq!(valid(&define(at_once, Some(&first)).unwrap()), ["third-secret"]);
        let other = json!({"slug": "github", "verify": {"type": "standard-webhooks"}});
        assert!(define(other, Some(&first)).unwrap_err().contains("whsec_"), "the secret does not fit the new scheme");
    }

    #[test]
    fn a_leaked_secret_ends_with_a_lower_overlap_alone_and_with_the_next_rotation() {
        let with = |fields: Value| json!({"slug": "github", "verify": fields});
        let first = define(github(json!("leaked-secret")), None).unwrap();
        let second = define(github(json!("second-secret")), Some(&first)).unwrap();
        assert_eq!(valid(&second), ["second-secret", "leaked-secret"]);
        let at_once = define(with(json!({"type": "github", "overlap": "0s"})), Some(&second)).unwrap();
        assert_eq!(valid(&at_once), ["second-secret"]);
        let third = json!({"type": "github", "secret": "third-secret", "overlap": "0s"});
        assert_eq!(valid(&define(with(third), Some(&second)).unwrap()), ["third-secret"]);
    }

    #[test]
    fn a_source_that_becomes_a_users_keeps_no_secret_that_is_read_on_the_server() {
        let mut spec = github(json!({"file": "/run/secrets/github"}));
        spec["owner"] = json!("global");
        let global = define(spec.clone(), None).unwrap();
        let mine = |secret: Value, overlap: &str| json!({"slug": "github", "owner": "me", "verify": {"type": "github", "secret": secret, "overlap": overlap}});
        for secret in [Value::Null, json!(MASK)] {
            let refused = define(mine(secret, "24h"), Some(&global)).unwrap_err();
            assert!(refused.starts_with("`verify.secret`: only a global source"), "{refused}");
        }
        let refused = define(mine(json!("second-secret"), "24h"), Some(&global)).unwrap_err();
        assert!(refused.contains("`verify.overlap`"), "the former secret is read on the server too: {refused}");
        assert_eq!(valid(&define(mine(json!("second-secret"), "0s"), Some(&global)).unwrap()), ["second-secret"]);
        spec["verify"]["secret"] = Value::Null;
        assert!(define(spec, Some(&global)).is_ok(), "a global source keeps it");
    }

    #[test]
    fn a_global_source_names_the_place_of_its_secret_and_a_users_source_cannot() {
        let place = json!({"file": "/run/secrets/github"});
        let refused = define(github(place.clone()), None).unwrap_err();
        assert!(refused.starts_with("`verify.secret`: only a global source"), "{refused}");
        let mut spec = github(place.clone());
        spec["owner"] = json!("global");
        let source = define(spec.clone(), None).unwrap();
        assert_eq!(serde_json::to_value(source.spec().verify.secret).unwrap(), place);
        spec["verify"]["secret"] = json!({"file": "github"});
        assert!(define(spec, None).unwrap_err().contains("`verify.secret` must have an absolute path"));
    }

    #[test]
    fn the_written_form_makes_the_same_source_again() {
        for verify in [
            json!({"type": "standard-webhooks", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "tolerance": "1m"}),
            json!({"type": "gitlab", "secret": "s3cret-s3cret"}),
            json!({"type": "token", "secret": "s3cret-s3cret", "header": "Authorization", "prefix": "Bearer "}),
            json!({"type": "token", "secret": "s3cret-s3cret", "query": "key", "id_header": "X-Id"}),
            json!({"type": "basic", "secret": "s3cret-s3cret", "username": "ada"}),
            json!({"type": "hmac", "secret": "s3cret-s3cret", "header": "X-Sig", "algorithm": "sha512", "encoding": "base64",
                "prefix": "v=", "signed": ["header:X-Time", "text:.", "body"], "timestamp": "X-Time", "tolerance": "2m"}),
            json!({"type": "none", "insecure": true}),
        ] {
            let source =
                define(json!({"slug": "a", "rate": 7, "transform": "return nil", "verify": verify}), None).unwrap();
            let again = Source::define(source.spec(), UserId::new(), Some(&source)).unwrap();
            assert_eq!(again.spec(), source.spec(), "{verify}");
            assert_eq!(again.verifier, source.verifier, "{verify}");
        }
    }
}
