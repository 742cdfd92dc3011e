//! `svc script`: what is kept on the server by name. [`apply`] stores a file; [`list_show`] lists, shows and deletes;
//! [`run`] runs one.

mod apply;
mod list_show;
mod run;

pub use apply::Apply;
pub use list_show::{Delete, List, Show};
pub use run::Run;

command_family! {
    /// Manage stored scripts: the Lua that sinks and spaces run, libraries, and tools.
    #[argh(
        example = "{command_name} apply shout.lua\n\
                   {command_name} apply acme.text.lua --kind library --global\n\
                   {command_name} run add '{{\"a\": 1, \"b\": 2}}'"
    )]
    Script = "script" { List, Show, Apply, Run, Delete }
}
