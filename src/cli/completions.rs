//! `svc completions`: the files of `contrib/completions`, for whoever has only the binary.

use super::{failure::Failure, shell::Shell};

/// Print the completion script for a shell.
#[derive(argh::FromArgs, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "completions",
    help_triggers("-h", "--help"),
    example = "{command_name} bash > ~/.local/share/bash-completion/completions/svc\n\
               {command_name} zsh > ~/.zfunc/_svc\n\
               {command_name} fish > ~/.config/fish/completions/svc.fish"
)]
pub struct Completions {
    /// bash, zsh or fish
    #[argh(positional)]
    shell: Dialect,
}

/// The shells we complete for.
#[derive(argh::FromArgValue, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Bash,
    Zsh,
    Fish,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::Bash, Self::Zsh, Self::Fish];

    pub const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("../../contrib/completions/svc.bash"),
            Self::Zsh => include_str!("../../contrib/completions/_svc"),
            Self::Fish => include_str!("../../contrib/completions/svc.fish"),
        }
    }
}

impl Completions {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        shell.out.text(self.shell.script())
    }
}
