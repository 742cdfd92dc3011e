//! The secret and the headers of a webhook: in clear in memory, encrypted in the store.
//!
//! [`super::records`] encrypts them before every write and decrypts them when it opens. A record that an older version wrote
//! in clear is read, and encrypted at the same start.

use crate::{
    model::{id::SinkId, webhook_secret::WebhookSecret},
    platform::secret_keys::{SealedValue, SecretKeys, UnsealError},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{collections::BTreeMap, fmt, sync::OnceLock};

/// The secrets of one webhook.
pub struct WebhookSecrets {
    /// Unset until a stored one is decrypted.
    clear: OnceLock<Result<ClearSecrets, UnsealError>>,
    /// Unset until a new one is encrypted.
    sealed: OnceLock<SealedValue>,
}

/// The secrets in clear. Their `Debug` output shows no value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearSecrets {
    pub secret: WebhookSecret,
    /// A value is often a credential, such as that of `Authorization`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// The fields of a stored webhook that hold its secrets: `sealed`, or the other two in a record of an older version.
#[derive(Serialize, Deserialize)]
struct StoredSecrets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<SealedValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<WebhookSecret>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

impl WebhookSecrets {
    pub fn new(clear: ClearSecrets) -> Self {
        Self { clear: OnceLock::from(Ok(clear)), sealed: OnceLock::new() }
    }

    /// The secrets in clear.
    ///
    /// # Errors
    ///
    /// Fails with the reason for which they could not be decrypted.
    pub fn read(&self) -> Result<&ClearSecrets, &UnsealError> {
        self.clear.get().map_or(Err(&UnsealError::Locked), Result::as_ref)
    }

    /// Encrypts new secrets of the sink with this id, for the next write.
    pub fn seal(&self, keys: &SecretKeys, sink: SinkId) {
        if let Ok(clear) = self.read() {
            self.sealed.get_or_init(|| {
                let json = serde_json::to_vec(clear).expect("strings are JSON");
                keys.seal(&json, sink.as_bytes())
            });
        }
    }

    /// Decrypts stored secrets of the sink with this id.
    pub fn unseal(&self, keys: &SecretKeys, sink: SinkId) {
        if let Some(sealed) = self.sealed.get() {
            self.clear.get_or_init(|| {
                let json = keys.unseal(sealed, sink.as_bytes())?;
                serde_json::from_slice(&json).map_err(|_| UnsealError::Changed)
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
            (Some(sealed), _) => StoredSecrets { sealed: Some(sealed.clone()), secret: None, headers: BTreeMap::new() },
            (None, Ok(ClearSecrets { secret, headers })) => {
                StoredSecrets { sealed: None, secret: Some(secret.clone()), headers: headers.clone() }
            }
            (None, Err(_)) => StoredSecrets { sealed: None, secret: None, headers: BTreeMap::new() },
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WebhookSecrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match StoredSecrets::deserialize(deserializer)? {
            StoredSecrets { sealed: Some(sealed), .. } => {
                Ok(Self { clear: OnceLock::new(), sealed: OnceLock::from(sealed) })
            }
            StoredSecrets { secret: Some(secret), headers, .. } => Ok(Self::new(ClearSecrets { secret, headers })),
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
