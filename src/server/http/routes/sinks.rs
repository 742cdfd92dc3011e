//! Sinks: making and changing them, trying them out, and what they gave up on.

use super::{events::empty_object, scripts};
use crate::{
    delivery::sinks::{self, BookError, PreviewError, Sink, definition::Secrets},
    identity::Caller,
    model::{
        api::{
            list::{List, PageQuery},
            sinks::{
                PreviewBody, PreviewView, QueueView, RedeliverBody, RedeliverView, SampleEvent, SinkFields, SinkPatch,
                SinkQuery, SinkView, TestView,
            },
        },
        event::{Event, EventType},
        id::{EventId, SinkId, SpaceId},
        json_input,
        owner::{Owner, OwnerSpec},
        permission::Permission,
        sink_spec::SinkSpec,
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, Entry},
        store::Batch,
    },
    routing::{
        emit,
        queue::{DeadLetter, DeadLetterFilter},
    },
    scripting::lua::EventInput,
    server::{
        audit_entries::{sink_entry, sink_object},
        http::{ApiError, Call, Created, Json, NoContent, Query, pagination},
    },
};
use serde_json::{Map, Value};
use std::sync::Arc;

pub async fn list(call: Call, Query(wanted): Query<SinkQuery>) -> Result<Json<List<SinkView>>, ApiError> {
    let caller = call.caller();
    let visible = |sink: &Sink| {
        manages(caller, sink.owner)
            && wanted.name.as_ref().is_none_or(|name| *name == sink.name)
            && wanted.owner.is_none_or(|owner| owner == OwnerSpec::from(sink.owner))
    };
    let after = pagination::cursor(wanted.cursor.as_deref())?;
    // One more than the page holds tells whether there is another.
    let mut sinks = call.app.book.page(after, wanted.limit.get() + 1, visible);
    let more = sinks.len() > wanted.limit.get();
    sinks.truncate(wanted.limit.get());
    let next = sinks.last().filter(|_| more).map(|sink| sink.id.to_string());
    let items = sinks.iter().map(|sink| view(&call, sink, Secrets::Masked)).collect();
    Ok(Json(List { items, next }))
}

pub async fn create(call: Call, Json(spec): Json<SinkSpec>) -> Result<Created<SinkView>, ApiError> {
    let sink = define(&call, spec, None).await?;
    let also = audited(call.caller(), "sink.create", &sink);
    let sink = call.app.book.create(sink, also).await?;
    Ok(Created(view(&call, &sink, Secrets::Shown)))
}

pub async fn show(call: Call) -> Result<Json<SinkView>, ApiError> {
    let sink = find(&call)?;
    Ok(Json(view(&call, &sink, Secrets::Shown)))
}

pub async fn replace(call: Call, Json(SinkFields(fields)): Json<SinkFields>) -> Result<Json<SinkView>, ApiError> {
    let before = find(&call)?;
    // Whose it is stays as it was unless it is said: a forgotten field must not take a global sink away from all.
    let kept = Map::from_iter([("owner".to_owned(), serde_json::json!(OwnerSpec::from(before.owner)))]);
    change(&call, before, kept, fields).await
}

pub async fn update(call: Call, Json(SinkPatch(fields)): Json<SinkPatch>) -> Result<Json<SinkView>, ApiError> {
    let before = find(&call)?;
    let Ok(Value::Object(kept)) = serde_json::to_value(before.spec(Secrets::Shown)) else {
        return Err(ApiError::Internal("a sink's spec is no object".to_owned()));
    };
    change(&call, before, kept, fields).await
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    let sink = find(&call)?;
    let also = audited(call.caller(), "sink.delete", &sink);
    call.app.book.delete(sink.id, also).await?;
    Ok(NoContent)
}

