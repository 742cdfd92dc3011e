//! Sinks: listing, making, changing and deleting them. [`super::sink_preview`] tests them, and [`super::queues`] serves
//! their queues.
//!
//! An agent sees the sinks of its owner without their secrets, and acts only on those that it made itself. Those are
//! deleted with its space.

use super::{
    compile::not_compiled,
    ownership::manages_sinks_of,
    script_references::check_script_reference,
    sink_status::{sink_activity_view, sink_status},
    views::{failure_view, filter_errors_view, queue_view},
};
use crate::{
    delivery::sinks::{Sink, SinksError, definition::Secrets, quarantine},
    identity::{Caller, Credential},
    model::{
        api::{
            list::List,
            sinks::{
                PreviousPublicKeyView, PublicKeyView, QuarantineView, RotateSecretBody, SinkFields, SinkPatch,
                SinkQuery, SinkStatus, SinkView,
            },
        },
        id::{SinkId, SpaceId},
        json_input::InvalidJson,
        owner::OwnerSpec,
        sink_spec::{SinkSpec, WebhookSpec},
        timestamp::Timestamp,
        units::Span,
    },
    platform::{audit::Audit, collection::Edit, store::Batch},
    scripting::{
        lua::{ScriptError, refuse_large_integers},
        workers::Quarantined,
    },
    server::{
        audit_entries::sink_entry,
        http::{ApiError, ApiRequest, Created, Json, NoContent, Query, pagination, services::SinkServices},
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// The grace of a replaced secret unless the caller says otherwise, and the most that the caller can say.
const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 3600);
const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

pub async fn list(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Query(query): Query<SinkQuery>,
) -> Result<Json<List<SinkView>>, ApiError> {
    let caller = request.caller();
    let words: Vec<_> = query.q.iter().flat_map(|q| q.as_str().split_whitespace()).map(str::to_lowercase).collect();
    let filter = |sink: &Sink| {
        manages_sinks_of(caller, sink.owner)
            && query.name.as_ref().is_none_or(|name| **name == *sink.name)
            && query.owner.is_none_or(|owner| owner == OwnerSpec::from(sink.owner))
            && words.iter().all(|word| has_word(sink, word))
            && query.status.as_ref().is_none_or(|any| any.0.contains(&status_of(&services, sink)))
    };
    let after = pagination::cursor(query.cursor.as_deref())?;
    let sinks = services.sinks.page(after, pagination::fetch_count(query.limit), filter);
    Ok(Json(List::of_fetched(sinks, query.limit, |sink| sink.id, |sink| view(&services, &sink, Secrets::Masked))))
}

pub async fn create(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Json(spec): Json<SinkSpec>,
) -> Result<Created<SinkView>, ApiError> {
    let mut sink = define(&services, request.caller(), spec, None).await?;
    sink.space = space_of_agent(request.caller());
    check_reachable(&services, &sink, None)?;
    let audited = audited(request.caller(), "sink.create", &sink);
    let sink = services.sinks.create(sink, audited).await?;
    Ok(Created(view(&services, &sink, Secrets::Shown)))
}

pub async fn show(services: Arc<SinkServices>, request: ApiRequest) -> Result<Json<SinkView>, ApiError> {
    let sink = find(&services, request.caller(), request.id()?)?;
    Ok(Json(view(&services, &sink, secrets_for(request.caller()))))
}

/// Replaces a sink. The owner stays unless it is given: a forgotten field must not take a global sink from all users.
pub async fn replace(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Json(SinkFields(fields)): Json<SinkFields>,
) -> Result<Json<SinkView>, ApiError> {
    change(&services, &request, |before| fields.over(&json!({"owner": OwnerSpec::from(before.owner)}))).await
}

pub async fn update(
    services: Arc<SinkServices>,
    request: ApiRequest,
    Json(SinkPatch(fields)): Json<SinkPatch>,
) -> Result<Json<SinkView>, ApiError> {
    change(&services, &request, |before| fields.over(&before.spec(Secrets::Shown))).await
}

pub async fn delete(services: Arc<SinkServices>, request: ApiRequest) -> Result<NoContent, ApiError> {
    let sink = find(&services, request.caller(), request.id()?)?;
    check_changeable(request.caller(), &sink)?;
    let audited = audited(request.caller(), "sink.delete", &sink);
    services.sinks.delete(sink.id, audited).await?;
    Ok(NoContent)
}

/// Gives a webhook a new secret. Requests are signed with the present one as well until its grace is over.
pub async fn rotate_secret(
    services: Arc<SinkServices>,
    request: ApiRequest,
    body: Option<Json<RotateSecretBody>>,
) -> Result<Json<SinkView>, ApiError> {
    let caller = request.caller();
    let sink = find(&services, caller, request.id()?)?;
    check_changeable(caller, &sink)?;
    let grace = body.and_then(|Json(body)| body.grace).map_or(DEFAULT_GRACE, |Span(grace)| grace);
    if grace > MAX_GRACE {
        return Err(ApiError::BadRequest(format!("`grace` must be at most {}", Span(MAX_GRACE))));
    }
    let decide = |before: Arc<Sink>| async move {
        if !manages_sinks_of(caller, before.owner) {
            return Err(ApiError::missing("sink"));
        }
        let rotated = before.with_rotated_secret(grace, Timestamp::now());
        let sink = rotated.map_err(|error| ApiError::Conflict(error.to_string()))?;
        let audited = audited(caller, "sink.rotate_secret", &sink);
        Ok(Edit::put(sink).with(audited))
    };
    let sink = services.sinks.edit(sink.id, decide).await?;
    Ok(Json(view(&services, &sink, secrets_for(caller))))
}

/// The public key of a webhook with asymmetric signatures.
pub async fn public_key(services: Arc<SinkServices>, request: ApiRequest) -> Result<Json<PublicKeyView>, ApiError> {
    let sink = find(&services, request.caller(), request.id()?)?;
    let keys = sink.public_keys(Timestamp::now()).ok_or_else(|| ApiError::missing("public key"))?;
    let (public_key, previous) = keys;
    let previous = previous.map(|(public_key, until)| PreviousPublicKeyView { public_key, until });
    Ok(Json(PublicKeyView { public_key, previous }))
}

/// A sink that the caller manages. Any other looks absent.
pub(super) fn find(services: &SinkServices, caller: &Caller, id: SinkId) -> Result<Arc<Sink>, ApiError> {
    let sink = services.sinks.get(id).filter(|sink| manages_sinks_of(caller, sink.owner));
    sink.ok_or_else(|| ApiError::missing("sink"))
}

/// The form in which a caller reads secrets: an agent reads none.
fn secrets_for(caller: &Caller) -> Secrets {
    match caller.via {
        Credential::Token { .. } | Credential::Session { .. } => Secrets::Shown,
        Credential::Agent { .. } => Secrets::Masked,
    }
}

/// The space of an agent, to which a new sink of this caller is bound.
pub(super) fn space_of_agent(caller: &Caller) -> Option<SpaceId> {
    match caller.via {
        Credential::Agent { space, .. } => Some(space),
        Credential::Token { .. } | Credential::Session { .. } => None,
    }
}

/// Limits an agent to the sinks that agents of its space made.
pub(super) fn check_changeable(caller: &Caller, sink: &Sink) -> Result<(), ApiError> {
    match space_of_agent(caller) {
        Some(space) if sink.space != Some(space) => {
            let message = "an agent's token changes, tests and redelivers to only the sinks that it made: use a token of the user";
            Err(ApiError::Forbidden(message.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Checks and compiles the sink that a caller describes.
pub(super) async fn define(
    services: &SinkServices,
    caller: &Caller,
    spec: SinkSpec,
    previous: Option<Arc<Sink>>,
) -> Result<Sink, ApiError> {
    let user = caller.user.id;
    let refers = spec.webhook.as_ref().is_some_and(|webhook| webhook.references().next().is_some());
    if refers && space_of_agent(caller).is_some() {
        let message =
            "an agent's token makes no sink that reads the server's environment or files: use a token of the user";
        return Err(ApiError::Forbidden(message.to_owned()));
    }
    let masks = spec.webhook.as_ref().is_some_and(WebhookSpec::has_masked_header);
    if masks && space_of_agent(caller).is_some() {
        // It would send values that it may not read to any receiver.
        let message =
            "an agent's token does not read the headers of a webhook, and keeps none by a mask: give the values";
        return Err(ApiError::Forbidden(message.to_owned()));
    }
    let filter_before = previous.as_ref().and_then(|sink| sink.filter.clone());
    let before = previous.as_ref().and_then(|sink| Some((sink.script_id()?, sink.owner)));
    let sink =
        Sink::define(spec, user, previous.as_deref()).map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let compiled = sink.check_lua(&services.sink_context.workers, user, previous.as_deref()).await;
    compiled.map_err(|error| not_compiled(error.field, error.error))?;
    // A filter that was stored before this rule does not have to be mended by another change.
    if let Some(filter) = sink.filter.as_ref().filter(|filter| Some(*filter) != filter_before.as_ref()) {
        refuse_large_integers(filter.as_str()).map_err(|error| not_compiled("filter", ScriptError::Compile(error)))?;
    }
    if !manages_sinks_of(caller, sink.owner) {
        return Err(ApiError::Forbidden("a global sink needs the permission manage_global_event_sinks".to_owned()));
    }
    // A script that was named before may be gone or unusable meanwhile; this change does not have to mend that.
    if let Some(id) = sink.script_id()
        && before != Some((id, sink.owner))
    {
        check_script_reference(&services.scripts, sink.owner, id, "script.script_id")?;
    }
    Ok(sink)
}

/// Refuses a webhook that the egress policy will refuse at every delivery. A change that leaves URL and owner as they are
/// does not have to mend that: the policy may be stricter than when the sink was made.
fn check_reachable(services: &SinkServices, sink: &Sink, before: Option<&Sink>) -> Result<(), ApiError> {
    let Some(url) = sink.url() else { return Ok(()) };
    if before.is_some_and(|before| before.owner == sink.owner && before.url() == Some(url)) {
        return Ok(());
    }
    let checked = services.sink_context.egress.check(sink.owner, url);
    checked.map_err(|error| ApiError::BadRequest(format!("`webhook.url`: {error}")))
}

/// Saves the sink of the path as `read` has it.
async fn change(
    services: &SinkServices,
    request: &ApiRequest,
    read: impl Fn(&Sink) -> Result<SinkSpec, InvalidJson> + Sync,
) -> Result<Json<SinkView>, ApiError> {
    let (caller, read) = (request.caller(), &read);
    // Found before the wait, so that a caller who may not change the sink is refused at once.
    let before = find(services, caller, request.id()?)?;
    check_changeable(caller, &before)?;
    let id = before.id;
    let decide = |before: Arc<Sink>| async move {
        if !manages_sinks_of(caller, before.owner) {
            return Err(ApiError::missing("sink"));
        }
        let sink = define(services, caller, read(&before)?, Some(before.clone())).await?;
        check_reachable(services, &sink, Some(&before))?;
        if sink.owner == before.owner && sink.spec(Secrets::Shown) == before.spec(Secrets::Shown) {
            return Ok(Edit::put(before));
        }
        let audited = audited(caller, "sink.update", &sink);
        Ok(Edit::put(sink).with(audited))
    };
    let sink = services.sinks.edit(id, decide).await?;
    Ok(Json(view(services, &sink, secrets_for(caller))))
}

/// Adds the audit entry to the batch of the change.
fn audited(caller: &Caller, action: &str, sink: &Sink) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = sink_entry(caller.actor(), action, sink).in_room(caller.audit_room());
    move |batch| Audit::record(batch, &entry)
}

/// Tells if the name, the description or the patterns of a sink have a word, which is in lower case.
fn has_word(sink: &Sink, word: &str) -> bool {
    [&*sink.name, &*sink.description, sink.events.as_str()].iter().any(|text| text.to_lowercase().contains(word))
}

fn status_of(services: &SinkServices, sink: &Sink) -> SinkStatus {
    sink_status(sink, &services.activity, &*services.engine, &services.sink_context)
}

fn view(services: &SinkServices, sink: &Sink, secrets: Secrets) -> SinkView {
    SinkView {
        id: sink.id,
        spec: sink.spec(secrets),
        space_id: sink.space,
        queue: queue_view(&*services.engine, sink.id),
        failure: failure_view(&*services.engine, &services.failures, sink),
        quarantine: quarantine(&services.sink_context, sink).map(QuarantineView::from),
        previous_secret_until: sink.previous_secret_until(Timestamp::now()),
        filter_errors: services.filters.errors(sink.id).map(filter_errors_view),
        status: Some(status_of(services, sink).into()),
        activity: Some(sink_activity_view(services.activity.sink(sink.id, Timestamp::now()))),
        created_at: sink.created_at,
        updated_at: sink.updated_at,
    }
}

impl From<Quarantined> for QuarantineView {
    fn from(Quarantined { until, count, why }: Quarantined) -> Self {
        Self { until, count, reason: why }
    }
}

impl From<SinksError> for ApiError {
    fn from(error: SinksError) -> Self {
        let message = error.to_string();
        match error {
            SinksError::NameTaken(_) | SinksError::TooMany(_) | SinksError::Conflict => Self::Conflict(message),
            SinksError::NotFound(_) => Self::missing("sink"),
            SinksError::Store(error) => error.into(),
        }
    }
}
