//! The OpenAPI 3.1 document of a list of routes. Everything in it comes from the routes and from the types in the
//! handlers' signatures.

use super::{
    Response,
    extract::RequestBody,
    response::{IntoResponse, json},
    route::Route,
    route_access::RouteAccess,
};
use crate::model::api::error::ErrorBody;
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

/// The response that carries the document.
pub struct OpenApiDocument(pub &'static Value);

impl IntoResponse for OpenApiDocument {
    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({"type": "object", "description": "An OpenAPI 3.1 document"}))
    }

    fn into_response(self) -> Response {
        json(StatusCode::OK, self.0)
    }
}

pub fn build(routes: &[Route]) -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ErrorBody>();
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| Map::new().into());
        path[route.method.as_str().to_lowercase()] = operation(route, &mut generator, &error);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "svc",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Events in, deliveries out; users, roles, groups and tokens.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token, svc_…"},
                "session": {"type": "apiKey", "in": "cookie", "name": crate::identity::COOKIE_NAME},
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, error: &Schema) -> Value {
    let schema = (route.schema)(generator);
    let mut responses = json!({
        "default": {"description": "An error", "content": {"application/json": {"schema": error}}},
    });
    for status in schema.other_statuses.iter().chain([&schema.status]) {
        let response = &mut responses[status.as_str()];
        response["description"] = status.canonical_reason().unwrap_or_default().into();
        if let Some(body) = schema.response.as_ref().filter(|_| !schema.empty_statuses.contains(status)) {
            response["content"] = json!({schema.content_type: {"schema": body}});
        }
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters(route, schema.query.as_ref()),
        "responses": responses,
        "security": security(route),
    });
    if let Some(body) = schema.body {
        let content_type = if route.body == RequestBody::Raw { "*/*" } else { "application/json" };
        operation["requestBody"] = json!({
            "required": route.body == RequestBody::Json,
            "content": {content_type: {"schema": body}},
        });
    }
    match route.access {
        RouteAccess::Open | RouteAccess::Metrics | RouteAccess::User => {}
        RouteAccess::AnyOf(permissions) => operation["x-permissions"] = json!(permissions),
        RouteAccess::AllPermissions => operation["x-all-permissions"] = json!(true),
    }
    if let Some(scope) = route.scope {
        operation["x-scope"] = json!(scope);
    }
    operation
}

/// `GET /api/users/{id}` is `get_api_users_id`.
pub fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(route.method.as_str().to_lowercase(), |id, word| format!("{id}_{word}"))
}

fn parameters(route: &Route, query: Option<&Schema>) -> Value {
    let segments = route.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = segments
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let properties = query.and_then(|query| query.get("properties")).and_then(Value::as_object);
    let required = query.and_then(|query| query.get("required")).and_then(Value::as_array);
    for (name, schema) in properties.into_iter().flatten() {
        let required = required.is_some_and(|required| required.iter().any(|other| other == name));
        parameters.push(json!({"name": name, "in": "query", "required": required, "schema": schema}));
    }
    parameters.into()
}

fn security(route: &Route) -> Value {
    match route.access {
        RouteAccess::Open => json!([]),
        RouteAccess::Metrics => json!([{}, {"token": []}, {"session": []}]),
        RouteAccess::User | RouteAccess::AnyOf(_) | RouteAccess::AllPermissions => {
            json!([{"token": []}, {"session": []}])
        }
    }
}