pub async fn test(call: Call, sample: Option<Json<SampleEvent>>) -> Result<Json<TestView>, ApiError> {
    let sink = find(&call)?;
    let _trial = call.app.rations.test_run(call.caller().user.id)?;
    let input = sample_input(&call, sample.map(|Json(sample)| sample).unwrap_or_default())?;
    let attempted = sinks::attempt(&call.app.context, &sink, input).await;
    let attempted = attempted.map_err(|postponed| ApiError::Unavailable(format!("{postponed}: try again")))?;
    Ok(Json(TestView {
        outcome: attempted.outcome.as_str().to_owned(),
        duration_ms: attempted.duration.as_secs_f64() * 1e3,
        status: attempted.status,
        error: attempted.error,
        response: attempted.response,
        log: attempted.log,
        sent: attempted.sent.map(|body| String::from_utf8_lossy(&body).into_owned()),
    }))
}

pub async fn preview(call: Call, Json(body): Json<PreviewBody>) -> Result<Json<PreviewView>, ApiError> {
    let _trial = call.app.rations.test_run(call.caller().user.id)?;
    let sink = match (body.sink, body.sink_id) {
        (Some(spec), None) => Arc::new(define(&call, spec, None).await?),
        (None, Some(id)) => visible(&call, id)?,
        _ => return Err(ApiError::BadRequest("give either `sink` or `sink_id`".to_owned())),
    };
    let input = sample_input(&call, SampleEvent { kind: body.kind, payload: body.payload })?;
    let rendered = sinks::preview(&call.app.context, &sink, input).await?;
    Ok(Json(PreviewView {
        body: String::from_utf8_lossy(&rendered.bytes).into_owned(),
        content_type: rendered.content_type.to_owned(),
    }))
}

pub async fn dead_letters(call: Call, Query(page): Query<PageQuery>) -> Result<Json<List<DeadLetter>>, ApiError> {
    let queue = find_queue(&call)?;
    let after = pagination::cursor(page.cursor.as_deref())?.unwrap_or(0);
    let mut letters = call.app.engine.dead_letters(queue, after, page.limit.get() + 1)?;
    let more = letters.len() > page.limit.get();
    letters.truncate(page.limit.get());
    let next = letters.last().filter(|_| more).map(|letter| letter.sequence.to_string());
    Ok(Json(List { items: letters, next }))
}

pub async fn redeliver(call: Call, body: Option<Json<RedeliverBody>>) -> Result<Json<RedeliverView>, ApiError> {
    let queue = find_queue(&call)?;
    let which = match body.unwrap_or_else(|| Json(RedeliverBody::default())).0.event_ids {
        Some(ids) => DeadLetterFilter::Events(ids),
        None => DeadLetterFilter::All,
    };
    let entry = Entry::new(Some(call.caller().actor()), "sink.redeliver", sink_object(queue));
    let done = call.app.engine.redeliver(queue, which, entry).await?;
    Ok(Json(RedeliverView { redelivered: done.queued, remaining: done.remaining, damaged: done.damaged }))
}

/// The sink of the path, if the caller manages it; somebody else's is as good as none.
fn find(call: &Call) -> Result<Arc<Sink>, ApiError> {
    visible(call, call.id()?)
}

/// The queue of the path: that of a subscription of the caller's, or of a sink that the caller manages.
fn find_queue(call: &Call) -> Result<SinkId, ApiError> {
    let (id, caller) = (call.id()?, call.caller());
    if call.app.subscriptions.get(id).is_some_and(|subscription| subscription.owner == caller.user.id) {
        return Ok(id);
    }
    if !manages_any(caller) {
        let reason = "this is no subscription of yours, and a sink needs the permission manage_own_event_sinks";
        return Err(ApiError::Forbidden(reason.to_owned()));
    }
    Ok(visible(call, id)?.id)
}

fn visible(call: &Call, id: SinkId) -> Result<Arc<Sink>, ApiError> {
    let sink = call.app.book.get(id).filter(|sink| manages(call.caller(), sink.owner));
    sink.ok_or_else(|| ApiError::missing("sink"))
}

pub(super) fn manages(caller: &Caller, owner: Owner) -> bool {
    match owner {
        Owner::Global => caller.may(Permission::ManageGlobalEventSinks),
        Owner::User(user) => user == caller.user.id && manages_any(caller),
    }
}

