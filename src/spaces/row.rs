//! A space as it is stored, and the changes to it as listeners see them.

use super::{space::Space, system_events::PendingEvent};
use crate::{
    identity::SecretDigest,
    model::{
        id::{SpaceId, UserId},
        space_state::SpaceState,
    },
    platform::{
        collection::{Change, CollectionRecord},
        store::{Table, keys},
    },
};
use serde::{Deserialize, Serialize};
use std::{convert::Infallible, sync::Arc};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SpaceRow {
    pub space: Arc<Space>,
    /// The digest of the agent's token. `None` for the driver `process`, whose tokens live no longer than the server.
    pub token: Option<SecretDigest>,
    /// Events that may not have been emitted yet, oldest first.
    #[serde(default)]
    pub outbox: Vec<PendingEvent>,
    /// The space is gone for everybody; the row is kept until its outbox is empty.
    #[serde(default)]
    pub deleted: bool,
}

/// A change to a space. Listeners are called once it is on disk and before its event is emitted.
#[derive(Clone, Debug)]
pub enum SpaceChange {
    Created(Arc<Space>),
    /// The settings changed, or the server is to run its agent or no longer is. Neither is a transition.
    Updated {
        before: Arc<Space>,
        after: Arc<Space>,
    },
    /// It is deployed, and was not before.
    Started(Arc<Space>),
    /// It was stopped. Its agent, if still linked, is to end.
    Stopped(Arc<Space>),
    Deleted(Arc<Space>),
    /// The former token of its agent is no longer accepted.
    TokenRotated(Arc<Space>),
}

impl CollectionRecord for SpaceRow {
    type Id = SpaceId;
    type Namespace = UserId;
    type Refusal = Infallible;

    const TABLE: Table<Self> = Table::new(keys::SPACES);

    fn id(&self) -> SpaceId {
        self.space.id
    }

    fn key(&self) -> Vec<u8> {
        self.space.id.as_bytes().to_vec()
    }

    fn namespace(&self) -> UserId {
        self.space.owner
    }

    fn name(&self) -> Option<&str> {
        (!self.deleted).then(|| self.space.name.as_str())
    }
}

impl SpaceChange {
    /// The change to the space that a change to its row makes. `None` for changes that listeners do not need: of
    /// health, of the agent's machine and of the outbox.
    pub(super) fn of(change: &Change<SpaceRow>) -> Option<Self> {
        match change {
            Change::Created(row) => Some(Self::Created(row.space.clone())),
            Change::Updated { before, .. } if before.deleted => None,
            Change::Updated { before, after } => {
                let (old, new) = (&before.space, after.space.clone());
                if after.deleted {
                    Some(Self::Deleted(new))
                } else if old.state != new.state {
                    Some(if new.state == SpaceState::Deployed { Self::Started(new) } else { Self::Stopped(new) })
                } else if before.token != after.token {
                    Some(Self::TokenRotated(new))
                } else if old.launched != new.launched
                    || old.settings != new.settings
                    || old.updated_at != new.updated_at
                {
                    Some(Self::Updated { before: old.clone(), after: new })
                } else {
                    None
                }
            }
            Change::Deleted(_) => None,
        }
    }

    /// The space it is about, as it is now.
    pub const fn space(&self) -> &Arc<Space> {
        match self {
            Self::Created(space)
            | Self::Updated { after: space, .. }
            | Self::Started(space)
            | Self::Stopped(space)
            | Self::Deleted(space)
            | Self::TokenRotated(space) => space,
        }
    }
}
