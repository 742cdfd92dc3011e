//! `svc agent`: runs the agent of a space ([`start`]), and tells how it is ([`status`]). [`find`] is how commands that run
//! inside a space speak to it.

pub mod find;
mod hide_argv;
mod start;
mod status;

pub use start::{Start, StartError};
pub use status::Status;

command_family! {
    /// Run the agent of a space, or ask it how it is.
    #[argh(
        example = "SVC_AGENT_TOKEN=sva_… {command_name} start --server https://svc.example\n{command_name} status",
        note = "An agent runs inside a space: it publishes the methods there and takes the events raised there."
    )]
    Agent = "agent" { Start, Status }
}
