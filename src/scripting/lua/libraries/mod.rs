//! The libraries that Lua programs find in their state, one file each.
//!
//! A library is a read-only table, there as a global and through `require`. Templates get the pure ones (`json`,
//! `time`, `crypto`, `re`, `log`); scripts, tools and programs of a space also those with effects. A function that
//! fails raises a plain string on the script's own line, never a value of the host.
//!
//! [`install`] puts them into a state. [`function_builder`] makes their functions, with the errors of
//! [`library_error`], the argument checks of [`arguments`] and the JSON results of [`boxed_json`].

mod arguments;
mod boxed_json;
mod crypto;
mod fs;
mod function_builder;
mod http;
mod install;
mod json;
mod kv;
mod library_error;
mod modules;
mod process;
mod re;
pub(super) mod registry_keys;
mod run_context;
mod run_log;
mod space_svc;
mod svc;
#[cfg(test)]
mod tests;
mod time;

pub(super) use install::{NO_MEMORY, install};
pub(super) use modules::loaded_modules_size;
pub(super) use run_log::RunLog;
pub(in crate::scripting) use run_log::bounded_log;
pub(super) use space_svc::RegisteredHandlers;
