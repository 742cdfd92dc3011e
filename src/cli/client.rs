//! The HTTP clients of the command line: [`Client`] sends requests to one server as one user, [`AgentHttp`] to the
//! agent in the same space, which listens on loopback only and needs no token. Both return answers or a [`Failure`].
//!
//! An answer is kept as the text that the server sent, so that `--json` prints exactly that. Commands parse it into the
//! views of [`crate::model::api`] to print it for people.

use super::{
    access::{Access, AccessFlags, ServerAddress},
    failure::{Failure, Refusal, RequestEffect, TokenSource},
    shell::Shell,
};
use crate::{
    agent::NOT_CONNECTED,
    model::{
        api::{
            agent::AgentStatusView,
            error::ErrorBody,
            identity::Credentials,
            list::{Limit, List},
        },
        id::EventId,
    },
    platform::percent,
};
use isahc::{
    Body, HttpClient,
    config::{Configurable as _, RedirectPolicy},
    error::ErrorKind,
    http::{Method, Request, Response, StatusCode, header},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Read as _},
    net::{TcpStream, ToSocketAddrs as _},
    num::NonZeroUsize,
    time::Duration,
};

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a request. A sink's test waits for its receiver, which may take less than this.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of an answer. The answers to a batch of calls have 64 MiB at most, and a page of 200 events with
/// payloads of the largest default size about as much; `limits.payload` may be larger.
const MAX_ANSWER: u64 = 256 << 20;

/// The interval of TCP keep-alives, which detect a dead peer of an idle stream.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The address of an agent with default settings.
const DEFAULT_AGENT: &str = "http://127.0.0.1:7301";

/// The number of items a list shows by default.
pub const DEFAULT_LIMIT: NonZeroUsize = NonZeroUsize::new(50).expect("50 is not zero");

pub struct Client {
    http: HttpClient,
    access: Access,
    /// The session's cookie during a login, used instead of the token.
    cookie: Option<String>,
}

/// A client of the agent. Its failures are worded for an agent.
pub struct AgentHttp(Client);

/// The body of an answer, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseText(String);

/// The items of one or more pages of a list.
#[derive(Debug)]
pub struct Listing(List<Box<RawValue>>);

