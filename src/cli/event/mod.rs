//! `svc event`: raise one ([`emit`]), look at those that were ([`history`]), follow them live ([`tail`]).

mod emit;
mod history;
mod tail;

pub use emit::Emit;
pub use history::{List, Show, show_attempt};
pub use tail::Tail;

command_family! {
    /// Raise an event, or look at those that were raised. `svc event TYPE` is short for `svc event emit TYPE`.
    #[argh(
        example = "{command_name} deploy.done '{{\"version\": \"1.2\"}}'\n\
                   {command_name} deploy.done --wait < payload.json\n\
                   {command_name} deploy.done --explain\n\
                   {command_name} list --state dead",
        note = "Every type gets `custom.` in front: `deploy.done` is raised as `custom.deploy.done`."
    )]
    Event = "event" { Emit, List, Show, Tail }
}
