//! Sources: listing, making, changing, testing and deleting them, and their dead letters. [`super::inbound`] takes the
//! requests at their addresses.
//!
//! Whoever manages sinks of an owner manages its sources: both decide where events come from and go to. Secrets are never
//! shown.

use super::{compile::not_compiled, inbound::intake_error, ownership::manages_sinks_of};
use crate::{
    identity::Caller,
    model::{
        api::{
            list::{List, PageQuery},
            sinks::QuarantineView,
            sources::{
                ActivityView, SourceFields, SourceLetterView, SourcePatch, SourceQuery, SourceRedeliverBody,
                SourceRedeliverView, SourceRefusalView, SourceTestBody, SourceTestView, SourceView, TestedEvent,
                TestedResponse,
            },
        },
        id::{SourceId, SourceLetterId},
        json_input::InvalidJson,
        owner::OwnerSpec,
        source_spec::SourceSpec,
    },
    platform::{audit::Audit, collection::Edit, store::Batch},
    server::{
        audit_entries::source_entry,
        http::{ApiError, ApiRequest, Created, Json, NoContent, Query, pagination, services::SourceServices},
    },
    sources::{InboundRequest, Source, SourceLetter, SourcesError, TrialRun},
};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use std::sync::Arc;

pub async fn list(
    services: Arc<SourceServices>,
    request: ApiRequest,
    Query(query): Query<SourceQuery>,
) -> Result<Json<List<SourceView>>, ApiError> {
    let caller = request.caller();
    let filter = |source: &Source| {
        manages_sinks_of(caller, source.owner)
            && query.slug.as_ref().is_none_or(|slug| *slug == source.slug)
            && query.owner.is_none_or(|owner| owner == OwnerSpec::from(source.owner))
    };
    let after = pagination::cursor(query.cursor.as_deref())?;
    let sources = services.intake.sources.page(after, pagination::fetch_count(query.limit), filter);
    Ok(Json(List::of_fetched(sources, query.limit, |source| source.id, |source| view(&services, &source))))
}

pub async fn create(
    services: Arc<SourceServices>,
    request: ApiRequest,
    Json(spec): Json<SourceSpec>,
) -> Result<Created<SourceView>, ApiError> {
    let source = define(&services, request.caller(), spec, None).await?;
    let audited = audited(request.caller(), "source.create", &source);
    let source = services.intake.sources.create(source, audited).await?;
    Ok(Created(view(&services, &source)))
}

pub async fn show(services: Arc<SourceServices>, request: ApiRequest) -> Result<Json<SourceView>, ApiError> {
    let source = find(&services, request.caller(), request.id()?)?;
    Ok(Json(view(&services, &source)))
}

/// Replaces a source. Owner and secret stay unless they are given.
pub async fn replace(
    services: Arc<SourceServices>,
    request: ApiRequest,
    Json(SourceFields(fields)): Json<SourceFields>,
) -> Result<Json<SourceView>, ApiError> {
    change(&services, &request, |before| fields.over(&json!({"owner": OwnerSpec::from(before.owner)}))).await
}

pub async fn update(
    services: Arc<SourceServices>,
    request: ApiRequest,
    Json(SourcePatch(fields)): Json<SourcePatch>,
) -> Result<Json<SourceView>, ApiError> {
    change(&services, &request, |before| fields.over(&before.spec())).await
}

pub async fn delete(services: Arc<SourceServices>, request: ApiRequest) -> Result<NoContent, ApiError> {
    let source = find(&services, request.caller(), request.id()?)?;
    let audited = audited(request.caller(), "source.delete", &source);
    services.intake.sources.delete(source.id, audited).await?;
    Ok(NoContent)
}

pub async fn test(
    services: Arc<SourceServices>,
    request: ApiRequest,
    body: Option<Json<SourceTestBody>>,
) -> Result<Json<SourceTestView>, ApiError> {
    let caller = request.caller();
    let source = find(&services, caller, request.id()?)?;
    let _permit = services.user_limits.test_run(caller.user.id)?;
    let body = body.map(|Json(body)| body).unwrap_or_default();
    let mut headers = HeaderMap::new();
    for (name, value) in &body.headers {
        let wrong = || ApiError::BadRequest(format!("`headers.{name}` is no legal header"));
        let header: HeaderName = name.parse().map_err(|_| wrong())?;
        headers.append(header, HeaderValue::from_str(value).map_err(|_| wrong())?);
    }
    let sample = InboundRequest { headers, query: body.query, body: body.body.into() };
    let TrialRun { result, log } = services.intake.try_out(&source, sample).await;
    Ok(Json(match result {
        Ok(transformed) => SourceTestView {
            events: transformed
                .events
                .into_iter()
                .map(|event| TestedEvent { kind: event.kind.to_string(), payload: event.payload, id: event.id })
                .collect(),
            response: transformed.response.map(|response| TestedResponse {
                status: response.status,
                content_type: response.content_type.header().to_owned(),
                body: response.body,
            }),
            error: None,
            log,
        },
        Err(error) if error.is_temporary() => return Err(ApiError::Unavailable(format!("{error}: try again"))),
        Err(error) => SourceTestView { events: Vec::new(), response: None, error: Some(error.to_string()), log },
    }))
}