/// A JSON-RPC answer of the MCP endpoint.
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
    /// A client for the server that the flags, the environment and the files name.
    ///
    /// # Errors
    ///
    /// Fails as [`Access::find`] does.
    pub fn find(flags: &AccessFlags, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        Self::new(Access::find(flags, environment)?)
    }

    /// A client with this access.
    ///
    /// # Errors
    ///
    /// Fails if the token cannot be sent in a header, or the HTTP client cannot be initialised.
    pub fn new(access: Access) -> Result<Self, Failure> {
        if access.token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Failure::Usage(format!(
                "the token from {} has characters no token has: set it anew",
                access.source
            )));
        }
        let mut builder = HttpClient::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            // A token must not follow a redirect to another server.
            .redirect_policy(RedirectPolicy::None);
        if access.server.is_local() {
            builder = builder.proxy(None);
        }
        let http = builder.build().map_err(|error| unreachable(&access.server, error.kind()))?;
        Ok(Self { http, access, cookie: None })
    }

    pub fn token(&self) -> Option<&str> {
        self.access.token.as_deref()
    }

    pub fn server(&self) -> &ServerAddress {
        &self.access.server
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    pub fn get(&self, path: &str) -> Result<ResponseText, Failure> {
        self.exchange(Method::GET, path, None)
    }

    /// Gets a path with a timeout of its own.
    pub fn get_within(&self, path: &str, timeout: Duration) -> Result<ResponseText, Failure> {
        self.read_answer(self.send(self.request(Method::GET, path).timeout(timeout).body(()))?)
    }

    pub fn post(&self, path: &str, body: &impl Serialize) -> Result<ResponseText, Failure> {
        self.exchange(Method::POST, path, Some(to_json(body)))
    }

    /// Posts a body that is JSON already, byte for byte, with a timeout of its own.
    pub fn post_raw_within(&self, path: &str, body: String, timeout: Duration) -> Result<ResponseText, Failure> {
        self.read_answer(self.send(self.request(Method::POST, path).timeout(timeout).body(body))?)
    }

    /// Posts a body without a timeout, for requests that the other end bounds in time.
    pub fn post_without_timeout(&self, path: &str, body: String) -> Result<ResponseText, Failure> {
        let response = self.send(self.request(Method::POST, path).body(body))?;
        self.read_answer(response)
    }

    /// Sends a request to the MCP endpoint, in the protocol version that has no handshake.
    pub fn call_mcp(&self, method: &str, mut params: Value) -> Result<Box<RawValue>, Failure> {
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
        let answer = self.read_answer(self.send(request.timeout(ANSWER_TIMEOUT).body(body))?)?;
        let answer: McpAnswer = self.read(&answer)?;
        match answer {
            McpAnswer { result: Some(result), .. } => Ok(result),
            McpAnswer { error: Some(error), .. } => Err(Failure::Bad(error.message)),
            McpAnswer { .. } => Err(self.foreign(StatusCode::OK, "neither a result nor an error")),
        }
    }

    pub fn put(&self, path: &str, body: &impl Serialize) -> Result<ResponseText, Failure> {
        self.exchange(Method::PUT, path, Some(to_json(body)))
    }

    pub fn patch(&self, path: &str, body: &impl Serialize) -> Result<ResponseText, Failure> {
        self.exchange(Method::PATCH, path, Some(to_json(body)))
    }

    pub fn delete(&self, path: &str) -> Result<ResponseText, Failure> {
        self.exchange(Method::DELETE, path, None)
    }

    /// Up to `limit` items of a list, over as many pages as that takes.
    pub fn list(&self, path: &str, query: &QueryString, limit: usize) -> Result<Listing, Failure> {
        self.list_from(path, query, limit, None)
    }

    /// The same from the cursor of an earlier list.
    pub fn list_from(
        &self,
        path: &str,
        query: &QueryString,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Listing, Failure> {
        let mut list = List { items: Vec::new(), next: cursor };
        loop {
            let wanted = (limit - list.items.len()).min(Limit::MAX);
            let query = query.clone().with("limit", wanted).with_some("cursor", list.next.as_deref());
            let page: List<Box<RawValue>> = self.read(&self.get(&query.on(path))?)?;
            list.items.extend(page.items);
            list.next = page.next;
            if list.next.is_none() || list.items.len() >= limit {
                return Ok(Listing(list));
            }
        }
    }

    /// The body of a stream of server-sent events.
    pub fn stream(&self, path: &str) -> Result<Body, Failure> {
        let request = self.request(Method::GET, path).header(header::ACCEPT, "text/event-stream").body(());
        let response = self.send(request)?;
        let kind =
            response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_stream =
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"));
        match response.status() {
            StatusCode::OK if is_stream => Ok(response.into_body()),
            StatusCode::OK => Err(self.unexpected("no stream of events")),
            status => Err(self.read_answer(response).err().unwrap_or_else(|| self.foreign(status, "no stream"))),
        }
    }

    /// The response to a request for a file, with its body not read yet.
    pub fn download(&self, path: &str) -> Result<Response<Body>, Failure> {
        let response = self.send(self.request(Method::GET, path).body(()))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(self.read_answer(response).err().unwrap_or_else(|| self.foreign(status, "no file"))),
        }
    }

    /// Logs in with a password. Later requests carry the session's cookie instead of the token.
    pub fn log_in(&mut self, name: &str, password: &str) -> Result<(), Failure> {
        self.access.token = None;
        self.access.source = TokenSource::None;
        let body = to_json(&Credentials { name: name.to_owned(), password: password.to_owned() });
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
            // This 401 is about the password, so advice about tokens would mislead.
            Err(Failure::Refused { refusal: Refusal::Unknown, message, .. }) => {
                Err(Failure::Refused { refusal: Refusal::Unknown, message, token: TokenSource::Password })
            }
            Err(other) => Err(other),
        }
    }

    pub fn read<'a, T: Deserialize<'a>>(&self, answer: &'a ResponseText) -> Result<T, Failure> {
        self.read_text(&answer.0)
    }

    /// Reads text of the server that is no whole answer, such as an event of a stream.
    pub fn read_text<'a, T: Deserialize<'a>>(&self, text: &'a str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| self.foreign(StatusCode::OK, &error.to_string()))
    }

    fn exchange(&self, method: Method, path: &str, body: Option<String>) -> Result<ResponseText, Failure> {
        let request = self.request(method, path);
        let response = match body {
            Some(body) => self.send(request.timeout(ANSWER_TIMEOUT).body(body))?,
            None => self.send(request.timeout(ANSWER_TIMEOUT).body(()))?,
        };
        self.read_answer(response)
    }

    fn request(&self, method: Method, path: &str) -> isahc::http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(self.access.server.url(path))
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
        // The server and the token were checked, so only an id that the server gave can be malformed.
        let request = request.map_err(|error| self.foreign(StatusCode::OK, &error.to_string()))?;
        let effect = effect_of(request.method());
        let mut response = self.http.send(request).map_err(|error| match error.kind() {
            ErrorKind::ProtocolViolation | ErrorKind::Io | ErrorKind::Timeout => {
                no_answer(self.server(), error.kind(), effect)
            }
            kind => unreachable(self.server(), kind),
        })?;
        response.extensions_mut().insert(effect);
        Ok(response)
    }

    fn read_answer(&self, response: Response<Body>) -> Result<ResponseText, Failure> {
        let status = response.status();
        let effect = response.extensions().get().copied().unwrap_or(RequestEffect::Changes);
        let bytes = read_bounded(response.into_body(), MAX_ANSWER)
            .map_err(|error| no_answer(self.server(), error, effect))?
            .ok_or_else(|| self.foreign(status, &format!("more than {} MiB", MAX_ANSWER >> 20)))?;
        let text = String::from_utf8(bytes).map_err(|_| self.foreign(status, "no UTF-8"))?;
        if status.is_success() {
            return Ok(ResponseText(text));
        }
        let error = serde_json::from_str::<ErrorBody>(&text);
        let detail = error.map_err(|_| self.foreign(status, "not our kind of error"))?.error;
        Err(match status {
            StatusCode::UNAUTHORIZED => self.refused(Refusal::Unknown, detail.message),
            StatusCode::FORBIDDEN if detail.code == "insufficient_scope" => {
                self.refused(Refusal::OutOfScope, detail.message)
            }
            StatusCode::FORBIDDEN => self.refused(Refusal::Forbidden, detail.message),
            _ => Failure::Rejected { status: status.as_u16(), code: detail.code.into_owned(), message: detail.message },
        })
    }

    /// The failure of an answer that is not one of svc, for this reason.
    pub fn unexpected(&self, why: &str) -> Failure {
        self.foreign(StatusCode::OK, why)
    }

    fn refused(&self, refusal: Refusal, message: String) -> Failure {
        Failure::Refused { refusal, message, token: self.access.source.clone() }
    }

    fn foreign(&self, status: StatusCode, why: &str) -> Failure {
        Failure::Foreign { server: self.server().to_string(), status: status.as_u16(), why: why.to_owned() }
    }
}

