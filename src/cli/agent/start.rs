//! `svc agent start`: reads the settings, binds the address, and runs the agent until a signal or a server ends it.

use crate::{
    agent::{
        self, AgentError, AgentSettings, BearerToken, BearerTokenError, ReconnectPolicy, ServerUrl, ServerUrlError,
        StopSignals,
    },
    cli::{
        access::DEFAULT_SERVER,
        failure::{Failure, StartupError},
        hide_argv::hide_secret,
        server::{cancel_on_signal, start_logging},
        shell::Shell,
    },
    platform::{config::Config, process_group},
};
use std::{
    io::{self, Read as _},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The time a new method server must run before it counts as started. Interpreters find most errors in it.
const START_CHECK: Duration = Duration::from_millis(300);

/// The time a server may take to answer a registration before the agent reconnects.
const ANSWER: Duration = Duration::from_secs(15);

/// Run the agent of a space.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "start",
    help_triggers("-h", "--help"),
    example = "SVC_AGENT_TOKEN=sva_… {command_name}\n\
               {command_name} --server https://svc.example --methods-file methods.toml\n\
               {command_name} --config /etc/svc/svc.toml",
    note = "The token is what `svc space create` or `svc space token NAME` prints. It is better in SVC_AGENT_TOKEN than in \
            --token, which others on this machine can see for a moment. What the agent keeps is in ~/.local/share/svc-agent."
)]
pub struct StartAgent {
    /// a server to keep a link to, such as https://svc.example; more than once for several (otherwise SVC_SERVER, or
    /// `agent.server`, or http://127.0.0.1:7300)
    #[argh(option, arg_name = "url")]
    server: Vec<String>,

    /// the agent's token (otherwise SVC_AGENT_TOKEN)
    #[argh(option)]
    token: Option<String>,

    /// loopback address and port for what runs in the space; port 0 picks a free one (otherwise SVC_AGENT_LISTEN)
    #[argh(option, arg_name = "addr")]
    listen: Option<SocketAddr>,

    /// where to keep events until a server has them
    #[argh(option, arg_name = "dir")]
    data: Option<PathBuf>,

    /// a registration to publish once connected (otherwise SVC_METHODS_FILE)
    #[argh(option, arg_name = "file")]
    methods_file: Option<PathBuf>,

    /// the config file
    #[argh(option, arg_name = "file")]
    config: Option<PathBuf>,

    /// refuse data of an older format instead of rewriting it
    #[argh(switch)]
    no_migrate: bool,
}

/// The settings that the flags, the environment and the file give together.
struct AgentPlan {
    config: Config,
    settings: AgentSettings,
    /// Overwritten in the process's arguments.
    secret: String,
    supervision: Supervision,
}

/// The supervision of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supervision {
    None,
    /// The parent holds its stdin, and is gone when that ends.
    Stdin,
}

impl StartAgent {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let plan = self.plan(shell.environment)?;
        Ok(serve(plan)?)
    }

    fn plan(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<AgentPlan, Failure> {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let mut config = Config::load(self.config.as_deref(), environment)?;
        if let Some(address) = self.listen {
            config.agent.listen = address;
        }
        if !config.agent.listen.ip().is_loopback() {
            return Err(Failure::Usage(AgentError::NotLoopback(config.agent.listen).to_string()));
        }
        if let Some(dir) = self.data {
            config.agent.data = dir;
        }
        if self.no_migrate {
            config.store.migrate = false;
        }
        config.agent.data = config.agent_data_dir(environment)?;
        // SVC_AGENT_…, which `Config` has read already, wins over the variable for all commands.
        let several = |text: String| text.split(',').map(|url| url.trim().to_owned()).collect();
        if !self.server.is_empty() {
            config.agent.server = self.server;
        } else if let (None, Some(servers)) = (set("SVC_AGENT_SERVER"), set("SVC_SERVER")) {
            config.agent.server = several(servers);
        }
        if config.agent.server.is_empty() {
            config.agent.server = vec![DEFAULT_SERVER.to_owned()];
        }
        if let Some(file) = self.methods_file {
            config.agent.methods_file = file;
        } else if let (None, Some(file)) = (set("SVC_AGENT_METHODS_FILE"), set("SVC_METHODS_FILE")) {
            config.agent.methods_file = file.into();
        }
        let secret = self.token.or_else(|| set("SVC_AGENT_TOKEN")).ok_or_else(|| {
            let advice = "set SVC_AGENT_TOKEN to what `svc space create` or `svc space token NAME` printed";
            Failure::Usage(format!("no token to show to the server: {advice}"))
        })?;
        let supervision = match set("SVC_AGENT_SUPERVISED").as_deref() {
            Some("1") => Supervision::Stdin,
            _ => Supervision::None,
        };
        let settings = settings(&config, &secret)?;
        Ok(AgentPlan { config, settings, secret, supervision })
    }
}

