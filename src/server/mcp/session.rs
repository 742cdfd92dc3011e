//! Stateless sessions for older clients: a session is only an id that is bound to its user.
//!
//! Up to version 2025-11-25 a server may issue session ids, and some clients open a stream of notifications only if they
//! get one. Every request carries its own credential, so a session holds nothing that must be bounded, expire or survive
//! a restart, and any server of a zone can take the next request. The id is no credential: it grants nothing, and an id
//! of another user is answered like an unknown one.

use crate::model::id::UserId;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Bytes of the hash that binds an id to its user.
const USER_HASH_BYTES: usize = 8;

/// Makes a session id for a user.
pub fn issue(user: UserId) -> String {
    let own = Uuid::new_v4();
    format!("{}{}", own.simple(), user_hash(own, user))
}

/// Returns whether the id was issued to this user.
pub fn belongs_to(id: &str, user: UserId) -> bool {
    let Some((own, hash)) = id.split_at_checked(32) else { return false };
    Uuid::try_parse(own).is_ok_and(|own| own.simple().to_string() == id[..32] && user_hash(own, user) == hash)
}

fn user_hash(own: Uuid, user: UserId) -> String {
    let hash = Sha256::new().chain_update(own.as_bytes()).chain_update(user.as_bytes()).finalize();
    HEXLOWER.encode(&hash[..USER_HASH_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_belongs_to_the_user_it_was_issued_to_only() {
        let (one, two) = (UserId::new(), UserId::new());
        let id = issue(one);
        assert!(belongs_to(&id, one) && !belongs_to(&id, two));
        assert_ne!(issue(one), id);
        for wrong in ["", "x", &id[..40], &id[1..], &format!("{id}0"), &id.to_uppercase(), &"ä".repeat(24)] {
            assert!(!belongs_to(wrong, one), "{wrong}");
        }
    }
}
