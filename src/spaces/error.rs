//! The reasons a change to a space is refused. The HTTP API maps each to a status.

use crate::{
    model::space_settings::{SpaceName, SpaceSettingsError},
    platform::store::StoreError,
};

/// The reason a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    #[error("there is no such space")]
    NotFound,
    #[error("you already have a space named `{0}`: choose another name, or delete that one")]
    NameTaken(SpaceName),
    #[error("a user has at most {0} spaces: delete one first, or have `limits.spaces` raised")]
    TooMany(usize),
    #[error("somebody else has changed the space meanwhile: look at it and try again")]
    Conflict,
    #[error(transparent)]
    Invalid(#[from] SpaceSettingsError),
    #[error(
        "the driver of `{0}` is external: run `svc agent start` with its agent token where the space is, and it is \
         started"
    )]
    StartExternal(SpaceName),
    #[error("`{0}` is started already: stop it first to start it anew")]
    AlreadyStarted(SpaceName),
    #[error("`{0}` is not running: there is nothing to stop")]
    NotRunning(SpaceName),
    #[error("the server runs the agent of `{0}` and hands it its token itself: there is none to give out")]
    NoToken(SpaceName),
    /// The agent was disconnected when its space was stopped.
    #[error("`{0}` was stopped")]
    WasStopped(SpaceName),
    /// The server does not run the agent of this space now.
    #[error("`{0}` is not to run: start it with `svc space start {0}`")]
    NotLaunched(SpaceName),
    #[error(transparent)]
    Store(#[from] StoreError),
}
