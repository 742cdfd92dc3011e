//! Lua programs: compiled from source ([`compiled`], [`compile`]), with text templates split into literals and
//! expressions ([`text_template`]), and what they touch of an event's data ([`data_use`]) and beside it
//! ([`variables`]); [`strings`] finds strings in both. [`large_integers`] are those that a filter must not have.

mod compile;
mod compiled;
mod data_use;
mod large_integers;
mod strings;
mod text_template;
mod variables;

pub use compile::CompileError;
pub(super) use compile::{compile_builtin, load};
pub use compiled::{Capabilities, MAX_SPACE_FILE, Program};
pub(super) use compiled::{CompiledProgram, ProgramCode, ProgramKind};
pub(super) use data_use::DataUse;
pub use large_integers::refuse_large_integers;
pub(super) use text_template::TemplatePiece;
pub(super) use variables::Variables;
