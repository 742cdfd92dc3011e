//! `http.request{method, url, headers, body, json, timeout}` returns `{status, headers, body}`; `get` and `delete` of
//! `(url, [options])` and `post`, `put` and `patch` of `(url, [body], [options])` are shorter forms of it. Every
//! request goes through the host's [`HttpClient`], which enforces the rules for outbound connections.

use super::{
    arguments::{seconds, text},
    function_builder::FunctionBuilder,
    library_error::LibraryError,
};
use crate::{
    model::owner::Owner,
    scripting::lua::{
        host::{HttpClient, HttpRequest, HttpResponse, MAX_BODY},
        json,
        limits::RunClock,
    },
};
use bytes::Bytes;
use mlua::{Lua, LuaString, Table, Value};
use std::{sync::Arc, time::Duration};

/// The most bytes of an unknown field's name in a message.
const MAX_NAME: usize = 64;

/// More fields than a request has.
const MAX_FIELDS: usize = 8;

/// The most bytes of method, URL and headers, as servers commonly limit them. One long text can be there many times.
const MAX_HEAD: usize = 64 << 10;

/// A request while its description is read.
#[derive(Default)]
struct DraftRequest {
    method: Option<String>,
    url: Option<String>,
    headers: Vec<(String, String)>,
    body: Option<Bytes>,
    json: Option<Bytes>,
    timeout: Option<Duration>,
}

/// The fields that a table of a request may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestFields {
    All,
    /// Method and URL are given already.
    Options,
}

pub(super) fn library(
    builder: &FunctionBuilder<'_>,
    owner: Owner,
    client: &Arc<dyn HttpClient>,
) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let send = {
        let client = client.clone();
        builder.async_function("http.request", move |lua, request: Table| {
            let client = client.clone();
            async move {
                let mut draft = DraftRequest::default();
                draft.read_fields(&lua, &request, RequestFields::All)?;
                response_table(&lua, &client.send(owner, draft.finish()?).await?)
            }
        })?
    };
    library.raw_set("request", send)?;
    for (name, method) in [("http.get", "GET"), ("http.delete", "DELETE")] {
        let client = client.clone();
        let send = builder.async_function(name, move |lua, (url, options): (LuaString, Option<Table>)| {
            let client = client.clone();
            async move {
                let draft = DraftRequest::new(method, &url)?;
                let request = draft.with_options(&lua, options.as_ref())?.finish()?;
                response_table(&lua, &client.send(owner, request).await?)
            }
        })?;
        library.raw_set(name.trim_start_matches("http."), send)?;
    }
    for (name, method) in [("http.post", "POST"), ("http.put", "PUT"), ("http.patch", "PATCH")] {
        let client = client.clone();
        type Arguments = (LuaString, Value, Option<Table>);
        let send = builder.async_function(name, move |lua, (url, body, options): Arguments| {
            let client = client.clone();
            async move {
                let draft = DraftRequest::new(method, &url)?.with_body(&lua, &body)?;
                let request = draft.with_options(&lua, options.as_ref())?.finish()?;
                response_table(&lua, &client.send(owner, request).await?)
            }
        })?;
        library.raw_set(name.trim_start_matches("http."), send)?;
    }
    Ok(library)
}

impl DraftRequest {
    fn new(method: &str, url: &LuaString) -> Result<Self, LibraryError> {
        let url = text(&url.as_bytes(), "url", MAX_HEAD)?.to_owned();
        Ok(Self { method: Some(method.to_owned()), url: Some(url), ..Self::default() })
    }

    /// Adds the body that was given as an argument: a string as it is, a table as JSON.
    fn with_body(self, lua: &Lua, body: &Value) -> Result<Self, LibraryError> {
        match body {
            Value::Nil => Ok(self),
            Value::String(body) => {
                Ok(Self { body: Some(Bytes::copy_from_slice(check_body(&body.as_bytes())?)), ..self })
            }
            Value::Table(_) => Ok(Self { json: Some(json::write(lua, body)?.into()), ..self }),
            _ => {
                let message = "the body must be a string, or a table that is sent as JSON";
                Err(LibraryError::Message(message.to_owned()))
            }
        }
    }

    fn with_options(mut self, lua: &Lua, options: Option<&Table>) -> Result<Self, LibraryError> {
        let Some(options) = options else { return Ok(self) };
        let given = (self.body.take(), self.json.take());
        self.read_fields(lua, options, RequestFields::Options)?;
        match (&given, self.body.is_some() || self.json.is_some()) {
            ((None, None), _) => Ok(self),
            (_, false) => Ok(Self { body: given.0, json: given.1, ..self }),
            (_, true) => Err(LibraryError::Message("the body is given twice: leave the option out".to_owned())),
        }
    }

