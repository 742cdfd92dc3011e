//! The command line: `main` → [`run`] → one `match`.
//!
//! Each command has an argh struct that holds its arguments, and checks them before anything is sent. [`macros`]
//! declares the arguments that commands share. [`normalize_args`] accepts spellings that argh does not know; [`access`]
//! finds the server and the token; [`client`] sends requests to the server, and to the agent of the same space.
//! [`resource`] describes each kind of record, to list, show and delete it. [`shell`] is the environment with stdin,
//! stdout and stderr, and [`failure`] the exit codes.
//!
//! - commands on the server of a user: [`event`], [`sink`], [`source`], [`script`], [`space`], [`template`],
//!   [`method`], [`user`], [`identity`], [`login`], [`audit`], [`backup`], [`mcp`]
//! - commands of a host: [`server`], [`agent`], [`run`](mod@run), [`restore`], [`store`], [`completions`]
//! - parts of commands: [`arguments`] with [`hidden_input`] and [`hide_argv`], [`activation`], [`definition_files`]
//!   with [`sink_file`] and [`source_file`], [`partial_file`], [`progress`], [`table`], [`json`]

#[macro_use]
mod macros;

pub mod access;
pub mod activation;
pub mod agent;
pub mod arguments;
pub mod audit;
pub mod backup;
pub mod client;
pub mod completions;
pub mod definition_files;
pub mod event;
pub mod failure;
mod hidden_input;
mod hide_argv;
pub mod identity;
pub mod json;
pub mod login;
pub mod mcp;
pub mod method;
pub mod normalize_args;
pub mod partial_file;
pub mod progress;
pub mod resource;
pub mod restore;
pub mod run;
pub mod script;
pub mod server;
pub mod shell;
pub mod sink;
pub mod sink_file;
pub mod source;
pub mod source_file;
pub mod space;
pub mod store;
pub mod table;
pub mod template;
pub mod user;

use crate::{
    platform::{config, file_mode, spelling},
    scripting::workers::{WORKER_COMMAND, run_worker},
};
use argh::{ArgsInfo, FromArgs};
use failure::Failure;
use shell::{Shell, Stdin, Stdout};
use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    process::ExitCode,
};

/// Route events: run the server, raise events, and manage the sinks they are delivered to and the spaces they come
/// from.
#[derive(FromArgs, ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    name = "svc",
    help_triggers("-h", "--help"),
    example = "{command_name} server\n{command_name} event deploy.done '{{\"version\": \"1.2\"}}' --wait",
    note = "`svc COMMAND --help` has an example of each command.",
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

/// The commands of `svc`.
#[derive(FromArgs, ArgsInfo, Clone, Debug, PartialEq)]
#[argh(subcommand)]
pub enum Command {
    Server(server::ServerCommand),
    Agent(agent::AgentCommand),
    Methods(method::MethodsCommand),
    Run(run::RunCommand),
    Event(event::EventCommand),
    Sink(sink::SinkCommand),
    Source(source::SourceCommand),
    Script(script::ScriptCommand),
    Method(method::MethodCommand),
    Mcp(mcp::McpCommand),
    Subscription(sink::queues::SubscriptionCommand),
    Space(space::SpaceCommand),
    Template(template::TemplateCommand),
    Token(identity::TokenCommand),
    User(user::UserCommand),
    Role(identity::RoleCommand),
    Group(identity::GroupCommand),
    Audit(audit::AuditCommand),
    Backup(backup::BackupCommand),
    Restore(restore::RestoreCommand),
    Store(store::StoreCommand),
    Login(login::LoginCommand),
    Whoami(login::WhoamiCommand),
    Config(server::ConfigCommand),
    Completions(completions::CompletionsCommand),
}

/// Commands that write databases and archives. Files of theirs are accessible to this user alone.
const PRIVATE_FILES: [&str; 5] = ["server", "agent", "backup", "restore", "store"];

