//! Secrets of tokens and sessions: 256 random bits, of which only the SHA-256 digest is stored.
//!
//! So much randomness needs no slow hash, and a lookup by digest compares no secrets.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A secret in clear text. It is shown once, to its owner, and never logged: it has no `Display`, and its `Debug`
/// output hides it.
pub struct Secret(String);

/// The stored form of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretDigest([u8; 32]);

impl Secret {
    /// Generates a secret: `prefix` and 43 characters.
    pub fn new(prefix: &str) -> Self {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).expect("the system has randomness");
        Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bits)))
    }

    /// The secret in clear text, for the one response or file it goes into.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn digest(&self) -> SecretDigest {
        SecretDigest::of(&self.0)
    }
}

impl SecretDigest {
    /// The digest of a presented secret.
    pub fn of(presented: &str) -> Self {
        Self(Sha256::digest(presented.as_bytes()).into())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(…)")
    }
}

impl Serialize for SecretDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for SecretDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(&*text).map_err(de::Error::custom)?;
        bytes.try_into().map(Self).map_err(|_| de::Error::custom("a digest has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_prefix_and_43_characters_and_never_the_same() {
        let (one, two) = (Secret::new("svc_"), Secret::new("svc_"));
        assert_eq!(one.reveal().len(), 4 + 43);
        assert!(one.reveal().starts_with("svc_"));
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(format!("{one:?}"), "Secret(…)");
    }

    #[test]
    fn a_digest_survives_json() {
        let digest = Secret::new("").digest();
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<SecretDigest>(&json).unwrap(), digest);
        assert!(serde_json::from_str::<SecretDigest>("\"c2hvcnQ\"").is_err());
    }
}
