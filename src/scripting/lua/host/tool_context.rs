//! Method calls and events on behalf of a script or a tool.

use crate::model::owner::Owner;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Calls methods on a script's behalf.
pub trait MethodCaller: Send + Sync {
    /// Calls a method with the rights of this owner.
    fn call(
        &self,
        owner: Owner,
        method: &str,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>>;
}

/// Emits events on a tool's behalf.
pub trait EventEmitter: Send + Sync {
    /// Emits an event with the rights of this owner and returns its description as JSON: `event_id` and more.
    fn emit(
        &self,
        owner: Owner,
        kind: &str,
        payload: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>>;
}

/// The user that a tool acts as, and the services it uses as that user.
#[derive(Clone)]
pub struct ToolContext {
    pub owner: Owner,
    pub caller: Arc<dyn MethodCaller>,
    pub emitter: Arc<dyn EventEmitter>,
}
