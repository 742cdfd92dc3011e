//! The secret and the headers of a webhook: in clear in memory, encrypted in the store.
//!
//! [`super::records`] encrypts them before every write and decrypts them when it opens. A record that an older version
//! wrote in clear is read, and encrypted at the same start.

use super::ed25519_key::Ed25519Key;
use crate::{
    model::{
        configured_value::{ConfiguredValue, ValueReference},
        id::SinkId,
        timestamp::Timestamp,
        webhook_secret::WebhookSecret,
    },
    platform::secret_keys::{SealedValue, SecretKeys, UnsealError},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{collections::BTreeMap, fmt, sync::OnceLock, time::Duration};

/// The secrets of one webhook.
pub struct WebhookSecrets {
    /// Unset until a stored one is decrypted.
    clear: OnceLock<Result<Box<ClearSecrets>, Box<UnsealError>>>,
    /// Unset until a new one is encrypted.
    sealed: OnceLock<Box<SealedValue>>,
}

/// The secrets in clear. Their `Debug` output shows no value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearSecrets {
    pub secret: SigningSecret,
    /// A value is often a credential, such as that of `Authorization`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ConfiguredValue>,
    /// The key of asymmetric signatures, for a webhook that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ed25519: Option<Box<Ed25519Key>>,
    /// The secret before the last rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Box<PreviousSecret>>,
}

/// The secret that a webhook signs with: its own, or one that is read for every delivery.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SigningSecret {
    Own(WebhookSecret),
    Reference(Box<ValueReference>),
}

/// A replaced secret, with which requests are signed as well until its time is over.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    pub secret: WebhookSecret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ed25519: Option<Ed25519Key>,
    pub until: Timestamp,
}

/// The reason that a secret is not rotated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RotateError {
    #[error("only a webhook has a secret: this sink has none to rotate")]
    NoWebhook,
    #[error("the secret is read at each delivery: change it where it is kept")]
    Reference,
    #[error("the stored secret cannot be used, so that there is nothing to rotate: set `webhook.secret`: {0}")]
    Lost(UnsealError),
}

/// The fields of a stored webhook that hold its secrets: `sealed`, or those in clear in a record of an older version.
#[derive(Serialize, Deserialize)]
struct StoredSecrets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<SealedValue>,
    #[serde(flatten)]
    clear: Option<ClearSecrets>,
}

impl ClearSecrets {
    /// The same secrets with a new one to sign with, and a new key if there is one. The present ones stay beside them
    /// for `grace`; of those before them nothing is left.
    pub fn rotated(&self, grace: Duration, now: Timestamp) -> Result<Self, RotateError> {
        let SigningSecret::Own(secret) = &self.secret else { return Err(RotateError::Reference) };
        let previous = PreviousSecret {
            secret: secret.clone(),
            ed25519: self.ed25519.as_deref().cloned(),
            until: now.after(grace),
        };
        Ok(Self {
            secret: SigningSecret::Own(WebhookSecret::generate()),
            headers: self.headers.clone(),
            ed25519: self.ed25519.as_ref().map(|_| Box::new(Ed25519Key::generate())),
            previous: (!grace.is_zero()).then(|| Box::new(previous)),
        })
    }

    /// The previous secret, while its grace lasts.
    pub fn valid_previous(&self, now: Timestamp) -> Option<&PreviousSecret> {
        self.previous.as_deref().filter(|previous| previous.until > now)
    }
}

impl WebhookSecrets {
    pub fn new(clear: ClearSecrets) -> Self {
        Self { clear: OnceLock::from(Ok(Box::new(clear))), sealed: OnceLock::new() }
    }

    /// The secrets in clear.
    ///
    /// # Errors
    ///
    /// Fails with the reason for which they could not be decrypted.
    pub fn read(&self) -> Result<&ClearSecrets, &UnsealError> {
        self.clear.get().map_or(Err(&UnsealError::Locked), |clear| clear.as_deref().map_err(|reason| &**reason))
    }

    /// Encrypts new secrets of the sink with this id, for the next write.
    pub fn seal(&self, keys: &SecretKeys, sink: SinkId) {
        if let Ok(clear) = self.read() {
            self.sealed.get_or_init(|| {
                let json = serde_json::to_vec(clear).expect("strings are JSON");
                Box::new(keys.seal(&json, sink.as_bytes()))
            });
        }
    }

    /// Decrypts stored secrets of the sink with this id.
    pub fn unseal(&self, keys: &SecretKeys, sink: SinkId) {
        if let Some(sealed) = self.sealed.get() {
            self.clear.get_or_init(|| {
                let json = keys.unseal(sealed, sink.as_bytes())?;
                serde_json::from_slice(&json).map_err(|_| Box::new(UnsealError::Changed))
            });
        }
    }

    /// Tells if the stored form should be replaced: it is in clear, or encrypted with a former key.
    pub fn is_outdated(&self, keys: &SecretKeys) -> bool {
        self.read().is_ok() && self.sealed.get().is_none_or(|sealed| !keys.is_current(sealed))
    }
}

impl Serialize for WebhookSecrets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = match (self.sealed.get(), self.read()) {
            (Some(sealed), _) => StoredSecrets { sealed: Some((**sealed).clone()), clear: None },
            (None, clear) => StoredSecrets { sealed: None, clear: clear.ok().cloned() },
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WebhookSecrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match StoredSecrets::deserialize(deserializer)? {
            StoredSecrets { sealed: Some(sealed), .. } => {
                Ok(Self { clear: OnceLock::new(), sealed: OnceLock::from(Box::new(sealed)) })
            }
            StoredSecrets { clear: Some(clear), .. } => Ok(Self::new(clear)),
            StoredSecrets { .. } => Err(de::Error::missing_field("sealed")),
        }
    }
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookSecrets").field(&self.read()).finish()
    }
}

impl fmt::Debug for ClearSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClearSecrets").field("headers", &self.headers.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_secret_is_beside_the_new_one_until_its_grace_is_over() {
        let (day, now) = (Duration::from_secs(86_400), Timestamp::from_micros(1_700_000_000_000_000));
        let first = ClearSecrets {
            secret: SigningSecret::Own(WebhookSecret::generate()),
            headers: BTreeMap::new(),
            ed25519: Some(Box::new(Ed25519Key::generate())),
            previous: None,
        };
        let second = first.rotated(day, now).unwrap();
        let previous = second.valid_previous(now.after(day / 2)).unwrap();
        assert!(
            SigningSecret::Own(previous.secret.clone()) == first.secret
                && previous.ed25519.as_ref() == first.ed25519.as_deref()
        );
        assert!(second.secret != first.secret && second.ed25519 != first.ed25519);
        assert!(second.valid_previous(now.after(day)).is_none());
        let third = second.rotated(day, now).unwrap();
        assert!(SigningSecret::Own(third.previous.unwrap().secret) == second.secret, "one is kept");
        assert!(first.rotated(Duration::ZERO, now).unwrap().previous.is_none());
    }
}
