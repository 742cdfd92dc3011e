//! Passwords, kept as argon2id hashes. Hashing is slow and hungry on purpose, so it runs off the async
//! threads and only a few at a time: a flood of logins waits, and costs no more memory than these.

use argon2::{Argon2, PasswordHasher, PasswordVerifier, password_hash::phc::PasswordHash};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use tokio::sync::Semaphore;

/// Hashings at once; each takes 19 MiB.
const AT_ONCE: usize = 2;

/// The shortest password, in characters.
const SHORTEST: usize = 8;

/// The longest, in bytes; beyond this it is no password any more.
const LONGEST: usize = 1024;

/// Verified against when there is no such user, so that the answer takes as long. It is the hash of nothing
/// anybody knows, with the parameters new hashes get.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$NlDe8cmYFkUA5cAoHRLjlA$0BFmUbQfQbrqvHeMBDpFTWFPM5xCI0eJ0WpHBZn7tQw";

/// The few places at which a password is hashed.
#[derive(Clone)]
pub struct Passwords {
    places: Arc<Semaphore>,
}

/// What is kept of a password: a PHC string.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hash(String);

/// Why a password is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("a password has at least {SHORTEST} characters")]
    TooShort,
    #[error("a password has at most {LONGEST} bytes")]
    TooLong,
}

impl Passwords {
    pub fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// What to keep of a new password.
    ///
    /// # Errors
    ///
    /// Fails if the password is too short or too long.
    pub async fn hash(&self, password: String) -> Result<Hash, PasswordError> {
        if password.chars().count() < SHORTEST {
            return Err(PasswordError::TooShort);
        }
        if password.len() > LONGEST {
            return Err(PasswordError::TooLong);
        }
        Ok(self
            .hashing(move || {
                let hash = Argon2::default().hash_password(password.as_bytes());
                Hash(hash.expect("the length is within argon2's limits and the system has randomness").to_string())
            })
            .await)
    }

    /// Whether `password` is the one `kept` was made from. Takes as long when nothing is kept, and says no.
    pub async fn verify(&self, password: String, kept: Option<Hash>) -> bool {
        if password.len() > LONGEST {
            return false;
        }
        self.hashing(move || {
            let hash = PasswordHash::new(kept.as_ref().map_or(NOBODY, |kept| &kept.0));
            let fits = hash.is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
            fits && kept.is_some()
        })
        .await
    }

    async fn hashing<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let place = self.places.clone().acquire_owned().await.expect("the semaphore is never closed");
        // The place goes with the work: a caller that leaves meanwhile does not free it early.
        let hashing = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        hashing.await.expect("hashing does not panic")
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_verifies_against_its_own_hash_only() {
        let passwords = Passwords::new();
        let kept = passwords.hash("correct horse".to_owned()).await.unwrap();
        assert!(kept.0.starts_with("$argon2id$"), "{}", kept.0);
        assert!(passwords.verify("correct horse".to_owned(), Some(kept.clone())).await);
        assert!(!passwords.verify("correct house".to_owned(), Some(kept)).await);
        assert!(!passwords.verify("anything".to_owned(), None).await);
    }

    #[tokio::test]
    async fn a_password_of_the_wrong_length_is_refused() {
        let passwords = Passwords::new();
        assert_eq!(passwords.hash("seven77".to_owned()).await, Err(PasswordError::TooShort));
        assert_eq!(passwords.hash("x".repeat(1025)).await, Err(PasswordError::TooLong));
    }

    #[tokio::test]
    async fn nobodys_hash_costs_what_a_real_one_does() {
        let real = Passwords::new().hash("correct horse".to_owned()).await.unwrap();
        let nobody = PasswordHash::new(NOBODY).expect("it parses");
        assert_eq!(PasswordHash::new(&real.0).unwrap().params, nobody.params);
        assert!(nobody.hash.is_some());
    }
}
