//! `POST /in/{slug}`: requests of other services at sources. The route is open; each source verifies its own requests.
//!
//! An inactive source and an absent one look alike, and neither has its request's body read.

use crate::{
    model::{api::sources::IntakeView, source_spec::is_slug},
    platform::run_to_completion::run_to_completion,
    server::http::{
        ApiError, ApiRequest, Response,
        extract::RawBody,
        response::{IntoResponse, json, with_content_type},
        services::SourceServices,
    },
    sources::{InboundRequest, IntakeAnswer, IntakeError, SourceResponse},
};
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator};
use std::sync::Arc;

/// The response to a request at a source: the transform's own, or the ids of the events.
pub struct SourceAnswer(IntakeAnswer);

pub async fn take(
    services: Arc<SourceServices>,
    mut request: ApiRequest,
    _: RawBody,
) -> Result<SourceAnswer, ApiError> {
    let find = |request: &ApiRequest| {
        let slug = Some(request.parameter()).filter(|slug| is_slug(slug));
        let source = slug.and_then(|slug| services.intake.sources.find(slug)).filter(|source| source.active);
        source.ok_or_else(|| ApiError::missing("source"))
    };
    find(&request)?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers().clone();
    let body = request.read_body().await?;
    // The source may have been deleted, deactivated or given another secret while the body arrived.
    let source = find(&request)?;
    let inbound = InboundRequest { headers, query, body };
    let intake = services.intake.clone();
    // A provider that hangs up does not undo what it sent.
    let taken = run_to_completion(async move { intake.take(&source, inbound).await }).await;
    taken.map(SourceAnswer).map_err(intake_error)
}

/// The refusal of a request at a source.
pub(super) fn intake_error(error: IntakeError) -> ApiError {
    let message = error.to_string();
    match error {
        IntakeError::Unverified(_) => ApiError::Unverified(message),
        IntakeError::SecretLost(_) | IntakeError::SecretUnread(_) | IntakeError::Unavailable(_) => {
            ApiError::Unavailable(message)
        }
        IntakeError::Encoded(_) => ApiError::UnsupportedEncoding(message),
        IntakeError::TooMany(wait) => ApiError::TooManyRequests { message, wait },
        IntakeError::OwnerMayNotEmit => ApiError::Forbidden(message),
        IntakeError::Body(_) => ApiError::BadRequest(message),
        IntakeError::Emit(error) => error.into(),
        IntakeError::Store(error) => error.into(),
    }
}

impl IntoResponse for SourceAnswer {
    const STATUS: StatusCode = StatusCode::ACCEPTED;

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<IntakeView>())
    }

    fn into_response(self) -> Response {
        match self.0 {
            IntakeAnswer::Accepted { response: Some(SourceResponse { status, content_type, body }), .. } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                with_content_type(status, content_type.header(), body.into_bytes())
            }
            IntakeAnswer::Accepted { events, response: None } => {
                json(StatusCode::ACCEPTED, &IntakeView { events, dead_letter: None })
            }
            IntakeAnswer::Kept { letter } => {
                json(StatusCode::ACCEPTED, &IntakeView { events: Vec::new(), dead_letter: Some(letter) })
            }
        }
    }
}
