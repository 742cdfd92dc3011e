//! Trying out a sink on a sample or recorded event, beside its queue: a test delivers it, a preview only renders it.

use super::{
    sample_event::sample_input,
    sinks::{check_changeable, define, find},
};
use crate::{
    delivery::sinks::{self, PreviewError},
    model::api::sinks::{PreviewBody, PreviewView, SampleEvent, TestView},
    server::http::{ApiError, ApiRequest, Json, services::SinkServices},
};
use std::sync::Arc;

pub async fn test(
    services: Arc<SinkServices>,
    request: ApiRequest,
    sample: Option<Json<SampleEvent>>,
) -> Result<Json<TestView>, ApiError> {
    let caller = request.caller();
    let sink = find(&services, caller, request.id()?)?;
    check_changeable(caller, &sink)?;
    let _permit = services.user_limits.test_run(caller.user.id)?;
    let sample = sample.map(|Json(sample)| sample).unwrap_or_default();
    let input = sample_input(caller, &services.zone, &*services.engine, sample)?;
    let attempted = sinks::attempt(&services.sink_context, &sink, input).await;
    let attempted = attempted.map_err(|postponed| ApiError::Unavailable(format!("{postponed}: try again")))?;
    Ok(Json(TestView {
        outcome: attempted.outcome.into(),
        duration_ms: attempted.duration.as_secs_f64() * 1e3,
        status: attempted.status,
        error: attempted.error,
        response: attempted.response,
        log: attempted.log,
        sent: attempted.sent.map(|body| String::from_utf8_lossy(&body).into_owned()),
    }))
}

pub async fn preview(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Json(body): Json<PreviewBody>,
) -> Result<Json<PreviewView>, ApiError> {
    let caller = request.caller();
    let _permit = services.user_limits.test_run(caller.user.id)?;
    let sink = match (body.sink, body.sink_id) {
        (Some(spec), None) => Arc::new(define(&services, caller, spec, None).await?),
        (None, Some(id)) => find(&services, caller, id)?,
        _ => return Err(ApiError::BadRequest("give either `sink` or `sink_id`".to_owned())),
    };
    let sample = SampleEvent { kind: body.kind, payload: body.payload, event_id: body.event_id };
    let input = sample_input(caller, &services.zone, &*services.engine, sample)?;
    let rendered = sinks::preview(&services.sink_context, &sink, input).await?;
    Ok(Json(PreviewView {
        body: String::from_utf8_lossy(&rendered.bytes).into_owned(),
        content_type: rendered.content_type.to_owned(),
    }))
}

impl From<PreviewError> for ApiError {
    fn from(error: PreviewError) -> Self {
        Self::BadRequest(error.to_string())
    }
}
