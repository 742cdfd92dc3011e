//! The definition of a source, as users write it in JSON or TOML, and every check that needs no Lua compiler.
//!
//! Each error names the field and the way out. `sources` compiles the Lua and makes the stored source.

use super::{
    configured_value::{ConfiguredValue, ValueReferenceError},
    owner::OwnerSpec,
    sink_spec::MAX_DESCRIPTION,
    units::Span,
    verifier::{
        HmacAlgorithm, HmacScheme, SignatureEncoding, SignedPart, TokenPlace, Verifier, VerifierKind, check_secret,
    },
};
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest slug, in characters. `source.SLUG` is an event type.
pub const MAX_SLUG: usize = 64;

/// Requests a second that a source takes unless its definition says otherwise, and the most it can say.
pub const DEFAULT_RATE: u32 = 100;
pub const MAX_RATE: u32 = 10_000;

/// The age of a signed timestamp that is accepted unless the definition says otherwise, and the most it can say.
const DEFAULT_TOLERANCE: Duration = Duration::from_secs(300);
const MAX_TOLERANCE: Duration = Duration::from_secs(24 * 3600);

/// The time for which a replaced secret stays valid unless the definition says otherwise, and the most it can say.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(24 * 3600);
const MAX_OVERLAP: Duration = Duration::from_secs(30 * 24 * 3600);

/// A source as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// The last part of its address, `/in/{slug}`: unique, of lower-case letters, digits, `-` and `_`.
    pub slug: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub owner: OwnerSpec,
    /// Absent: true for a new source, unchanged for an existing one. An inactive source looks absent to senders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    pub verify: VerifySpec,
    /// Lua that turns a verified request into events. Without it the JSON body is the payload of one event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
    /// Verified requests a second, and as many at once.
    #[serde(default = "default_rate")]
    pub rate: u32,
}

/// The verification of requests. Which fields it takes depends on `type`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifySpec {
    #[serde(rename = "type")]
    pub kind: VerifierKind,
    /// The secret that the provider signs with or sends, or the place on the server where it is read for every request.
    /// Absent: unchanged for an existing source. Never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ConfiguredValue>,
    /// The time for which a replaced secret stays valid; 24h if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Span>,
    /// The age of a signed timestamp that is accepted; 5m if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Span>,
    /// The header with the token or the signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The query parameter with the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Text before the token or the signature, such as `Bearer ` or `sha256=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The user name of basic authentication; `secret` is the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<HmacAlgorithm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<SignatureEncoding>,
    /// The signed parts, in order: `body`, `header:NAME` or `text:TEXT`; the body alone if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Vec<String>>,
    /// The signed header with the time in seconds since 1970, by which old requests are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The header with the provider's id of a delivery, by which a repeated one is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// Must be true for type `none`: anybody can send.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

/// A [`SourceSpec`] that passed every check except the compilation of its Lua and the choice of its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSourceSpec {
    pub slug: String,
    pub description: String,
    pub owner: OwnerSpec,
    pub active: Option<bool>,
    pub verifier: Verifier,
    /// The given secret. A text has the form that the scheme needs.
    pub secret: Option<ConfiguredValue>,
    pub overlap: Duration,
    pub transform: Option<String>,
    pub rate: u32,
}

