//! The binding of the data directory to one space. Events spooled for one space must never reach another.

use super::spool::Spool;
use crate::{
    model::{agent_protocol::Welcome, id::SpaceId},
    platform::store::{Store, StoreError, Table, keys, readable},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Key of the bound space in the agent's table.
const SPACE: &[u8] = b"space";
const SPACES: Table<BoundSpace> = Table::new(keys::AGENT);

/// The space, as its server described it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundSpace {
    pub id: SpaceId,
    pub name: String,
    pub zone: String,
    /// The largest event payload that the server accepts, in bytes.
    pub max_payload: usize,
}

/// The space that the data directory belongs to.
pub struct Binding {
    store: Store,
    current: Mutex<CurrentBinding>,
}

struct CurrentBinding {
    space: Option<BoundSpace>,
    /// State of the confirmation by a server in this run.
    confirmed: Confirmed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Confirmed {
    Yes,
    NotYet,
}

/// Effect of a welcome on the binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingChange {
    /// The directory was bound to this space before, or to none.
    Unchanged,
    /// The directory was bound to another space, which left no events behind.
    Rebound,
}

/// A welcome that does not fit the data directory.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BindingError {
    #[error(
        "{spooled} events in the data directory are for space `{old}`, and the token is for `{new}`: give --data another \
         directory, or let an agent of `{old}` send them first"
    )]
    Spooled { spooled: usize, old: String, new: String },
    #[error(
        "the servers disagree about which space this is, `{0}` or `{1}`: give each its own agent, with its own --data"
    )]
    Disagree(String, String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Binding {
    /// The binding as it was saved. A damaged one counts as none: the next welcome brings it again.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let saved = SPACES.get(&store, SPACE).inspect_err(|error| log::error!("the space is not known yet: {error}"));
        let space = readable(saved)?.flatten();
        Ok(Self { store, current: Mutex::new(CurrentBinding { space, confirmed: Confirmed::NotYet }) })
    }

    /// Binds the directory to the space of a welcome.
    ///
    /// # Errors
    ///
    /// Fails while events for another space are spooled, if two servers name different spaces, and if the database
    /// cannot be written.
    pub async fn bind(&self, welcome: &Welcome, spool: &Spool) -> Result<BindingChange, BindingError> {
        let space = BoundSpace {
            id: welcome.space_id,
            name: welcome.space_name.clone(),
            zone: welcome.zone.clone(),
            max_payload: welcome.max_payload,
        };
        let (before, confirmed) = {
            let current = self.current.lock();
            (current.space.clone(), current.confirmed)
        };
        let change = match &before {
            Some(old) if old.id != space.id => {
                if confirmed == Confirmed::Yes {
                    return Err(BindingError::Disagree(old.name.clone(), space.name));
                }
                let spooled = spool.depth();
                if spooled > 0 {
                    return Err(BindingError::Spooled { spooled, old: old.name.clone(), new: space.name });
                }
                BindingChange::Rebound
            }
            _ => BindingChange::Unchanged,
        };
        if before.as_ref() != Some(&space) {
            let record = space.clone();
            self.store.write(move |batch| SPACES.put(batch, SPACE, &record)).await?;
        }
        *self.current.lock() = CurrentBinding { space: Some(space), confirmed: Confirmed::Yes };
        Ok(change)
    }

    /// The space, if the directory is bound to one.
    pub fn space(&self) -> Option<BoundSpace> {
        self.current.lock().space.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        agent_protocol::{EventConfirmation, EventOutcome},
        timestamp::Timestamp,
    };
    use serde_json::value::RawValue;
    use std::sync::Arc;

    fn welcome(space_id: SpaceId, name: &str) -> Welcome {
        Welcome {
            space_id,
            space_name: name.to_owned(),
            zone: "default".to_owned(),
            max_payload: 1024,
            health_check: None,
            startup_script: None,
        }
    }

    async fn with_store<F: Future<Output = ()>>(run: impl FnOnce(Store) -> F) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        run(store.clone()).await;
        store.close().await;
    }

    #[tokio::test]
    async fn a_directory_remembers_its_space() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let binding = Binding::open(store.clone()).unwrap();
            assert_eq!(binding.space(), None);
            let id = SpaceId::new();
            assert_eq!(binding.bind(&welcome(id, "notes"), &spool).await.unwrap(), BindingChange::Unchanged);
            assert_eq!(binding.bind(&welcome(id, "renamed"), &spool).await.unwrap(), BindingChange::Unchanged);
            let space = Binding::open(store).unwrap().space().unwrap();
            assert_eq!((space.id, space.name.as_str(), space.max_payload), (id, "renamed", 1024));
        })
        .await;
    }

    #[tokio::test]
    async fn a_damaged_binding_is_made_again_by_the_next_welcome() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let id = SpaceId::new();
            Binding::open(store.clone()).unwrap().bind(&welcome(id, "notes"), &spool).await.unwrap();
            store.damage(&keys::key(keys::AGENT, &[SPACE]));
            let binding = Binding::open(store.clone()).unwrap();
            assert_eq!(binding.space(), None);
            binding.bind(&welcome(id, "notes"), &spool).await.unwrap();
            assert_eq!(Binding::open(store).unwrap().space().unwrap().id, id);
        })
        .await;
    }

    #[tokio::test]
    async fn events_for_one_space_never_reach_another() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let binding = Binding::open(store.clone()).unwrap();
            binding.bind(&welcome(SpaceId::new(), "notes"), &spool).await.unwrap();
            let payload = RawValue::from_string("{}".to_owned()).unwrap();
            let event = spool.push(None, "a", payload, Timestamp::now()).await.unwrap();
            let other = welcome(SpaceId::new(), "other");
            // The next run, with another token.
            let binding = Binding::open(store.clone()).unwrap();
            let error = binding.bind(&other, &spool).await.unwrap_err().to_string();
            assert!(error.contains("--data") && error.contains("`notes`") && error.contains("`other`"), "{error}");
            assert_eq!(binding.space().unwrap().name, "notes");
            spool.settle(&[EventConfirmation { id: event, outcome: EventOutcome::Stored }]);
            assert_eq!(binding.bind(&other, &spool).await.unwrap(), BindingChange::Rebound);
        })
        .await;
    }

    #[tokio::test]
    async fn servers_must_agree_which_space_this_is() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let binding = Binding::open(store).unwrap();
            binding.bind(&welcome(SpaceId::new(), "notes"), &spool).await.unwrap();
            let error = binding.bind(&welcome(SpaceId::new(), "other"), &spool).await.unwrap_err();
            assert!(matches!(error, BindingError::Disagree(..)), "{error}");
        })
        .await;
    }
}
