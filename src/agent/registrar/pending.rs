//! A registration that is made at the next opportunity.

use crate::agent::registration_file::BuiltRegistration;
use std::path::PathBuf;

/// A registration that waits for a link, or for servers that no longer refuse it.
#[derive(Debug)]
pub enum PendingRegistration {
    /// The methods file of the agent.
    File(PathBuf),
    /// The registration that the startup script has built.
    Built(BuiltRegistration),
}
