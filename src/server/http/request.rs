//! A request that passed authorization, as handlers get it.

use super::{body, client_info::ClientInfo, error::ApiError};
use crate::identity::Caller;
use hyper::{HeaderMap, Uri};
use std::{ops::Range, str::FromStr, sync::Arc};
use tokio_util::sync::CancellationToken;

/// An authorized request: its head, and its body not read yet.
pub struct ApiRequest {
    /// Cancelled when the server stops. A handler that streams must end then.
    pub shutdown: CancellationToken,
    pub(super) head: Arc<RequestHead>,
    pub(super) body: body::BodyStream,
}

/// The head of an authorized request.
pub struct RequestHead {
    pub uri: Uri,
    /// Position of the route's parameter in the path; empty if the route has none.
    pub parameter: Range<usize>,
    /// `None` on open routes only.
    pub caller: Option<Caller>,
    pub client: ClientInfo,
    /// Empty unless the handler reads headers.
    pub headers: HeaderMap,
    /// Largest body the route takes.
    pub body_limit: usize,
}

impl ApiRequest {
    /// The authenticated caller.
    ///
    /// # Panics
    ///
    /// On an open route, which has no caller.
    pub fn caller(&self) -> &Caller {
        self.head.caller.as_ref().expect("authorization requires a caller on every route that is not open")
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

    pub(super) async fn read_body(&mut self) -> Result<bytes::Bytes, ApiError> {
        body::read(&mut self.body, self.head.body_limit).await
    }
}
