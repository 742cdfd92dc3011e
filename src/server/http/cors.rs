//! CORS for `/mcp`: preflight responses, and the headers that let a page read a response.
//!
//! Only the origins in `mcp.origins` are answered; a browser shows nothing to any other page.

use super::Response;
use crate::server::mcp;
use hyper::{
    Method, Request, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue,
        ORIGIN, VARY,
    },
};

const PATH: &str = "/mcp";
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name",
);
const EXPOSED: HeaderValue = HeaderValue::from_static("Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate");
/// Seconds for which a browser may cache the preflight response.
const MAX_AGE: HeaderValue = HeaderValue::from_static("3600");

/// An allowed origin from which a page calls `/mcp`.
pub struct CorsOrigin {
    origin: HeaderValue,
    is_preflight: bool,
}

impl CorsOrigin {
    /// The request's origin, if it is allowed.
    pub fn of<B>(endpoint: &mcp::Endpoint, request: &Request<B>) -> Option<Self> {
        if request.uri().path() != PATH {
            return None;
        }
        let origin = request.headers().get(ORIGIN).filter(|origin| endpoint.allows_origin(origin))?;
        let is_preflight =
            request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        Some(Self { origin: origin.clone(), is_preflight })
    }

    /// The response to a preflight request; `None` for any other. A preflight carries no credential and needs none.
    pub fn preflight_response(&self) -> Option<Response> {
        if !self.is_preflight {
            return None;
        }
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(response)
    }

    /// Lets the page read the response. Credentials mode stays off: the page sends a token of its own, no cookie.
    pub fn allow(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}