fn settings(config: &Config, secret: &str) -> Result<AgentSettings, Failure> {
    let mut servers: Vec<ServerUrl> = Vec::new();
    for server in &config.agent.server {
        let server = server.parse().map_err(|error: ServerUrlError| Failure::Usage(error.to_string()))?;
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    let token: BearerToken = secret.parse().map_err(|error: BearerTokenError| Failure::Usage(error.to_string()))?;
    let methods_file = &config.agent.methods_file;
    Ok(AgentSettings {
        servers,
        token,
        data: config.agent.data.clone(),
        setup_timeout: config.agent.setup_timeout.0,
        methods_file: (!methods_file.as_os_str().is_empty()).then(|| methods_file.clone()),
        spool: config.agent.spool,
        heartbeat: config.agent.heartbeat.0,
        max_payload: config.limits.payload.bytes(),
        drain: config.limits.drain.0,
        store: config.store_options(),
        directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        node_id: node_name(),
        reconnect: ReconnectPolicy::default(),
        start_check: START_CHECK,
        answer_timeout: ANSWER,
    })
}

fn serve(plan: AgentPlan) -> Result<(), StartupError> {
    hide_secret(plan.secret.trim());
    start_logging(&plan.config.log)?;
    // One thread: an agent copies messages from one pipe to another, and waking another thread costs more than that.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartupError::Start)?;
    let run = runtime.block_on(async {
        let address = plan.config.agent.listen;
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| StartupError::Listen { address, source })?;
        let signals = StopSignals::default();
        cancel_on_signal(signals.stop.clone()).map_err(StartupError::Start)?;
        if plan.supervision == Supervision::Stdin {
            cancel_on_end_of_stdin(signals.abandoned.clone()).map_err(StartupError::Start)?;
        }
        Ok(agent::run(plan.settings, listener, signals).await?)
    });
    process_group::kill_all();
    run
}

/// Cancels when stdin ends, which it does when the parent process dies.
fn cancel_on_end_of_stdin(abandoned: CancellationToken) -> io::Result<()> {
    // A thread of its own that is never joined: the runtime would wait for its blocking reads.
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut ignored = [0; 256];
        while io::stdin().lock().read(&mut ignored).is_ok_and(|count| count > 0) {}
        log::info!("stopping: the process that started this agent is gone");
        abandoned.cancel();
    })?;
    Ok(())
}

/// The host name of the machine, or `unknown`.
fn node_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the system writes at most as many bytes as there are.
    let status = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    match status {
        0 if length > 0 => String::from_utf8_lossy(&name[..length]).into_owned(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;
    use std::path::Path;

    fn plan(words: &[&str], environment: &[(&str, &str)]) -> Result<AgentPlan, Failure> {
        let find = |name: &str| {
            let set = [("HOME", "/home/ada"), ("SVC_AGENT_TOKEN", "sva_env")];
            environment.iter().chain(&set).find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        StartAgent::from_args(&["start"], words).unwrap().plan(&find)
    }

    fn servers(plan: &AgentPlan) -> Vec<String> {
        plan.settings.servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nothing_but_a_token_is_needed() {
        let plan = plan(&[], &[]).unwrap();
        assert_eq!(servers(&plan), ["http://127.0.0.1:7300"]);
        assert_eq!(plan.settings.data, Path::new("/home/ada/.local/share/svc-agent"));
        assert_eq!(plan.config.agent.listen.to_string(), "127.0.0.1:7301");
        assert_eq!((plan.settings.methods_file.clone(), plan.supervision), (None, Supervision::None));
        assert_eq!((plan.settings.spool, plan.settings.heartbeat.as_secs()), (10_000, 15));
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        let environment = [
            ("SVC_SERVER", "https://one.example, https://two.example"),
            ("SVC_AGENT_LISTEN", "127.0.0.1:9"),
            ("SVC_AGENT_DATA", "/environment"),
            ("SVC_METHODS_FILE", "environment.toml"),
            ("SVC_AGENT_SUPERVISED", "1"),
        ];
        let told = plan(&[], &environment).unwrap();
        assert_eq!(servers(&told), ["https://one.example", "https://two.example"]);
        assert_eq!((told.config.agent.listen.port(), told.settings.data.as_path()), (9, Path::new("/environment")));
        assert_eq!(told.settings.methods_file.as_deref(), Some(Path::new("environment.toml")));
        assert_eq!((told.secret.as_str(), told.supervision), ("sva_env", Supervision::Stdin));
        let words = [
            "--server",
            "a.example",
            "--server",
            "b.example",
            "--server",
            "a.example",
            "--token",
            "sva_flag",
            "--listen",
            "127.0.0.1:0",
            "--data",
            "/flag",
            "--methods-file",
            "flag.toml",
        ];
        let told = plan(&words, &environment).unwrap();
        assert_eq!(servers(&told), ["http://a.example", "http://b.example"]);
        assert_eq!((told.config.agent.listen.port(), told.settings.data.as_path()), (0, Path::new("/flag")));
        assert_eq!(told.settings.methods_file.as_deref(), Some(Path::new("flag.toml")));
        assert_eq!(told.secret, "sva_flag");
    }

    #[test]
    fn settings_that_cannot_work_are_bad_usage() {
        for (words, environment, part) in [
            (&[][..], &[("SVC_AGENT_TOKEN", "")][..], "SVC_AGENT_TOKEN"),
            (&["--token", "a b"], &[], "svc space token"),
            (&["--listen", "0.0.0.0:7301"], &[], "loopback"),
            (&["--server", "ftp://x"], &[], "http://127.0.0.1:7300"),
        ] {
            let failure = plan(words, environment).err().unwrap();
            assert_eq!(failure.exit_code(), 2, "{words:?}");
            assert!(failure.to_string().contains(part), "{words:?}: {failure}");
        }
    }
}
