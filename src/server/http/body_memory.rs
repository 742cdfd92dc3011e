//! Memory for request bodies that are still arriving. It is bounded, so that peers that begin bodies and do not end them
//! cannot exhaust the memory of the service.
//!
//! Users and strangers have memory of their own, and one user or one network gets half of it at most: who fills it up
//! holds up nobody with a credential, and no other user. Small bodies of strangers, such as logins, have memory apart from the
//! large ones, of which one network gets an eighth.

use super::error::ApiError;
use crate::{
    model::id::UserId,
    platform::keyed_budget::{KeyedBudget, ReservedBytes},
};
use std::{net::IpAddr, time::Duration};

/// Memory for the bodies of all users, and of all strangers.
const OF_USERS: usize = 128 << 20;
const OF_STRANGERS: usize = 32 << 20;

/// Memory for the small bodies of all strangers, and the largest such body.
const OF_SMALL: usize = 16 << 20;
const SMALL: usize = 64 << 10;

/// Bodies of the largest size for which there is memory in any case.
const LARGEST_BODIES: usize = 8;

/// The memory that a request takes beside its body.
const REQUEST: usize = 8 << 10;

/// Advice to a caller for whom no memory is left.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The memory for all bodies that are still arriving.
pub struct BodyMemory {
    users: KeyedBudget<UserId>,
    strangers: KeyedBudget<IpAddr>,
    small_of_strangers: KeyedBudget<IpAddr>,
}

/// The sender of a body.
#[derive(Clone, Copy, Debug)]
pub enum BodySender {
    User(UserId),
    /// A caller of an open route, by its network.
    Stranger(IpAddr),
}

/// Memory for one body, free again when dropped.
pub enum BodyReservation {
    User(ReservedBytes<UserId>),
    Stranger(ReservedBytes<IpAddr>),
}

impl BodyMemory {
    /// Memory for bodies of up to `largest` bytes each.
    pub fn new(largest: usize) -> Self {
        let sizes = |least: usize| (least.max(largest * LARGEST_BODIES), least.max(largest * LARGEST_BODIES) / 2);
        let ((users, of_user), (strangers, of_network)) = (sizes(OF_USERS), sizes(OF_STRANGERS));
        Self {
            users: KeyedBudget::new(users, of_user),
            strangers: KeyedBudget::new(strangers, of_network),
            small_of_strangers: KeyedBudget::new(OF_SMALL, OF_SMALL / 8),
        }
    }

    /// Reserves memory for a request of which this many bytes have arrived, and whose body has at most `limit` bytes.
    pub fn reserve(&self, sender: BodySender, limit: usize, arrived: usize) -> Result<BodyReservation, ApiError> {
        let bytes = REQUEST + arrived;
        let reserved = match sender {
            BodySender::User(user) => self.users.reserve(user, bytes).map(BodyReservation::User),
            BodySender::Stranger(network) if limit <= SMALL => {
                self.small_of_strangers.reserve(network, bytes).map(BodyReservation::Stranger)
            }
            BodySender::Stranger(network) => self.strangers.reserve(network, bytes).map(BodyReservation::Stranger),
        };
        reserved.ok_or_else(exhausted)
    }
}

impl BodyReservation {
    /// Reserves memory for the next bytes of the body.
    pub fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let grown = match self {
            Self::User(reservation) => reservation.grow(bytes),
            Self::Stranger(reservation) => reservation.grow(bytes),
        };
        if grown { Ok(()) } else { Err(exhausted()) }
    }
}

fn exhausted() -> ApiError {
    let message = "too many bytes of unfinished requests are waiting for their end: try again in a second".to_owned();
    ApiError::Overload { message, wait: RETRY_AFTER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_sender_gets_half_of_the_memory_and_strangers_take_none_of_the_users() {
        let memory = BodyMemory::new(1 << 20);
        let stranger = |last| BodySender::Stranger(Ipv4Addr::new(192, 0, 2, last).into());
        let mut first = memory.reserve(stranger(1), 1 << 20, OF_STRANGERS / 2 - REQUEST).unwrap();
        assert!(matches!(first.grow(1), Err(ApiError::Overload { .. })));
        assert!(memory.reserve(stranger(1), 1 << 20, 0).is_err());
        let second = memory.reserve(stranger(2), 1 << 20, OF_STRANGERS / 2 - REQUEST).unwrap();
        assert!(memory.reserve(stranger(3), 1 << 20, 0).is_err(), "the memory of strangers is used up");
        assert!(memory.reserve(stranger(3), 8 << 10, 8 << 10).is_ok(), "a login has memory of its own");
        let user = memory.reserve(BodySender::User(UserId::new()), 1 << 20, OF_USERS / 2 - REQUEST);
        assert!(user.is_ok() && memory.reserve(BodySender::User(UserId::new()), 1 << 20, 1 << 20).is_ok());
        drop((first, second));
        assert!(memory.reserve(stranger(3), 1 << 20, 0).is_ok());
    }

    #[test]
    fn several_bodies_of_the_largest_size_fit_whatever_that_is() {
        let memory = BodyMemory::new(100 << 20);
        let sender = BodySender::Stranger(Ipv4Addr::LOCALHOST.into());
        let bodies: Vec<_> = (0..3).map(|_| memory.reserve(sender, 100 << 20, 100 << 20)).collect();
        assert!(bodies.iter().all(Result::is_ok));
    }
}
