//! The error of a run.

use super::{json::JsonError, limits::LimitExceeded, program::CompileError};
use crate::model::timestamp::Timestamp;
use serde_json::value::RawValue;

/// The reason a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The program's own error, with its line.
    #[error("{0}")]
    Raised(String),
    /// The program raised a table: `error { code = …, message = …, data = … }`.
    #[error("{message}")]
    RaisedWith { code: Option<i64>, message: String, data: Option<Box<RawValue>> },
    #[error("it {0}")]
    Limit(LimitExceeded),
    /// A limit was exceeded at a known `file:line`.
    #[error("{location}: it {limit}")]
    LimitAt { limit: LimitExceeded, location: String },
    #[error("the result cannot be sent: {0}")]
    NotJson(JsonError),
    #[error("the result must be a table or a string, not {0}")]
    NoBody(&'static str),
    /// The input of the run is over a budget of [`super::json`].
    #[error("the data cannot be read: {0}")]
    Data(JsonError),
    #[error("it does not compile: {0}")]
    Compile(CompileError),
    /// The run exceeded a limit where it could not be interrupted, and its worker process was killed.
    #[error("it {0}, and its process was killed")]
    Killed(LimitExceeded),
    /// The worker process ended by itself during the run.
    #[error("its process ended: {0}")]
    Crashed(String),
    /// The program killed its worker too often.
    #[error(
        "it is quarantined until {until} or until it is changed, because its process ended {count} times in a row: {why}"
    )]
    Quarantined { until: Timestamp, count: u32, why: String },
    #[error("too many scripts are waiting to run")]
    Busy,
    #[error("the server shuts down")]
    Stopped,
    /// A defect of the host, not of the program.
    #[error("the script host failed; the server's log has more")]
    Host,
}
