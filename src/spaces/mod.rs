//! Spaces: workspaces that run one agent each, from creation to deletion, and the system events of their lifecycle.
//!
//! [`crate::model::space_settings`] holds the settings that an owner writes, [`Space`] is the record, and [`records`] keeps
//! all of them. [`lifecycle`] makes the transitions `created → deployed → stopped → deployed …`; any state can be deleted.
//! [`system_events`] are the events of transitions, and [`outbox`] emits them so that a crash loses none. [`template`] keeps
//! the templates of new spaces. [`process_driver`] runs the agents of spaces that the server supervises itself.
//!
//! The server's end of an agent's connection calls [`Spaces::linked`], [`Spaces::checked`], [`Spaces::goodbye`] and
//! [`Spaces::unlinked`]. Components that hold data for a space listen to each [`SpaceChange`].

mod agent_process;
mod error;
mod index;
mod lifecycle;
mod outbox;
pub mod process_driver;
pub mod records;
mod space;
mod system_events;
pub mod template;
#[cfg(test)]
mod tests;

pub use agent_process::AgentProcess;
pub use error::SpaceError;
pub use lifecycle::AgentConnect;
pub use process_driver::ProcessDriver;
pub use records::{NewSpace, SpaceChange, SpaceStatus, Spaces};
pub use space::Space;
pub use template::{Template, TemplateError, Templates};