    /// Reads the fields of a table, without metamethods. An unknown name is an error.
    fn read_fields(&mut self, lua: &Lua, table: &Table, known: RequestFields) -> Result<(), LibraryError> {
        let mut fields = Vec::new();
        for pair in table.pairs::<Value, Value>().take(MAX_FIELDS + 1) {
            fields.push(pair?);
        }
        if fields.len() > MAX_FIELDS {
            return Err(LibraryError::Message("the request has fields that mean nothing here".to_owned()));
        }
        for (name, value) in fields {
            let Value::String(name) = name else {
                return Err(LibraryError::Message("the request is no table of names".into()));
            };
            self.read_field(lua, &name, value, known)?;
        }
        Ok(())
    }

    fn read_field(
        &mut self,
        lua: &Lua,
        name: &LuaString,
        value: Value,
        known: RequestFields,
    ) -> Result<(), LibraryError> {
        // A known name is short; the rest of another one is of no use in a message.
        let bytes = name.as_bytes();
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]);
        let wrong = |kind: &str| LibraryError::Message(format!("`{shown}` must be {kind}"));
        match (&*bytes, value) {
            (b"method" | b"url", _) if known == RequestFields::Options => {
                let message = format!("`{shown}` is no option here: it is in the call");
                return Err(LibraryError::Message(message));
            }
            (b"method", Value::String(method)) => {
                self.method = Some(text(&method.as_bytes(), "method", MAX_HEAD)?.to_owned());
            }
            (b"url", Value::String(url)) => self.url = Some(text(&url.as_bytes(), "url", MAX_HEAD)?.to_owned()),
            (b"headers", Value::Table(headers)) => self.headers = read_headers(&headers)?,
            (b"body", Value::String(body)) => {
                self.body = Some(Bytes::copy_from_slice(check_body(&body.as_bytes())?));
            }
            (b"json", value) => self.json = Some(json::write(lua, &value)?.into()),
            (b"timeout", Value::Integer(span)) => self.timeout = Some(timeout(lua, span as f64)?),
            (b"timeout", Value::Number(span)) => self.timeout = Some(timeout(lua, span)?),
            (b"method" | b"url" | b"body", _) => return Err(wrong("a string")),
            (b"headers", _) => return Err(wrong("a table of strings")),
            (b"timeout", _) => return Err(wrong("a number of seconds")),
            _ => return Err(LibraryError::Message(format!("`{shown}` means nothing here"))),
        }
        Ok(())
    }

    fn finish(self) -> Result<HttpRequest, LibraryError> {
        let Self { method, url, mut headers, body, json, timeout } = self;
        let url = url.filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| LibraryError::Message("`url` is missing".to_owned()))?;
        if body.is_some() && json.is_some() {
            return Err(LibraryError::Message("`body` and `json` exclude each other".to_owned()));
        }
        if json.is_some() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        let body = body.or(json);
        let method = method.filter(|method| !method.is_empty());
        let method = method.unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
        Ok(HttpRequest { method, url, headers, body: body.unwrap_or_default(), timeout })
    }
}

fn check_body(body: &[u8]) -> Result<&[u8], LibraryError> {
    if body.len() > MAX_BODY {
        return Err(LibraryError::Message(format!("the body has {} bytes; at most {MAX_BODY} are sent", body.len())));
    }
    Ok(body)
}

/// Reads a timeout, which is at most the time that the run may take.
fn timeout(lua: &Lua, span: f64) -> Result<Duration, LibraryError> {
    let wall = lua.app_data_ref::<Arc<RunClock>>().map_or(Duration::MAX, |clock| clock.limits().wall);
    Ok(seconds(span, "`timeout`")?.min(wall))
}

fn read_headers(table: &Table) -> Result<Vec<(String, String)>, LibraryError> {
    let mut headers = Vec::new();
    let mut size = 0;
    for pair in table.pairs::<LuaString, LuaString>() {
        let (name, value) = pair?;
        let (name, value) = (name.as_bytes(), value.as_bytes());
        size += name.len() + value.len();
        if size > MAX_HEAD {
            return Err(LibraryError::Message(format!("the headers have more than {MAX_HEAD} bytes")));
        }
        headers.push((text(&name, "header", MAX_HEAD)?.to_owned(), text(&value, "header", MAX_HEAD)?.to_owned()));
    }
    headers.sort();
    Ok(headers)
}

fn response_table(lua: &Lua, response: &HttpResponse) -> Result<Table, LibraryError> {
    if response.body.len() > MAX_BODY {
        return Err(LibraryError::Message(format!("the answer has more than {MAX_BODY} bytes")));
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
