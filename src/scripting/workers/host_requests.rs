//! Answers the requests of runs, with the rights of the owner that the server remembers for the run.

use super::{
    host_messages::{HostReply, HostRequest, HostResult},
    places::WorkerKey,
    program_text::{LibraryTexts, ProgramText},
};
use crate::{
    platform::kv::Kv,
    scripting::lua::{HttpClient, MAX_BODY, MethodCaller, ToolContext},
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The services behind the libraries of users' programs.
#[derive(Clone)]
pub struct WorkerServices {
    pub http: Arc<dyn HttpClient>,
    pub kv: Kv,
    pub caller: Arc<dyn MethodCaller>,
    /// The libraries that `require` finds besides the built-in ones.
    pub libraries: Arc<dyn LibraryTexts>,
}

/// The rights of a run.
#[derive(Clone)]
pub(super) struct RunRights {
    pub key: WorkerKey,
    pub effects: RunEffects,
}

/// The services that a run may use.
#[derive(Clone)]
pub(super) enum RunEffects {
    /// `require` alone.
    None,
    Script,
    Tool(ToolContext),
}

/// The reply to a request, and the library that it names.
pub(super) struct Answer {
    pub result: HostResult,
    pub library: Option<ProgramText>,
}

impl WorkerServices {
    /// Answers a request of a run.
    pub(super) async fn answer(&self, rights: &RunRights, request: HostRequest) -> Answer {
        if let HostRequest::Require { name } = &request {
            let library = self.libraries.find(rights.key.code_owner, name);
            return Answer { result: Ok(HostReply::Library(library.as_ref().map(ProgramText::id))), library };
        }
        Answer { result: self.effect(rights, request).await, library: None }
    }

    async fn effect(&self, rights: &RunRights, request: HostRequest) -> HostResult {
        let WorkerKey { code_owner, acts_for } = rights.key;
        if matches!(rights.effects, RunEffects::None) {
            return Err("a template or transform has no effects".to_owned());
        }
        let failed = |error: crate::platform::kv::KvError| error.to_string();
        Ok(match request {
            HostRequest::Http(request) => {
                if request.body.len() > MAX_BODY {
                    return Err(format!("the body has more than {MAX_BODY} bytes"));
                }
                HostReply::Http(self.http.send(acts_for, request).await?)
            }
            HostRequest::KvGet { key } => {
                let value = self.kv.get(code_owner, &key).map_err(failed)?;
                HostReply::Json(value.map(|value| Box::<str>::from(value).into_string()))
            }
            HostRequest::KvSet { key, value, ttl } => {
                self.kv.set(code_owner, &key, raw(value)?, ttl).await.map_err(failed)?;
                HostReply::Done
            }
            HostRequest::KvAdd { key, value, ttl } => {
                HostReply::Bool(self.kv.add(code_owner, &key, raw(value)?, ttl).await.map_err(failed)?)
            }
            HostRequest::KvIncrement { key, by, ttl } => {
                HostReply::Integer(self.kv.increment(code_owner, &key, by, ttl).await.map_err(failed)?)
            }
            HostRequest::KvDelete { key } => HostReply::Bool(self.kv.delete(code_owner, &key).await.map_err(failed)?),
            HostRequest::Call { method, params } => {
                let params = raw(params)?;
                let result = match &rights.effects {
                    RunEffects::Tool(tool) => tool.caller.call(tool.owner, &method, params).await?,
                    RunEffects::Script | RunEffects::None => self.caller.call(code_owner, &method, params).await?,
                };
                HostReply::Json(Some(Box::<str>::from(result).into_string()))
            }
            HostRequest::Emit { kind, payload } => match &rights.effects {
                RunEffects::Tool(tool) => {
                    let emitted = tool.emitter.emit(tool.owner, &kind, raw(payload)?).await?;
                    HostReply::Json(Some(Box::<str>::from(emitted).into_string()))
                }
                RunEffects::Script | RunEffects::None => return Err("only a tool emits events".to_owned()),
            },
            HostRequest::Require { .. } => HostReply::Library(None),
        })
    }
}

/// Checks that a text of a worker is JSON.
fn raw(json: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(json).map_err(|error| error.to_string())
}
