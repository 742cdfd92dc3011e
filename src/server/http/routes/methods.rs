//! Methods: listing the callable ones, and calling them. Every user sees its own; shared ones of others need the
//! permission use_methods.

use crate::{
    calls::registry::{PublishedMethod, RegistrationRefusal, Viewer},
    identity::Identity,
    model::{
        api::{
            identity::GroupName,
            methods::{
                MethodDetail, MethodQuery, MethodView, MethodsView, ProviderView, RefusalView, RefusedSpaceView,
            },
        },
        id::GroupId,
        jsonrpc::{ErrorObject, Id, RpcResponse, code},
    },
    server::http::{
        ApiError, ApiRequest, Json, NoContent, Query, Response,
        extract::{FromRequest, RequestBody},
        response::{IntoResponse, with_content_type},
        services::MethodServices,
    },
};
use bytes::Bytes;
use futures_util::FutureExt;
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator, json_schema};
use std::{panic::AssertUnwindSafe, sync::Arc};

/// A JSON-RPC request or batch, not parsed yet: its errors are answered in JSON-RPC.
pub struct JsonRpcBody(Bytes);

/// A JSON-RPC response or batch of them (200), or none (204).
pub struct JsonRpcResponse(Option<Vec<u8>>);

/// Lists methods on a blocking thread: ten thousand of them take milliseconds, in which this thread would serve nobody.
pub async fn list(
    services: Arc<MethodServices>,
    request: ApiRequest,
    Query(query): Query<MethodQuery>,
) -> Result<Json<MethodsView>, ApiError> {
    let viewer = Viewer::of_caller(request.caller());
    let listing = tokio::task::spawn_blocking(move || search(&services, &viewer, &query.q.unwrap_or_default()));
    listing.await.map(Json).map_err(|error| ApiError::Internal(format!("methods cannot be listed: {error}")))
}

pub async fn show(services: Arc<MethodServices>, request: ApiRequest) -> Result<Json<MethodDetail>, ApiError> {
    let viewer = Viewer::of_caller(request.caller());
    let missing = || ApiError::missing("method");
    let found = services.registry.resolve(&viewer, request.parameter(), &services.identity);
    let published = found.ok_or_else(missing)?;
    let method = view(&services, &viewer, &published).ok_or_else(missing)?;
    let providers = (viewer.user() == Some(published.owner)).then(|| providers(&published));
    Ok(Json(MethodDetail { method, providers }))
}

/// Answers JSON-RPC. Even a panic is answered as a JSON-RPC error.
pub async fn call(
    services: Arc<MethodServices>,
    request: ApiRequest,
    JsonRpcBody(body): JsonRpcBody,
) -> Result<JsonRpcResponse, ApiError> {
    let viewer = Viewer::of_caller(request.caller());
    let answering = AssertUnwindSafe(services.calls.answer(&viewer, &body, services.max_batch));
    Ok(JsonRpcResponse(answering.catch_unwind().await.unwrap_or_else(|_| {
        let mut response = Vec::new();
        let error = ErrorObject::new(code::INTERNAL, "the server failed on this request: its log says more");
        RpcResponse::from(error).write(&Id::null(), &mut response);
        Some(response)
    })))
}

/// The visible methods that mention all words, by name.
fn search(services: &MethodServices, viewer: &Viewer, words: &str) -> MethodsView {
    let words = words.to_lowercase();
    let words: Vec<&str> = words.split_whitespace().collect();
    let visible = services.registry.visible(viewer);
    let views = visible.iter().filter_map(|method| view(services, viewer, method));
    let mut methods: Vec<_> = views.filter(|method| words.iter().all(|word| mentions(method, word))).collect();
    methods.sort_by(|one, two| one.name.cmp(&two.name));
    let owner = viewer.user().filter(|_| words.is_empty());
    let refused = owner.map(|owner| services.registry.refusals_of(owner)).unwrap_or_default();
    MethodsView { methods, refused: refused.into_iter().map(RefusedSpaceView::from).collect() }
}