/// Whether the caller manages sinks at all. The permission for global ones includes one's own.
fn manages_any(caller: &Caller) -> bool {
    caller.may(Permission::ManageOwnEventSinks) || caller.may(Permission::ManageGlobalEventSinks)
}

/// The sink a caller describes, compiled. That can take long, so it is done where no other request waits behind it.
async fn define(call: &Call, spec: SinkSpec, previous: Option<Arc<Sink>>) -> Result<Sink, ApiError> {
    let (caller, turn) = (call.caller(), call.app.rations.compilation().await);
    let user = caller.user.id;
    let before = previous.as_ref().and_then(|sink| Some((sink.script_id()?, sink.owner)));
    let defined = tokio::task::spawn_blocking(move || {
        // Until it is done, even if the caller hangs up.
        let _turn = turn;
        Sink::define(spec, user, previous.as_deref())
    });
    let defined = defined.await.map_err(|error| ApiError::Internal(error.to_string()))?;
    let sink = defined.map_err(|error| ApiError::BadRequest(error.to_string()))?;
    if !manages(caller, sink.owner) {
        return Err(ApiError::Forbidden("a global sink needs the permission manage_global_event_sinks".to_owned()));
    }
    // One that was named before may be gone, or not for the sink any more, and is not this change's business.
    if let Some(id) = sink.script_id()
        && before != Some((id, sink.owner))
    {
        scripts::check_named(call, sink.owner, id, "script.script_id")?;
    }
    Ok(sink)
}

/// Puts `fields` over what is kept of the sink and saves the result.
async fn change(
    call: &Call,
    before: Arc<Sink>,
    mut kept: Map<String, Value>,
    fields: Map<String, Value>,
) -> Result<Json<SinkView>, ApiError> {
    kept.extend(fields);
    let spec: SinkSpec = json_input::interpret(Value::Object(kept))?;
    let sink = define(call, spec, Some(before)).await?;
    let also = audited(call.caller(), "sink.update", &sink);
    let sink = call.app.book.update(sink, also).await?;
    Ok(Json(view(call, &sink, Secrets::Shown)))
}

fn audited(caller: &Caller, action: &str, sink: &Sink) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = sink_entry(caller.actor(), action, sink);
    move |batch| Audit::record(batch, &entry)
}

fn view(call: &Call, sink: &Sink, secrets: Secrets) -> SinkView {
    SinkView {
        id: sink.id,
        spec: sink.spec(secrets),
        queue: queue_view(call, sink.id),
        created_at: sink.created_at,
        updated_at: sink.updated_at,
    }
}

pub(super) fn queue_view(call: &Call, queue: SinkId) -> QueueView {
    let depth = call.app.engine.depth(queue);
    QueueView { depth: depth.queued, next_sequence: depth.last_sequence + 1, dead: depth.dead }
}

/// An event that is only shown to one sink: it is not stored and has no place in any queue.
pub(super) fn sample_input(call: &Call, sample: SampleEvent) -> Result<EventInput, ApiError> {
    let kind = EventType::custom(sample.kind.as_deref().unwrap_or("sample"))
        .map_err(|error| ApiError::BadRequest(format!("`type`: {error}")))?;
    let data = sample.payload.unwrap_or_else(empty_object);
    emit::check_object(&data)?;
    let caller = call.caller();
    let event = Event {
        id: EventId::new(),
        kind,
        ts: Timestamp::now(),
        zone: call.app.config.zone.as_str().into(),
        space_id: SpaceId::NIL,
        user_id: caller.user.id,
        actor: caller.actor(),
        space: None,
        data,
    };
    Ok(EventInput { event: Arc::new(event), sequence: 0, attempt: 1 })
}

impl From<BookError> for ApiError {
    fn from(error: BookError) -> Self {
        let message = error.to_string();
        match error {
            BookError::Conflict(_) | BookError::TooMany(_) => Self::Conflict(message),
            BookError::NotFound(_) => Self::missing("sink"),
            BookError::Store(error) => error.into(),
        }
    }
}

impl From<PreviewError> for ApiError {
    fn from(error: PreviewError) -> Self {
        Self::BadRequest(error.to_string())
    }
}
