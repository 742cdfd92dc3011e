//! What tests of subscriptions need: a door that opens and answers as it is told, and methods to put behind it.

use super::{Door, Presence, Subscription};
use crate::{
    model::{
        id::{SinkId, SpaceId, UserId},
        jsonrpc::{Fault, Outcome},
        method::{Method, Registration},
        timestamp::Timestamp,
    },
    platform::store::{OpenError, Store},
};
use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::{json, value::RawValue};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A directory for a store, which goes when this is dropped.
pub struct Scratch(PathBuf);

/// A way to methods that are not there. All of them are served, or none.
pub struct FakeDoor {
    open: AtomicBool,
    calls: Mutex<Vec<Call>>,
    answer: Mutex<Answer>,
}

type Answer = Arc<dyn Fn(&Call) -> Result<Outcome, String> + Send + Sync>;

/// What a method was asked.
#[derive(Clone, Debug)]
pub struct Call {
    pub space: SpaceId,
    pub method: String,
    pub params: String,
}

impl Scratch {
    pub fn new() -> Self {
        Self(std::env::temp_dir().join(format!("svc-subscription-{}", uuid::Uuid::now_v7())))
    }

    pub fn store(&self) -> Store {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match Store::open(&self.0, 0, Arc::default()) {
                Ok(store) => return store,
                // After a reopening: sled lets go of its files a moment later than of its last handle.
                Err(OpenError::Database { .. }) if Instant::now() < deadline => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Another directory with all that is in this one, as a process that is gone has left it.
    pub fn copy(&self) -> Self {
        let copy = Self::new();
        copy_directory(&self.0, &copy.0);
        copy
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl FakeDoor {
    /// An open door, behind which everything is `"ok"`.
    pub fn open() -> Arc<Self> {
        let ok: Answer = Arc::new(|_| Ok(Outcome::Result(RawValue::from_string("\"ok\"".to_owned()).unwrap())));
        Arc::new(Self { open: AtomicBool::new(true), calls: Mutex::default(), answer: Mutex::new(ok) })
    }

    pub fn closed() -> Arc<Self> {
        let door = Self::open();
        door.set(false);
        door
    }

    pub fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// Answers every call so from now on.
    pub fn answer(&self, answer: impl Fn(&Call) -> Result<Outcome, String> + Send + Sync + 'static) {
        *self.answer.lock() = Arc::new(answer);
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }
}

impl Door for FakeDoor {
    fn presence(&self, _: SpaceId, _: &str) -> Presence {
        if self.open.load(Ordering::SeqCst) { Presence::Ready } else { Presence::Away }
    }

    fn call(&self, space: SpaceId, method: &str, params: Box<RawValue>) -> BoxFuture<'_, Result<Outcome, String>> {
        let call = Call { space, method: method.to_owned(), params: params.get().to_owned() };
        async move {
            let answer = self.answer.lock().clone();
            let answered = answer(&call);
            self.calls.lock().push(call);
            answered
        }
        .boxed()
    }
}

/// A method's own error.
pub fn error(code: i32, message: &str) -> Result<Outcome, String> {
    Ok(Fault::new(code, message).into())
}

/// A published method that is called for these events, if any.
pub fn method(name: &str, events: Option<&str>, event_sinks: &[&str]) -> Method {
    let events: Vec<&str> = events.into_iter().collect();
    let method =
        json!({"name": name, "local_name": "l", "description": "d", "events": events, "event_sinks": event_sinks});
    let registration = json!({"server": {"command": "x"}, "methods": [method]});
    let registration: Registration = serde_json::from_value(registration).unwrap();
    registration.publish("s", |_| None).unwrap().remove(0)
}

/// A subscription of the method `on_event` in the space `notes`.
pub fn subscription(owner: UserId, events: &str, event_sinks: &[&str]) -> Subscription {
    Subscription {
        id: SinkId::new(),
        space: SpaceId::new(),
        space_name: "notes".into(),
        owner,
        method: "on_event".into(),
        events: events.parse().unwrap(),
        event_sinks: event_sinks.iter().map(ToString::to_string).collect(),
        created_at: Timestamp::now(),
    }
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), target) {
            // sled replaces its snapshot files while it runs.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }
}
