//! The error of a run.

use super::{json::JsonError, limits::LimitExceeded};
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
    #[error("too many scripts are waiting to run")]
    Busy,
    #[error("the server shuts down")]
    Stopped,
    /// A defect of the host, not of the program.
    #[error("the script host failed; the server's log has more")]
    Host,
}
