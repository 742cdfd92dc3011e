//! Password hashing with argon2id.
//!
//! Hashing is slow and memory-hungry on purpose. It runs on blocking threads, in the turns of [`super::hashing_queue`].

use super::hashing_queue::{HashRank, HashingOverload, HashingQueue};
use argon2::{Algorithm, Argon2, Block, Params, Version, password_hash::phc::PasswordHash};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// Bytes of a hash, and of its salt.
const HASH_BYTES: usize = 32;
const SALT_BYTES: usize = 16;

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
    pub queue: HashingQueue,
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
    #[error("too many passwords are being checked")]
    Overload,
}

impl PasswordHashing {
    pub fn new() -> Self {
        Self { queue: HashingQueue::new() }
    }

    /// Hashes a new password, for an authenticated caller.
    pub async fn hash(&self, password: String) -> Result<HashedPassword, PasswordError> {
        if password.chars().count() < MIN_CHARACTERS {
            return Err(PasswordError::TooShort);
        }
        if password.len() > MAX_BYTES {
            return Err(PasswordError::TooLong);
        }
        let hashing = self.hashing(HashRank::Caller, move |memory| {
            let mut salt = [0; SALT_BYTES];
            getrandom::fill(&mut salt).expect("the system has randomness");
            let params = Params::default();
            let hash = hash_with(&params, password.as_bytes(), &salt, HASH_BYTES, memory);
            let hash = hash.expect("the lengths are within argon2's limits");
            let (m, t, p) = (params.m_cost(), params.t_cost(), params.p_cost());
            let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
            HashedPassword(format!("$argon2id$v=19$m={m},t={t},p={p}${salt}${hash}"))
        });
        hashing.await.map_err(|HashingOverload| PasswordError::Overload)
    }

    /// Returns true if `kept` is the hash of `password`. Without a hash it takes as long and returns false.
    ///
    /// # Errors
    ///
    /// Fails if there is no turn for it soon.
    pub async fn verify(
        &self,
        password: String,
        kept: Option<HashedPassword>,
        rank: HashRank,
    ) -> Result<bool, HashingOverload> {
        if password.len() > MAX_BYTES {
            return Ok(false);
        }
        self.hashing(rank, move |memory| {
            let text = kept.as_ref().map_or(UNKNOWN_USER, |kept| &kept.0);
            matches(text, password.as_bytes(), memory).unwrap_or(false) && kept.is_some()
        })
        .await
    }

    async fn hashing<T: Send + 'static>(
        &self,
        rank: HashRank,
        work: impl FnOnce(&mut Vec<Block>) -> T + Send + 'static,
    ) -> Result<T, HashingOverload> {
        let mut turn = self.queue.turn(rank).await?;
        // The turn moves with the work: a caller that disconnects does not end it early.
        let hashing = tokio::task::spawn_blocking(move || work(&mut turn.memory));
        Ok(hashing.await.expect("hashing does not panic"))
    }
}

/// Returns whether the password has this hash; `None` if the hash cannot be read.
fn matches(hash: &str, password: &[u8], memory: &mut Vec<Block>) -> Option<bool> {
    let hash = PasswordHash::new(hash).ok()?;
    let (salt, expected) = (hash.salt.as_ref()?, hash.hash.as_ref()?.as_bytes());
    let params = Params::try_from(&hash).ok()?;
    let found = hash_with(&params, password, salt, expected.len(), memory).ok()?;
    Some(found.ct_eq(expected).into())
}

/// Hashes with argon2id, in memory that is kept between two hashings.
fn hash_with(
    params: &Params,
    password: &[u8],
    salt: &[u8],
    length: usize,
    memory: &mut Vec<Block>,
) -> Result<Vec<u8>, argon2::Error> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    memory.resize(params.block_count(), Block::default());
    let mut hash = vec![0; length];
    argon2.hash_password_into_with_memory(password, salt, &mut hash, &mut memory[..])?;
    Ok(hash)
}

impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedPassword(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon2::PasswordVerifier as _;

    #[tokio::test]
    async fn a_password_verifies_against_its_own_hash_only() {
        let passwords = PasswordHashing::new();
        let kept = passwords.hash("correct horse".to_owned()).await.unwrap();
        assert!(kept.0.starts_with("$argon2id$"), "{}", kept.0);
        let verify = |password: &str, kept| passwords.verify(password.to_owned(), kept, HashRank::Caller);
        assert_eq!(verify("correct horse", Some(kept.clone())).await, Ok(true));
        assert_eq!(verify("correct house", Some(kept.clone())).await, Ok(false));
        assert_eq!(verify("anything", None).await, Ok(false));
        let broken = HashedPassword("$argon2id$".to_owned());
        assert_eq!(verify("correct horse", Some(broken)).await, Ok(false));
        assert!(Argon2::default().verify_password(b"correct horse", &PasswordHash::new(&kept.0).unwrap()).is_ok());
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
