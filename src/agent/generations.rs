//! The running method servers by generation. Two run while one replaces the other.
//!
//! Each registration has a generation, and each call carries the generation that it was resolved with, so that during a
//! change every call reaches the process that it was meant for.

use super::method_server::MethodServer;
use crate::model::{agent_protocol::CallReply, method::MethodServerHealth};
use futures_util::future::join_all;
use parking_lot::RwLock;
use serde_json::value::RawValue;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// All running method servers. Cloning it is cheap.
#[derive(Clone, Default)]
pub struct Generations {
    servers: Arc<RwLock<HashMap<u64, Arc<MethodServer>>>>,
    /// Tasks that stop servers which answer for no generation any more.
    retiring: TaskTracker,
    stopping: CancellationToken,
}

impl Generations {
    /// Makes a method server answer for a generation.
    pub fn begin(&self, generation: u64, server: Arc<MethodServer>) {
        self.servers.write().insert(generation, server);
    }

    /// Ends a generation. Its method server may still answer for others.
    pub fn end(&self, generation: u64) {
        self.servers.write().remove(&generation);
    }

    /// Calls a method of a generation. The call is queued before this returns, so that calls keep their order.
    pub fn call(
        &self,
        generation: u64,
        method: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = CallReply> + Send + use<> {
        let calling = self.server(generation).map(|server| server.call(method, params));
        async move {
            match calling {
                Some(calling) => calling.await.map_or_else(CallReply::from, CallReply::from),
                None => CallReply::Unavailable("its registration has been replaced".to_owned()),
            }
        }
    }

    /// Forwards a notification, queued like a call. A failure is only logged.
    pub fn notify(
        &self,
        generation: u64,
        method: &str,
        params: Option<&RawValue>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let notifying = self.server(generation).map(|server| server.notify(method, params));
        let method = method.to_owned();
        async move {
            let Some(notifying) = notifying else { return };
            if let Err(fault) = notifying.await {
                log::warn!("a notification for `{method}` is lost: {fault}");
            }
        }
    }

    /// Follows the health of a generation's method server.
    pub fn health(&self, generation: u64) -> Option<watch::Receiver<MethodServerHealth>> {
        self.server(generation).map(|server| server.health())
    }

    /// Stops a method server after it has taken calls for `longer` and its calls in flight have ended.
    pub fn retire(&self, server: Arc<MethodServer>, longer: Duration) {
        if longer.is_zero() {
            self.forget(&server);
        }
        let generations = self.clone();
        self.retiring.spawn(async move {
            let retiring = async {
                tokio::time::sleep(longer).await;
                generations.forget(&server);
                server.retire().await;
            };
            tokio::select! {
                () = retiring => {}
                () = generations.stopping.cancelled() => server.stop().await,
            }
        });
    }

    /// Stops a method server that answers for no generation, in the background.
    pub fn discard(&self, server: Arc<MethodServer>) {
        self.retiring.spawn(async move { server.stop().await });
    }

    /// Stops all of them.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let servers: Vec<_> = self.servers.write().drain().map(|(_, server)| server).collect();
        join_all(servers.iter().map(|server| server.stop())).await;
        self.retiring.close();
        self.retiring.wait().await;
    }

    fn server(&self, generation: u64) -> Option<Arc<MethodServer>> {
        self.servers.read().get(&generation).cloned()
    }

    fn forget(&self, retired: &Arc<MethodServer>) {
        self.servers.write().retain(|_, server| !Arc::ptr_eq(server, retired));
    }
}
