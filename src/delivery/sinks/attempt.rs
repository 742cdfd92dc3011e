//! One delivery attempt at a sink, the preview of the body it would send, and the quarantine of its Lua.

use super::{
    Sink, SinkTarget, Webhook,
    body::{self, BodyError, EventBody, FirstBodies},
    context::SinkContext,
};
use crate::{
    delivery::{CompletedAttempt, Postponed},
    scripting::{
        lua::{EventInput, ScriptError},
        workers::Quarantined,
    },
};
use std::time::Instant;

/// The reason that a preview has no body.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("a script sink has no body to preview: use the test, which runs it")]
    Script,
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Makes one attempt to deliver an event to a sink. Ends within the time limits of webhooks or scripts.
pub async fn attempt(context: &SinkContext, sink: &Sink, input: EventInput) -> Result<CompletedAttempt, Postponed> {
    let started = Instant::now();
    let completed = attempt_batch(context, sink, vec![input], None).await?;
    Ok(CompletedAttempt { duration: started.elapsed(), ..completed })
}

/// Makes one attempt to deliver these events as one, with a body that was rendered ahead if there is one. Only a
/// webhook with batches takes more than one. The caller measures the time.
pub async fn attempt_batch(
    context: &SinkContext,
    sink: &Sink,
    mut inputs: Vec<EventInput>,
    body: Option<EventBody>,
) -> Result<CompletedAttempt, Postponed> {
    Ok(match &sink.target {
        SinkTarget::Webhook(webhook) => webhook.attempt(context, sink.owner, &inputs, body).await?,
        // On the heap: an attempt of a webhook is smaller.
        SinkTarget::Script(script) => Box::pin(script.attempt(context, sink.owner, inputs.remove(0))).await?,
        SinkTarget::JsonRpc(_) => CompletedAttempt::dead(
            "a json-rpc sink shapes events for the methods that name it and receives none itself".to_owned(),
        ),
    })
}

/// Returns true if bodies for the sink can be rendered before their attempts.
pub fn renders_ahead(sink: &Sink) -> bool {
    matches!(&sink.target, SinkTarget::Webhook(webhook) if webhook.template.is_some() && webhook.batch.is_none())
}

/// Renders the bodies of events that a sink is sent next: the first of them, as many as are quick.
///
/// # Errors
///
/// Fails if too many runs wait, or the run is lost.
pub async fn render_ahead(
    context: &SinkContext,
    sink: &Sink,
    inputs: Vec<EventInput>,
) -> Result<FirstBodies, ScriptError> {
    match &sink.target {
        SinkTarget::Webhook(Webhook { template: Some(template), .. }) => {
            body::render_each(&context.workers, template, sink.owner, inputs).await
        }
        _ => Ok(FirstBodies::default()),
    }
}

/// Returns the body that a sink would be sent, without sending it.
pub async fn preview(context: &SinkContext, sink: &Sink, input: EventInput) -> Result<EventBody, PreviewError> {
    Ok(match &sink.target {
        SinkTarget::Webhook(webhook) => webhook.render(context, sink.owner, &[input]).await?,
        SinkTarget::JsonRpc(formatter) => {
            body::render(&context.workers, &formatter.template, sink.owner, input).await?
        }
        SinkTarget::Script(_) => return Err(PreviewError::Script),
    })
}

/// Returns the quarantine of the sink's Lua, if it is in one.
pub fn quarantine(context: &SinkContext, sink: &Sink) -> Option<Quarantined> {
    // A sink that never ran has no program yet, and needs none for this.
    if !context.workers.any_quarantined() {
        return None;
    }
    let program = match &sink.target {
        SinkTarget::Webhook(webhook) => webhook.template.as_ref()?.program().clone(),
        SinkTarget::JsonRpc(formatter) => formatter.template.program().clone(),
        SinkTarget::Script(script) => script.program(context, sink.owner).ok()?,
    };
    context.workers.quarantined(&program, sink.owner)
}
