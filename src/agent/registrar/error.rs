//! The errors of changes to the registration. A change that fails leaves everything as it was.

use crate::agent::{
    child_process::ChildSpawnError,
    registration_file::{LinePrefix, RegistrationFileError},
    server_link::PublishFault,
};

/// A change that was not made.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    File(#[from] RegistrationFileError),
    #[error(transparent)]
    Spawn(#[from] ChildSpawnError),
    #[error("the method server ended at once: {0}; the agent's log has what it wrote to stderr")]
    EndedAtOnce(String),
    #[error("the agent is not connected to a server yet: `svc agent status` tells why")]
    NotConnected,
    #[error("{server} refused the registration: {}{reason}", LinePrefix(*line))]
    Refused { server: String, line: Option<usize>, reason: String },
    #[error("{server}: {fault}; the registration before stays in force")]
    LinkLost { server: String, fault: PublishFault },
    #[error("the script that asks for this has ended")]
    ScriptEnded,
    #[error("no method with the local name `{0}` is registered: `svc agent status` shows those that are")]
    NoSuchMethod(String),
}