impl AgentHttp {
    /// The agent at SVC_AGENT_URL, or at the default address.
    ///
    /// # Errors
    ///
    /// Fails if SVC_AGENT_URL is no address.
    pub fn find(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let url = environment("SVC_AGENT_URL").filter(|url| !url.is_empty());
        let url = url.as_deref().unwrap_or(DEFAULT_AGENT);
        let server = url.parse().map_err(|_| {
            Failure::Usage(format!("SVC_AGENT_URL: `{url}` is no address: write one such as {DEFAULT_AGENT}"))
        })?;
        Client::new(Access { server, token: None, source: TokenSource::None }).map(Self)
    }

    pub fn get(&self, path: &str) -> Result<ResponseText, Failure> {
        self.0.get(path).map_err(|failure| self.of_known_path(failure))
    }

    /// Posts a body without a timeout: the agent bounds the time of a set-up script.
    pub fn post_without_timeout(&self, path: &str, body: String) -> Result<ResponseText, Failure> {
        self.0.post_without_timeout(path, body).map_err(|failure| self.of_known_path(failure))
    }

    pub fn delete(&self, path: &str) -> Result<ResponseText, Failure> {
        self.0.delete(path).map_err(|failure| self.of_agent(failure))
    }

    /// Emits an event. The failure is that of the request; [`Self::of_agent`] words it for people.
    pub fn emit(&self, body: String, timeout: Duration) -> Result<ResponseText, Failure> {
        self.0.post_raw_within("/event", body, timeout)
    }

    /// Returns true if a process accepts connections at the agent's address.
    pub fn is_listening(&self) -> bool {
        self.0.server().authority().is_some_and(|address| {
            let found = address.to_socket_addrs();
            found.is_ok_and(|mut all| all.any(|one| TcpStream::connect_timeout(&one, CONNECT_TIMEOUT).is_ok()))
        })
    }

