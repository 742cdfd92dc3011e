//! One server, spoken to as one user: requests out, answers or a [`Failure`] back.
//!
//! Answers are kept as the text the server sent, so that `--json` prints exactly that; a command reads
//! from it what it shows to people.

use super::{
    access::{Access, Flags, Server, TokenSource},
    failure::{Failure, Refusal},
};
use crate::platform::percent;
use isahc::{
    Body, HttpClient,
    config::{Configurable as _, RedirectPolicy},
    http::{Method, Request, Response, StatusCode, header},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{fmt::Display, io::Read as _, num::NonZeroUsize, time::Duration};

/// How long a server may take to pick up.
const CONNECT: Duration = Duration::from_secs(10);

/// How long it may take to answer. A sink's test waits for its receiver, so this is longer than that may be.
const ANSWER: Duration = Duration::from_secs(60);

/// How often an idle stream is checked for a dead peer, which would otherwise never be noticed.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The most that one page of a list may ask for.
const PAGE: usize = 200;

/// How many items a list shows unless told.
pub const DEFAULT_LIMIT: NonZeroUsize = NonZeroUsize::new(50).expect("50 is not zero");

/// A way to one server.
pub struct Client {
    http: HttpClient,
    access: Access,
    /// A session's cookie while logging in; otherwise the token speaks for us.
    cookie: Option<String>,
}

/// What the server said, as it said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer(String);

/// A list over as many pages as were asked for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listing {
    items: Vec<Box<RawValue>>,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Deserialize)]
struct ErrorDetail {
    code: String,
    message: String,
}

/// What came back from the MCP endpoint.
#[derive(Deserialize)]
struct McpAnswer {
    result: Option<Box<RawValue>>,
    error: Option<McpError>,
}

#[derive(Deserialize)]
struct McpError {
    message: String,
}

impl Client {
    /// A client for wherever the flags, the environment and the files say.
    ///
    /// # Errors
    ///
    /// Fails if they say something that is no address, or cannot be read.
    pub fn find(flags: &Flags, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        Self::new(Access::find(flags, environment)?)
    }

    /// A client with this access.
    ///
    /// # Errors
    ///
    /// Fails if the machine cannot run an HTTP client at all.
    pub fn new(access: Access) -> Result<Self, Failure> {
        let mut builder = HttpClient::builder()
            .connect_timeout(CONNECT)
            .tcp_keepalive(KEEPALIVE)
            // A token must not travel on to wherever a redirect points.
            .redirect_policy(RedirectPolicy::None);
        if access.server.is_local() {
            builder = builder.proxy(None);
        }
        let http = builder.build().map_err(|error| unreachable(&access.server, error.kind()))?;
        Ok(Self { http, access, cookie: None })
    }

    /// The token that speaks for us.
    pub fn token(&self) -> Option<&str> {
        self.access.token.as_deref()
    }

    /// The server at the other end.
    pub fn server(&self) -> &Server {
        &self.access.server
    }

