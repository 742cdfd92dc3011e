//! The source of the modules that programs `require`.

use crate::{model::owner::Owner, scripting::lua::program::Program};

/// Finds the modules that programs `require`.
pub trait ModuleSource: Send + Sync {
    /// The library of this name for a program of this owner ([`Program::library`]), or `None` if there is none.
    ///
    /// A run calls it once for each name, on its own thread, so it must not take long.
    fn find(&self, owner: Owner, name: &str) -> Result<Option<Program>, String>;
}

/// A source without any module.
pub struct NoModules;

impl ModuleSource for NoModules {
    fn find(&self, _: Owner, _: &str) -> Result<Option<Program>, String> {
        Ok(None)
    }
}
