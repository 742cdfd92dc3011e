//! The gateway to the methods that are served now.

use crate::{
    calls::call::Calls,
    model::{id::SpaceId, jsonrpc::RpcResponse, method::MethodServerHealth},
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::value::RawValue;

/// Access to the methods of spaces, for delivery.
pub trait MethodGateway: Send + Sync + 'static {
    /// Tells if the space serves the method now.
    fn presence(&self, space: SpaceId, method: &str) -> Presence;

    /// Calls the method in this space, by its canonical name and within its own timeout. The error is one line for
    /// people.
    fn call(&self, space: SpaceId, method: &str, params: Box<RawValue>) -> BoxFuture<'_, Result<RpcResponse, String>>;
}

/// The presence of a method in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Ready,
    /// Its method server ended and is being restarted.
    Restarting,
    /// Its agent is not connected, or does not serve the method.
    Away,
}

impl MethodGateway for Calls {
    fn presence(&self, space: SpaceId, method: &str) -> Presence {
        match self.health_in(space, method) {
            Some(MethodServerHealth::Running) => Presence::Ready,
            Some(MethodServerHealth::Restarting { .. } | MethodServerHealth::Stopped) => Presence::Restarting,
            Some(MethodServerHealth::Unlinked) | None => Presence::Away,
        }
    }

    fn call(&self, space: SpaceId, method: &str, params: Box<RawValue>) -> BoxFuture<'_, Result<RpcResponse, String>> {
        let method = method.to_owned();
        async move { self.call_in(space, &method, Some(&params)).await.map_err(|error| error.to_string()) }.boxed()
    }
}
