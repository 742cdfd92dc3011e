//! Runs the scripts that set a space up: they write files, start processes, and register methods, and then they end.
//!
//! [`register`] hands a TOML file to the registrar, and runs a script ([`lua`], [`python`]), which comes back to the
//! agent to register what it has built. [`run_startup_script`] runs the space's startup script.

mod error;
mod lua;
mod python;
mod register;

pub use error::SetupError;
pub use register::{register, register_file, run_startup_script};
