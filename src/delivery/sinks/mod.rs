//! Where events end: webhooks and scripts, and the json-rpc formatters that methods name.
//!
//! [`definition`] makes a [`Sink`] of what its user writes, [`records`] all of them.
//! [`attempt`] makes one delivery attempt; when, how often and in which order is decided in `deliver`.

pub mod body;
pub mod compiled;
pub mod definition;
pub mod formatter;
pub mod records;
pub mod script;
mod script_libraries;
pub mod signature;
#[cfg(test)]
pub(crate) mod test_support;
pub mod webhook;

pub use body::{Body, BodyError};
pub use definition::{Secrets, SinkDefinitionError};
pub use formatter::Formatter;
pub use records::{Book, BookError};
pub use script::Script;
pub use webhook::Webhook;

use crate::{
    model::{
        id::{ScriptId, SinkId},
        owner::Owner,
        pattern::Patterns,
        sink_spec::SinkKind,
        timestamp::Timestamp,
    },
    platform::egress::Egress,
    scripting::{
        lua::{EventInput, Runtime, ScriptError},
        scripts::Scripts,
    },
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// One sink, checked. It is stored as this JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sink {
    pub id: SinkId,
    /// Unique among its owner's sinks.
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub events: Patterns,
    pub owner: Owner,
    /// An inactive sink keeps its queue and is not delivered to.
    pub active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub target: Target,
}

/// What kind of place a sink is, with all that kind needs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Webhook(Webhook),
    Script(Script),
    JsonRpc(Formatter),
}

/// What every attempt needs of the daemon. Cloning it is cheap.
#[derive(Clone)]
pub struct Context {
    pub egress: Egress,
    pub runtime: Runtime,
    /// The scripts that sinks name.
    pub scripts: Scripts,
    /// For one webhook exchange, from resolving the host to the end of the answer.
    pub timeout: Duration,
}

/// One delivery attempt, over.
#[derive(Debug)]
pub struct Attempted {
    pub outcome: Outcome,
    /// The HTTP status, if it came to one.
    pub status: Option<u16>,
    /// Why it was not delivered, in one line.
    pub error: Option<String>,
    /// What a script printed.
    pub log: Vec<String>,
    /// The beginning of the receiver's answer.
    pub response: Option<String>,
    /// The body that was posted.
    pub sent: Option<Bytes>,
    pub duration: Duration,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// A script decided that there was nothing to do.
    Skipped(String),
    /// To be tried again, if attempts are left.
    Failed {
        why: String,
        /// How long the receiver wants to be left alone; `None` leaves it to the backoff.
        retry_after: Option<Duration>,
    },
    /// Not to be tried again.
    Dead(String),
    /// Nothing was tried, for there was no room to run it, or the way there broke. It counts as no attempt.
    Postponed(String),
}

/// Why there is nothing to show for a preview.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("a script sink has no body to preview: use the test, which runs it")]
    Script,
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Makes one attempt to deliver an event to a sink. It never fails otherwise than in its outcome, and ends
/// within the limits for webhooks or scripts.
pub async fn attempt(context: &Context, sink: &Sink, input: EventInput) -> Attempted {
    let started = Instant::now();
    let attempted = match &sink.target {
        Target::Webhook(webhook) => webhook.attempt(context, sink.owner, input).await,
        Target::Script(script) => script.attempt(context, sink.owner, input).await,
        Target::JsonRpc(_) => Attempted::new(Outcome::Dead(
            "a json-rpc sink shapes events for the methods that name it and receives none itself".to_owned(),
        )),
    };
    Attempted { duration: started.elapsed(), ..attempted }
}

/// The body that a sink would be sent, without sending it.
///
/// # Errors
///
/// Fails if the template does, or the sink is a script.
pub async fn preview(context: &Context, sink: &Sink, input: EventInput) -> Result<Body, PreviewError> {
    let template = match &sink.target {
        Target::Webhook(webhook) => webhook.template.as_ref(),
        Target::JsonRpc(formatter) => Some(&formatter.template),
        Target::Script(_) => return Err(PreviewError::Script),
    };
    Ok(body::render(&context.runtime, template, sink.owner, input).await?)
}

impl Sink {
    /// Whether events are queued for it. Formatters only shape what goes to methods.
    pub fn subscribes(&self) -> bool {
        match self.target {
            Target::Webhook(_) | Target::Script(_) => true,
            Target::JsonRpc(_) => false,
        }
    }

    /// The stored script it runs, if it does.
    pub fn script_id(&self) -> Option<ScriptId> {
        match self.target {
            Target::Script(Script::Stored(id)) => Some(id),
            Target::Script(Script::Source(_)) | Target::Webhook(_) | Target::JsonRpc(_) => None,
        }
    }

    pub fn kind(&self) -> SinkKind {
        match self.target {
            Target::Webhook(_) => SinkKind::Webhook,
            Target::Script(_) => SinkKind::Script,
            Target::JsonRpc(_) => SinkKind::JsonRpc,
        }
    }
}

impl Attempted {
    /// An attempt of which nothing is known but its outcome.
    pub fn new(outcome: Outcome) -> Self {
        let error = match &outcome {
            Outcome::Failed { why, .. } | Outcome::Dead(why) | Outcome::Postponed(why) => Some(why.clone()),
            Outcome::Delivered | Outcome::Skipped(_) => None,
        };
        Self { outcome, status: None, error, log: vec![], response: None, sent: None, duration: Duration::ZERO }
    }

    /// One that may be repeated after the usual wait.
    pub fn failed(why: String) -> Self {
        Self::new(Outcome::Failed { why, retry_after: None })
    }

    /// One that came to nothing because there was no body. A lack of room is no fault of the template and soon over.
    pub fn unrendered(error: &BodyError) -> Self {
        match error {
            BodyError::Script(ScriptError::Busy | ScriptError::Stopped) => {
                Self::new(Outcome::Postponed(error.to_string()))
            }
            BodyError::Script(_) | BodyError::Compile(_) => Self::failed(error.to_string()),
        }
    }
}
