//! A request that the daemon sends on a user's behalf, its response, and the reasons that there is none.

use super::{policy::Denial, resolver::ResolveError};
use crate::model::outbound_http::{CheckedUrl, UrlError};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Bytes read of a response even if the caller keeps fewer: a connection whose response was read to its end is reused.
pub(super) const DRAIN: usize = 64 << 10;

/// The value of the `User-Agent` header, unless the request has one.
pub(super) const AGENT_NAME: &str = concat!("svc/", env!("CARGO_PKG_VERSION"));

/// One request to send.
#[derive(Clone, Debug)]
pub struct OutboundRequest {
    pub method: Method,
    pub url: CheckedUrl,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Timeout of the whole exchange: resolving, connecting, sending and reading the response. At most a day.
    pub timeout: Duration,
    pub tls: Tls,
    /// Bytes of the response body that the caller wants.
    pub keep: usize,
    pub resend: Resend,
}

/// Permission to send a request again whose connection broke before the answer, so that the receiver may get it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    Allowed,
    /// Only if its method is one that can be repeated without harm.
    IfIdempotent,
}

/// Verification of the receiver's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tls {
    #[default]
    Verify,
    SkipVerify,
}

/// The response to an [`OutboundRequest`].
#[derive(Clone, Debug)]
pub struct OutboundResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The first [`OutboundRequest::keep`] bytes.
    pub body: Bytes,
    /// Tells a whole body from a truncated one.
    pub completeness: Completeness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    Whole,
    /// More was sent than is kept.
    Cut,
}

/// Reason for which there is no response.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("cannot resolve `{host}`: {source}")]
    Resolve { host: String, source: ResolveError },
    #[error("`{host}` has no address")]
    NoAddress { host: String },
    #[error("`{host}` is at {address}, which is not allowed: {denial}")]
    Denied { host: String, address: IpAddr, denial: Denial },
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: SocketAddr, reason: String },
    #[error("the certificate of `{host}` is not trusted: {reason}")]
    Certificate { host: String, reason: String },
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    #[error("the connection broke before the answer was complete: {0}")]
    Broken(String),
    #[error("the HTTP client failed: {0}")]
    Client(String),
}

impl OutboundRequest {
    /// Returns true if the receiver may get the request twice.
    pub(super) fn may_be_sent_again(&self) -> bool {
        self.resend == Resend::Allowed || self.method.is_idempotent()
    }

    /// Returns true if the request has no body, not even an empty one.
    pub(super) fn is_bodiless(&self) -> bool {
        self.body.is_empty() && ![Method::POST, Method::PUT, Method::PATCH].contains(&self.method)
    }
}
