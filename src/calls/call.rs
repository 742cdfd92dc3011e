//! The call's way: ingress → resolve → pick → send → reply, for requests over HTTP and MCP, for scripts, and for events
//! that a method subscribed to. [`super::agent_link`] sends the call to the agent.

use crate::{
    calls::{
        agent_link::{AgentCall, LinkError},
        registry::{CallPlace, Registry, Viewer},
    },
    identity::Identity,
    model::{
        agent_protocol::CallReply,
        id::SpaceId,
        jsonrpc::{
            ErrorObject, Id, InvalidRequest, NO_ERROR_OBJECT, Request, RpcBody, RpcResponse, code, is_error_object,
        },
        method::MethodServerHealth,
    },
    platform::metrics::Metrics,
};
use futures_util::future::join_all;
use serde_json::value::RawValue;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Total bytes of the responses to one batch. A single response is bounded by the longest line of a method server; a thousand
/// of those would not fit into memory.
const MAX_RESPONSES: usize = 64 << 20;

/// Makes calls. Cloning it is cheap.
#[derive(Clone)]
pub struct Calls {
    registry: Registry,
    identity: Identity,
    metrics: Arc<Metrics>,
    /// Cancelled once the server takes no new calls.
    stopping: CancellationToken,
}

/// The reason that a call has no response of its method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No visible method has this name. Hidden and absent look alike to the caller.
    #[error("no method named `{0}`")]
    UnknownMethod(String),
    #[error("`{method}` is not available: {why}")]
    Unavailable { method: String, why: String },
    /// The method server took the call and did not answer.
    #[error("`{method}` did not reply within {seconds} s")]
    Timeout { method: String, seconds: u64 },
    #[error("`{0}` has too many calls waiting: try again later")]
    Busy(String),
    /// The server takes no new calls. Those under way end first.
    #[error("the server is stopping: try again in a few seconds")]
    Stopping,
    /// The method server answered, but not in JSON-RPC.
    #[error("`{method}` gave no valid answer: {why}")]
    Garbled { method: String, why: String },
}

impl Calls {
    /// Once `stopping` is cancelled, new calls from outside are refused; scripts and deliveries under way still make
    /// theirs.
    pub fn new(registry: Registry, identity: Identity, metrics: Arc<Metrics>, stopping: CancellationToken) -> Self {
        Self { registry, identity, metrics, stopping }
    }

