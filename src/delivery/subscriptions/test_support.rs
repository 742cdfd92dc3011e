//! Support for tests of subscriptions: a gateway whose presence and responses a test sets, and sample methods.

use super::{MethodGateway, Presence, Subscription};
use crate::{
    model::{
        id::{SinkId, SpaceId, UserId},
        jsonrpc::{ErrorObject, RpcResponse},
        method::{Method, Registration},
        timestamp::Timestamp,
    },
    platform::store::{Store, test_support::copy_directory},
};
use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::{json, value::RawValue};
use std::sync::Arc;
use tempfile::TempDir;

/// A temporary directory for a store.
pub struct StoreDirectory(TempDir);

/// A gateway that records calls. All methods have the same presence.
pub struct FakeGateway {
    presence: Mutex<Presence>,
    calls: Mutex<Vec<RecordedCall>>,
    responder: Mutex<Responder>,
}

type Responder = Arc<dyn Fn(&RecordedCall) -> Result<RpcResponse, String> + Send + Sync>;

/// A call that the gateway received.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    pub space: SpaceId,
    pub method: String,
    pub params: String,
}

impl StoreDirectory {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub fn store(&self) -> Store {
        Store::open(self.0.path(), 0, Arc::default()).unwrap()
    }

    /// Returns another directory with a copy of the files, as a process that has ended would have left them.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        copy_directory(self.0.path(), copy.0.path());
        copy
    }
}

impl FakeGateway {
    /// A gateway whose methods are ready and return `"ok"`.
    pub fn ready() -> Arc<Self> {
        let ok: Responder = Arc::new(|_| Ok(RpcResponse::Result(RawValue::from_string("\"ok\"".to_owned()).unwrap())));
        Arc::new(Self { presence: Mutex::new(Presence::Ready), calls: Mutex::default(), responder: Mutex::new(ok) })
    }

    pub fn away() -> Arc<Self> {
        let gateway = Self::ready();
        gateway.set(Presence::Away);
        gateway
    }

    pub fn set(&self, presence: Presence) {
        *self.presence.lock() = presence;
    }

    /// Responds to every call in this way from now on.
    pub fn respond(&self, responder: impl Fn(&RecordedCall) -> Result<RpcResponse, String> + Send + Sync + 'static) {
        *self.responder.lock() = Arc::new(responder);
    }

    /// Returns every call so far.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.calls.lock().clone()
    }
}

impl MethodGateway for FakeGateway {
    fn presence(&self, _: SpaceId, _: &str) -> Presence {
        *self.presence.lock()
    }

    fn call(&self, space: SpaceId, method: &str, params: Box<RawValue>) -> BoxFuture<'_, Result<RpcResponse, String>> {
        let call = RecordedCall { space, method: method.to_owned(), params: params.get().to_owned() };
        async move {
            let responder = self.responder.lock().clone();
            let response = responder(&call);
            self.calls.lock().push(call);
            response
        }
        .boxed()
    }
}

/// Returns an error response of a method.
pub fn error(code: i32, message: &str) -> Result<RpcResponse, String> {
    Ok(ErrorObject::new(code, message).into())
}

/// Returns a published method that is called for these events, if any.
pub fn method(name: &str, events: Option<&str>, event_sinks: &[&str]) -> Method {
    let events: Vec<&str> = events.into_iter().collect();
    let method =
        json!({"name": name, "local_name": "l", "description": "d", "events": events, "event_sinks": event_sinks});
    let registration = json!({"server": {"command": "x"}, "methods": [method]});
    let registration: Registration = serde_json::from_value(registration).unwrap();
    registration.publish("s", |_| None).unwrap().remove(0)
}

/// Returns a subscription of the method `on_event` in the space `notes`.
pub fn subscription(owner: UserId, events: &str, event_sinks: &[&str]) -> Subscription {
    Subscription {
        id: SinkId::new(),
        space: SpaceId::new(),
        space_name: "notes".into(),
        owner,
        method: "on_event".into(),
        events: events.parse().unwrap(),
        filter: None,
        event_sinks: event_sinks.iter().map(ToString::to_string).collect(),
        created_at: Timestamp::now(),
    }
}
