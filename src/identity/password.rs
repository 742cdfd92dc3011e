//! Password hashing with argon2id.
//!
//! Hashing is slow and memory-hungry on purpose. It runs on blocking threads, a few at a time, so that a flood of logins
//! waits and uses bounded memory.

use argon2::{Argon2, PasswordHasher, PasswordVerifier, password_hash::phc::PasswordHash};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use tokio::sync::Semaphore;

/// The most concurrent hashings; each takes 19 MiB.
const MAX_CONCURRENT: usize = 2;

/// The shortest password, in characters.
const MIN_CHARACTERS: usize = 8;

/// The longest password, in bytes.
const MAX_BYTES: usize = 1024;

/// The hash that is verified for an unknown user, so that the response takes as long. It has the parameters of new
/// hashes, and no known password matches it.
const UNKNOWN_USER: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$NlDe8cmYFkUA5cAoHRLjlA$0BFmUbQfQbrqvHeMBDpFTWFPM5xCI0eJ0WpHBZn7tQw";

/// Hashes and verifies passwords with bounded concurrency.
#[derive(Clone)]
pub struct PasswordHashing {
    permits: Arc<Semaphore>,
}

/// The stored form of a password: a PHC string.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HashedPassword(String);

/// The rule that a password breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("a password has at least {MIN_CHARACTERS} characters")]
    TooShort,
    #[error("a password has at most {MAX_BYTES} bytes")]
    TooLong,
}

impl PasswordHashing {
    pub fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_CONCURRENT)) }
    }

    /// Hashes a new password.
    pub async fn hash(&self, password: String) -> Result<HashedPassword, PasswordError> {
        if password.chars().count() < MIN_CHARACTERS {
            return Err(PasswordError::TooShort);
        }
        if password.len() > MAX_BYTES {
            return Err(PasswordError::TooLong);
        }
        Ok(self
            .hashing(move || {
                let hash = Argon2::default().hash_password(password.as_bytes());
                HashedPassword(
                    hash.expect("the length is within argon2's limits and the system has randomness").to_string(),
                )
            })
            .await)
    }

    /// Returns true if `kept` is the hash of `password`. Without a hash it takes as long and returns false.
    pub async fn verify(&self, password: String, kept: Option<HashedPassword>) -> bool {
        if password.len() > MAX_BYTES {
            return false;
        }
        self.hashing(move || {
            let hash = PasswordHash::new(kept.as_ref().map_or(UNKNOWN_USER, |kept| &kept.0));
            let fits = hash.is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
            fits && kept.is_some()
        })
        .await
    }

    async fn hashing<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let permit = self.permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        // The permit moves with the work: a caller that disconnects does not release it early.
        let hashing = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        hashing.await.expect("hashing does not panic")
    }
}

impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedPassword(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_verifies_against_its_own_hash_only() {
        let passwords = PasswordHashing::new();
        let kept = passwords.hash("correct horse".to_owned()).await.unwrap();
        assert!(kept.0.starts_with("$argon2id$"), "{}", kept.0);
        assert!(passwords.verify("correct horse".to_owned(), Some(kept.clone())).await);
        assert!(!passwords.verify("correct house".to_owned(), Some(kept)).await);
        assert!(!passwords.verify("anything".to_owned(), None).await);
    }

    #[tokio::test]
    async fn a_password_of_the_wrong_length_is_refused() {
        let passwords = PasswordHashing::new();
        assert_eq!(passwords.hash("seven77".to_owned()).await, Err(PasswordError::TooShort));
        assert_eq!(passwords.hash("x".repeat(1025)).await, Err(PasswordError::TooLong));
    }

    #[tokio::test]
    async fn verifying_for_an_unknown_user_costs_as_much_as_a_real_hash() {
        let real = PasswordHashing::new().hash("correct horse".to_owned()).await.unwrap();
        let unknown = PasswordHash::new(UNKNOWN_USER).expect("it parses");
        assert_eq!(PasswordHash::new(&real.0).unwrap().params, unknown.params);
        assert!(unknown.hash.is_some());
    }
}
