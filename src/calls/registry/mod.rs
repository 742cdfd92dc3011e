//! The registry of methods: the spaces that serve each method, and the users who see it. It holds every registration of
//! an agent with this server.
//!
//! [`viewer`] decides who sees a method and under which name, [`published`] is a method with its providers, and [`provider`]
//! is one space that serves it. A registration is accepted as a whole or not at all ([`index`]); [`refusals`] are those that
//! were not. It stays while its agent is not connected, unavailable but listed; the space's next registration replaces it,
//! stopping the space removes it, and a method gives way to one of another space that is defined in another way.

mod index;
mod provider;
mod published;
mod refusals;
mod viewer;

pub use index::{MethodConflict, Registry, ServeRequest};
pub use provider::{CallPlace, Provider};
pub use published::PublishedMethod;
pub use refusals::RegistrationRefusal;
pub use viewer::Viewer;
