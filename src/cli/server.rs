//! `svc server` runs the daemon until a signal; `svc config` checks and prints its settings.

use super::{
    arguments::parse_address,
    failure::{Failure, StartupError},
    shell::{OutputFormat, Shell},
};
use crate::{
    agent::ServerUrl,
    platform::{
        config::{Config, DEFAULT_TOML, LogConfig, LogFormat, LogLevel},
        logging, process_group, task,
    },
    server::daemon,
};
use std::{io, net::SocketAddr, path::PathBuf, time::Duration};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// The time that threads still at work delay the end of the process.
const THREAD_GRACE: Duration = Duration::from_secs(2);

/// Run the server.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "server",
    help_triggers("-h", "--help"),
    example = "{command_name}\n{command_name} --listen 127.0.0.1:0 --data ./data\n\
               {command_name} --config /etc/svc/svc.toml",
    note = "It needs no set-up: without a config file it listens on 127.0.0.1:7300 and keeps its data in \
            ~/.local/share/svc. `svc config show --default` prints every setting."
)]
pub struct ServerCommand {
    /// the config file
    #[argh(option, arg_name = "file")]
    config: Option<PathBuf>,

    /// where to keep data
    #[argh(option, arg_name = "dir")]
    data: Option<PathBuf>,

    /// address and port to listen on; port 0 picks a free one
    #[argh(option, arg_name = "addr", from_str_fn(parse_address))]
    listen: Option<SocketAddr>,

    /// refuse data of an older format instead of rewriting it
    #[argh(switch)]
    no_migrate: bool,
}

command_family! {
    /// Check and show the settings of `svc server`.
    #[argh(example = "{command_name} check /etc/svc/svc.toml\n{command_name} show --default > svc.toml")]
    ConfigCommand(ConfigSubcommand) = "config" { CheckConfig, ShowConfig }
}

/// Check a config file, with the environment over it.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(subcommand, name = "check", help_triggers("-h", "--help"), example = "{command_name} /etc/svc/svc.toml")]
pub struct CheckConfig {
    /// the file; only the environment is checked without one
    #[argh(positional)]
    file: Option<PathBuf>,
}

/// Print the settings a server would run with: the file, with the environment over it, over the defaults.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "show",
    help_triggers("-h", "--help"),
    example = "{command_name} --config /etc/svc/svc.toml\n{command_name} --default > svc.toml"
)]
pub struct ShowConfig {
    /// the config file
    #[argh(option, arg_name = "file")]
    config: Option<PathBuf>,

    /// print the documented defaults instead
    #[argh(switch)]
    default: bool,

    /// print JSON instead of TOML
    #[argh(switch)]
    json: bool,
}

impl ServerCommand {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let config = self.settings(shell.environment)?;
        Ok(serve(config)?)
    }

    /// The settings that the flags, the environment and the file give together.
    fn settings(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref(), environment)?;
        if let Some(address) = self.listen {
            config.listen = address;
        }
        if let Some(dir) = self.data {
            config.data = dir;
        }
        if self.no_migrate {
            config.store.migrate = false;
        }
        config.data = config.data_dir(environment)?;
        Ok(config)
    }
}

impl CheckConfig {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let config = Config::load(self.file.as_deref(), shell.environment)?;
        check_unread(&config)?;
        match self.file {
            Some(file) => shell.out.line(&format!("{} is right", file.display())),
            None => shell.out.line("the environment is right"),
        }
    }
}

/// Checks settings that a start of the server accepts unread: those of agents, and names that are only compared.
fn check_unread(config: &Config) -> Result<(), Failure> {
    let wrong = |key: &str, why: &dyn std::fmt::Display| Err(Failure::Bad(format!("`{key}`: {why}")));
    for server in &config.agent.server {
        if let Err(error) = server.parse::<ServerUrl>() {
            return wrong("agent.server", &error);
        }
    }
    if !config.agent.listen.ip().is_loopback() {
        return wrong("agent.listen", &"expected a loopback address, such as 127.0.0.1:7301");
    }
    if let Some(origin) = config.mcp.origins.iter().find(|origin| !origin.contains("://") && *origin != "null") {
        return wrong("mcp.origins", &format_args!("`{origin}` is no origin: write one such as https://app.example"));
    }
    let is_host = |host: &&String| !host.is_empty() && !host.trim_end_matches('/').contains('/');
    if let Some(host) = config.mcp.hosts.iter().find(|host| !is_host(host)) {
        return wrong("mcp.hosts", &format_args!("`{host}` is no host: write one such as svc.example"));
    }
    Ok(())
}

impl ShowConfig {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let format = OutputFormat::of_switch(self.json);
        if self.default {
            return match (format, self.config) {
                (OutputFormat::Text, None) => shell.out.text(DEFAULT_TOML),
                _ => Err(Failure::Usage("--default prints the documented file and goes with no other flag".to_owned())),
            };
        }
        let mut config = Config::load(self.config.as_deref(), shell.environment)?;
        config.data = config.data_dir(shell.environment)?;
        match format {
            OutputFormat::Json => shell.out.json(&serde_json::to_string(&config).expect("settings are JSON")),
            OutputFormat::Text => shell.out.text(&toml::to_string(&config).expect("settings are TOML")),
        }
    }
}

fn serve(config: Config) -> Result<(), StartupError> {
    start_logging(&config.log)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(config.workers()).enable_all().build().map_err(StartupError::Start)?;
    let served = runtime.block_on(async {
        let address = config.listen;
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| StartupError::Listen { address, source })?;
        let shutdown = CancellationToken::new();
        cancel_on_signal(shutdown.clone()).map_err(StartupError::Start)?;
        Ok(daemon::run(config, listener, shutdown).await?)
    });
    // The daemon has ended. Threads still at work have no result to give.
    runtime.shutdown_timeout(THREAD_GRACE);
    process_group::kill_all();
    served
}

/// Cancels on the first SIGTERM or SIGINT. The second ends the process at once; deliveries under way are repeated after
/// the next start.
pub(super) fn cancel_on_signal(shutdown: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    task::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if shutdown.is_cancelled() {
                log::warn!("second signal: stopping at once");
                process_group::kill_all();
                std::process::exit(1);
            }
            log::info!("stopping: finishing what is under way");
            shutdown.cancel();
        }
    });
    Ok(())
}

pub(super) fn start_logging(settings: &LogConfig) -> Result<(), log::SetLoggerError> {
    logging::init(level(settings.level), format(settings.format))
}

fn level(level: LogLevel) -> log::LevelFilter {
    match level {
        LogLevel::Error => log::LevelFilter::Error,
        LogLevel::Warn => log::LevelFilter::Warn,
        LogLevel::Info => log::LevelFilter::Info,
        LogLevel::Debug => log::LevelFilter::Debug,
        LogLevel::Trace => log::LevelFilter::Trace,
    }
}

fn format(format: LogFormat) -> logging::Format {
    match format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;
    use std::path::Path;

    #[test]
    fn a_flag_wins_over_the_environment() {
        let server = ServerCommand::from_args(&["server"], &["--listen", "127.0.0.1:0", "--data", "/flag"]).unwrap();
        let environment = |name: &str| match name {
            "SVC_LISTEN" => Some("127.0.0.1:9".to_owned()),
            "SVC_DATA" => Some("/environment".to_owned()),
            "SVC_ZONE" => Some("eu".to_owned()),
            _ => None,
        };
        let config = server.settings(&environment).unwrap();
        assert_eq!((config.listen.port(), config.data.as_path(), config.zone.as_str()), (0, Path::new("/flag"), "eu"));
    }
}
