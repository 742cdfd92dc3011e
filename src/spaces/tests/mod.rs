//! Spaces on a real store and queue engine.

mod health;
mod lifecycle;
mod outbox;
mod process;

use super::*;
use crate::{
    identity::{Caller, Identity, NewUser, User},
    model::{
        event::Event,
        health_check::CheckResult,
        id::{SpaceId, TemplateId},
        space_settings::{Driver, SpaceSettings},
        space_state::{SpaceHealth, SpaceState},
        timestamp::Timestamp,
    },
    platform::{
        audit::{Audit, AuditFilter},
        store::Store,
    },
    routing::{
        emit::Emitter,
        matcher::Routes,
        queue::sled::{EngineHooks, QueueLimits, SledEngine},
        route::NoFilters,
    },
};
use hyper::header::{AUTHORIZATION, HeaderMap};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;

/// Spaces in a temporary directory, with one user, `ada`.
struct TestSpaces {
    store: Store,
    identity: Identity,
    spaces: Spaces,
    ada: Arc<User>,
    /// Every stored event, in order.
    events: Arc<Mutex<Vec<Arc<Event>>>>,
    directory: TempDir,
}

impl TestSpaces {
    async fn new() -> Self {
        let fixture = Self::at(TempDir::new().unwrap(), 0).await;
        fixture.spaces.resume().await;
        fixture
    }

    /// Opens the directory without resuming, as a server's start does. `keep_free` is the room that the store keeps
    /// free.
    async fn at(directory: TempDir, keep_free: u64) -> Self {
        let store = Store::open(directory.path(), keep_free, Arc::default()).unwrap();
        let identity = Identity::open(store.clone(), Duration::from_secs(3600)).await.unwrap();
        let ada = match identity.users().into_iter().find(|user| user.name.as_str() == "ada") {
            Some(ada) => ada,
            None => identity.create_user(&admin(&identity, directory.path()), new_user("ada")).await.unwrap(),
        };
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let hooks = EngineHooks {
            accepted: Box::new(move |event| seen.lock().push(event.clone())),
            dropped: Box::new(|_, _| ()),
            ready: tokio::sync::mpsc::unbounded_channel().0,
        };
        let limits = QueueLimits { queue: 100, dead_letters: 100, undelivered: u64::MAX };
        let engine = SledEngine::open(store.clone(), Arc::default(), limits, hooks).unwrap();
        let emitter = Emitter::new("zone", Arc::new(Routes::new()), Arc::new(NoFilters), Arc::new(engine), 64 << 10);
        let spaces = Spaces::open(store.clone(), identity.clone(), Arc::new(emitter), 3).unwrap();
        Self { store, identity, spaces, ada, events, directory }
    }

    /// The same directory after an orderly end, before it resumes.
    async fn reopened(self, keep_free: u64) -> Self {
        self.spaces.pause();
        self.store.close().await;
        // The store is locked until its last handle is dropped.
        let Self { store, identity, spaces, ada, events, directory } = self;
        drop((store, identity, spaces, ada, events));
        Self::at(directory, keep_free).await
    }

    async fn close(self) {
        self.store.close().await;
    }

    /// A space of ada's with these settings.
    async fn space(&self, name: &str, settings: Value) -> Arc<Space> {
        self.try_create(name, Driver::External, settings).await.unwrap().0
    }

    async fn try_create(
        &self,
        name: &str,
        driver: Driver,
        settings: Value,
    ) -> Result<(Arc<Space>, Option<crate::identity::Secret>), SpaceError> {
        let settings = serde_json::from_value(settings).unwrap();
        let name = name.parse().unwrap();
        let new = NewSpace { name, owner: self.ada.id, template_id: None, driver, settings };
        self.spaces.create(self.ada.actor(), new).await
    }

    /// The types and payloads of the events emitted since the last call.
    fn emitted(&self) -> Vec<(String, Value)> {
        let events = std::mem::take(&mut *self.events.lock());
        events.iter().map(|event| (event.kind.to_string(), read(event))).collect()
    }

    fn emitted_kinds(&self) -> Vec<String> {
        self.emitted().into_iter().map(|(kind, _)| kind).collect()
    }

    fn caller(&self, token: &str) -> Option<Caller> {
        self.identity.authenticate(&bearer(token))
    }

    async fn audited(&self) -> Vec<(String, String)> {
        let filter = AuditFilter { action: Some("space.*".to_owned()), ..AuditFilter::default() };
        let page = Audit::new(self.store.clone()).list(filter, None, 50).await.unwrap();
        let by = |entry: &crate::platform::audit::AuditEntry| format!("{:?}", entry.actor.as_ref().unwrap().kind);
        page.entries.iter().rev().map(|entry| (entry.action.clone(), by(entry))).collect()
    }
}

fn admin(identity: &Identity, directory: &Path) -> Caller {
    let token = std::fs::read_to_string(directory.join("admin.token")).unwrap();
    identity.authenticate(&bearer(token.trim())).unwrap()
}

fn new_user(name: &str) -> NewUser {
    NewUser { name: name.parse().unwrap(), password: None, roles: vec![], groups: vec![], active: true }
}

fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
}

fn read(event: &Event) -> Value {
    serde_json::from_str(event.data.get()).unwrap()
}

/// A check's result now.
fn result(ok: bool) -> CheckResult {
    CheckResult { ok, detail: Some("as told".to_owned()), checked_at: Timestamp::now() }
}

/// Waits until `condition` yields something. For what happens on real threads; a paused clock moves on meanwhile.
async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
