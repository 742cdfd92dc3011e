//! Failures of commands: each has an exit code and one line on stderr that says what to do next.

use crate::{
    agent::AgentError, cli::sink_file::SinkFileError, platform::config::ConfigError, server::daemon::DaemonError,
};
use std::{fmt, io, net::SocketAddr, path::PathBuf};

/// Everything that can end a command early.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong or contradict each other.
    Usage(String),
    /// The server could not be connected to.
    Unreachable {
        server: String,
        why: String,
    },
    /// The connection to the server or the agent broke, or its answer took too long, after the request was sent.
    NoAnswer {
        server: String,
        why: String,
        effect: RequestEffect,
    },
    /// No answer came from the agent.
    NoAgent {
        agent: String,
        why: String,
    },
    /// The agent answered that it has no connection to a server.
    AgentNotConnected(String),
    /// The agent takes this request from its own user only.
    AgentRefused(String),
    /// The server answered 401 or 403. The source of the token decides the advice.
    Refused {
        refusal: Refusal,
        message: String,
        token: TokenSource,
    },
    /// The server answered with another error.
    Rejected {
        status: u16,
        code: String,
        message: String,
    },
    /// The answer is not one of an svc server.
    Foreign {
        server: String,
        status: u16,
        why: String,
    },
    /// The request was carried out with a bad result. Stdout has the details.
    Bad(String),
    /// No record has this name, or several have.
    NoSuch(String),
    Config(ConfigError),
    Startup(StartupError),
    /// A sink file that cannot be applied.
    SinkFile(SinkFileError),
    File {
        path: PathBuf,
        source: io::Error,
    },
    /// Another file that cannot be parsed.
    Malformed {
        path: PathBuf,
        why: String,
    },
    /// The reader of stdout closed it, as `| head` does.
    Closed,
    /// The reader of stdout closed it while the user's own program was running, which was stopped.
    ClosedDuringRun,
    Output(io::Error),
}

/// The effect of a request on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEffect {
    /// It only reads.
    Reads,
    Changes,
}

/// The refusals of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401: the caller is unknown.
    Unknown,
    /// 403: the caller lacks a permission.
    Forbidden,
    /// 403: the token's scopes do not reach this.
    OutOfScope,
}

/// The place a token was found in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    Flag,
    Environment,
    File(PathBuf),
    /// There is no token: a password was sent instead.
    Password,
    None,
}

/// The server or the agent could not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("cannot listen on {address}: {source}; stop what is there, or use --listen")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start: {0}")]
    Start(io::Error),
    #[error("cannot log: {0}")]
    Log(#[from] log::SetLoggerError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl Failure {
    /// The process's exit code: 1 failed, 2 bad usage, 3 unreachable, 4 refused; 0 if the reader of stdout closed it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::NoAgent { .. } | Self::AgentNotConnected(_) => 3,
            Self::Refused { .. }
            | Self::AgentRefused(_)
            // What stands before the server may refuse a request too.
            | Self::Foreign { status: 401 | 403, .. }
            | Self::Startup(StartupError::Agent(AgentError::Revoked(_) | AgentError::Replaced(_))) => 4,
            Self::Rejected { .. }
            | Self::Foreign { .. }
            | Self::Bad(_)
            | Self::NoSuch(_)
            | Self::Config(_)
            | Self::Startup(_)
            | Self::SinkFile(_)
            | Self::File { .. }
            | Self::Malformed { .. }
            | Self::ClosedDuringRun
            | Self::Output(_) => 1,
        }
    }

    /// Returns true if the same request can succeed later: no answer came, or the server or what stands before it
    /// cannot take requests for now.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::NoAgent { .. } | Self::AgentNotConnected(_) => {
                true
            }
            Self::Rejected { status, .. } | Self::Foreign { status, .. } => matches!(status, 429 | 502..=504),
            _ => false,
        }
    }

    /// Returns true if an event that failed so is kept in the spool: for a failure that may pass, and for an answer
    /// that is not one of svc, such as the page of a network that wants a login.
    pub fn keeps_event(&self) -> bool {
        self.is_temporary() || matches!(self, Self::Foreign { .. }) && !self.is_final()
    }

    /// Returns true if the server will refuse the same request again.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Rejected { status, .. } => matches!(status, 400..=499) && !matches!(status, 408 | 429),
            // Something before the server refuses this very request.
            Self::Foreign { status, .. } => matches!(status, 400 | 413 | 414 | 415 | 422 | 431),
            Self::Bad(_) => true,
            _ => false,
        }
    }

    /// The failure of a write to stdout. A closed stdout is no error.
    pub fn of_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Output(error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) | Self::Bad(what) | Self::NoSuch(what) => f.write_str(what),
            Self::Unreachable { server, why } => write!(
                f,
                "cannot reach {server} ({why}): start it with `svc server`, or name another with --server or SVC_SERVER"
            ),
            Self::NoAnswer { server, why, effect: RequestEffect::Reads } => {
                write!(f, "no answer came from {server} ({why}): try again, or check that it is an svc server")
            }
            Self::NoAnswer { server, why, effect: RequestEffect::Changes } => write!(
                f,
                "no answer came from {server} ({why}): the request may have taken effect; look before you repeat it"
            ),
            Self::NoAgent { agent, why } => write!(
                f,
                "cannot reach the agent at {agent} ({why}): start one with `svc agent start`, or name another in \
                 SVC_AGENT_URL"
            ),
            Self::AgentNotConnected(message) | Self::AgentRefused(message) => f.write_str(message),
            Self::Refused { refusal: Refusal::Unknown, token: TokenSource::None, .. } => {
                f.write_str("no token to show to the server: run `svc login`, or set --token or SVC_TOKEN")
            }
            // The message is about the name and the password.
            Self::Refused { refusal: Refusal::Unknown, message, token: TokenSource::Password } => f.write_str(message),
            // The server's message is about headers, which the user has not written.
            Self::Refused { refusal: Refusal::Unknown, token, .. } => {
                write!(f, "the token from {token} is not valid: log in again with `svc login`, or set another token")
            }
            Self::Refused { refusal: Refusal::OutOfScope, message, .. } => f.write_str(message),
            Self::Refused { refusal: Refusal::Forbidden, message, .. } => {
                write!(f, "{message}: use a token of a user who may, or ask an administrator for the permission")
            }
            // The messages of these errors say what to do themselves.
            Self::Rejected { status, code, message }
                if *status >= 500 && !matches!(code.as_str(), "disk_full" | "stopping" | "damaged_record") =>
            {
                write!(f, "{message} ({status} {code}): the server's log says more")
            }
            Self::Rejected { status, code, message } => write!(f, "{message} ({status} {code})"),
            Self::Foreign { server, status, why } => {
                let why = format!("status {status}: {why}");
                write!(f, "cannot make sense of the answer from {server} ({why}): check that it is an svc server")
            }
            Self::Config(error) => error.fmt(f),
            Self::Startup(error) => error.fmt(f),
            Self::SinkFile(error) => error.fmt(f),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Malformed { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Closed | Self::ClosedDuringRun => f.write_str("output closed"),
            Self::Output(error) => write!(f, "cannot write to stdout: {error}"),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StartupError> for Failure {
    fn from(error: StartupError) -> Self {
        Self::Startup(error)
    }
}

impl From<SinkFileError> for Failure {
    fn from(error: SinkFileError) -> Self {
        Self::SinkFile(error)
    }
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--token"),
            Self::Environment => f.write_str("SVC_TOKEN"),
            Self::File(path) => path.display().fmt(f),
            Self::Password => f.write_str("a password"),
            Self::None => f.write_str("nowhere"),
        }
    }
}
