//! Modules in Lua that come with us and are loaded like those of others: anew in each run.

use super::modules::Modules;
use crate::{owner::Owner, script::program::Program};
use std::sync::{Arc, LazyLock};

/// By what name programs of a space require them.
static BUNDLED: LazyLock<[(&str, Program); 2]> = LazyLock::new(|| {
    let compiled = |name, source| (name, Program::library(name, source).expect("the Lua that comes with us compiles"));
    [
        compiled("svc.methods", include_str!("../../../lua/svc/methods.lua")),
        compiled("svc.methods.schema", include_str!("../../../lua/svc/methods/schema.lua")),
    ]
});

/// Ours first, then what others find.
pub(super) struct WithBundled(pub Arc<dyn Modules>);

impl Modules for WithBundled {
    fn find(&self, owner: Owner, name: &str) -> Result<Option<Program>, String> {
        match BUNDLED.iter().find(|(bundled, _)| *bundled == name) {
            Some((_, program)) => Ok(Some(program.clone())),
            None => self.0.find(owner, name),
        }
    }
}
