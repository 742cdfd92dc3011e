//! The decision of a script about its event.

use super::bounded_text::bounded;
use mlua::{Lua, UserData, Value};
use std::time::Duration;

/// The end of a script's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The script returned: the event is handled.
    Ack,
    /// The script raised an error, returned `false` or `nil` and a reason, or exceeded a limit. The message says which.
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

/// The first verdict that the present run of a script has made, with the name of the function that made it.
///
/// An author who leaves `return` out believes that `svc.retry(…)` ends the run, so the first call is the one that
/// counts.
#[derive(Default)]
pub(super) struct FirstVerdict {
    pub first: Option<(&'static str, Verdict)>,
    made: usize,
}

/// The most verdicts of one run. Their reasons are held outside of Lua's memory.
const MAX_VERDICTS: usize = 100;

impl FirstVerdict {
    /// Records a verdict of the present run, unless it has made one, and returns it.
    ///
    /// # Errors
    ///
    /// Fails if the run has made too many.
    pub fn record(lua: &Lua, name: &'static str, verdict: Verdict) -> Result<Verdict, String> {
        if let Some(mut verdicts) = lua.app_data_mut::<Self>() {
            verdicts.made += 1;
            if verdicts.made > MAX_VERDICTS {
                return Err(format!("a run makes at most {MAX_VERDICTS} verdicts"));
            }
            verdicts.first.get_or_insert_with(|| (name, verdict.clone()));
        }
        Ok(verdict)
    }
}

impl Verdict {
    /// Reads the verdict from the first two values that a script returned. `None` is an ordinary return, which is an
    /// ack unless the run has made a verdict without returning it.
    pub(super) fn returned(first: &Value, second: &Value) -> Option<Self> {
        if let Some(verdict) = Self::held(first) {
            return Some(verdict);
        }
        match first {
            Value::Nil | Value::Boolean(false) if Self::held(second).is_some() => Self::held(second),
            Value::Boolean(false) if second.is_nil() => Some(Self::Failed("the script returned false".to_owned())),
            Value::Function(_) => {
                let message = "the script returned a function: call it, as in `return svc.retry(30, \"why\")`";
                Some(Self::Failed(message.to_owned()))
            }
            _ => returned_failure(first, second).map(Self::Failed),
        }
    }

    fn held(value: &Value) -> Option<Self> {
        value.as_userdata()?.borrow::<Self>().ok().map(|verdict| verdict.clone())
    }
}

/// The reason in `return nil, "why"` and `return false, "why"`, by which Lua code reports a failure without an error.
pub(super) fn returned_failure(first: &Value, second: &Value) -> Option<String> {
    if !matches!(first, Value::Nil | Value::Boolean(false)) || second.is_nil() {
        return None;
    }
    let text = match second {
        Value::String(why) => Some(why.to_string_lossy()),
        Value::Table(table) => {
            table.raw_get::<Option<mlua::LuaString>>("message").ok().flatten().map(|why| why.to_string_lossy())
        }
        _ => None,
    };
    Some(match text {
        Some(why) => bounded(&why).to_owned(),
        None => format!("it returned {} and a reason that is no text", if first.is_nil() { "nil" } else { "false" }),
    })
}
