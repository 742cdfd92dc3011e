//! `GET /api/openapi.json`: the route table as an OpenAPI 3.1 document. Everything in it comes from the table and from
//! the types in the handlers' signatures.

use super::{
    Response,
    error::ApiError,
    request::{Call, Output, Takes, json},
    route_table::{Access, Route, TABLE},
};
use crate::model::api::error::ErrorBody;
use hyper::StatusCode;
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Built once: the table never changes.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| build(TABLE.routes()));

/// The document, for the route that serves it.
pub struct Document(&'static Value);

pub async fn document(_: Call) -> Result<Document, ApiError> {
    Ok(Document(&DOCUMENT))
}

impl Output for Document {
    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        Some(json_schema!({"type": "object", "description": "An OpenAPI 3.1 document"}))
    }

    fn into_response(self) -> Response {
        json(StatusCode::OK, self.0)
    }
}

fn build(routes: &[Route]) -> Value {
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
    let shape = (route.shape)(generator);
    let mut responses = json!({
        "default": {"description": "An error", "content": {"application/json": {"schema": error}}},
    });
    for status in shape.also.iter().chain([&shape.status]) {
        let answer = &mut responses[status.as_str()];
        answer["description"] = status.canonical_reason().unwrap_or_default().into();
        if let Some(schema) = shape.answer.as_ref().filter(|_| !shape.bare.contains(status)) {
            answer["content"] = json!({shape.content: {"schema": schema}});
        }
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters(route, shape.query.as_ref()),
        "responses": responses,
        "security": security(route),
    });
    if let Some(schema) = shape.body {
        operation["requestBody"] = json!({
            "required": route.takes == Takes::Json,
            "content": {"application/json": {"schema": schema}},
        });
    }
    if let Access::AnyOf(permissions) = route.access {
        operation["x-permissions"] = json!(permissions);
    }
    if let Some(scope) = route.scope {
        operation["x-scope"] = json!(scope);
    }
    operation
}

/// `GET /api/users/{id}` is `get_api_users_id`.
fn operation_id(route: &Route) -> String {
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
        Access::Open => json!([]),
        Access::User | Access::AnyOf(_) => json!([{"token": []}, {"session": []}]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every `$ref` in the document.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.insert(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_has_exactly_the_routes_of_the_table() {
        let table: BTreeSet<_> =
            TABLE.routes().iter().map(|route| (route.path.to_owned(), route.method.as_str().to_lowercase())).collect();
        let paths = DOCUMENT["paths"].as_object().unwrap();
        let documented = paths.iter().flat_map(|(path, operations)| {
            operations.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))
        });
        assert_eq!(documented.collect::<BTreeSet<_>>(), table);
    }

    #[test]
    fn every_operation_says_what_it_takes_and_answers() {
        for route in TABLE.routes() {
            let operation = &DOCUMENT["paths"][route.path][route.method.as_str().to_lowercase()];
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{}", route.path);
            assert_eq!(operation.get("requestBody").is_some(), route.takes != Takes::Nothing, "{}", route.path);
            assert_eq!(operation["security"] == json!([]), route.access == Access::Open, "{}", route.path);
            let parameters = operation["parameters"].as_array().unwrap();
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, route.path.matches('{').count(), "{}", route.path);
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2')), "{}", route.path);
        }
    }

    #[test]
    fn every_reference_is_defined_and_every_operation_has_its_own_id() {
        let mut found = BTreeSet::new();
        references(&DOCUMENT, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            assert!(DOCUMENT.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
        }
        let ids: BTreeSet<_> = TABLE.routes().iter().map(operation_id).collect();
        assert_eq!(ids.len(), TABLE.routes().len());
    }
    #[test]
    fn a_patch_requires_nothing_and_a_put_what_has_no_default() {
        let required = |method: &str| {
            let body = &DOCUMENT["paths"]["/api/event-sinks/{id}"][method]["requestBody"];
            let reference = body["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
            DOCUMENT.pointer(&reference[1..]).unwrap()["required"].clone()
        };
        assert_eq!((required("put"), required("patch")), (json!(["name", "events", "type"]), Value::Null));
    }

    #[test]
    fn not_being_ready_is_described_with_its_own_body() {
        let responses = &DOCUMENT["paths"]["/readyz"]["get"]["responses"];
        assert_eq!(responses["503"]["content"], responses["200"]["content"]);
        assert_eq!(responses["503"]["description"], "Service Unavailable");
    }
}
