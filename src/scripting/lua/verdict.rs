//! What a script decides about an event.

use mlua::{UserData, Value};
use std::time::Duration;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The script returned: the event is dealt with.
    Ack,
    /// The script raised an error or hit a limit; the message says which and on what line.
    Failed(String),
    /// `svc.retry`: try again, no sooner than this.
    Retry { after: Duration, why: String },
    /// `svc.skip`: the event is of no concern.
    Skip(String),
    /// `svc.dead`: no further attempt can help.
    Dead(String),
    /// There was no room to run it.
    NotRun(String),
}

// Scripts get a verdict as an opaque value: they can return it, not make one up.
impl UserData for Verdict {}

impl Verdict {
    /// What a script's return value decides. Anything that is no verdict is an ordinary return, an ack.
    pub(super) fn of(returned: &Value) -> Self {
        match returned {
            Value::UserData(data) => data.borrow::<Self>().map_or(Self::Ack, |verdict| verdict.clone()),
            _ => Self::Ack,
        }
    }
}
