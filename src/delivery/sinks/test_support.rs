//! Support for tests of sinks: a Lua runtime and egress over a fresh store, and sample sinks and events.

use super::{Sink, SinkContext, attempt};
use crate::{
    delivery::CompletedAttempt,
    model::{
        event::{Actor, ActorKind, Event, EventType},
        id::{EventId, SpaceId, UserId},
        owner::Owner,
        timestamp::Timestamp,
    },
    platform::{config, egress::Egress, kv::Kv, store::Store},
    scripting::{
        lua::{EventInput, MethodCaller},
        scripts::Scripts,
        workers::{LuaWorkers, WorkerCommand, WorkerServices},
    },
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::{Value, json, value::RawValue};
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;

/// Everything that an attempt needs, over a fresh store.
pub struct SinkFixture {
    pub context: SinkContext,
    _directory: TempDir,
}

struct NoMethodsServed;

impl MethodCaller for NoMethodsServed {
    fn call(&self, _: Owner, method: &str, _: Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        std::future::ready(Err(format!("no method named `{method}`"))).boxed()
    }
}

impl SinkFixture {
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
        let egress = Egress::new(&config::EgressConfig::default());
        let scripts = Scripts::open(store.clone(), usize::MAX).unwrap();
        let services = WorkerServices {
            http: Arc::new(egress.clone()),
            kv: Kv::new(store).unwrap(),
            caller: Arc::new(NoMethodsServed),
            libraries: Arc::new(scripts.clone()),
        };
        let (config, command) = (config::ScriptConfig::default(), WorkerCommand::this_program());
        let workers = LuaWorkers::new(&config, command, services, Arc::default()).unwrap();
        Self {
            context: SinkContext { egress, workers, scripts, timeout: Duration::from_secs(30) },
            _directory: directory,
        }
    }

    pub async fn attempt(&self, sink: &Sink) -> CompletedAttempt {
        attempt(&self.context, sink, input()).await.unwrap()
    }
}

/// Returns a sink of this spec. It is global unless the spec says otherwise, so that it reaches receivers on this
/// machine.
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
    EventInput { sequence: 7, attempt: 2, ..EventInput::sample(Arc::new(event)) }
}
