//! A json-rpc sink: a named template that shapes events for the methods that name it. It receives nothing itself.

use super::{
    body::{self, BodyError},
    compiled::Compiled,
};
use crate::{
    model::{body_template::BodyTemplate, owner::Owner},
    scripting::lua::{EventInput, Runtime},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The template of a json-rpc sink.
#[derive(Debug, Serialize, Deserialize)]
pub struct Formatter {
    pub template: Compiled<BodyTemplate>,
}

/// What a method is called with.
#[derive(Debug)]
pub struct Params {
    /// An object or an array.
    pub json: Box<RawValue>,
    /// What the template printed.
    pub log: Vec<String>,
}

/// Why an event could not be shaped into params.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the template must return a table: JSON-RPC params are an object or an array")]
    NotStructured,
}

impl Formatter {
    /// The params that a method subscribed through this sink is called with.
    ///
    /// # Errors
    ///
    /// Fails if the template does, or makes something that cannot be params.
    pub async fn format(&self, runtime: &Runtime, owner: Owner, input: EventInput) -> Result<Params, FormatError> {
        let body = body::render(runtime, Some(&self.template), owner, input).await?;
        let json: Box<RawValue> = serde_json::from_slice(&body.bytes).map_err(|_| FormatError::NotStructured)?;
        match json.get().as_bytes().first() {
            Some(b'{' | b'[') => Ok(Params { json, log: body.log }),
            _ => Err(FormatError::NotStructured),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::sinks::{
        Outcome, Target,
        test_support::{Workbench, input, sink},
    };
    use serde_json::json;

    async fn format(template: &str) -> Result<String, FormatError> {
        let sink = sink(json!({"type": "json-rpc", "template": template}));
        let Target::JsonRpc(formatter) = &sink.target else { panic!("{sink:?}") };
        let params = formatter.format(&Workbench::new().context.runtime, sink.owner, input()).await?;
        Ok(params.json.get().to_owned())
    }

    #[tokio::test]
    async fn a_table_becomes_params() {
        assert_eq!(format("return {v = event.data.version}").await.unwrap(), r#"{"v":"1.0"}"#);
        assert_eq!(format("return {1, 2}").await.unwrap(), "[1,2]");
    }

    #[tokio::test]
    async fn what_cannot_be_params_is_an_error() {
        for template in ["return 'text'", "return '5'", "return ''"] {
            assert!(matches!(format(template).await, Err(FormatError::NotStructured)), "{template}");
        }
        assert!(matches!(format("error('x')").await, Err(FormatError::Body(_))));
    }

    #[tokio::test]
    async fn a_formatter_is_never_delivered_to() {
        let sink = sink(json!({"type": "json-rpc", "template": "return {}"}));
        assert!(!sink.subscribes());
        assert!(matches!(Workbench::new().attempt(&sink).await.outcome, Outcome::Dead(_)));
    }
}
