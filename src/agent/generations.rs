//! The method servers that run, and which of them answers for which generation: two while one replaces the other.

use super::method_server::{Health, MethodServer};
use crate::model::agent_protocol::CallReply;
use futures_util::future::join_all;
use parking_lot::{RwLock, RwLockWriteGuard};
use serde_json::value::RawValue;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// All that run. Cloning it is cheap.
#[derive(Clone, Default)]
pub struct Serving {
    generations: Arc<RwLock<HashMap<u64, Arc<MethodServer>>>>,
    /// Those that answer for no generation any more, and are on their way out.
    leaving: TaskTracker,
    stopping: CancellationToken,
}

impl Serving {
    /// This process answers for this generation from now on.
    pub fn begin(&self, generation: u64, server: Arc<MethodServer>) {
        self.generations().insert(generation, server);
    }

    /// Nobody answers for this generation any more. Its process may still for others.
    pub fn end(&self, generation: u64) {
        self.generations().remove(&generation);
    }

    /// Calls the process of a generation. The call is in line before this returns, so that calls keep their order.
    pub fn call(
        &self,
        generation: u64,
        method: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = CallReply> + Send + use<> {
        let calling = self.of(generation).map(|server| server.call(method, params));
        async move {
            match calling {
                Some(calling) => calling.await.map_or_else(CallReply::from, CallReply::from),
                None => CallReply::Unavailable("its registration has been replaced".to_owned()),
            }
        }
    }

    /// Hands a notification on, in line like a call; nobody waits to hear what becomes of it.
    pub fn notify(
        &self,
        generation: u64,
        method: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let notifying = self.of(generation).map(|server| server.notify(method, params));
        let method = method.to_owned();
        async move {
            let Some(notifying) = notifying else { return };
            if let Err(fault) = notifying.await {
                log::warn!("a notification for `{method}` is lost: {fault}");
            }
        }
    }

    /// How the process of a generation is, as it changes.
    pub fn health(&self, generation: u64) -> Option<watch::Receiver<Health>> {
        self.of(generation).map(|server| server.health())
    }

    /// Has a process take calls for a while longer, lets those in flight end, and stops it.
    pub fn retire(&self, server: Arc<MethodServer>, longer: Duration) {
        if longer.is_zero() {
            self.forget(&server);
        }
        let serving = self.clone();
        self.leaving.spawn(async move {
            let retiring = async {
                tokio::time::sleep(longer).await;
                serving.forget(&server);
                server.retire().await;
            };
            tokio::select! {
                () = retiring => {}
                () = serving.stopping.cancelled() => server.stop().await,
            }
        });
    }

    /// Stops a process that answers for nothing; nobody waits for that.
    pub fn discard(&self, server: Arc<MethodServer>) {
        self.leaving.spawn(async move { server.stop().await });
    }

    /// Stops all of them.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let servers: Vec<_> = self.generations().drain().map(|(_, server)| server).collect();
        join_all(servers.iter().map(|server| server.stop())).await;
        self.leaving.close();
        self.leaving.wait().await;
    }

    fn of(&self, generation: u64) -> Option<Arc<MethodServer>> {
        self.generations.read().get(&generation).cloned()
    }

    /// No generation is this process's any more.
    fn forget(&self, gone: &Arc<MethodServer>) {
        self.generations().retain(|_, server| !Arc::ptr_eq(server, gone));
    }

    fn generations(&self) -> RwLockWriteGuard<'_, HashMap<u64, Arc<MethodServer>>> {
        self.generations.write()
    }
}
