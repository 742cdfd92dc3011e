//! `http.request{method, url, headers, body, json, timeout}` gives `{status, headers, body}`. It goes through
//! whatever guards this server's way out; what that refuses, a script cannot reach.

use super::{Maker, Raise, seconds, text};
use crate::{
    model::owner::Owner,
    scripting::lua::{json, limits::Watch},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use mlua::{Lua, LuaString, Table, Value};
use std::{sync::Arc, time::Duration};

/// The largest body, either way.
pub const MAX_BODY: usize = 1 << 20;

/// More fields than a request can have.
const MAX_FIELDS: usize = 8;

/// The most bytes of method, URL and headers: what servers commonly take. One text can be there many times.
const MAX_HEAD: usize = 64 << 10;

/// The guarded way out.
pub trait HttpClient: Send + Sync {
    /// Sends a request of this owner's and returns the whole answer, of which the body has at most
    /// [`MAX_BODY`] bytes. The message of a failure is shown to the script.
    fn send(&self, owner: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>>;
}

/// What a script asks to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// How long the script would wait: no longer than it may run.
    pub timeout: Option<Duration>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

pub(super) fn module(maker: &Maker<'_>, owner: Owner, client: &Arc<dyn HttpClient>) -> mlua::Result<Table> {
    let module = maker.lua.create_table()?;
    let client = client.clone();
    module.raw_set(
        "request",
        maker.waiting("http.request", move |lua, request: Table| {
            let client = client.clone();
            async move {
                let response = client.send(owner, requested(&lua, &request)?).await?;
                answered(&lua, &response)
            }
        })?,
    )?;
    Ok(module)
}

fn requested(lua: &Lua, table: &Table) -> Result<HttpRequest, Raise> {
    let mut request = HttpRequest {
        method: String::new(),
        url: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
        timeout: None,
    };
    let (mut has_body, mut is_json) = (false, false);
    // Read without metamethods, and a name that means nothing is said to.
    let mut fields = Vec::new();
    for pair in table.pairs::<Value, Value>().take(MAX_FIELDS + 1) {
        fields.push(pair?);
    }
    if fields.len() > MAX_FIELDS {
        return Err(Raise::Message("the request has fields that mean nothing here".to_owned()));
    }
    for (name, value) in fields {
        let Value::String(name) = name else { return Err(Raise::Message("the request is no table of names".into())) };
        let wrong = |kind: &str| Raise::Message(format!("`{}` must be {kind}", name.to_string_lossy()));
        match (&*name.as_bytes(), value) {
            (b"method", Value::String(method)) => {
                request.method = text(&method.as_bytes(), "method", MAX_HEAD)?.to_owned();
            }
            (b"url", Value::String(url)) => request.url = text(&url.as_bytes(), "url", MAX_HEAD)?.to_owned(),
            (b"headers", Value::Table(headers)) => request.headers = headers_of(&headers)?,
            (b"body", Value::String(body)) => {
                request.body = Bytes::copy_from_slice(sendable(&body.as_bytes())?);
                has_body = true;
            }
            (b"json", value) => {
                request.body = json::write(lua, &value)?.into();
                is_json = true;
            }
            (b"timeout", Value::Integer(span)) => request.timeout = Some(patience(lua, span as f64)?),
            (b"timeout", Value::Number(span)) => request.timeout = Some(patience(lua, span)?),
            (b"method" | b"url" | b"body", _) => return Err(wrong("a string")),
            (b"headers", _) => return Err(wrong("a table of strings")),
            (b"timeout", _) => return Err(wrong("a number of seconds")),
            _ => return Err(Raise::Message(format!("`{}` means nothing here", name.to_string_lossy()))),
        }
    }
    if request.url.is_empty() {
        return Err(Raise::Message("`url` is missing".to_owned()));
    }
    if has_body && is_json {
        return Err(Raise::Message("`body` and `json` exclude each other".to_owned()));
    }
    if request.method.is_empty() {
        request.method = if has_body || is_json { "POST" } else { "GET" }.to_owned();
    }
    if is_json && !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    Ok(request)
}

fn sendable(body: &[u8]) -> Result<&[u8], Raise> {
    if body.len() > MAX_BODY {
        return Err(Raise::Message(format!("the body has {} bytes; at most {MAX_BODY} are sent", body.len())));
    }
    Ok(body)
}

fn patience(lua: &Lua, span: f64) -> Result<Duration, Raise> {
    let wall = lua.app_data_ref::<Arc<Watch>>().map_or(Duration::MAX, |watch| watch.wall());
    Ok(seconds(span, "`timeout`")?.min(wall))
}

fn headers_of(table: &Table) -> Result<Vec<(String, String)>, Raise> {
    let mut headers = Vec::new();
    let mut size = 0;
    for pair in table.pairs::<LuaString, LuaString>() {
        let (name, value) = pair?;
        let (name, value) = (name.as_bytes(), value.as_bytes());
        size += name.len() + value.len();
        if size > MAX_HEAD {
            return Err(Raise::Message(format!("the headers have more than {MAX_HEAD} bytes")));
        }
        headers.push((text(&name, "header", MAX_HEAD)?.to_owned(), text(&value, "header", MAX_HEAD)?.to_owned()));
    }
    headers.sort();
    Ok(headers)
}

fn answered(lua: &Lua, response: &HttpResponse) -> Result<Table, Raise> {
    if response.body.len() > MAX_BODY {
        return Err(Raise::Message(format!("the answer has more than {MAX_BODY} bytes")));
    }
    let headers = lua.create_table()?;
    for (name, value) in &response.headers {
        let name = name.to_lowercase();
        let value = match headers.raw_get::<Option<String>>(&*name)? {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        headers.raw_set(name, value)?;
    }
    let table = lua.create_table()?;
    table.raw_set("status", response.status)?;
    table.raw_set("headers", headers)?;
    table.raw_set("body", lua.create_string(&response.body)?)?;
    Ok(table)
}
