//! The secret of a webhook sink. `delivery::sinks::signature` signs request bodies with it.

use super::configured_value;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

/// The text shown in place of a secret.
pub const MASK: &str = "whsec_****";

const PREFIX: &str = "whsec_";
const MAX_BYTES: usize = 256;

/// A webhook's secret. Its `Debug` output is [`MASK`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookSecret(Box<str>);

/// The reason a text cannot be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookSecretError {
    #[error("must have 1 to {MAX_BYTES} bytes; leave it out to have one generated")]
    Length,
    #[error(
        "starts with `whsec_` but the rest is not base64 of 24 to 64 bytes; \
         leave it out to have one generated, or use a secret without that prefix"
    )]
    NotBase64,
    #[error("is the mask shown in place of a secret; leave it out to have one generated")]
    Mask,
}

/// Tells if a text stands for the secret that a sink has: its own mask, or that of other values.
pub fn is_mask(text: &str) -> bool {
    text == MASK || text == configured_value::MASK
}

impl WebhookSecret {
    /// Generates a secret of 32 random bytes in the Standard Webhooks form.
    pub fn generate() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        Self(format!("{PREFIX}{}", STANDARD.encode(bytes)).into())
    }

    /// Checks a secret chosen by a user.
    pub fn parse(text: &str) -> Result<Self, WebhookSecretError> {
        if is_mask(text) {
            return Err(WebhookSecretError::Mask);
        }
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(WebhookSecretError::Length);
        }
        if let Some(encoded) = text.strip_prefix(PREFIX) {
            match STANDARD.decode(encoded) {
                Ok(bytes) if (24..=64).contains(&bytes.len()) => {}
                _ => return Err(WebhookSecretError::NotBase64),
            }
        }
        Ok(Self(text.into()))
    }

    /// The secret in clear text, for its owner and for signing.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The key of Standard Webhooks signatures: the bytes that a `whsec_` secret encodes, or the text of any other.
    pub fn standard_key(&self) -> Cow<'_, [u8]> {
        let decoded = self.0.strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        decoded.map_or_else(|| Cow::Borrowed(self.0.as_bytes()), Cow::Owned)
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_secret_is_refused() {
        assert_eq!(WebhookSecret::parse(""), Err(WebhookSecretError::Length));
        assert_eq!(WebhookSecret::parse(&"x".repeat(257)), Err(WebhookSecretError::Length));
        assert_eq!(WebhookSecret::parse(MASK), Err(WebhookSecretError::Mask));
        assert_eq!(WebhookSecret::parse(configured_value::MASK), Err(WebhookSecretError::Mask));
        assert_eq!(WebhookSecret::parse("whsec_not base64"), Err(WebhookSecretError::NotBase64));
        assert_eq!(WebhookSecret::parse("whsec_c2hvcnQ="), Err(WebhookSecretError::NotBase64));
    }

    #[test]
    fn generated_secrets_differ_and_do_not_print() {
        let (one, other) = (WebhookSecret::generate(), WebhookSecret::generate());
        assert_ne!(one, other);
        assert_eq!(WebhookSecret::parse(one.reveal()), Ok(one.clone()));
        assert_eq!(format!("{one:?}"), MASK);
    }
}
