//! Conversion of offers and results to MCP's tools and tool results.
//!
//! Up to version 2025-11-25 a tool takes and returns objects, and some clients cannot read a list in which one schema says
//! otherwise. Such schemas are left out for these clients, so that no method makes the whole list unreadable.

use super::{
    catalog::{ToolOffer, ToolSource},
    raw_result::RawResult,
};
use crate::{
    calls::registry::PublishedMethod,
    model::jsonrpc::RpcResponse,
    scripting::lua::{ScriptError, ToolRun},
};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, ProtocolVersion, Tool};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::sync::Arc;

/// Structured results that a client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    Objects,
    /// From 2026-07-28 on.
    Anything,
}

/// The message of a JSON-RPC error object. A method server may have left out any member.
#[derive(Deserialize)]
struct ErrorMessage {
    message: Option<String>,
}

impl Structure {
    /// Structures that clients of a protocol version can read.
    pub fn of_version(version: Option<&ProtocolVersion>) -> Self {
        let newest = version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if newest { Self::Anything } else { Self::Objects }
    }
}

/// The tool as tools/list shows it.
pub fn tool(offer: &ToolOffer, structure: Structure) -> Tool {
    let (description, params, result, meta) = match &offer.source {
        ToolSource::Method { name, published } => {
            let definition = &published.method.definition;
            let meta = json!({"method": name, "owner": offer.owner, "keywords": definition.keywords});
            (&definition.description, &definition.params_schema, definition.result_schema.as_ref(), meta)
        }
        ToolSource::Script(script) => {
            let meta = json!({"script": script.name, "owner": offer.owner, "keywords": []});
            (&script.description, &script.params_schema, None, meta)
        }
    };
    let mut tool = Tool::new(offer.name.clone(), description.clone(), input_schema(params.as_ref()));
    tool.output_schema = output_schema(result, structure).map(Arc::new);
    tool.meta = object(meta).map(MetaObject);
    tool
}

/// A method's response as a tool result: always as text, and also structured if the tool declares a result schema.
pub fn result(
    published: &PublishedMethod,
    outcome: &RpcResponse,
    structure: Structure,
    raw: &RawResult,
) -> CallToolResult {
    let value = match outcome {
        RpcResponse::Result(value) => value,
        RpcResponse::Error(error) => return method_error(error),
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text(value))]);
    let declared = output_schema(published.method.definition.result_schema.as_ref(), structure).is_some();
    if declared && (structure == Structure::Anything || value.get().starts_with('{')) {
        result.structured_content = Some(raw.set(value));
    }
    result
}

/// The run of a stored tool as a tool result. Its log is in the metadata, for the tool's author.
pub fn evaluated(run: ToolRun) -> CallToolResult {
    let (mut result, error) = match run.result {
        Ok(value) => (CallToolResult::success(vec![ContentBlock::text(text(&value))]), None),
        Err(ScriptError::RaisedWith { code, message, data }) => {
            let mut error = json!({"code": code, "message": message, "data": data});
            error.as_object_mut().expect("the literal above is an object").retain(|_, value| !value.is_null());
            (failure(&message), Some(error))
        }
        Err(error) => (failure(&error.to_string()), None),
    };
    let mut meta = JsonObject::new();
    if let Some(error) = error {
        meta.insert("error".to_owned(), error);
    }
    if !run.log.is_empty() {
        meta.insert("log".to_owned(), json!(run.log));
    }
    if !meta.is_empty() {
        result.meta = Some(MetaObject(meta));
    }
    result
}

