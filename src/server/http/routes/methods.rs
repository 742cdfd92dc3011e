//! Methods: what the caller can call, and calling it. Everybody sees their own; what others share takes use_methods.

use crate::{
    calls::registry::{PublishedMethod, Viewer},
    model::{
        api::methods::{MethodDetail, MethodQuery, MethodView, MethodsView, ProviderView},
        jsonrpc::{ErrorObject, Id, RpcResponse, code},
    },
    server::http::{
        Response,
        error::ApiError,
        request::{self, Call, Input, Json, NoContent, Output, Query, Takes},
        routes::groups::group_names,
    },
};
use bytes::Bytes;
use futures_util::FutureExt;
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator, json_schema};
use std::{panic::AssertUnwindSafe, sync::Arc};

/// A JSON-RPC request or a batch, read later: what is wrong with it is answered in JSON-RPC.
pub struct Rpc(Bytes);

/// A JSON-RPC answer (200), or none (204).
pub struct Answered(Option<Vec<u8>>);

pub async fn list(call: Call, Query(wanted): Query<MethodQuery>) -> Result<Json<MethodsView>, ApiError> {
    // Of ten thousand methods that is some milliseconds, in which nobody else on this thread would be served.
    let listing = tokio::task::spawn_blocking(move || listed(&call, &wanted.q.unwrap_or_default()));
    listing.await.map(Json).map_err(|error| ApiError::Internal(format!("methods cannot be listed: {error}")))
}

fn listed(call: &Call, words: &str) -> MethodsView {
    let viewer = Viewer::of_caller(call.caller());
    let words = words.to_lowercase();
    let words: Vec<&str> = words.split_whitespace().collect();
    let visible = call.app.registry.visible(&viewer);
    let views = visible.iter().filter_map(|method| view(call, &viewer, method));
    let mut methods: Vec<_> = views.filter(|method| words.iter().all(|word| mentions(method, word))).collect();
    methods.sort_by(|one, two| one.name.cmp(&two.name));
    MethodsView { methods }
}

pub async fn show(call: Call) -> Result<Json<MethodDetail>, ApiError> {
    let viewer = Viewer::of_caller(call.caller());
    let found = call.app.registry.resolve(&viewer, call.parameter(), &call.app.identity);
    let view = |method: &PublishedMethod| Some(MethodDetail { method: view(&call, &viewer, method)?, providers: None });
    let missing = || ApiError::missing("method");
    let method = found.ok_or_else(missing)?;
    let mut detail = view(&method).ok_or_else(missing)?;
    if viewer.user() == Some(method.owner) {
        detail.providers = Some(providers(&method));
    }
    Ok(Json(detail))
}

pub async fn call(call: Call, Rpc(body): Rpc) -> Result<Answered, ApiError> {
    let viewer = Viewer::of_caller(call.caller());
    let answering = AssertUnwindSafe(call.app.calls.answer(&viewer, &body, call.app.config.limits.batch));
    // Whatever happens, who speaks JSON-RPC hears of it in JSON-RPC.
    Ok(Answered(answering.catch_unwind().await.unwrap_or_else(|_| {
        let mut answer = Vec::new();
        let fault = ErrorObject::new(code::INTERNAL, "the server failed on this request: its log says more");
        RpcResponse::from(fault).write(&Id::null(), &mut answer);
        Some(answer)
    })))
}

/// `None` if its owner was deleted this moment.
fn view(call: &Call, viewer: &Viewer, published: &PublishedMethod) -> Option<MethodView> {
    let identity = &call.app.identity;
    let owner = identity.user(published.owner)?.name.to_string();
    let definition = &published.method.definition;
    Some(MethodView {
        name: viewer.name_of(published, &owner),
        description: definition.description.clone(),
        keywords: definition.keywords.clone(),
        scope: definition.scope.into(),
        groups: group_names(identity, &definition.groups),
        owner,
        mcp_tool: definition.mcp_tool,
        params_schema: published.schemas.params.clone(),
        result_schema: published.schemas.result.clone(),
        events: definition.events.iter().flat_map(|patterns| patterns.iter()).map(ToString::to_string).collect(),
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
            health: health.as_str().to_owned(),
            reason: health.reason().map(str::to_owned),
            in_flight: provider.in_flight(),
        }
    };
    published.providers.iter().map(view).collect()
}

/// Whether the word is in the name, the description or the keywords.
fn mentions(method: &MethodView, word: &str) -> bool {
    let texts = [&method.name, &method.description].into_iter().chain(&method.keywords);
    texts.into_iter().any(|text| text.to_lowercase().contains(word))
}

impl Input for Rpc {
    const BODY: Takes = Takes::Json;

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
        Some(json_schema!({"oneOf": [request, {"type": "array", "items": request, "minItems": 1, "maxItems": 1000}]}))
    }

    async fn from_request(call: &mut Call) -> Result<Self, ApiError> {
        call.refuse_query()?;
        call.read_body().await.map(Self)
    }
}

impl Output for Answered {
    const OTHER_STATUSES: &'static [StatusCode] = &[StatusCode::NO_CONTENT];

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        let answer = json_schema!({
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
        Some(json_schema!({"oneOf": [answer, {"type": "array", "items": answer}]}))
    }

    fn into_response(self) -> Response {
        match self.0 {
            Some(json) => request::with_type(StatusCode::OK, Self::CONTENT_TYPE, json),
            None => NoContent.into_response(),
        }
    }
}
