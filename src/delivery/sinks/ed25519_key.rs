//! The Ed25519 key of a webhook: the asymmetric scheme `v1a` of Standard Webhooks, with keys in its form.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, sync::Arc};

const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";

/// A private key. Its `Debug` output is the public one.
#[derive(Clone)]
pub struct Ed25519Key {
    seed: [u8; 32],
    pair: Arc<Ed25519KeyPair>,
}

impl Ed25519Key {
    pub fn generate() -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).expect("the system has randomness");
        Self::of_seed(seed)
    }

    fn of_seed(seed: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("every seed of 32 bytes makes a key");
        Self { seed, pair: Arc::new(pair) }
    }

    /// The public key, as the libraries of Standard Webhooks take it.
    pub fn public(&self) -> String {
        format!("{PUBLIC}{}", STANDARD.encode(self.pair.public_key().as_ref()))
    }

    /// The entry of `webhook-signature` for this message.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let message = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        format!("v1a,{}", STANDARD.encode(self.pair.sign(&message).as_ref()))
    }
}

impl PartialEq for Ed25519Key {
    fn eq(&self, other: &Self) -> bool {
        self.seed == other.seed
    }
}

impl Eq for Ed25519Key {}

impl Serialize for Ed25519Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{PRIVATE}{}", STANDARD.encode(self.seed)))
    }
}

impl<'de> Deserialize<'de> for Ed25519Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let seed = text.strip_prefix(PRIVATE).and_then(|encoded| STANDARD.decode(encoded).ok());
        let seed = seed.and_then(|bytes| bytes.try_into().ok());
        seed.map(Self::of_seed).ok_or_else(|| de::Error::custom("no Ed25519 key"))
    }
}

impl fmt::Debug for Ed25519Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ed25519Key({})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    #[test]
    fn the_public_key_verifies_a_signature_and_the_private_one_reads_back() {
        let key = Ed25519Key::generate();
        let public = STANDARD.decode(key.public().strip_prefix("whpk_").unwrap()).unwrap();
        let stored = serde_json::to_string(&key).unwrap();
        assert!(stored.starts_with("\"whsk_"));
        let read: Ed25519Key = serde_json::from_str(&stored).unwrap();
        assert!(read == key && !format!("{key:?}").contains("whsk_"));
        let signature = read.sign("msg_1", 7, b"body");
        let signature = STANDARD.decode(signature.strip_prefix("v1a,").unwrap()).unwrap();
        let public = UnparsedPublicKey::new(&ED25519, public);
        assert!(public.verify(b"msg_1.7.body", &signature).is_ok());
        assert!(public.verify(b"msg_1.7.Body", &signature).is_err());
    }

    /// The first vector of RFC 8032, section 7.1.
    #[test]
    fn the_key_of_a_seed_is_the_published_one() {
        let seed = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49,
            0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
        ];
        let public = Ed25519Key::of_seed(seed).public();
        assert_eq!(public, "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
    }
}