pub async fn dead_letters(
    services: Arc<SourceServices>,
    request: ApiRequest,
    Query(page): Query<PageQuery>,
) -> Result<Json<List<SourceLetterView>>, ApiError> {
    let source = find(&services, request.caller(), request.id()?)?;
    let after = pagination::cursor(page.cursor.as_deref())?;
    let letters = services.intake.letters.page(source.id, after, pagination::fetch_count(page.limit))?;
    Ok(Json(List::of_fetched(letters, page.limit, |letter| letter.id, letter_view)))
}

pub async fn redeliver(
    services: Arc<SourceServices>,
    request: ApiRequest,
    body: Option<Json<SourceRedeliverBody>>,
) -> Result<Json<SourceRedeliverView>, ApiError> {
    let caller = request.caller();
    let source = find(&services, caller, request.id()?)?;
    let _permit = services.user_limits.test_run(caller.user.id)?;
    let only = body.unwrap_or_else(|| Json(SourceRedeliverBody::default())).0.letter_ids;
    let is_selected = |id: &SourceLetterId| only.as_ref().is_none_or(|only| only.contains(id));
    if services.intake.letters.ids(source.id).iter().any(is_selected) {
        services.audit.note(source_entry(caller.actor(), "source.redeliver", &source).in_room(caller.audit_room()));
    }
    let done = services.intake.redeliver(&source, only.as_deref()).await.map_err(intake_error)?;
    Ok(Json(SourceRedeliverView {
        redelivered: done.redelivered,
        failed: done.failed,
        remaining: services.intake.letters.count(source.id),
    }))
}

/// A source that the caller manages. Any other looks absent.
fn find(services: &SourceServices, caller: &Caller, id: SourceId) -> Result<Arc<Source>, ApiError> {
    let source = services.intake.sources.get(id).filter(|source| manages_sinks_of(caller, source.owner));
    source.ok_or_else(|| ApiError::missing("source"))
}

/// Checks and compiles the source that a caller describes.
async fn define(
    services: &SourceServices,
    caller: &Caller,
    spec: SourceSpec,
    previous: Option<&Source>,
) -> Result<Source, ApiError> {
    let user = caller.user.id;
    let source = Source::define(spec, user, previous).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    if !manages_sinks_of(caller, source.owner) {
        return Err(ApiError::Forbidden("a global source needs the permission manage_global_event_sinks".to_owned()));
    }
    let compiled = source.check_lua(&services.intake.workers, user, previous).await;
    compiled.map_err(|error| not_compiled("transform", error))?;
    Ok(source)
}

/// Saves the source of the path as `read` has it.
async fn change(
    services: &SourceServices,
    request: &ApiRequest,
    read: impl Fn(&Source) -> Result<SourceSpec, InvalidJson> + Sync,
) -> Result<Json<SourceView>, ApiError> {
    let (caller, read) = (request.caller(), &read);
    // Found before the wait, so that a caller who may not change the source is refused at once.
    let id = find(services, caller, request.id()?)?.id;
    let decide = |before: Arc<Source>| async move {
        if !manages_sinks_of(caller, before.owner) {
            return Err(ApiError::missing("source"));
        }
        let source = define(services, caller, read(&before)?, Some(&before)).await?;
        let has_same_secrets = source.secrets.read().ok() == before.secrets.read().ok();
        if source.owner == before.owner && has_same_secrets && source.spec() == before.spec() {
            return Ok(Edit::put(before));
        }
        let audited = audited(caller, "source.update", &source);
        Ok(Edit::put(source).with(audited))
    };
    let source = services.intake.sources.edit(id, decide).await?;
    Ok(Json(view(services, &source)))
}

/// Adds the audit entry to the batch of the change.
fn audited(caller: &Caller, action: &str, source: &Source) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = source_entry(caller.actor(), action, source).in_room(caller.audit_room());
    move |batch| Audit::record(batch, &entry)
}

fn view(services: &SourceServices, source: &Source) -> SourceView {
    let running = services.intake.running(source.id);
    let activity = running.activity();
    let secrets = source.secrets.read().unwrap_or_default();
    SourceView {
        id: source.id,
        spec: source.spec(),
        path: format!("/in/{}", source.slug),
        former_secrets: secrets
            .iter()
            .filter_map(|secret| secret.until)
            .filter(|until| !until.from_now().is_zero())
            .collect(),
        dead_letters: services.intake.letters.count(source.id),
        activity: ActivityView {
            accepted: activity.accepted(),
            refused: activity.refused(),
            failed: activity.failed(),
            last_refusal: activity.last_refusal().map(|(at, reason)| SourceRefusalView { at, reason }),
        },
        quarantine: services.intake.quarantine(source).map(QuarantineView::from),
        created_at: source.created_at,
        updated_at: source.updated_at,
    }
}

fn letter_view(letter: SourceLetter) -> SourceLetterView {
    SourceLetterView {
        id: letter.id,
        received_at: letter.received_at,
        body: letter.body_text(),
        reason: letter.why,
        log: letter.log,
        delivery_id: letter.delivery_id,
        headers: letter.headers.into_iter().collect(),
        query: letter.query.into_iter().collect(),
    }
}

impl From<SourcesError> for ApiError {
    fn from(error: SourcesError) -> Self {
        let message = error.to_string();
        match error {
            SourcesError::SlugTaken(_) | SourcesError::TooMany(_) | SourcesError::Conflict => Self::Conflict(message),
            SourcesError::NotFound(_) => Self::missing("source"),
            SourcesError::Store(error) => error.into(),
        }
    }
}
