//! `svc sink`: where events are delivered to. [`apply`] keeps them in step with files; [`create`] makes one
//! from flags; [`look`] lists and shows them; [`probe`] tries them out; [`letters`] deals with what was given up.

mod apply;
mod create;
mod letters;
mod look;
mod probe;

pub use apply::Apply;
pub use create::Create;
pub use letters::{DeadLetters, Redeliver};
pub use look::{Delete, List, Show};
pub use probe::{Preview, Test};

use super::{failure::Failure, shell::Shell};

command_family! {
    /// Manage sinks: the webhooks and scripts that events are delivered to.
    #[argh(
        example = "{command_name} create --name slack --events 'custom.deploy.*' --url https://hooks.example.com/T0\n\
                   {command_name} apply sinks/\n\
                   {command_name} test slack '{{\"version\": \"1.2\"}}'"
    )]
    Sink = "sink" { List, Show, Create, Apply, Test, Preview, Delete, DeadLetters, Redeliver }
}

impl Sink {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        match self.command {
            Command::List(command) => command.run(shell),
            Command::Show(command) => command.run(shell),
            Command::Create(command) => command.run(shell),
            Command::Apply(command) => command.run(shell),
            Command::Test(command) => command.run(shell),
            Command::Preview(command) => command.run(shell),
            Command::Delete(command) => command.run(shell),
            Command::DeadLetters(command) => command.run(shell),
            Command::Redeliver(command) => command.run(shell),
        }
    }
}
