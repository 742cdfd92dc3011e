//! A request that passed authorization, as handlers get it.

use super::{
    body,
    body_memory::{BodyMemory, BodySender},
    client_info::ClientInfo,
    error::ApiError,
    route_access::RouteAccess,
};
use crate::identity::{self, Caller, Identity};
use hyper::{HeaderMap, Uri};
use std::{ops::Range, str::FromStr, sync::Arc};
use tokio_util::sync::CancellationToken;

/// An authorized request: its head, and its body not read yet.
pub struct ApiRequest {
    /// Cancelled when the server stops. A handler that streams must end then.
    pub shutdown: CancellationToken,
    head: Arc<RequestHead>,
    body: body::BodyStream,
    identity: Identity,
    body_memory: Arc<BodyMemory>,
    /// The caller as it was once the body had been read.
    caller_after_body: Option<Caller>,
}

/// The head of an authorized request.
pub struct RequestHead {
    pub uri: Uri,
    /// Position of the route's parameter in the path; empty if the route has none.
    pub parameter: Range<usize>,
    /// `None` on open routes only.
    pub caller: Option<Caller>,
    pub access: RouteAccess,
    pub client: ClientInfo,
    /// Empty unless the handler reads headers.
    pub headers: HeaderMap,
    /// Largest body the route takes.
    pub body_limit: usize,
}

impl ApiRequest {
    pub(super) fn new(
        head: Arc<RequestHead>,
        body: body::BodyStream,
        identity: Identity,
        body_memory: Arc<BodyMemory>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { shutdown, head, body, identity, body_memory, caller_after_body: None }
    }

    /// The authenticated caller.
    ///
    /// # Panics
    ///
    /// On an open route, which has no caller.
    pub fn caller(&self) -> &Caller {
        let caller = self.caller_after_body.as_ref().or(self.head.caller.as_ref());
        caller.expect("authorization requires a caller on every route that is not open")
    }

    pub fn client(&self) -> ClientInfo {
        self.head.client
    }

    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// The headers, for a handler whose input asks for them.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The path's parameter, read as an id.
    pub fn id<I: FromStr>(&self) -> Result<I, ApiError> {
        let text = self.parameter();
        text.parse().map_err(|_| ApiError::BadRequest(format!("`{text}` in the path is no UUID")))
    }

    /// The path's parameter as it is written there; empty if the route has none.
    pub fn parameter(&self) -> &str {
        &self.head.uri.path()[self.head.parameter.clone()]
    }

    /// Refuses any query parameter, for handlers that read none and would otherwise ignore it.
    pub(super) fn refuse_query(&self) -> Result<(), ApiError> {
        match form_urlencoded::parse(self.head.uri.query().unwrap_or_default().as_bytes()).next() {
            Some((name, _)) => Err(ApiError::BadRequest(format!("unknown parameter `{name}`: this route takes none"))),
            None => Ok(()),
        }
    }

    /// Reads the whole body, then checks the caller again: its credential or its permissions may have been taken from it
    /// while the body arrived.
    pub(super) async fn read_body(&mut self) -> Result<bytes::Bytes, ApiError> {
        let RequestHead { caller, client, access, body_limit, .. } = &*self.head;
        let sender = match caller {
            Some(caller) => BodySender::User(caller.user.id),
            None => BodySender::Stranger(identity::network(client.address)),
        };
        let body = body::read(&mut self.body, *body_limit, &self.body_memory, sender).await?;
        if let Some(caller) = caller {
            let current = self.identity.current(caller).ok_or_else(ApiError::revoked)?;
            access.check_permissions(&current)?;
            self.caller_after_body = Some(current);
        }
        Ok(body)
    }
}
