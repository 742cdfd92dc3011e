//! The secrets of a source: in clear in memory, encrypted in the store, never shown.
//!
//! The first is current. A replaced one stays valid until its time is over, so that a provider can be given the new one
//! without a moment in which its requests are refused.

use crate::{
    model::{configured_value::ConfiguredValue, id::SourceId, timestamp::Timestamp},
    platform::secret_keys::{SealedValue, SecretKeys, UnsealError},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, sync::OnceLock, time::Duration};

/// The most secrets that are valid at once.
const MAX_VALID: usize = 4;

/// The secrets of one source.
pub struct SourceSecrets {
    /// Unset until stored ones are decrypted.
    clear: OnceLock<Result<Vec<RotatedSecret>, UnsealError>>,
    /// Unset until new ones are encrypted.
    sealed: OnceLock<SealedValue>,
}

/// One secret in clear, or the place where it is read for every request. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotatedSecret {
    pub secret: ConfiguredValue,
    /// The end of its validity; `None` for the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl SourceSecrets {
    /// The secret of a new source; none for a source that has none.
    pub fn new(secret: Option<ConfiguredValue>) -> Self {
        Self::of(secret.into_iter().map(|secret| RotatedSecret { secret, until: None }).collect())
    }

    fn of(clear: Vec<RotatedSecret>) -> Self {
        Self { clear: OnceLock::from(Ok(clear)), sealed: OnceLock::new() }
    }

    /// The same secrets with a new current one. Each former one is valid for `overlap` from `now` on, or until its own
    /// end if that is sooner, so that an overlap of zero ends a secret that became known to others.
    pub fn rotated(before: &[RotatedSecret], new: ConfiguredValue, overlap: Duration, now: Timestamp) -> Self {
        let former = before.iter().filter(|former| former.secret != new);
        let former = former.filter_map(|former| former.until_at_most(now.after(overlap), now));
        let current = RotatedSecret { secret: new.clone(), until: None };
        Self::of(std::iter::once(current).chain(former).take(MAX_VALID).collect())
    }

    /// The same secrets, to be encrypted with the current key. Former ones end as [`Self::rotated`] ends them.
    pub fn copied(before: &[RotatedSecret], overlap: Duration, now: Timestamp) -> Self {
        let (former, current): (Vec<_>, Vec<_>) = before.iter().partition(|secret| secret.until.is_some());
        let former = former.into_iter().filter_map(|former| former.until_at_most(now.after(overlap), now));
        Self::of(current.into_iter().cloned().chain(former).collect())
    }

    /// All secrets, valid or not.
    ///
    /// # Errors
    ///
    /// Fails with the reason for which they could not be decrypted.
    pub fn read(&self) -> Result<&[RotatedSecret], &UnsealError> {
        self.clear.get().map_or(Err(&UnsealError::Locked), |clear| clear.as_deref())
    }

    /// The secrets that are valid at this time.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::read`] does.
    pub fn valid(&self, now: Timestamp) -> Result<impl Iterator<Item = &ConfiguredValue>, &UnsealError> {
        let valid = self.read()?.iter().filter(move |secret| secret.until.is_none_or(|until| until > now));
        Ok(valid.map(|secret| &secret.secret))
    }

    /// Encrypts new secrets of the source with this id, for the next write.
    pub fn seal(&self, keys: &SecretKeys, source: SourceId) {
        if let Ok(clear) = self.read() {
            self.sealed.get_or_init(|| {
                let json = serde_json::to_vec(clear).expect("strings are JSON");
                keys.seal(&json, source.as_bytes())
            });
        }
    }

    /// Decrypts stored secrets of the source with this id.
    pub fn unseal(&self, keys: &SecretKeys, source: SourceId) {
        if let Some(sealed) = self.sealed.get() {
            self.clear.get_or_init(|| {
                let json = keys.unseal(sealed, source.as_bytes())?;
                serde_json::from_slice(&json).map_err(|_| UnsealError::Changed)
            });
        }
    }

    /// Tells if the stored form should be replaced, because it is encrypted with a former key.
    pub fn is_outdated(&self, keys: &SecretKeys) -> bool {
        self.read().is_ok() && self.sealed.get().is_some_and(|sealed| !keys.is_current(sealed))
    }
}

impl RotatedSecret {
    /// The same secret as a former one, valid until `end` or its own end; `None` if that is over.
    fn until_at_most(&self, end: Timestamp, now: Timestamp) -> Option<Self> {
        let until = self.until.map_or(end, |until| until.min(end));
        (until > now).then(|| Self { secret: self.secret.clone(), until: Some(until) })
    }
}

