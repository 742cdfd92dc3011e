//! `http.request{method, url, headers, body, json, timeout}` returns `{status, headers, body}`. Every request goes through
//! the host's [`HttpClient`], which enforces the rules for outbound connections.

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

/// More fields than a request has.
const MAX_FIELDS: usize = 8;

/// The most bytes of method, URL and headers, as servers commonly limit them. One long text can be there many times.
const MAX_HEAD: usize = 64 << 10;

pub(super) fn library(
    builder: &FunctionBuilder<'_>,
    owner: Owner,
    client: &Arc<dyn HttpClient>,
) -> mlua::Result<Table> {
    let library = builder.lua.create_table()?;
    let client = client.clone();
    library.raw_set(
        "request",
        builder.async_function("http.request", move |lua, request: Table| {
            let client = client.clone();
            async move {
                let response = client.send(owner, read_request(&lua, &request)?).await?;
                response_table(&lua, &response)
            }
        })?,
    )?;
    Ok(library)
}

fn read_request(lua: &Lua, table: &Table) -> Result<HttpRequest, LibraryError> {
    let mut request = HttpRequest {
        method: String::new(),
        url: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
        timeout: None,
    };
    let (mut has_body, mut is_json) = (false, false);
    // Fields are read without metamethods, and an unknown name is an error.
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
        let wrong = |kind: &str| LibraryError::Message(format!("`{}` must be {kind}", name.to_string_lossy()));
        match (&*name.as_bytes(), value) {
            (b"method", Value::String(method)) => {
                request.method = text(&method.as_bytes(), "method", MAX_HEAD)?.to_owned();
            }
            (b"url", Value::String(url)) => request.url = text(&url.as_bytes(), "url", MAX_HEAD)?.to_owned(),
            (b"headers", Value::Table(headers)) => request.headers = read_headers(&headers)?,
            (b"body", Value::String(body)) => {
                request.body = Bytes::copy_from_slice(check_body(&body.as_bytes())?);
                has_body = true;
            }
            (b"json", value) => {
                request.body = json::write(lua, &value)?.into();
                is_json = true;
            }
            (b"timeout", Value::Integer(span)) => request.timeout = Some(timeout(lua, span as f64)?),
            (b"timeout", Value::Number(span)) => request.timeout = Some(timeout(lua, span)?),
            (b"method" | b"url" | b"body", _) => return Err(wrong("a string")),
            (b"headers", _) => return Err(wrong("a table of strings")),
            (b"timeout", _) => return Err(wrong("a number of seconds")),
            _ => return Err(LibraryError::Message(format!("`{}` means nothing here", name.to_string_lossy()))),
        }
    }
    if request.url.is_empty() {
        return Err(LibraryError::Message("`url` is missing".to_owned()));
    }
    if has_body && is_json {
        return Err(LibraryError::Message("`body` and `json` exclude each other".to_owned()));
    }
    if request.method.is_empty() {
        request.method = if has_body || is_json { "POST" } else { "GET" }.to_owned();
    }
    if is_json && !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        request.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    Ok(request)
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
