//! `svc server`: reads the settings, binds the address, and runs the daemon until a signal.

use super::{failure::Failure, shell::Shell};
use crate::{
    platform::{
        config::{Config, Level, Log, LogFormat},
        logging,
    },
    server::daemon::{self, DaemonError},
};
use std::{io, net::SocketAddr, path::PathBuf, time::Duration};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// How long threads that still work keep the process from ending.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Run the server.
#[derive(argh::FromArgs, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "server",
    help_triggers("-h", "--help"),
    example = "{command_name}\n{command_name} --listen 127.0.0.1:0 --data ./data\n\
               {command_name} --config /etc/svc/svc.toml",
    note = "It needs no set-up: without a config file it listens on 127.0.0.1:7300 and keeps its data in \
            ~/.local/share/svc. `svc config show --default` prints every setting."
)]
pub struct Server {
    /// the config file
    #[argh(option, arg_name = "file")]
    config: Option<PathBuf>,

    /// where to keep data
    #[argh(option, arg_name = "dir")]
    data: Option<PathBuf>,

    /// address and port to listen on; port 0 picks a free one
    #[argh(option, arg_name = "addr")]
    listen: Option<SocketAddr>,
}

/// Why the server did not run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}: {source}; stop what is there, or use --listen")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("cannot log: {0}")]
    Log(#[from] log::SetLoggerError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

impl Server {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let config = self.settings(shell.environment)?;
        serve(config).map_err(Failure::Server)
    }

    /// What the flags, the environment and the file come to.
    fn settings(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref(), environment)?;
        if let Some(address) = self.listen {
            config.listen = address;
        }
        if let Some(dir) = self.data {
            config.data = dir;
        }
        config.data = config.data_dir(environment)?;
        Ok(config)
    }
}

fn serve(config: Config) -> Result<(), ServerError> {
    start_logging(&config.log)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(config.workers()).enable_all().build().map_err(ServerError::Start)?;
    let served = runtime.block_on(async {
        let address = config.listen;
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| ServerError::Listen { address, source })?;
        let shutdown = CancellationToken::new();
        cancel_on_signal(shutdown.clone()).map_err(ServerError::Start)?;
        Ok(daemon::run(config, listener, shutdown).await?)
    });
    // All that matters has ended. What still computes somewhere has nobody to tell.
    runtime.shutdown_timeout(LAST_WAIT);
    served
}

/// Cancels on the first SIGTERM or SIGINT. On the second the user has lost patience: the process ends at
/// once, and what was under way is delivered again after the next start.
pub(super) fn cancel_on_signal(shutdown: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if shutdown.is_cancelled() {
                log::warn!("second signal: stopping at once");
                std::process::exit(1);
            }
            log::info!("stopping: finishing what is under way");
            shutdown.cancel();
        }
    });
    Ok(())
}

/// Logs as the settings say.
pub(super) fn start_logging(settings: &Log) -> Result<(), log::SetLoggerError> {
    logging::init(level(settings.level), format(settings.format))
}

fn level(level: Level) -> log::LevelFilter {
    match level {
        Level::Error => log::LevelFilter::Error,
        Level::Warn => log::LevelFilter::Warn,
        Level::Info => log::LevelFilter::Info,
        Level::Debug => log::LevelFilter::Debug,
        Level::Trace => log::LevelFilter::Trace,
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
        let server = Server::from_args(&["server"], &["--listen", "127.0.0.1:0", "--data", "/flag"]).unwrap();
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