/// Only the encrypted form is ever written.
impl Serialize for SourceSecrets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.sealed.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SourceSecrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sealed = SealedValue::deserialize(deserializer)?;
        Ok(Self { clear: OnceLock::new(), sealed: OnceLock::from(sealed) })
    }
}

impl fmt::Debug for SourceSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SourceSecrets").field(&self.read().map(<[_]>::len)).finish()
    }
}

impl fmt::Debug for RotatedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatedSecret").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    fn valid(secrets: &SourceSecrets, now: Timestamp) -> Vec<&str> {
        secrets.valid(now).unwrap().filter_map(ConfiguredValue::text).collect()
    }

    #[test]
    fn a_replaced_secret_is_valid_until_its_overlap_is_over() {
        let first = SourceSecrets::new(Some("one".to_owned().into()));
        let second = SourceSecrets::rotated(first.read().unwrap(), "two".to_owned().into(), DAY, NOW);
        assert_eq!(valid(&second, NOW), ["two", "one"]);
        assert_eq!(valid(&second, NOW.after(DAY / 2)), ["two", "one"]);
        assert_eq!(valid(&second, NOW.after(DAY)), ["two"]);
        let third = SourceSecrets::rotated(second.read().unwrap(), "three".to_owned().into(), DAY, NOW.after(DAY / 2));
        assert_eq!(valid(&third, NOW.after(DAY)), ["three", "two"], "the first keeps its own end");
        let at_once = SourceSecrets::rotated(first.read().unwrap(), "two".to_owned().into(), Duration::ZERO, NOW);
        assert_eq!(valid(&at_once, NOW), ["two"]);
    }

    #[test]
    fn a_lower_overlap_ends_every_former_secret_sooner_and_a_higher_one_none_later() {
        let first = SourceSecrets::new(Some("leaked".to_owned().into()));
        let second = SourceSecrets::rotated(first.read().unwrap(), "two".to_owned().into(), DAY, NOW);
        let third = SourceSecrets::rotated(second.read().unwrap(), "three".to_owned().into(), Duration::ZERO, NOW);
        assert_eq!(valid(&third, NOW), ["three"], "the one before the last is over too");
        let hour = Duration::from_secs(3600);
        let third = SourceSecrets::rotated(second.read().unwrap(), "three".to_owned().into(), hour, NOW);
        assert_eq!(valid(&third, NOW.after(hour / 2)), ["three", "two", "leaked"]);
        assert_eq!(valid(&third, NOW.after(hour)), ["three"]);
        let copied = SourceSecrets::copied(second.read().unwrap(), hour, NOW);
        assert_eq!(valid(&copied, NOW), ["two", "leaked"]);
        assert_eq!(valid(&copied, NOW.after(hour)), ["two"]);
        assert_eq!(valid(&SourceSecrets::copied(second.read().unwrap(), DAY * 2, NOW), NOW.after(DAY)), ["two"]);
    }

    #[test]
    fn a_secret_that_comes_back_is_current_again_and_their_number_is_bounded() {
        let mut secrets = SourceSecrets::new(Some("0".to_owned().into()));
        for n in 1..10 {
            secrets = SourceSecrets::rotated(secrets.read().unwrap(), n.to_string().into(), DAY, NOW);
        }
        assert_eq!(valid(&secrets, NOW), ["9", "8", "7", "6"]);
        let back = SourceSecrets::rotated(secrets.read().unwrap(), "8".to_owned().into(), DAY, NOW);
        assert_eq!(valid(&back, NOW), ["8", "9", "7", "6"]);
    }

    #[test]
    fn secrets_are_stored_encrypted_for_their_own_source_and_are_not_printed() {
        let (keys, id) = (SecretKeys::for_tests(), SourceId::new());
        let secrets = SourceSecrets::new(Some("very secret".to_owned().into()));
        secrets.seal(&keys, id);
        let stored = serde_json::to_string(&secrets).unwrap();
        assert!(!stored.contains("very secret") && !format!("{secrets:?}").contains("very secret"));
        let read: SourceSecrets = serde_json::from_str(&stored).unwrap();
        read.unseal(&keys, id);
        assert_eq!(valid(&read, NOW), ["very secret"]);
        let elsewhere: SourceSecrets = serde_json::from_str(&stored).unwrap();
        elsewhere.unseal(&keys, SourceId::new());
        assert!(elsewhere.read().is_err());
    }
}
