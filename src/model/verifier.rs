//! The scheme by which a source verifies requests, checked and as it is stored. `sources::verify` applies it.

use super::units::Span;
use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The length of a secret, in bytes.
const MIN_SECRET: usize = 8;
const MAX_SECRET: usize = 256;

/// The prefix of secrets in the form of Standard Webhooks, whose rest is base64.
const ENCODED_PREFIX: &str = "whsec_";

/// The schemes of verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerifierKind {
    #[default]
    StandardWebhooks,
    Github,
    Gitlab,
    Stripe,
    Slack,
    Token,
    Basic,
    Hmac,
    None,
}

/// A scheme with its settings. Header names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Verifier {
    StandardWebhooks { tolerance: Span },
    Github,
    Gitlab { tolerance: Span },
    Stripe { tolerance: Span },
    Slack { tolerance: Span },
    Token { place: TokenPlace, id_header: Option<String> },
    Basic { username: String, id_header: Option<String> },
    Hmac(HmacScheme),
    Insecure { id_header: Option<String> },
}

/// The place of a token in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenPlace {
    Header { name: String, prefix: String },
    Query { name: String },
}

/// A signature in a header, for providers that have no scheme of their own here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HmacScheme {
    pub header: String,
    pub algorithm: HmacAlgorithm,
    pub encoding: SignatureEncoding,
    pub prefix: String,
    pub signed: Vec<SignedPart>,
    /// The header with the signed time, and the age that is accepted.
    pub timestamp: Option<(String, Span)>,
    pub id_header: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HmacAlgorithm {
    Sha1,
    #[default]
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignatureEncoding {
    #[default]
    Hex,
    Base64,
}

/// A part of the text that is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignedPart {
    Body,
    Header(String),
    Text(String),
}

impl Verifier {
    pub const fn kind(&self) -> VerifierKind {
        match self {
            Self::StandardWebhooks { .. } => VerifierKind::StandardWebhooks,
            Self::Github => VerifierKind::Github,
            Self::Gitlab { .. } => VerifierKind::Gitlab,
            Self::Stripe { .. } => VerifierKind::Stripe,
            Self::Slack { .. } => VerifierKind::Slack,
            Self::Token { .. } => VerifierKind::Token,
            Self::Basic { .. } => VerifierKind::Basic,
            Self::Hmac(_) => VerifierKind::Hmac,
            Self::Insecure { .. } => VerifierKind::None,
        }
    }

    /// Returns true if the scheme has a secret.
    pub const fn has_secret(&self) -> bool {
        !matches!(self, Self::Insecure { .. })
    }
}

/// Checks that a secret has the form that a scheme needs. The error completes "`verify.secret` …".
pub fn check_secret(verifier: &Verifier, secret: &str) -> Result<(), &'static str> {
    if !(MIN_SECRET..=MAX_SECRET).contains(&secret.len()) {
        return Err("must have 8 to 256 bytes");
    }
    let is_encoded = match verifier {
        Verifier::StandardWebhooks { .. } => true,
        Verifier::Gitlab { .. } => secret.starts_with(ENCODED_PREFIX),
        _ => false,
    };
    if is_encoded && encoded_key(secret).is_none() {
        return Err("must be `whsec_` and the base64 of 16 to 64 bytes, as the provider shows it");
    }
    Ok(())
}

/// The key that a secret of Standard Webhooks encodes.
pub fn encoded_key(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.strip_prefix(ENCODED_PREFIX).unwrap_or(secret)).ok()?;
    (16..=64).contains(&key.len()).then_some(key)
}

impl VerifierKind {
    pub const ALL: [Self; 9] = [
        Self::StandardWebhooks,
        Self::Github,
        Self::Gitlab,
        Self::Stripe,
        Self::Slack,
        Self::Token,
        Self::Basic,
        Self::Hmac,
        Self::None,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StandardWebhooks => "standard-webhooks",
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Stripe => "stripe",
            Self::Slack => "slack",
            Self::Token => "token",
            Self::Basic => "basic",
            Self::Hmac => "hmac",
            Self::None => "none",
        }
    }
}

impl fmt::Display for VerifierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for VerifierKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == text);
        known.ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}