    /// An event as a linked server has it; `None` while no server has it, or none can be asked.
    pub fn event(&self, id: EventId, timeout: Duration) -> Result<Option<ResponseText>, Failure> {
        match self.0.get_within(&format!("/api/events/{id}"), timeout) {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Rejected { status: 404, .. }) => Ok(None),
            Err(failure) if failure.is_temporary() => Ok(None),
            Err(failure) => Err(self.of_agent(failure)),
        }
    }

    pub fn address(&self) -> &ServerAddress {
        self.0.server()
    }

    pub fn read<'a, T: Deserialize<'a>>(&self, answer: &'a ResponseText) -> Result<T, Failure> {
        self.0.read(answer).map_err(|failure| self.of_agent(failure))
    }

    /// The same with the failure of the request; [`Self::of_agent`] words it for people.
    pub fn read_raw<'a, T: Deserialize<'a>>(&self, answer: &'a ResponseText) -> Result<T, Failure> {
        self.0.read(answer)
    }

    /// Tells the user at a terminal that the agent, if no server is linked yet, waits for one before it answers.
    pub fn note_wait_for_link(&self, shell: &mut Shell<'_>) {
        if !io::stderr().is_terminal() {
            return;
        }
        let status = self.get("/status").and_then(|answer| self.read::<AgentStatusView>(&answer));
        if status.is_ok_and(|status| !status.servers.iter().any(|server| server.connected)) {
            shell.note("the agent is not connected to a server yet; waiting up to 10 s");
        }
    }

    /// The failure of a request for a path that every agent has, worded for people. A server has no such path.
    pub fn of_known_path(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Rejected { status: 404 | 405, .. } => Failure::Bad(format!(
                "{} is no agent: set SVC_AGENT_URL to the agent of this space, or unset it and name a server with \
                 --server or SVC_SERVER",
                self.0.server()
            )),
            failure => self.of_agent(failure),
        }
    }

    /// The same failure, worded for an agent.
    pub fn of_agent(&self, failure: Failure) -> Failure {
        let agent = self.0.server().to_string();
        match failure {
            Failure::Unreachable { why, .. } => Failure::NoAgent { agent, why },
            Failure::Foreign { status, why, .. } => Failure::Bad(format!(
                "cannot make sense of the answer from {agent} (status {status}: {why}): check SVC_AGENT_URL"
            )),
            Failure::Refused { message, .. } => Failure::AgentRefused(message),
            Failure::Rejected { code, message, .. } if code == NOT_CONNECTED => Failure::AgentNotConnected(message),
            Failure::Rejected { message, .. } => Failure::Bad(message),
            other => other,
        }
    }
}

/// Returns true if SVC_AGENT_URL names an agent.
pub fn is_agent_named(environment: &dyn Fn(&str) -> Option<String>) -> bool {
    environment("SVC_AGENT_URL").is_some_and(|url| !url.is_empty())
}

impl ResponseText {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Listing {
    pub fn read<T: DeserializeOwned>(&self, client: &Client) -> Result<Vec<T>, Failure> {
        let items = self.0.items.iter().map(|item| serde_json::from_str(item.get()));
        items.collect::<Result<_, _>>().map_err(|error| client.foreign(StatusCode::OK, &error.to_string()))
    }

    /// The cursor of the next page, if there is one.
    pub fn next(&self) -> Option<&str> {
        self.0.next.as_deref()
    }

    /// The whole list in the form of one page of the API.
    pub fn to_json(&self) -> String {
        to_json(&self.0)
    }
}

/// A query string, built up.
#[derive(Clone, Debug, Default)]
pub struct QueryString(String);

impl QueryString {
    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&percent::encode(&value.to_string()));
        self
    }

    /// Adds a parameter if there is a value for it.
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

/// The body as JSON text.
pub fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("bodies have string keys and no failing serializers")
}

/// All bytes of a body; `None` if there are more than `most`.
fn read_bounded(body: impl io::Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    body.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

fn effect_of(method: &Method) -> RequestEffect {
    if *method == Method::GET { RequestEffect::Reads } else { RequestEffect::Changes }
}

fn no_answer(server: &ServerAddress, why: impl Display, effect: RequestEffect) -> Failure {
    Failure::NoAnswer { server: server.to_string(), why: why.to_string(), effect }
}

fn unreachable(server: &ServerAddress, why: impl Display) -> Failure {
    Failure::Unreachable { server: server.to_string(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_end_is_read_up_to_the_bound() {
        assert_eq!(read_bounded(io::repeat(b'x'), 5).unwrap(), None);
        assert_eq!(read_bounded(&b"12345"[..], 5).unwrap().as_deref(), Some(&b"12345"[..]));
    }

    #[test]
    fn a_query_encodes_reserved_characters() {
        let query =
            QueryString::default().with("pattern", "custom.a.*").with_some("since", None::<&str>).with("name", "a b&ü");
        assert_eq!(query.on("/api/events"), "/api/events?pattern=custom.a.%2A&name=a%20b%26%C3%BC");
    }
}
