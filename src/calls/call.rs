//! The call's way: ingress → resolve → pick → send → reply, for requests over HTTP, scripts, and events that a
//! method subscribed to.

use crate::{
    calls::{
        agent_link::{LinkError, Outgoing},
        registry::{ProviderHealth, Registry, Turn, Viewer},
    },
    identity::Identity,
    model::{
        agent_protocol::CallReply,
        id::SpaceId,
        jsonrpc::{ErrorObject, Id, InvalidRequest, Request, RpcBody, RpcResponse, code},
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

/// The most bytes that the answers of one batch may have together. A single answer is bounded by the agent's line;
/// a thousand of those would be more than a server has memory.
const MAX_ANSWERS: usize = 64 << 20;

/// Makes calls. Cloning it is cheap.
#[derive(Clone)]
pub struct Calls {
    registry: Registry,
    identity: Identity,
    metrics: Arc<Metrics>,
}

/// Why a call got no answer from its method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No visible method has this name. Hidden and absent look alike to the caller.
    #[error("no method named `{0}`")]
    UnknownMethod(String),
    #[error("`{method}` is not available: {why}")]
    Unavailable { method: String, why: String },
    /// The target took the call and stayed silent.
    #[error("`{method}` did not reply within {seconds} s")]
    Timeout { method: String, seconds: u64 },
    #[error("`{0}` has too many calls waiting: try again later")]
    Busy(String),
    /// The target answered, but not in JSON-RPC.
    #[error("`{method}` gave no valid answer: {why}")]
    Garbled { method: String, why: String },
}

impl Calls {
    pub fn new(registry: Registry, identity: Identity, metrics: Arc<Metrics>) -> Self {
        Self { registry, identity, metrics }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Answers what was posted: a request, or a batch of at most `most`, as JSON-RPC has it. `None` if there is nothing
    /// to answer.
    pub async fn answer(&self, viewer: &Viewer, body: &[u8], most: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match RpcBody::read(body, most) {
            Err(error) => RpcResponse::from(error).write(&Id::null(), &mut out),
            Ok(RpcBody::Single(request)) => {
                let (id, outcome) = self.serve(viewer, request).await?;
                outcome.write(&id, &mut out);
            }
            Ok(RpcBody::Batch(requests)) => {
                let room = AtomicUsize::new(MAX_ANSWERS);
                let serving = requests.into_iter().map(async |request| {
                    let (id, outcome) = self.serve(viewer, request).await?;
                    Some((id, within(&room, outcome)))
                });
                let served = join_all(serving).await;
                for (id, outcome) in served.into_iter().flatten() {
                    out.push(if out.is_empty() { b'[' } else { b',' });
                    outcome.write(&id, &mut out);
                }
                if out.is_empty() {
                    return None;
                }
                out.push(b']');
            }
        }
        Some(out)
    }

    /// Calls a method by the name the viewer knows it by.
    ///
    /// # Errors
    ///
    /// Fails if the method could not be asked, or did not answer.
    pub async fn call(&self, viewer: &Viewer, name: &str, params: Option<&RawValue>) -> Result<RpcResponse, CallError> {
        let turn = self.pick(viewer, name)?;
        self.exchange(&turn, name, params).await
    }

    /// Sends a notification; what becomes of it nobody hears.
    ///
    /// # Errors
    ///
    /// Fails if the method could not be told.
    pub async fn notify(&self, viewer: &Viewer, name: &str, params: Option<&RawValue>) -> Result<(), CallError> {
        let turn = self.pick(viewer, name)?;
        let told = tokio::time::timeout(turn.timeout(), turn.link().notify(outgoing(&turn, params))).await;
        told.unwrap_or(Err(LinkError::Timeout)).map_err(|error| broken(&turn, name, error))
    }

    /// How the space's part in serving a method is; `None` if it has none.
    pub fn health_in(&self, space: SpaceId, method: &str) -> Option<ProviderHealth> {
        self.registry.provider(space, method).map(|provider| provider.health())
    }

    /// Calls the method of that space and no other.
    ///
    /// # Errors
    ///
    /// As [`Calls::call`].
    pub async fn call_in(
        &self,
        space: SpaceId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<RpcResponse, CallError> {
        let provider = self.registry.provider(space, method);
        let turn = provider.ok_or_else(|| CallError::UnknownMethod(method.to_owned()))?.take_turn();
        self.exchange(&turn, method, params).await
    }

    /// What one request comes to; nothing for a notification, whatever became of it.
    async fn serve(&self, viewer: &Viewer, request: Result<Request, InvalidRequest>) -> Option<(Id, RpcResponse)> {
        let Request { method, params, id } = match request {
            Ok(request) => request,
            Err(InvalidRequest { id, error }) => return Some((id, error.into())),
        };
        let Some(id) = id else {
            if let Err(error) = self.notify(viewer, &method, params.as_deref()).await {
                log::debug!("a notification went nowhere: {error}");
            }
            return None;
        };
        let called = self.call(viewer, &method, params.as_deref()).await;
        Some((id, called.unwrap_or_else(|error| ErrorObject::from(error).into())))
    }

    fn pick(&self, viewer: &Viewer, name: &str) -> Result<Turn, CallError> {
        let published = viewer.resolve(name, &self.registry, &self.identity);
        let published = published.ok_or_else(|| CallError::UnknownMethod(name.to_owned()))?;
        published.take_turn().ok_or_else(|| CallError::Unavailable {
            method: name.to_owned(),
            why: "no space that publishes it is running it now".to_owned(),
        })
    }

    /// Sends a call and awaits its reply. The turn is the caller's to hold until then.
    async fn exchange(&self, turn: &Turn, name: &str, params: Option<&RawValue>) -> Result<RpcResponse, CallError> {
        let began = Instant::now();
        let answer = turn.link().call(outgoing(turn, params), turn.timeout()).await;
        let outcome = answer.map_err(|error| broken(turn, name, error)).and_then(|answer| outcome(turn, name, answer));
        self.metrics.call_time.observe(began.elapsed());
        match &outcome {
            Ok(_) => self.metrics.calls_answered.increment(),
            Err(_) => self.metrics.calls_failed.increment(),
        }
        outcome
    }
}

fn outcome(turn: &Turn, name: &str, answer: CallReply) -> Result<RpcResponse, CallError> {
    let method = || name.to_owned();
    match answer {
        CallReply::Result(value) => Ok(RpcResponse::Result(value)),
        CallReply::Error(value) => Ok(RpcResponse::Error(value)),
        CallReply::Unavailable(why) => Err(CallError::Unavailable { method: method(), why }),
        CallReply::Garbled(why) => Err(CallError::Garbled { method: method(), why }),
        CallReply::Timeout => Err(CallError::Timeout { method: method(), seconds: turn.timeout().as_secs() }),
        CallReply::Busy => Err(CallError::Busy(method())),
    }
}

/// The outcome, if there is still room for it among the answers of its batch; an error that says so otherwise.
fn within(room: &AtomicUsize, outcome: RpcResponse) -> RpcResponse {
    let (RpcResponse::Result(value) | RpcResponse::Error(value)) = &outcome;
    let left = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(value.get().len()));
    if left.is_ok() {
        return outcome;
    }
    let message = format!("the answers of this batch are over {MAX_ANSWERS} bytes together: ask for less at once");
    ErrorObject::new(code::INTERNAL, message).into()
}

fn outgoing<'a>(turn: &'a Turn, params: Option<&'a RawValue>) -> Outgoing<'a> {
    Outgoing { generation: turn.generation(), local_name: &turn.local_name, params }
}

fn broken(turn: &Turn, name: &str, error: LinkError) -> CallError {
    let method = name.to_owned();
    match error {
        LinkError::Down => CallError::Unavailable { method, why: "its space went away during the call".to_owned() },
        LinkError::Timeout => CallError::Timeout { method, seconds: turn.timeout().as_secs() },
    }
}

impl From<CallError> for ErrorObject {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::UnknownMethod(_) => code::METHOD_NOT_FOUND,
            CallError::Unavailable { .. } => code::UNAVAILABLE,
            CallError::Timeout { .. } => code::TIMEOUT,
            CallError::Busy(_) => code::BUSY,
            CallError::Garbled { .. } => code::INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_much_for_its_batch_costs_no_other_its_place() {
        let room = AtomicUsize::new(10);
        let kept = |json: &str| {
            let outcome = within(&room, RpcResponse::Result(RawValue::from_string(json.to_owned()).unwrap()));
            matches!(outcome, RpcResponse::Result(value) if value.get() == json)
        };
        assert_eq!(["[1,2]", "[1,2,3,4]", "[3,4]", "1"].map(kept), [true, false, true, false]);
    }
}
