//! A webhook's secret, and the two signatures made with it.
//!
//! `X-Service-Signature` is keyed with the secret's text as the user sees it. The Standard Webhooks
//! signature is keyed with the bytes that a `whsec_` secret encodes, as their libraries do.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;

/// What a secret looks like where it is not to be shown.
pub const MASK: &str = "whsec_****";

const PREFIX: &str = "whsec_";
const MAX_BYTES: usize = 256;

/// A webhook's secret. It prints as stars.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(Box<str>);

/// Why a text cannot be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
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

impl Secret {
    /// A new secret of 32 random bytes in the Standard Webhooks form.
    pub fn generate() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        Self(format!("{PREFIX}{}", STANDARD.encode(bytes)).into())
    }

    /// The secret a user chose.
    ///
    /// # Errors
    ///
    /// Fails if it is empty, too long, or claims to be base64 and is not.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        if text == MASK {
            return Err(SecretError::Mask);
        }
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(SecretError::Length);
        }
        if let Some(encoded) = text.strip_prefix(PREFIX) {
            match STANDARD.decode(encoded) {
                Ok(bytes) if (24..=64).contains(&bytes.len()) => {}
                _ => return Err(SecretError::NotBase64),
            }
        }
        Ok(Self(text.into()))
    }

    /// The secret itself, for its owner's eyes.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The value of `X-Service-Signature` for this body.
    pub fn sign_body(&self, body: &[u8]) -> String {
        let mut text = "sha256=".to_owned();
        for byte in hmac(self.0.as_bytes(), &[body]) {
            fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}")).expect("a String takes every write");
        }
        text
    }

    /// The value of `webhook-signature` for this message.
    pub fn sign_standard(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let key = self.0.strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        let key = key.as_deref().unwrap_or(self.0.as_bytes());
        let head = format!("{id}.{timestamp}.");
        format!("v1,{}", STANDARD.encode(hmac(key, &[head.as_bytes(), body])))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;

    /// HMAC by its definition in RFC 2104, apart from the library under test.
    fn by_definition(key: &[u8], message: &[u8]) -> [u8; 32] {
        let mut block = [0_u8; 64];
        if key.len() > 64 {
            block[..32].copy_from_slice(&Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let keyed = |pad: u8, rest: &[u8]| {
            let mut hash = Sha256::new();
            hash.update(block.map(|byte| byte ^ pad));
            hash.update(rest);
            <[u8; 32]>::from(hash.finalize())
        };
        keyed(0x5c, &keyed(0x36, message))
    }

    #[test]
    fn a_standard_webhooks_signature_is_the_published_one() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = secret.sign_standard("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn both_signatures_agree_with_the_definition_of_hmac() {
        let secret = Secret::generate();
        let key = STANDARD.decode(&secret.reveal()[6..]).unwrap();
        let expected = format!("v1,{}", STANDARD.encode(by_definition(&key, b"id.7.body")));
        assert_eq!(secret.sign_standard("id", 7, b"body"), expected);
        let hex: String =
            by_definition(secret.reveal().as_bytes(), b"body").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(secret.sign_body(b"body"), format!("sha256={hex}"));
    }

    #[test]
    fn a_plain_secret_keys_both_signatures_as_it_is() {
        let secret = Secret::parse("hunter2").unwrap();
        let expected = format!("v1,{}", STANDARD.encode(by_definition(b"hunter2", b"id.7.body")));
        assert_eq!(secret.sign_standard("id", 7, b"body"), expected);
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        assert_eq!(Secret::parse(""), Err(SecretError::Length));
        assert_eq!(Secret::parse(&"x".repeat(257)), Err(SecretError::Length));
        assert_eq!(Secret::parse(MASK), Err(SecretError::Mask));
        assert_eq!(Secret::parse("whsec_not base64"), Err(SecretError::NotBase64));
        assert_eq!(Secret::parse("whsec_c2hvcnQ="), Err(SecretError::NotBase64));
    }

    #[test]
    fn secrets_differ_and_do_not_print() {
        let (one, other) = (Secret::generate(), Secret::generate());
        assert_ne!(one, other);
        assert_eq!(Secret::parse(one.reveal()), Ok(one.clone()));
        assert_eq!(format!("{one:?}"), MASK);
    }
}
