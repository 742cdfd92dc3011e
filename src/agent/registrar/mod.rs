//! The registration of this space: published on every linked server, kept on disk, changed one change at a time.
//!
//! A new registration gets a new generation and a new method server beside the old one. The old one retires only when
//! every linked server has accepted the new registration; if one refuses, the new method server is stopped and the
//! servers that had accepted get the old registration back ([`publish`]). Calls carry the generation, so that during a
//! change each finds its process ([`super::generations`]).
//!
//! [`change`] registers, unregisters and undoes; [`saved`] keeps the registration for the next start.

mod change;
mod error;
mod pending;
mod publish;
mod saved;

pub use change::{Registrar, RegistrarDeps};
pub use error::RegisterError;
pub use pending::PendingRegistration;