    pub fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.exchange(Method::GET, path, None)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.exchange(Method::POST, path, Some(body.to_string()))
    }

    /// Posts a body that is JSON already, byte for byte.
    pub fn post_raw(&self, path: &str, body: String) -> Result<Answer, Failure> {
        self.exchange(Method::POST, path, Some(body))
    }

    /// Posts a JSON-RPC body. How long a method may take is its own business, and the server's to enforce.
    pub fn call(&self, body: String) -> Result<Answer, Failure> {
        self.patiently("/api/methods/call", body)
    }

    /// Posts what the other end itself bounds in time.
    pub fn post_patiently(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.patiently(path, body.to_string())
    }

    fn patiently(&self, path: &str, body: String) -> Result<Answer, Failure> {
        let response = self.send(self.request(Method::POST, path).body(body))?;
        self.read_answer(response)
    }

    /// Asks something of the MCP endpoint, in the version that needs nothing to be asked before.
    pub fn ask_mcp(&self, method: &str, mut params: Value) -> Result<Box<RawValue>, Failure> {
        const VERSION: &str = "2026-07-28";
        params["_meta"] = serde_json::json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "svc", "version": env!("CARGO_PKG_VERSION")},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = self
            .request(Method::POST, "/mcp")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        let answer = self.read_answer(self.send(request.timeout(ANSWER).body(body))?)?;
        let answer: McpAnswer = self.read(&answer)?;
        match answer {
            McpAnswer { result: Some(result), .. } => Ok(result),
            McpAnswer { error: Some(error), .. } => Err(Failure::Bad(error.message)),
            McpAnswer { .. } => Err(self.foreign(StatusCode::OK, "neither a result nor an error")),
        }
    }

    pub fn put(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.exchange(Method::PUT, path, Some(body.to_string()))
    }

    pub fn patch(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.exchange(Method::PATCH, path, Some(body.to_string()))
    }

    pub fn delete(&self, path: &str) -> Result<Answer, Failure> {
        self.exchange(Method::DELETE, path, None)
    }

    /// Up to `limit` items of a list, over as many pages as that takes.
    pub fn list(&self, path: &str, query: &Query, limit: usize) -> Result<Listing, Failure> {
        self.list_from(path, query, limit, None)
    }

    /// The same from where an earlier list ended.
    pub fn list_from(
        &self,
        path: &str,
        query: &Query,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Listing, Failure> {
        let mut listing = Listing { items: Vec::new(), next: cursor };
        loop {
            let wanted = (limit - listing.items.len()).min(PAGE);
            let mut query = query.clone().with("limit", wanted);
            if let Some(cursor) = &listing.next {
                query = query.with("cursor", cursor);
            }
            let page: Listing = self.read(&self.get(&query.on(path))?)?;
            listing.items.extend(page.items);
            listing.next = page.next;
            if listing.next.is_none() || listing.items.len() >= limit {
                return Ok(listing);
            }
        }
    }

    /// A body that never ends by itself: server-sent events.
    pub fn stream(&self, path: &str) -> Result<Body, Failure> {
        let request = self.request(Method::GET, path).header(header::ACCEPT, "text/event-stream").body(());
        let response = self.send(request)?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(self.read_answer(response).err().unwrap_or_else(|| self.foreign(status, "no stream"))),
        }
    }

    /// Logs in with a password, and speaks with the session's cookie from then on. A token is left unused.
    pub fn log_in(&mut self, name: &str, password: &str) -> Result<(), Failure> {
        self.access.token = None;
        self.access.source = TokenSource::None;
        let body = serde_json::json!({ "name": name, "password": password }).to_string();
        let response = self.send(self.request(Method::POST, "/api/auth/login").body(body))?;
        let cookie = response
            .headers()
            .get_all(header::SET_COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok()?.split(';').next())
            .find(|pair| pair.starts_with("svc_session="))
            .map(str::to_owned);
        match self.read_answer(response) {
            Ok(_) if cookie.is_none() => Err(self.foreign(StatusCode::OK, "no session cookie")),
            Ok(_) => {
                self.cookie = cookie;
                Ok(())
            }
            // Here a 401 is about the password, and advice about tokens would mislead.
            Err(Failure::Refused { refusal: Refusal::Unknown, message, .. }) => {
                Err(Failure::Refused { refusal: Refusal::Unknown, message, token: TokenSource::Password })
            }
            Err(other) => Err(other),
        }
    }

    /// Reads an answer as `T`.
    pub fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Failure> {
        self.read_text(&answer.0)
    }

    /// Reads as `T` what the server said in another way than an answer, such as on a stream.
    pub fn read_text<T: DeserializeOwned>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| self.foreign(StatusCode::OK, &error.to_string()))
    }

    fn exchange(&self, method: Method, path: &str, body: Option<String>) -> Result<Answer, Failure> {
        let request = self.request(method, path);
        let response = match body {
            Some(body) => self.send(request.timeout(ANSWER).body(body))?,
            None => self.send(request.timeout(ANSWER).body(()))?,
        };
        self.read_answer(response)
    }

    fn request(&self, method: Method, path: &str) -> isahc::http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(self.access.server.route(path))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("svc/", env!("CARGO_PKG_VERSION")));
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        } else if let Some(token) = &self.access.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request
    }

    fn send<B: Into<Body>>(&self, request: Result<Request<B>, isahc::http::Error>) -> Result<Response<Body>, Failure> {
        // The path is ours, and the server was checked: only the token can be malformed.
        let request = request.map_err(|_| {
            Failure::Usage(format!("the token from {} has characters no token has: set it anew", self.access.source))
        })?;
        self.http.send(request).map_err(|error| unreachable(self.server(), error.kind()))
    }

    fn read_answer(&self, response: Response<Body>) -> Result<Answer, Failure> {
        let status = response.status();
        let mut bytes = Vec::new();
        response.into_body().read_to_end(&mut bytes).map_err(|error| unreachable(self.server(), error))?;
        let text = String::from_utf8(bytes).map_err(|_| self.foreign(status, "no UTF-8"))?;
        if status.is_success() {
            return Ok(Answer(text));
        }
        let error = serde_json::from_str::<ErrorBody>(&text);
        let detail = error.map_err(|_| self.foreign(status, "not our kind of error"))?.error;
        Err(match status {
            StatusCode::UNAUTHORIZED => self.refused(Refusal::Unknown, detail.message),
            StatusCode::FORBIDDEN => self.refused(Refusal::Forbidden, detail.message),
            _ => Failure::Rejected { status: status.as_u16(), code: detail.code, message: detail.message },
        })
    }

    fn refused(&self, refusal: Refusal, message: String) -> Failure {
        Failure::Refused { refusal, message, token: self.access.source.clone() }
    }

    fn foreign(&self, status: StatusCode, why: &str) -> Failure {
        Failure::Foreign { server: self.server().to_string(), why: format!("status {}: {why}", status.as_u16()) }
    }
}

impl Answer {
    /// The text as it came.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Listing {
    /// The items, read as `T`.
    pub fn read<T: DeserializeOwned>(&self, client: &Client) -> Result<Vec<T>, Failure> {
        let items = self.items.iter().map(|item| serde_json::from_str(item.get()));
        items.collect::<Result<_, _>>().map_err(|error| client.foreign(StatusCode::OK, &error.to_string()))
    }

    /// The whole list in the form the API gives one page.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("JSON values and a string are JSON")
    }
}

/// A query string, built up.
#[derive(Clone, Debug, Default)]
pub struct Query(String);

impl Query {
    /// With one parameter more.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&percent::encode(&value.to_string()));
        self
    }

    /// With one more if there is a value for it.
    pub fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// A path with this query.
    pub fn on(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

fn unreachable(server: &Server, why: impl Display) -> Failure {
    Failure::Unreachable { server: server.to_string(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_encodes_what_is_not_plain() {
        let query =
            Query::default().with("pattern", "custom.a.*").with_some("since", None::<&str>).with("name", "a b&ü");
        assert_eq!(query.on("/api/events"), "/api/events?pattern=custom.a.%2A&name=a%20b%26%C3%BC");
    }
}
