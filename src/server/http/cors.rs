//! What a browser asks before a page from elsewhere may call `/mcp`, and what it must be told with every answer. Only the
//! pages in `mcp.origins` are spoken to; to every other one a browser shows nothing.

use super::{App, Response};
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
/// How long a browser may remember that, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("3600");

/// A page that may call us.
pub struct Page {
    origin: HeaderValue,
    asks_first: bool,
}

impl Page {
    /// The page that a request comes from, if it is one of those that may.
    pub fn of<B>(app: &App, request: &Request<B>) -> Option<Self> {
        if request.uri().path() != PATH {
            return None;
        }
        let origin = request.headers().get(ORIGIN).filter(|origin| app.mcp.lists_page(origin))?;
        let asks_first =
            request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        Some(Self { origin: origin.clone(), asks_first })
    }

    /// The answer to a browser that asks first. It has no credential to send with that, and needs none.
    pub fn consent(&self) -> Option<Response> {
        if !self.asks_first {
            return None;
        }
        let mut response = Response::default();
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, REMEMBERED);
        Some(response)
    }

    /// Lets the page read an answer. Cookies are not for it: it brings a token of its own.
    pub fn show(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}
