//! `svc sink`: where events are delivered to. [`apply`] keeps them in step with files; [`create`] makes one
//! from flags; [`list_show`] lists and shows them; [`test_preview`] tries them out; [`dead_letters`] deals with what was given up.

mod apply;
mod create;
mod dead_letters;
mod list_show;
mod test_preview;

pub use apply::Apply;
pub use create::Create;
pub(super) use create::stored_script;
pub use dead_letters::{DeadLetters, Redeliver};
pub use list_show::{Delete, List, Show};
pub(super) use list_show::{owner_word, show_source};
pub use test_preview::{Preview, Test};

command_family! {
    /// Manage sinks: the webhooks and scripts that events are delivered to.
    #[argh(
        example = "{command_name} create --name slack --events 'custom.deploy.*' --url https://hooks.example.com/T0\n\
                   {command_name} apply sinks/\n\
                   {command_name} test slack '{{\"version\": \"1.2\"}}'"
    )]
    Sink = "sink" { List, Show, Create, Apply, Test, Preview, Delete, DeadLetters, Redeliver }
}
