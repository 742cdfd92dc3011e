//! Spaces: workspaces that run one agent each, from creation to deletion, and the system events of their lifecycle.
//!
//! [`crate::model::space_settings`] holds the settings that an owner writes, [`Space`] is the record, and [`Spaces`]
//! keeps all of them as a collection of [`row`]s, with the [`agent_presence`] beside it. [`transition`] makes each
//! change and writes its event ([`system_events`]) into the [`outbox`], so that a crash loses none. [`lifecycle`] has
//! the changes that owners make, [`agent_events`] those that come from agents, and [`lost_agent`] those about an agent
//! that is away: `created → deployed → stopped → deployed …`; any state can be deleted. [`template`] keeps the
//! templates of new spaces. [`process_driver`] runs the agents of spaces that the server supervises itself
//! ([`agent_process`]).
//!
//! The server's end of an agent's connection calls [`Spaces::linked`], [`Spaces::checked`], [`Spaces::goodbye`] and
//! [`Spaces::unlinked`]. Components that hold data for a space listen to each [`SpaceChange`].

mod agent_events;
mod agent_presence;
mod agent_process;
mod error;
mod lifecycle;
mod lost_agent;
mod outbox;
pub mod process_driver;
mod records;
mod row;
mod space;
mod system_events;
pub mod template;
#[cfg(test)]
mod tests;
mod transition;

pub use agent_events::AgentConnect;
pub use agent_presence::SpaceStatus;
pub use agent_process::AgentProcess;
pub use error::SpaceError;
pub use lifecycle::NewSpace;
pub use process_driver::ProcessDriver;
pub use records::Spaces;
pub use row::SpaceChange;
pub use space::Space;
pub use template::{Template, TemplateError, Templates};