/// The groups of a method. One that was deleted is shown by its id: without it the method would seem to be for everybody.
fn group_names_or_ids(identity: &Identity, ids: &[GroupId]) -> Vec<GroupName> {
    let name = |id: &GroupId| match identity.group(*id) {
        Some(group) => group.name.clone(),
        None => id.to_string().parse().expect("an id is a name by its rules"),
    };
    ids.iter().map(|id| GroupName { id: *id, name: name(id) }).collect()
}

/// The method as the viewer sees it; `None` if its owner was just deleted.
fn view(services: &MethodServices, viewer: &Viewer, published: &PublishedMethod) -> Option<MethodView> {
    let identity = &services.identity;
    let owner = identity.user(published.owner)?.name.to_string();
    let definition = &published.method.definition;
    Some(MethodView {
        name: viewer.name_of(published, &owner),
        description: definition.description.clone(),
        keywords: definition.keywords.clone(),
        scope: definition.scope.into(),
        groups: group_names_or_ids(identity, &definition.groups),
        owner,
        mcp_tool: definition.mcp_tool,
        params_schema: published.schemas.params.clone(),
        result_schema: published.schemas.result.clone(),
        events: definition
            .events
            .iter()
            .flat_map(|patterns| patterns.iter())
            .map(|pattern| pattern.to_string())
            .collect(),
        provider_count: published.providers.len(),
        available_count: published.providers.iter().filter(|provider| provider.is_running()).count(),
    })
}

fn providers(published: &PublishedMethod) -> Vec<ProviderView> {
    let view = |provider: &Arc<crate::calls::registry::Provider>| {
        let health = provider.health();
        ProviderView {
            space_id: provider.space(),
            space: provider.space_name().to_string(),
            health: health.state().into(),
            reason: health.reason().map(str::to_owned),
            in_flight: provider.in_flight(),
        }
    };
    published.providers.iter().map(view).collect()
}

/// Returns whether the word is in the name, the description or the keywords.
fn mentions(method: &MethodView, word: &str) -> bool {
    let texts = [&method.name, &method.description].into_iter().chain(&method.keywords);
    texts.into_iter().any(|text| text.to_lowercase().contains(word))
}

impl From<RegistrationRefusal> for RefusedSpaceView {
    fn from(refused: RegistrationRefusal) -> Self {
        let RegistrationRefusal { space, space_name, reason, since, .. } = refused;
        Self { space_id: space, space: space_name.to_string(), refusal: RefusalView { reason, since } }
    }
}

impl FromRequest for JsonRpcBody {
    const BODY: RequestBody = RequestBody::Json;

    fn body_schema(_: &mut SchemaGenerator) -> Option<Schema> {
        let request = json_schema!({
            "type": "object",
            "properties": {
                "jsonrpc": {"const": "2.0"},
                "method": {"type": "string"},
                "params": {"type": ["object", "array"]},
                "id": {"type": ["string", "number", "null"], "description": "Absent for a notification"},
            },
            "required": ["jsonrpc", "method"],
        });
        Some(
            json_schema!({"oneOf": [request, {"type": "array", "items": request, "minItems": 1, "description": "At most `limits.batch` of the server's settings"}]}),
        )
    }

    async fn from_request(request: &mut ApiRequest) -> Result<Self, ApiError> {
        request.refuse_query()?;
        request.read_body().await.map(Self)
    }
}

impl IntoResponse for JsonRpcResponse {
    const OTHER_STATUSES: &'static [StatusCode] = &[StatusCode::NO_CONTENT];

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        let response = json_schema!({
            "type": "object",
            "properties": {
                "jsonrpc": {"const": "2.0"},
                "result": {},
                "error": {
                    "type": "object",
                    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
                    "required": ["code", "message"],
                },
                "id": {"type": ["string", "number", "null"]},
            },
            "required": ["jsonrpc", "id"],
        });
        Some(json_schema!({"oneOf": [response, {"type": "array", "items": response}]}))
    }

    fn into_response(self) -> Response {
        match self.0 {
            Some(json) => with_content_type(StatusCode::OK, Self::CONTENT_TYPE, json),
            None => NoContent.into_response(),
        }
    }
}
