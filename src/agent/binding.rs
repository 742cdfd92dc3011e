//! Which space the data directory belongs to. Events spooled for one space must never reach another.

use super::spool::Spool;
use crate::{
    model::{agent_protocol::Welcome, id::SpaceId},
    platform::store::{Store, StoreError, Table, keys},
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

/// Under which key of ours the space is kept.
const SPACE: &[u8] = b"space";
const SPACES: Table<Space> = Table::new(keys::AGENT);

/// A space as its server told of it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub id: SpaceId,
    pub name: String,
    pub zone: String,
    /// The largest payload its server takes, in bytes.
    pub max_payload: usize,
}

/// The space of this directory.
pub struct Home {
    store: Store,
    known: Mutex<Known>,
}

struct Known {
    space: Option<Space>,
    /// Whether a server has named it in this run.
    confirmed: Confirmed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Confirmed {
    Yes,
    NotYet,
}

/// What a welcome told about the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// To the space that it always belonged to, or to nobody before.
    Here,
    /// To another until now, which left nothing that must reach it.
    Anew,
}

/// Why a link cannot be used with this directory.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HomeError {
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

impl Home {
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub fn open(store: Store) -> Result<Self, StoreError> {
        let space = SPACES.get(&store, SPACE)?;
        Ok(Self { store, known: Mutex::new(Known { space, confirmed: Confirmed::NotYet }) })
    }

    /// Moves in, unless events for another space are still here.
    ///
    /// # Errors
    ///
    /// Fails then, and if it cannot be written down.
    pub async fn settle(&self, welcome: &Welcome, spool: &Spool) -> Result<Belongs, HomeError> {
        let space = Space {
            id: welcome.space_id,
            name: welcome.space_name.clone(),
            zone: welcome.zone.clone(),
            max_payload: welcome.max_payload,
        };
        let (before, confirmed) = {
            let known = self.known();
            (known.space.clone(), known.confirmed)
        };
        let belongs = match &before {
            Some(old) if old.id != space.id => {
                if confirmed == Confirmed::Yes {
                    return Err(HomeError::Disagree(old.name.clone(), space.name));
                }
                let spooled = spool.depth();
                if spooled > 0 {
                    return Err(HomeError::Spooled { spooled, old: old.name.clone(), new: space.name });
                }
                Belongs::Anew
            }
            _ => Belongs::Here,
        };
        if before.as_ref() != Some(&space) {
            let record = space.clone();
            self.store.write(move |batch| SPACES.put(batch, SPACE, &record)).await?;
        }
        *self.known() = Known { space: Some(space), confirmed: Confirmed::Yes };
        Ok(belongs)
    }

    /// The space, if it is known.
    pub fn space(&self) -> Option<Space> {
        self.known().space.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::agent_protocol::EventReceipt;
    use serde_json::value::RawValue;
    use std::{path::PathBuf, sync::Arc};

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
        let directory: PathBuf = std::env::temp_dir().join(format!("svc-home-{}", uuid::Uuid::now_v7()));
        let store = Store::open(&directory, 0, Arc::default()).unwrap();
        run(store.clone()).await;
        store.close().await;
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_directory_remembers_its_space() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let home = Home::open(store.clone()).unwrap();
            assert_eq!(home.space(), None);
            let id = SpaceId::new();
            assert_eq!(home.settle(&welcome(id, "notes"), &spool).await.unwrap(), Belongs::Here);
            assert_eq!(home.settle(&welcome(id, "renamed"), &spool).await.unwrap(), Belongs::Here);
            let space = Home::open(store).unwrap().space().unwrap();
            assert_eq!((space.id, space.name.as_str(), space.max_payload), (id, "renamed", 1024));
        })
        .await;
    }

    #[tokio::test]
    async fn events_for_one_space_never_reach_another() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let home = Home::open(store.clone()).unwrap();
            home.settle(&welcome(SpaceId::new(), "notes"), &spool).await.unwrap();
            let event = spool.push("a", RawValue::from_string("{}".to_owned()).unwrap()).await.unwrap();
            let other = welcome(SpaceId::new(), "other");
            // The next run, with another token.
            let home = Home::open(store.clone()).unwrap();
            let error = home.settle(&other, &spool).await.unwrap_err().to_string();
            assert!(error.contains("--data") && error.contains("`notes`") && error.contains("`other`"), "{error}");
            assert_eq!(home.space().unwrap().name, "notes");
            spool.settle(event, &EventReceipt::Stored);
            assert_eq!(home.settle(&other, &spool).await.unwrap(), Belongs::Anew);
        })
        .await;
    }

    #[tokio::test]
    async fn servers_must_agree_which_space_this_is() {
        with_store(async |store| {
            let spool = Spool::open(store.clone(), 10).unwrap();
            let home = Home::open(store).unwrap();
            home.settle(&welcome(SpaceId::new(), "notes"), &spool).await.unwrap();
            let error = home.settle(&welcome(SpaceId::new(), "other"), &spool).await.unwrap_err();
            assert!(matches!(error, HomeError::Disagree(..)), "{error}");
        })
        .await;
    }
}