/// A tool error with this message.
pub fn failure(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

/// A method's own error: its message as text, the whole error object in the metadata.
fn method_error(error: &RawValue) -> CallToolResult {
    let message = serde_json::from_str::<ErrorMessage>(error.get()).ok().and_then(|error| error.message);
    let meta = serde_json::from_str::<Value>(error.get()).ok().and_then(|error| object(json!({ "error": error })));
    failure(message.as_deref().unwrap_or(error.get())).with_meta(meta.map(MetaObject))
}

/// A string as its content; everything else as JSON, byte for byte.
fn text(value: &RawValue) -> String {
    let json = value.get();
    let plain = json.starts_with('"').then(|| serde_json::from_str(json).ok()).flatten();
    plain.unwrap_or_else(|| json.to_owned())
}

/// The schema of arguments, which are always an object in MCP, whatever the method's schema allows.
fn input_schema(schema: Option<&Value>) -> JsonObject {
    let declared = schema.and_then(Value::as_object).filter(|schema| may_be_object(schema));
    let mut schema = declared.cloned().unwrap_or_default();
    schema.insert("type".to_owned(), json!("object"));
    schema
}

fn output_schema(schema: Option<&Value>, structure: Structure) -> Option<JsonObject> {
    let schema = schema?.as_object()?;
    let is_object = match schema.get("type") {
        Some(kind) => kind == "object",
        None => schema.contains_key("properties"),
    };
    let mut schema = schema.clone();
    if is_object {
        schema.insert("type".to_owned(), json!("object"));
    }
    (is_object || structure == Structure::Anything).then_some(schema)
}

fn may_be_object(schema: &JsonObject) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    }
}

fn object(value: Value) -> Option<JsonObject> {
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn arguments_are_always_an_object() {
        for (declared, listed) in [
            (None, json!({"type": "object"})),
            (Some(json!({})), json!({"type": "object"})),
            (Some(json!({"required": ["a"]})), json!({"type": "object", "required": ["a"]})),
            (Some(json!({"type": ["object", "null"], "title": "t"})), json!({"type": "object", "title": "t"})),
            (Some(json!({"type": "array", "items": {}})), json!({"type": "object"})),
        ] {
            assert_eq!(Value::Object(input_schema(declared.as_ref())), listed);
        }
    }

    #[test]
    fn a_schema_of_no_object_is_shown_only_to_clients_that_can_read_it() {
        let both = |schema: Value| {
            [Structure::Objects, Structure::Anything]
                .map(|structure| output_schema(Some(&schema), structure).map(Value::Object))
        };
        let list = json!({"type": "array"});
        assert_eq!(both(list.clone()), [None, Some(list)]);
        let object = json!({"type": "object", "properties": {}});
        assert_eq!(both(object.clone()), [Some(object.clone()), Some(object.clone())]);
        assert_eq!(both(json!({"properties": {}})), [Some(object.clone()), Some(object)]);
        assert_eq!(output_schema(None, Structure::Anything), None);
    }

    #[test]
    fn the_newest_version_takes_any_structure() {
        use ProtocolVersion as Version;
        let of = |version| Structure::of_version(Some(&version));
        assert_eq!(of(Version::V_2026_07_28), Structure::Anything);
        assert_eq!(of(Version::V_2025_11_25), Structure::Objects);
        assert_eq!(Structure::of_version(None), Structure::Objects);
    }

    #[test]
    fn a_string_is_its_own_text_and_everything_else_is_json() {
        for (json, shown) in [
            (r#""a\nb""#, "a\nb"),
            (r#"{ "n":1.0,"b":18446744073709551616 }"#, r#"{ "n":1.0,"b":18446744073709551616 }"#),
            ("null", "null"),
        ] {
            assert_eq!(text(&raw(json)), shown);
        }
    }

    #[test]
    fn an_error_is_shown_by_its_message_and_kept_whole_in_the_metadata() {
        let shown = method_error(&raw(r#"{"code": 7, "message": "no such note", "data": [1]}"#));
        assert_eq!(shown.is_error, Some(true));
        assert_eq!(shown.content, [ContentBlock::text("no such note")]);
        assert_eq!(shown.meta.unwrap().0["error"], json!({"code": 7, "message": "no such note", "data": [1]}));
        assert_eq!(method_error(&raw(r#"{"code": 7}"#)).content, [ContentBlock::text(r#"{"code": 7}"#)]);
    }
}
