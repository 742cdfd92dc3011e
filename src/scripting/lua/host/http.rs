//! The HTTP client behind `http.request`.

use crate::model::owner::Owner;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::time::Duration;

/// The largest body of a request or a response, in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// Sends the HTTP requests of scripts, within the rules for outbound connections.
pub trait HttpClient: Send + Sync {
    /// Sends a request of this owner's script and returns the whole response, whose body has at most [`MAX_BODY`]
    /// bytes.
    fn send(&self, owner: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>>;
}

/// A request as a script describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// At most the time that the run may take.
    pub timeout: Option<Duration>,
}

/// A response as a script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}
