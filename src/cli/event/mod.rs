//! `svc event`: raises an event ([`emit`]), shows past ones ([`history`]), and follows them live ([`tail`]).

mod emit;
mod history;
mod tail;

pub use emit::EmitEvent;
pub use history::{AttemptLine, ListEvents, ShowEvent, print_attempt};
pub use tail::TailEvents;

command_family! {
    /// Raise an event, or show those that were raised. `svc event TYPE` is short for `svc event emit TYPE`.
    #[argh(
        example = "{command_name} deploy.done '{{\"version\": \"1.2\"}}'\n\
                   {command_name} deploy.done --wait < payload.json\n\
                   {command_name} deploy.done --explain\n\
                   {command_name} list --state dead",
        note = "Every type gets `custom.` in front: `deploy.done` is raised as `custom.deploy.done`."
    )]
    EventCommand(EventSubcommand) = "event" { EmitEvent, ListEvents, ShowEvent, TailEvents }
}