/// Runs the command of this process and returns its exit code.
pub fn run(typed: impl IntoIterator<Item = OsString>) -> ExitCode {
    let typed: Vec<OsString> = typed.into_iter().collect();
    // The server starts its worker processes so. It is no command for people, and in no help.
    if typed.first().is_some_and(|command| command == WORKER_COMMAND) {
        return run_worker();
    }
    let environment = |name: &str| std::env::var(name).ok();
    let (mut stdin, mut stdout, mut stderr) = (io::stdin(), io::stdout(), io::stderr());
    let mut shell = Shell {
        environment: &environment,
        input: if stdin.is_terminal() { Stdin::Terminal } else { Stdin::Piped(&mut stdin) },
        out: Stdout::of_process(&mut stdout, &environment),
        err: &mut stderr,
    };
    // First of all, while there is one thread: every user of the machine can read the arguments.
    hide_argv::hide_secret_options();
    // A variable that is left out could mean another server, or another user.
    for name in ["SVC_SERVER", "SVC_TOKEN", "SVC_AGENT_URL", "SVC_AGENT_TOKEN", "SVC_DATA"] {
        if std::env::var_os(name).is_some_and(|value| value.to_str().is_none()) {
            let failure =
                Failure::Usage(format!("the environment variable {name} is not UTF-8: set it anew, or unset it"));
            shell.note(&format!("svc: {failure}"));
            return ExitCode::from(failure.exit_code());
        }
    }
    if typed.first().is_some_and(|command| PRIVATE_FILES.iter().any(|private| command == private)) {
        file_mode::make_new_files_private();
    }
    // The stderr of `svc run` is that of the program it runs.
    if typed.first().is_none_or(|command| command != "run") {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for warning in config::variable_warnings(names) {
            shell.note(&format!("svc: warning: {warning}"));
        }
    }
    ExitCode::from(run_in(&mut shell, typed))
}

/// Runs a command in this shell. A failure is printed to stderr in one line, and decides the exit code.
pub fn run_in(shell: &mut Shell<'_>, typed: impl IntoIterator<Item = OsString>) -> u8 {
    let words = normalize_args::normalize(typed, &Svc::get_args_info());
    let failure = match words.and_then(|words| dispatch(shell, &words)) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    match &failure {
        Failure::Closed | Failure::ClosedDuringRun => {}
        Failure::Usage(what) => shell.note(&format!("svc: {what}")),
        failure => shell.note(&format!("svc: {failure}")),
    }
    failure.exit_code()
}

fn dispatch(shell: &mut Shell<'_>, words: &[String]) -> Result<(), Failure> {
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
        Some(Command::Source(command)) => command.run(shell),
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
        Some(Command::Backup(command)) => command.run(shell),
        Some(Command::Restore(command)) => command.run(shell),
        Some(Command::Store(command)) => command.run(shell),
        Some(Command::Login(command)) => command.run(shell),
        Some(Command::Whoami(command)) => command.run(shell),
        Some(Command::Config(command)) => command.run(shell),
        Some(Command::Completions(command)) => command.run(shell, &Svc::get_args_info()),
    }
}

/// The parser's error, which may take several lines, as one that ends with the help to read.
fn one_line(error: &str, words: &[&str]) -> String {
    if let Some(told) = mistyped_command(words) {
        return told;
    }
    let said = error.split_whitespace().collect::<Vec<_>>().join(" ");
    // The help is that of the longest command among the leading words.
    let named = (1..=words.len().min(2)).rev().find(|&count| {
        let asked: Vec<&str> = words[..count].iter().copied().chain(["--help"]).collect();
        Svc::from_args(&["svc"], &asked).is_err_and(|early| early.status.is_ok())
    });
    let command = named.map_or_else(|| "svc".to_owned(), |count| format!("svc {}", words[..count].join(" ")));
    format!("{}: see `{command} --help`", said.trim_end_matches('.'))
}

/// The command that a mistyped name among the leading words probably means.
fn mistyped_command(words: &[&str]) -> Option<String> {
    let mut command = Svc::get_args_info();
    let mut path = "svc".to_owned();
    for word in words.iter().take_while(|word| !word.starts_with('-')) {
        match command.commands.iter().position(|inner| inner.name == *word) {
            Some(found) => command = command.commands.swap_remove(found).command,
            None => {
                let meant = spelling::nearest(word, command.commands.iter().map(|inner| inner.name))?;
                return Some(format!("no command is named `{path} {word}`: did you mean `{path} {meant}`?"));
            }
        }
        path = format!("{path} {word}");
    }
    None
}

#[cfg(test)]
mod tests;
