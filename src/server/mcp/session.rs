//! Sessions of older clients, of which nothing is kept: a session's id says whose it is, and that is all there is to it.
//!
//! Up to 2025-11-25 a client may be given a session id, and some open a stream for notifications only if they were. What
//! a session would hold, every request brings along (its credential), so there is nothing to bound, expire or lose with
//! a restart, and any server of a zone can take the next request. The id is no credential either: it opens nothing, and
//! one that belongs to another user is answered like one that never was.

use crate::model::id::UserId;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Bytes by which an id names its user.
const MARK: usize = 8;

/// A new session id for this user.
pub fn issue(user: UserId) -> String {
    let own = Uuid::new_v4();
    format!("{}{}", own.simple(), mark(own, user))
}

/// Whether the id was issued to this user.
pub fn is_of(id: &str, user: UserId) -> bool {
    let Some((own, marked)) = id.split_at_checked(32) else { return false };
    Uuid::try_parse(own).is_ok_and(|own| own.simple().to_string() == id[..32] && mark(own, user) == marked)
}

fn mark(own: Uuid, user: UserId) -> String {
    let hash = Sha256::new().chain_update(own.as_bytes()).chain_update(user.as_bytes()).finalize();
    hash[..MARK].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_of_the_user_it_was_issued_to_and_of_no_other() {
        let (one, two) = (UserId::new(), UserId::new());
        let id = issue(one);
        assert!(is_of(&id, one) && !is_of(&id, two));
        assert_ne!(issue(one), id);
        for wrong in ["", "x", &id[..40], &id[1..], &format!("{id}0"), &id.to_uppercase(), &"ä".repeat(24)] {
            assert!(!is_of(wrong, one), "{wrong}");
        }
    }
}
