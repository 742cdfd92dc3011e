//! A json-rpc sink: a template that shapes events into the params of the methods that name it. It receives no events.

use super::{
    body::{self, BodyError},
    lazy_program::LazyProgram,
};
use crate::{
    model::{body_template::BodyTemplate, owner::Owner},
    scripting::{lua::EventInput, workers::LuaWorkers},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The template of a json-rpc sink.
#[derive(Debug, Serialize, Deserialize)]
pub struct Formatter {
    pub template: LazyProgram<BodyTemplate>,
}

/// The params of a method call.
#[derive(Debug)]
pub struct MethodParams {
    /// An object or an array.
    pub json: Box<RawValue>,
    /// Lines that the template printed.
    pub log: Vec<String>,
}

/// The reason that an event was not shaped into params.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the template must return a table: JSON-RPC params are an object or an array")]
    NotStructured,
}

impl Formatter {
    /// Returns the params that a method which names this sink is called with.
    pub async fn format(
        &self,
        workers: &LuaWorkers,
        owner: Owner,
        input: EventInput,
    ) -> Result<MethodParams, FormatError> {
        let body = body::render(workers, &self.template, owner, input).await?;
        let json: Box<RawValue> = serde_json::from_slice(&body.bytes).map_err(|_| FormatError::NotStructured)?;
        match json.get().as_bytes().first() {
            Some(b'{' | b'[') => Ok(MethodParams { json, log: body.log }),
            _ => Err(FormatError::NotStructured),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::sinks::{
            SinkTarget,
            test_support::{SinkFixture, input, sink},
        },
        routing::queue::AttemptOutcome,
    };
    use serde_json::json;

    async fn format(template: &str) -> Result<String, FormatError> {
        let sink = sink(json!({"type": "json-rpc", "template": template}));
        let SinkTarget::JsonRpc(formatter) = &sink.target else { panic!("{sink:?}") };
        let params = formatter.format(&SinkFixture::new().context.workers, sink.owner, input()).await?;
        Ok(params.json.get().to_owned())
    }

    #[tokio::test]
    async fn a_table_becomes_params() {
        assert_eq!(format("return {v = event.data.version}").await.unwrap(), r#"{"v":"1.0"}"#);
        assert_eq!(format("return {1, 2}").await.unwrap(), "[1,2]");
    }

    #[tokio::test]
    async fn an_output_that_is_neither_object_nor_array_is_an_error() {
        for template in ["return 'text'", "return '5'", "return ''"] {
            assert!(matches!(format(template).await, Err(FormatError::NotStructured)), "{template}");
        }
        assert!(matches!(format("error('x')").await, Err(FormatError::Body(_))));
    }

    #[tokio::test]
    async fn a_formatter_is_never_delivered_to() {
        let sink = sink(json!({"type": "json-rpc", "template": "return {}"}));
        assert!(!sink.receives_events());
        assert_eq!(SinkFixture::new().attempt(&sink).await.outcome, AttemptOutcome::Dead);
    }
}
