//! The command line: `main` → [`run`] → one `match`.
//!
//! What was typed and what it means are two types throughout: each command has an argh struct that holds
//! words, and turns it into something the rest can rely on before anything is sent. [`normalize_args`] smooths the
//! spellings argh does not know; [`access`] finds the server and the token; [`client`] speaks to it, and
//! [`agent::near`] to the agent of the space the command runs in; [`shell`] is the terminal and [`failure`]
//! the exit codes.

/// Declares a command that talks to a server: its own arguments, and the three that all of these share.
macro_rules! client_command {
    (
        $(#[$($attribute:tt)*])*
        $name:ident = $word:tt { $($arguments:tt)* }
    ) => {
        #[derive(argh::FromArgs, Clone, Debug, PartialEq)]
        $(#[$($attribute)*])*
        #[argh(subcommand, name = $word, help_triggers("-h", "--help"))]
        pub struct $name {
            $($arguments)*

            /// print JSON instead of a table
            #[argh(switch)]
            json: bool,

            /// the server, such as http://127.0.0.1:7300 (otherwise SVC_SERVER, or what `svc login` kept)
            #[argh(option, arg_name = "url")]
            server: Option<String>,

            /// the API token (otherwise SVC_TOKEN, or what `svc login` kept)
            #[argh(option)]
            token: Option<String>,
        }

        impl $name {
            /// A client for the server that the flags, the environment and the files name.
            fn client(
                &self,
                shell: &$crate::cli::shell::Shell<'_>,
            ) -> Result<$crate::cli::client::Client, $crate::cli::failure::Failure> {
                let flags = $crate::cli::access::Flags { server: self.server.clone(), token: self.token.clone() };
                $crate::cli::client::Client::find(&flags, shell.environment)
            }

            /// How the result is wanted.
            fn form(&self) -> $crate::cli::shell::Form {
                $crate::cli::shell::Form::of_switch(self.json)
            }
        }
    };
}

/// Declares a command that talks to the agent: its own arguments, and the one that all of these share.
macro_rules! agent_command {
    (
        $(#[$($attribute:tt)*])*
        $name:ident = $word:tt { $($arguments:tt)* }
    ) => {
        #[derive(argh::FromArgs, Clone, Debug, PartialEq)]
        $(#[$($attribute)*])*
        #[argh(subcommand, name = $word, help_triggers("-h", "--help"))]
        pub struct $name {
            $($arguments)*

            /// print JSON instead of a table
            #[argh(switch)]
            json: bool,
        }

        impl $name {
            /// How the result is wanted.
            fn form(&self) -> $crate::cli::shell::Form {
                $crate::cli::shell::Form::of_switch(self.json)
            }
        }
    };
}

/// Declares a command that is a family of commands.
macro_rules! command_family {
    (
        $(#[$($attribute:tt)*])*
        $name:ident = $word:tt { $($variant:ident),* $(,)? }
    ) => {
        #[derive(argh::FromArgs, Clone, Debug, PartialEq)]
        $(#[$($attribute)*])*
        #[argh(subcommand, name = $word, help_triggers("-h", "--help"))]
        pub struct $name {
            #[argh(subcommand)]
            pub command: Command,
        }

        #[derive(argh::FromArgs, Clone, Debug, PartialEq)]
        #[argh(subcommand)]
        #[allow(clippy::large_enum_variant, reason = "there is one in a process")]
        pub enum Command {
            $($variant($variant),)*
        }

        impl $name {
            pub fn run(self, shell: &mut $crate::cli::shell::Shell<'_>) -> Result<(), $crate::cli::failure::Failure> {
                match self.command {
                    $(Command::$variant(command) => command.run(shell),)*
                }
            }
        }
    };
}

pub mod access;
pub mod agent;
pub mod api;
pub mod audit;
pub mod client;
pub mod completions;
pub mod config;
pub mod event;
pub mod failure;
pub mod group;
pub mod json;
pub mod login;
pub mod mcp;
pub mod method;
pub mod methods;
pub mod named;
pub mod normalize_args;
pub mod payload;
pub mod role;
pub mod run;
pub mod script;
pub mod server;
pub mod shell;
pub mod sink;
pub mod sink_file;
pub mod space;
pub mod stream;
pub mod subscription;
pub mod table;
pub mod template;
pub mod time;
pub mod token;
pub mod user;
pub mod whoami;

use argh::FromArgs;
use failure::Failure;
use shell::{Input, Screen, Shell};
use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    process::ExitCode,
};

/// Route events: run the server, raise events, and manage the sinks they are delivered to and the spaces they come from.
#[derive(FromArgs, Clone, Debug, PartialEq)]
#[argh(
    name = "svc",
    help_triggers("-h", "--help"),
    example = "{command_name} server\n{command_name} event deploy.done '{{\"version\": \"1.2\"}}' --wait",
    note = "`svc COMMAND --help` tells more about each command.",
    error_code(0, "done"),
    error_code(1, "the operation failed"),
    error_code(2, "bad usage"),
    error_code(3, "could not reach the server or the agent"),
    error_code(4, "refused: not logged in, or not allowed to")
)]
pub struct Svc {
    /// print the version
    #[argh(switch)]
    pub version: bool,

    #[argh(subcommand)]
    pub command: Option<Command>,
}

/// Everything `svc` can be told to do.
#[derive(FromArgs, Clone, Debug, PartialEq)]
#[argh(subcommand)]
pub enum Command {
    Server(server::Server),
    Agent(agent::Agent),
    Methods(methods::Methods),
    Run(run::Run),
    Event(event::Event),
    Sink(sink::Sink),
    Script(script::Script),
    Method(method::Method),
    Mcp(mcp::Mcp),
    Subscription(subscription::Subscription),
    Space(space::Space),
    Template(template::Template),
    Token(token::Token),
    User(user::User),
    Role(role::Role),
    Group(group::Group),
    Audit(audit::Audit),
    Login(login::Login),
    Whoami(whoami::Whoami),
    Config(config::Config),
    Completions(completions::Completions),
}

/// Runs the process's command, and answers with its exit code.
pub fn run(typed: impl IntoIterator<Item = OsString>) -> ExitCode {
    let environment = |name: &str| std::env::var(name).ok();
    let (mut stdin, mut stdout, mut stderr) = (io::stdin(), io::stdout(), io::stderr());
    let mut shell = Shell {
        environment: &environment,
        input: if stdin.is_terminal() { Input::Terminal } else { Input::Piped(&mut stdin) },
        out: Screen::of_process(&mut stdout, &environment),
        err: &mut stderr,
    };
    ExitCode::from(run_in(&mut shell, typed))
}

/// Runs a command in these surroundings: the exit code is 0, or the failure's after a line about it on stderr.
pub fn run_in(shell: &mut Shell<'_>, typed: impl IntoIterator<Item = OsString>) -> u8 {
    let failure = match normalize_args::normalised(typed).and_then(|words| obey(shell, &words)) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    match &failure {
        Failure::Closed | Failure::CutShort => {}
        Failure::Usage(what) => shell.note(&format!("svc: {what}")),
        failure => shell.note(&format!("svc: {failure}")),
    }
    failure.exit_code()
}

fn obey(shell: &mut Shell<'_>, words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let svc = match Svc::from_args(&["svc"], &words) {
        Ok(svc) => svc,
        Err(early) if early.status.is_ok() => return shell.out.text(&early.output),
        Err(early) => return Err(Failure::Usage(one_line(&early.output, &words))),
    };
    if svc.version {
        return shell.out.line(concat!("svc ", env!("CARGO_PKG_VERSION")));
    }
    match svc.command {
        None => Err(Failure::Usage("no command given: see `svc --help`".to_owned())),
        Some(Command::Server(command)) => command.run(shell),
        Some(Command::Agent(command)) => command.run(shell),
        Some(Command::Methods(command)) => command.run(shell),
        Some(Command::Run(command)) => command.run(shell),
        Some(Command::Event(command)) => command.run(shell),
        Some(Command::Sink(command)) => command.run(shell),
        Some(Command::Script(command)) => command.run(shell),
        Some(Command::Method(command)) => command.run(shell),
        Some(Command::Mcp(command)) => command.run(shell),
        Some(Command::Subscription(command)) => command.run(shell),
        Some(Command::Space(command)) => command.run(shell),
        Some(Command::Template(command)) => command.run(shell),
        Some(Command::Token(command)) => command.run(shell),
        Some(Command::User(command)) => command.run(shell),
        Some(Command::Role(command)) => command.run(shell),
        Some(Command::Group(command)) => command.run(shell),
        Some(Command::Audit(command)) => command.run(shell),
        Some(Command::Login(command)) => command.run(shell),
        Some(Command::Whoami(command)) => command.run(shell),
        Some(Command::Config(command)) => command.run(shell),
        Some(Command::Completions(command)) => command.run(shell),
    }
}

/// The parser's complaint, which may take several lines, as one that ends in where to look.
fn one_line(complaint: &str, words: &[&str]) -> String {
    let said = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
    // The longest run of leading words that names a command is what the help is about.
    let named = (1..=words.len().min(2)).rev().find(|&count| {
        let asked: Vec<&str> = words[..count].iter().copied().chain(["--help"]).collect();
        Svc::from_args(&["svc"], &asked).is_err_and(|early| early.status.is_ok())
    });
    let command = named.map_or_else(|| "svc".to_owned(), |count| format!("svc {}", words[..count].join(" ")));
    format!("{}: see `{command} --help`", said.trim_end_matches('.'))
}

#[cfg(test)]
mod tests;
