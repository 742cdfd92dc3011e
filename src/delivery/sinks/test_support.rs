//! What tests of sinks need: a sandbox and a way out over a fresh store, and sinks and events to try on them.

use super::{Attempted, Context, Sink, attempt};
use crate::{
    model::{
        event::{Actor, ActorKind, Event, EventType},
        id::{EventId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{config, egress::Egress, kv::Kv, store::Store},
    scripting::{
        lua::{EventInput, HostServices, MethodCaller, Runtime},
        scripts::Scripts,
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{Value, json, value::RawValue};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// The store's directory goes when this is dropped.
pub struct Workbench {
    pub context: Context,
    directory: PathBuf,
}

struct NoMethods;

impl MethodCaller for NoMethods {
    fn call(&self, _: Owner, method: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        std::future::ready(Err(format!("no method named `{method}`"))).boxed()
    }
}

impl Workbench {
    pub fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("svc-sink-{}", uuid::Uuid::now_v7()));
        let store = Store::open(&directory, 0, Arc::default()).unwrap();
        let egress = Egress::new(&config::Egress::default());
        let scripts = Scripts::open(store.clone(), usize::MAX).unwrap();
        let libraries = HostServices {
            http: Arc::new(egress.clone()),
            kv: Some(Kv::new(store).unwrap()),
            caller: Arc::new(NoMethods),
            modules: Arc::new(scripts.clone()),
        };
        let runtime = Runtime::new(&config::Script::default(), libraries, Arc::default());
        Self { context: Context { egress, runtime, scripts, timeout: Duration::from_secs(30) }, directory }
    }

    pub async fn attempt(&self, sink: &Sink) -> Attempted {
        attempt(&self.context, sink, input()).await
    }
}

impl Drop for Workbench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A sink of this spec; global unless it says otherwise, so that it reaches receivers on this machine.
pub fn sink(rest: Value) -> Sink {
    let mut spec = json!({"name": "x", "events": "*", "owner": "global"});
    spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Sink::define(serde_json::from_value(spec).unwrap(), UserId::new(), None).unwrap()
}

pub fn input() -> EventInput {
    let user = UserId::new();
    let event = Event {
        id: EventId::new(),
        kind: EventType::custom("deploy.done").unwrap(),
        ts: Timestamp::from_micros(1_700_000_000_000_000),
        zone: "default".into(),
        space_id: SpaceId::NIL,
        user_id: user,
        actor: Actor { id: uuid::Uuid::nil(), username: "ada".to_owned(), kind: ActorKind::User },
        space: None,
        data: RawValue::from_string(r#"{"n": 12345678901234567890, "version":"1.0"}"#.to_owned()).unwrap(),
    };
    EventInput { event: Arc::new(event), sequence: 7, attempt: 2 }
}