/// The rule that a spec breaks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceSpecError {
    #[error("`slug` must be 1 to {MAX_SLUG} characters: a lower-case letter or digit, then those and any of `-_`")]
    Slug,
    #[error("`description` has more than {MAX_DESCRIPTION} characters: shorten it")]
    Description,
    #[error("`rate` must be 1 to {MAX_RATE} requests a second")]
    Rate,
    #[error("`verify.{field}` is required for type \"{kind}\"")]
    Missing { field: &'static str, kind: VerifierKind },
    #[error("`verify.{field}` does not belong to type \"{kind}\": remove it, or change `verify.type`")]
    Misplaced { field: &'static str, kind: VerifierKind },
    #[error("`verify.{field}` must be at most {}", Span(*.most))]
    TooLong { field: &'static str, most: Duration },
    #[error("`verify.{field}`: `{name}` is no legal header name")]
    Header { field: &'static str, name: String },
    #[error("`verify`: give either `header` or `query`, where the token is sent")]
    TokenPlace,
    #[error("`verify.signed`: `{0}` is none of `body`, `header:NAME` and `text:TEXT`")]
    SignedPart(String),
    #[error("`verify.signed` must have `body` exactly once: otherwise anybody could replace the body")]
    BodyNotSigned,
    #[error("`verify.signed` must have `header:{0}`: a timestamp that is not signed protects from nothing")]
    TimestampNotSigned(String),
    #[error("`verify.secret` {0}")]
    Secret(&'static str),
    #[error("`verify.secret` {0}")]
    Reference(ValueReferenceError),
    #[error(
        "`verify.secret`: only a global source reads the server's environment, files and credentials: give the value itself, or make the source global"
    )]
    ReferenceOfUser,
    #[error("`verify.username` must be 1 to 128 printable ASCII characters without a colon")]
    Username,
    #[error("`verify.prefix` must be at most 32 printable ASCII characters")]
    Prefix,
    #[error("`verify.insecure` must be true for type \"none\": anybody who knows the address can raise events then")]
    NotInsecure,
}

const fn default_rate() -> u32 {
    DEFAULT_RATE
}

impl SourceSpec {
    /// Checks every field and reports the first that breaks a rule.
    pub fn check(self) -> Result<CheckedSourceSpec, SourceSpecError> {
        if !is_slug(&self.slug) {
            return Err(SourceSpecError::Slug);
        }
        if self.description.chars().count() > MAX_DESCRIPTION {
            return Err(SourceSpecError::Description);
        }
        if !(1..=MAX_RATE).contains(&self.rate) {
            return Err(SourceSpecError::Rate);
        }
        self.verify.check_fields()?;
        let overlap = self.verify.span("overlap", self.verify.overlap, DEFAULT_OVERLAP, MAX_OVERLAP)?;
        let verifier = self.verify.verifier()?;
        if let Some(reference) = self.verify.secret.as_ref().and_then(ConfiguredValue::reference) {
            if self.owner != OwnerSpec::Global {
                return Err(SourceSpecError::ReferenceOfUser);
            }
            reference.place().map_err(SourceSpecError::Reference)?;
        }
        let secret = self.verify.secret.clone().filter(|secret| !secret.is_mask());
        if let Some(text) = secret.as_ref().and_then(ConfiguredValue::text) {
            check_secret(&verifier, text).map_err(SourceSpecError::Secret)?;
        }
        let Self { slug, description, owner, active, transform, rate, .. } = self;
        Ok(CheckedSourceSpec { slug, description, owner, active, verifier, secret, overlap, transform, rate })
    }
}

impl VerifySpec {
    /// Refuses a field that belongs to another type, instead of ignoring it.
    fn check_fields(&self) -> Result<(), SourceSpecError> {
        use VerifierKind::{Basic, Gitlab, Hmac, None, Slack, StandardWebhooks, Stripe, Token};
        let kind = self.kind;
        let replayable = matches!(kind, StandardWebhooks | Gitlab | Stripe | Slack | Hmac);
        for (field, given, fits) in [
            ("secret", self.secret.is_some(), kind != None),
            ("overlap", self.overlap.is_some(), kind != None),
            ("tolerance", self.tolerance.is_some(), replayable),
            ("header", self.header.is_some(), matches!(kind, Token | Hmac)),
            ("query", self.query.is_some(), kind == Token),
            ("prefix", self.prefix.is_some(), matches!(kind, Token | Hmac)),
            ("username", self.username.is_some(), kind == Basic),
            ("algorithm", self.algorithm.is_some(), kind == Hmac),
            ("encoding", self.encoding.is_some(), kind == Hmac),
            ("signed", self.signed.is_some(), kind == Hmac),
            ("timestamp", self.timestamp.is_some(), kind == Hmac),
            ("id_header", self.id_header.is_some(), matches!(kind, Token | Basic | Hmac | None)),
            ("insecure", self.insecure, kind == None),
        ] {
            if given && !fits {
                return Err(SourceSpecError::Misplaced { field, kind });
            }
        }
        if self.tolerance.is_some() && kind == Hmac && self.timestamp.is_none() {
            return Err(SourceSpecError::Missing { field: "timestamp", kind });
        }
        if kind == None && !self.insecure {
            return Err(SourceSpecError::NotInsecure);
        }
        Ok(())
    }

    fn verifier(&self) -> Result<Verifier, SourceSpecError> {
        let tolerance = || self.span("tolerance", self.tolerance, DEFAULT_TOLERANCE, MAX_TOLERANCE).map(Span);
        let id_header = self.optional_header("id_header", self.id_header.as_deref())?;
        let prefix = self.prefix.clone().unwrap_or_default();
        if prefix.len() > 32 || !prefix.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            return Err(SourceSpecError::Prefix);
        }
        Ok(match self.kind {
            VerifierKind::StandardWebhooks => Verifier::StandardWebhooks { tolerance: tolerance()? },
            VerifierKind::Github => Verifier::Github,
            VerifierKind::Gitlab => Verifier::Gitlab { tolerance: tolerance()? },
            VerifierKind::Stripe => Verifier::Stripe { tolerance: tolerance()? },
            VerifierKind::Slack => Verifier::Slack { tolerance: tolerance()? },
            VerifierKind::Token => {
                let place = match (self.optional_header("header", self.header.as_deref())?, &self.query) {
                    (Some(header), None) => TokenPlace::Header { name: header, prefix },
                    (None, Some(query)) if prefix.is_empty() && !query.is_empty() => {
                        TokenPlace::Query { name: query.clone() }
                    }
                    (None, Some(_)) => {
                        return Err(SourceSpecError::Misplaced { field: "prefix", kind: self.kind });
                    }
                    _ => return Err(SourceSpecError::TokenPlace),
                };
                Verifier::Token { place, id_header }
            }
            VerifierKind::Basic => {
                let username = self.username.clone().ok_or(self.missing("username"))?;
                let is_legal = |c: char| (c.is_ascii_graphic() || c == ' ') && c != ':';
                if username.is_empty() || username.len() > 128 || !username.chars().all(is_legal) {
                    return Err(SourceSpecError::Username);
                }
                Verifier::Basic { username, id_header }
            }
            VerifierKind::Hmac => Verifier::Hmac(self.hmac(prefix, id_header)?),
            VerifierKind::None => Verifier::Insecure { id_header },
        })
    }

    fn hmac(&self, prefix: String, id_header: Option<String>) -> Result<HmacScheme, SourceSpecError> {
        let header = self.optional_header("header", self.header.as_deref())?.ok_or(self.missing("header"))?;
        let signed = match &self.signed {
            None => vec![SignedPart::Body],
            Some(parts) => parts.iter().map(|part| signed_part(part)).collect::<Result<_, _>>()?,
        };
        if signed.iter().filter(|part| **part == SignedPart::Body).count() != 1 {
            return Err(SourceSpecError::BodyNotSigned);
        }
        let timestamp = self.optional_header("timestamp", self.timestamp.as_deref())?;
        let timestamp = match timestamp {
            Some(name) if !signed.contains(&SignedPart::Header(name.clone())) => {
                return Err(SourceSpecError::TimestampNotSigned(name));
            }
            Some(name) => Some((name, Span(self.span("tolerance", self.tolerance, DEFAULT_TOLERANCE, MAX_TOLERANCE)?))),
            None => None,
        };
        Ok(HmacScheme {
            header,
            algorithm: self.algorithm.unwrap_or_default(),
            encoding: self.encoding.unwrap_or_default(),
            prefix,
            signed,
            timestamp,
            id_header,
        })
    }

    fn span(
        &self,
        field: &'static str,
        given: Option<Span>,
        default: Duration,
        most: Duration,
    ) -> Result<Duration, SourceSpecError> {
        match given {
            None => Ok(default),
            Some(Span(span)) if span <= most => Ok(span),
            Some(_) => Err(SourceSpecError::TooLong { field, most }),
        }
    }

    /// A header name in lower case, if one is given.
    fn optional_header(&self, field: &'static str, name: Option<&str>) -> Result<Option<String>, SourceSpecError> {
        name.map(|name| header_name(field, name)).transpose()
    }

    fn missing(&self, field: &'static str) -> SourceSpecError {
        SourceSpecError::Missing { field, kind: self.kind }
    }
}

fn header_name(field: &'static str, name: &str) -> Result<String, SourceSpecError> {
    let parsed: Result<HeaderName, _> = name.parse();
    parsed.map(|name| name.as_str().to_owned()).map_err(|_| SourceSpecError::Header { field, name: name.to_owned() })
}

fn signed_part(part: &str) -> Result<SignedPart, SourceSpecError> {
    match part.split_once(':') {
        None if part == "body" => Ok(SignedPart::Body),
        Some(("header", name)) => header_name("signed", name).map(SignedPart::Header),
        Some(("text", text)) => Ok(SignedPart::Text(text.to_owned())),
        _ => Err(SourceSpecError::SignedPart(part.to_owned())),
    }
}

/// Returns true if the text can be a slug.
pub fn is_slug(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    (1..=MAX_SLUG).contains(&text.len()) && text.chars().all(legal) && !text.starts_with(['-', '_'])
}

#[cfg(test)]
mod tests {
    use super::{super::configured_value::MASK, *};
    use serde_json::{Value, json};

    fn check(verify: Value) -> Result<CheckedSourceSpec, String> {
        let spec: SourceSpec =
            serde_json::from_value(json!({"slug": "a", "verify": verify})).map_err(|error| error.to_string())?;
        spec.check().map_err(|error| error.to_string())
    }

    #[test]
    fn each_refusal_names_its_field() {
        let hmac =
            |signed: Value| json!({"type": "hmac", "secret": "s3cret-s3cret", "header": "X-S", "signed": signed});
        for (verify, field) in [
            (json!({"type": "magic"}), "unknown variant `magic`"),
            (json!({"type": "github", "colour": 1}), "`colour`"),
            (json!({"type": "none"}), "`verify.insecure` must be true"),
            (json!({"type": "github", "insecure": true}), "`verify.insecure` does not belong"),
            (json!({"type": "github", "secret": "short"}), "`verify.secret`"),
            (json!({"type": "github", "tolerance": "5m"}), "`verify.tolerance` does not belong"),
            (json!({"type": "github", "header": "X"}), "`verify.header` does not belong"),
            (json!({"type": "stripe", "tolerance": "2d"}), "`verify.tolerance` must be at most 1d"),
            (json!({"type": "stripe", "overlap": "31d"}), "`verify.overlap` must be at most 30d"),
            (json!({"type": "standard-webhooks", "secret": "whsec_?"}), "`verify.secret`"),
            (json!({"type": "token", "secret": "s3cret-s3cret"}), "`header` or `query`"),
            (json!({"type": "token", "header": "A", "query": "b"}), "`header` or `query`"),
            (json!({"type": "token", "header": "a b"}), "`verify.header`"),
            (json!({"type": "basic", "secret": "s3cret-s3cret"}), "`verify.username` is required"),
            (json!({"type": "basic", "username": "a:b"}), "`verify.username`"),
            (json!({"type": "hmac", "secret": "s3cret-s3cret"}), "`verify.header` is required"),
            (json!({"type": "hmac", "header": "X", "algorithm": "md5"}), "unknown variant `md5`"),
            (json!({"type": "hmac", "header": "X", "tolerance": "5m"}), "`verify.timestamp` is required"),
            (json!({"type": "hmac", "header": "X", "timestamp": "T"}), "`header:t`"),
            (hmac(json!(["header:X-T"])), "`body` exactly once"),
            (hmac(json!(["body", "body"])), "`body` exactly once"),
            (hmac(json!(["body", "X-T"])), "`X-T` is none of"),
        ] {
            let error = check(verify.clone()).expect_err(&verify.to_string());
            assert!(error.contains(field), "{verify}: {error}");
        }
        for slug in ["", "A", "a.b", "a/b", "-a", "é", &"a".repeat(65)] {
            let spec = json!({"slug": slug, "verify": {"type": "none", "insecure": true}});
            let spec: SourceSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(spec.check(), Err(SourceSpecError::Slug), "{slug}");
        }
        for rate in [0, MAX_RATE + 1] {
            let spec = json!({"slug": "a", "rate": rate, "verify": {"type": "none", "insecure": true}});
            assert_eq!(serde_json::from_value::<SourceSpec>(spec).unwrap().check(), Err(SourceSpecError::Rate));
        }
    }

    #[test]
    fn a_scheme_needs_only_what_has_no_default() {
        let checked = check(json!({"type": "hmac", "secret": "s3cret-s3cret", "header": "X-Sig"})).unwrap();
        let expected = HmacScheme {
            header: "x-sig".to_owned(),
            algorithm: HmacAlgorithm::Sha256,
            encoding: SignatureEncoding::Hex,
            prefix: String::new(),
            signed: vec![SignedPart::Body],
            timestamp: None,
            id_header: None,
        };
        assert_eq!(checked.verifier, Verifier::Hmac(expected));
        assert_eq!((checked.rate, checked.overlap), (DEFAULT_RATE, DEFAULT_OVERLAP));
        let checked = check(json!({"type": "slack", "secret": MASK})).unwrap();
        assert_eq!(checked.secret, None, "the mask means the secret that is stored");
    }
}
