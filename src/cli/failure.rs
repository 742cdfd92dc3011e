//! Why a command did not do what was asked, the exit code that says so, and the one line on stderr
//! that says what to do next.

use super::{access::TokenSource, agent::StartError, server::ServerError};
use crate::{
    agent::AgentError,
    cli::sink_file::SinkFileError,
    platform::config::{ConfigError, toml_fault},
};
use std::{fmt, io, path::PathBuf};

/// Everything that can end a command early.
#[derive(Debug)]
pub enum Failure {
    /// What was typed makes no sense.
    Usage(String),
    /// No answer came from the server.
    Unreachable {
        server: String,
        why: String,
    },
    /// No answer came from the agent.
    NoAgent {
        agent: String,
        why: String,
    },
    /// The agent answered, and could not ask its server.
    AgentNotConnected(String),
    /// The agent takes this from its own user only.
    AgentRefused(String),
    /// 401 or 403. The source of the token decides the advice.
    Refused {
        refusal: Refusal,
        message: String,
        token: TokenSource,
    },
    /// The server understood and said no.
    Rejected {
        status: u16,
        code: String,
        message: String,
    },
    /// Something answered that is not our server.
    Foreign {
        server: String,
        why: String,
    },
    /// The request was carried out, and what came of it is bad news. Stdout has the details.
    Bad(String),
    /// No object has this name, or several have.
    NoSuch(String),
    Config(ConfigError),
    Server(ServerError),
    Agent(StartError),
    /// A sink file that cannot be applied.
    SinkFile(SinkFileError),
    File {
        path: PathBuf,
        source: io::Error,
    },
    /// Another file of ours that does not read as what it should be.
    Malformed {
        path: PathBuf,
        why: String,
    },
    /// Whoever read our stdout has seen enough, as `| head` does.
    Closed,
    /// The same, while a program of the user's own was running, which has therefore not come to its end.
    CutShort,
    Output(io::Error),
}

/// The two ways the server refuses a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401: it does not know who we are.
    Unknown,
    /// 403: it does, and that is not enough.
    Forbidden,
}

impl Failure {
    /// The process's exit code (DESIGN 3).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } | Self::NoAgent { .. } | Self::AgentNotConnected(_) => 3,
            Self::Refused { .. } | Self::AgentRefused(_) | Self::Agent(StartError::Agent(AgentError::Revoked(_))) => 4,
            Self::Rejected { .. }
            | Self::Foreign { .. }
            | Self::Bad(_)
            | Self::NoSuch(_)
            | Self::Config(_)
            | Self::Server(_)
            | Self::Agent(_)
            | Self::SinkFile(_)
            | Self::File { .. }
            | Self::Malformed { .. }
            | Self::CutShort
            | Self::Output(_) => 1,
        }
    }

    /// What went wrong with stdout. A closed one is no fault of ours.
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
            Self::NoAgent { agent, why } => write!(
                f,
                "cannot reach the agent at {agent} ({why}): start one with `svc agent start`, or name another in \
                 SVC_AGENT_URL"
            ),
            Self::AgentNotConnected(message) | Self::AgentRefused(message) => f.write_str(message),
            Self::Refused { refusal: Refusal::Unknown, token: TokenSource::None, .. } => {
                f.write_str("no token to show to the server: run `svc login`, or set --token or SVC_TOKEN")
            }
            // These words are about the name and the password, and need no others.
            Self::Refused { refusal: Refusal::Unknown, message, token: TokenSource::Password } => f.write_str(message),
            // The server's own words are about headers, which nobody here has written.
            Self::Refused { refusal: Refusal::Unknown, token, .. } => {
                write!(f, "the token from {token} is not valid: log in again with `svc login`, or set another token")
            }
            Self::Refused { refusal: Refusal::Forbidden, message, .. } => {
                write!(f, "{message}: use a token of a user who may, or ask an administrator for the permission")
            }
            Self::Rejected { status, code, message } if *status >= 500 => {
                write!(f, "{message} ({status} {code}): the server's log says more")
            }
            Self::Rejected { status, code, message } => write!(f, "{message} ({status} {code})"),
            Self::Foreign { server, why } => {
                write!(f, "cannot make sense of the answer from {server} ({why}): check that it is an svc server")
            }
            Self::Config(ConfigError::File { path, source }) => write!(f, "{}: {}", path.display(), toml_fault(source)),
            Self::SinkFile(SinkFileError::Toml { path, source }) => {
                write!(f, "{}: {}", path.display(), toml_fault(source))
            }
            Self::Config(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Agent(error) => error.fmt(f),
            Self::SinkFile(error) => error.fmt(f),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Malformed { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Closed | Self::CutShort => f.write_str("output closed"),
            Self::Output(error) => write!(f, "cannot write to stdout: {error}"),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::Agent(error)
    }
}

impl From<SinkFileError> for Failure {
    fn from(error: SinkFileError) -> Self {
        Self::SinkFile(error)
    }
}