    /// Refuses a call from outside once the server stops.
    ///
    /// # Errors
    ///
    /// [`CallError::Stopping`].
    pub fn check_open(&self) -> Result<(), CallError> {
        match self.stopping.is_cancelled() {
            true => Err(CallError::Stopping),
            false => Ok(()),
        }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Answers a JSON-RPC body: a request, or a batch of at most `max_batch`. `None` if it has notifications only.
    pub async fn answer(&self, viewer: &Viewer, body: &[u8], max_batch: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match RpcBody::read(body, max_batch) {
            Err(fault) => RpcResponse::from(fault).write(&Id::null(), &mut out),
            Ok(RpcBody::Single(request)) => {
                let (id, response) = self.serve(viewer, request).await?;
                response.write(&id, &mut out);
            }
            Ok(RpcBody::Batch(requests)) => {
                let room = AtomicUsize::new(MAX_RESPONSES);
                let serving = requests.into_iter().map(async |request| {
                    let (id, response) = self.serve(viewer, request).await?;
                    Some((id, within_room(&room, response)))
                });
                let served = join_all(serving).await;
                for (id, response) in served.into_iter().flatten() {
                    out.push(if out.is_empty() { b'[' } else { b',' });
                    response.write(&id, &mut out);
                }
                if out.is_empty() {
                    return None;
                }
                out.push(b']');
            }
        }
        Some(out)
    }

    /// Calls a method by the name under which the viewer sees it.
    pub async fn call(&self, viewer: &Viewer, name: &str, params: Option<&RawValue>) -> Result<RpcResponse, CallError> {
        let place = self.pick(viewer, name)?;
        self.exchange(&place, name, params).await
    }

    /// Sends a notification, to which there is no answer.
    pub async fn notify(&self, viewer: &Viewer, name: &str, params: Option<&RawValue>) -> Result<(), CallError> {
        let place = self.pick(viewer, name)?;
        let sent = tokio::time::timeout(place.timeout(), place.link().notify(agent_call(&place, params))).await;
        sent.unwrap_or(Err(LinkError::Timeout)).map_err(|error| link_failed(&place, name, error))
    }

    /// The health of a method in one space; `None` if the space does not serve it.
    pub fn health_in(&self, space: SpaceId, method: &str) -> Option<MethodServerHealth> {
        self.registry.provider(space, method).map(|provider| provider.health())
    }

    /// Calls the method in this space, and in no other that serves it.
    pub async fn call_in(
        &self,
        space: SpaceId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<RpcResponse, CallError> {
        let provider = self.registry.provider(space, method);
        let place = provider.ok_or_else(|| CallError::UnknownMethod(method.to_owned()))?.take_place();
        self.exchange(&place, method, params).await
    }

    /// Serves one request; a notification has no response.
    async fn serve(&self, viewer: &Viewer, request: Result<Request, InvalidRequest>) -> Option<(Id, RpcResponse)> {
        let Request { method, params, id } = match request {
            Ok(request) => request,
            Err(InvalidRequest { id, error }) => return Some((id, error.into())),
        };
        let Some(id) = id else {
            let notified = async {
                self.check_open()?;
                self.notify(viewer, &method, params.as_deref()).await
            };
            if let Err(error) = notified.await {
                log::debug!("a notification went nowhere: {error}");
            }
            return None;
        };
        let called = async {
            self.check_open()?;
            self.call(viewer, &method, params.as_deref()).await
        };
        Some((id, called.await.unwrap_or_else(|error| ErrorObject::from(error).into())))
    }

    /// Resolves a name, and picks one of the method's providers.
    fn pick(&self, viewer: &Viewer, name: &str) -> Result<CallPlace, CallError> {
        let published = self.registry.resolve(viewer, name, &self.identity);
        let published = published.ok_or_else(|| CallError::UnknownMethod(name.to_owned()))?;
        published.take_place().ok_or_else(|| CallError::Unavailable {
            method: name.to_owned(),
            why: "no space that publishes it is running it now".to_owned(),
        })
    }

    /// Sends a call and awaits its reply. The caller holds the place until then.
    async fn exchange(
        &self,
        place: &CallPlace,
        name: &str,
        params: Option<&RawValue>,
    ) -> Result<RpcResponse, CallError> {
        let began = Instant::now();
        let reply = place.link().call(agent_call(place, params), place.reply_limit()).await;
        let response =
            reply.map_err(|error| link_failed(place, name, error)).and_then(|reply| response_of(place, name, reply));
        self.metrics.call_time.observe(began.elapsed());
        match &response {
            Ok(_) => self.metrics.calls_answered.increment(),
            Err(_) => self.metrics.calls_failed.increment(),
        }
        response
    }
}

fn response_of(place: &CallPlace, name: &str, reply: CallReply) -> Result<RpcResponse, CallError> {
    let method = || name.to_owned();
    match reply {
        CallReply::Result(value) => Ok(RpcResponse::Result(value)),
        CallReply::Error(value) if is_error_object(&value) => Ok(RpcResponse::Error(value)),
        // An agent checks it. One that does not must not break the clients of its methods.
        CallReply::Error(_) => Err(CallError::Garbled { method: method(), why: NO_ERROR_OBJECT.to_owned() }),
        CallReply::Unavailable(why) => Err(CallError::Unavailable { method: method(), why }),
        CallReply::Garbled(why) => Err(CallError::Garbled { method: method(), why }),
        CallReply::Timeout => Err(CallError::Timeout { method: method(), seconds: place.timeout().as_secs() }),
        CallReply::Busy => Err(CallError::Busy(method())),
    }
}

/// The response, if there is room left for it among those of its batch; an error otherwise.
fn within_room(room: &AtomicUsize, response: RpcResponse) -> RpcResponse {
    let (RpcResponse::Result(value) | RpcResponse::Error(value)) = &response;
    let left = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(value.get().len()));
    if left.is_ok() {
        return response;
    }
    let message = format!("the answers of this batch are over {MAX_RESPONSES} bytes together: ask for less at once");
    ErrorObject::new(code::INTERNAL, message).into()
}

fn agent_call<'a>(place: &'a CallPlace, params: Option<&'a RawValue>) -> AgentCall<'a> {
    AgentCall { generation: place.generation(), local_name: &place.local_name, params }
}

fn link_failed(place: &CallPlace, name: &str, error: LinkError) -> CallError {
    let method = name.to_owned();
    match error {
        LinkError::Down => CallError::Unavailable { method, why: "its space went away during the call".to_owned() },
        LinkError::Timeout => CallError::Timeout { method, seconds: place.timeout().as_secs() },
    }
}

impl From<CallError> for ErrorObject {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::UnknownMethod(_) => code::METHOD_NOT_FOUND,
            CallError::Unavailable { .. } => code::UNAVAILABLE,
            CallError::Timeout { .. } => code::TIMEOUT,
            CallError::Busy(_) => code::BUSY,
            CallError::Stopping => code::STOPPING,
            CallError::Garbled { .. } => code::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_over_the_bound_of_its_batch_fails_alone() {
        let room = AtomicUsize::new(10);
        let kept = |json: &str| {
            let response = within_room(&room, RpcResponse::Result(RawValue::from_string(json.to_owned()).unwrap()));
            matches!(response, RpcResponse::Result(value) if value.get() == json)
        };
        assert_eq!(["[1,2]", "[1,2,3,4]", "[3,4]", "1"].map(kept), [true, false, true, false]);
    }
}
