//! Secrets we hand out and recognise again: 256 random bits, of which only the SHA-256 is ever kept.
//! So much randomness needs no slow hash, and one lookup by hash tells the holder without comparing secrets.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A secret in clear. It is shown once, to whom it belongs, and never logged: it has no `Display` and its
/// `Debug` tells nothing.
pub struct Secret(String);

/// What is kept of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Secret {
    /// A new secret: `prefix` and 43 characters.
    pub fn new(prefix: &str) -> Self {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).expect("the system has randomness");
        Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bits)))
    }

    /// The secret itself, for the one answer or file it goes into.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl Digest {
    /// The digest of what a caller presents.
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

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
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
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        assert!(serde_json::from_str::<Digest>("\"c2hvcnQ\"").is_err());
    }
}
