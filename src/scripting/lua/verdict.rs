//! The decision of a script about its event.

use mlua::{UserData, Value};
use std::time::Duration;

/// The end of a script's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The script returned: the event is handled.
    Ack,
    /// The script raised an error or exceeded a limit; the message says which and on what line.
    Failed(String),
    /// `svc.retry`: try again, no sooner than `after`.
    Retry { after: Duration, why: String },
    /// `svc.skip`: the event is not for this script.
    Skip(String),
    /// `svc.dead`: no further attempt can help.
    Dead(String),
    /// The executor had no room to run the script.
    NotRun(String),
}

// A script holds a verdict as an opaque value: it can return one, and make one only through `svc`.
impl UserData for Verdict {}

impl Verdict {
    /// Reads the verdict from a script's return value. A value that is no verdict is an ordinary return, an ack.
    pub(super) fn of(returned: &Value) -> Self {
        match returned {
            Value::UserData(data) => data.borrow::<Self>().map_or(Self::Ack, |verdict| verdict.clone()),
            _ => Self::Ack,
        }
    }
}
