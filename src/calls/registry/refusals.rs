//! Registrations that the server refused, of linked agents that publish nothing. Shown until one is accepted or the agent
//! is gone.

use crate::model::{
    id::{SpaceId, UserId},
    timestamp::Timestamp,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// A refused registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationRefusal {
    pub space: SpaceId,
    pub space_name: Arc<str>,
    pub owner: UserId,
    /// One line for people.
    pub reason: String,
    /// The time of the first refusal for this reason; the agent tries again by itself.
    pub since: Timestamp,
}

/// The refused registrations by space.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<SpaceId, RegistrationRefusal>>);

impl Refusals {
    /// Notes a refusal. One for the same reason as before keeps its time.
    pub fn note(&self, refusal: RegistrationRefusal) {
        let mut refusals = self.0.lock();
        if refusals.get(&refusal.space).is_none_or(|before| before.reason != refusal.reason) {
            refusals.insert(refusal.space, refusal);
        }
    }

    pub fn clear(&self, space: SpaceId) {
        self.0.lock().remove(&space);
    }

    pub fn of_space(&self, space: SpaceId) -> Option<RegistrationRefusal> {
        self.0.lock().get(&space).cloned()
    }

    /// The refusals of an owner's spaces, by the name of the space.
    pub fn of_owner(&self, owner: UserId) -> Vec<RegistrationRefusal> {
        let mut refusals: Vec<_> = self.0.lock().values().filter(|refusal| refusal.owner == owner).cloned().collect();
        refusals.sort_by(|one, two| one.space_name.cmp(&two.space_name));
        refusals
    }
}
