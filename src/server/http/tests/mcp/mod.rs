//! `/mcp` over real sockets, with messages of the protocol written by hand. `tests/it/mcp.rs` tests the official clients.

mod calls;
mod requests;
mod streams;
mod tools;

use super::{TestResponse, TestServer, methods::method};
use futures_util::{AsyncBufReadExt as _, StreamExt as _, io::BufReader};
use isahc::http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

/// An older protocol version, with sessions and streams, and the newest, which has neither.
pub(super) const OLDER: &str = "2025-11-25";
const NEWEST: &str = "2026-07-28";

impl TestServer {
    /// Sends a message as a client of this version does, with additional headers.
    pub(super) async fn send_message(
        &self,
        token: &str,
        version: &str,
        message: &Value,
        headers: &[(&str, &str)],
    ) -> TestResponse {
        let mut message = message.clone();
        let mut request = self
            .request("POST", "/mcp")
            .header("Authorization", format!("Bearer {token}"))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .header("MCP-Protocol-Version", version);
        if version == NEWEST {
            request = request.header("Mcp-Method", message["method"].as_str().unwrap());
            if let Some(name) = message["params"]["name"].as_str() {
                request = request.header("Mcp-Name", name);
            }
            message["params"]["_meta"] = meta();
        }
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(message.to_string()).unwrap()).await
    }

    /// The result of a request in the older version, which must succeed.
    pub(super) async fn mcp_result(&self, token: &str, method: &str, params: Value) -> Value {
        let response = self.send_message(token, OLDER, &request(method, params), &[]).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert!(response.body["error"].is_null(), "{response:?}");
        response.body["result"].clone()
    }

    /// The names of the tools that the token's user is offered.
    pub(super) async fn tools(&self, token: &str) -> Vec<String> {
        let result = self.mcp_result(token, "tools/list", json!({})).await;
        result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) async fn start_session(&self, token: &str) -> String {
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": OLDER, "capabilities": {}, "clientInfo": client});
        let response = self.send_message(token, OLDER, &request("initialize", params), &[]).await;
        assert_eq!(response.body["result"]["protocolVersion"], OLDER, "{response:?}");
        response.headers["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// Opens the stream of the older versions and waits for its response.
    pub(super) async fn open_stream(&self, token: &str, headers: &[(&str, &str)]) -> EventReader {
        let request = self
            .request("GET", "/mcp")
            .header("Authorization", format!("Bearer {token}"))
            .header("Accept", "text/event-stream")
            .header("MCP-Protocol-Version", OLDER);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = self.client.send_async(request.body(()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        EventReader::new(response)
    }

    /// Subscribes as the newest version does, under the id `s`.
    async fn subscribe(&self, token: &str) -> EventReader {
        let body = json!({
            "jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen",
            "params": {"_meta": meta(), "notifications": {"toolsListChanged": true, "promptsListChanged": true}},
        });
        let request = self
            .request("POST", "/mcp")
            .header("Authorization", format!("Bearer {token}"))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .header("Mcp-Method", "subscriptions/listen")
            .header("MCP-Protocol-Version", NEWEST);
        let response = self.client.send_async(request.body(body.to_string()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        EventReader::new(response)
    }
}

/// A stream of events, read line by line.
pub(super) struct EventReader(futures_util::stream::BoxStream<'static, String>);

impl EventReader {
    fn new(response: isahc::http::Response<isahc::AsyncBody>) -> Self {
        let lines = BufReader::new(response.into_body()).lines();
        Self(lines.take_while(|line| std::future::ready(line.is_ok())).map(|line| line.unwrap()).boxed())
    }

    /// The next event's id and data; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        let (mut id, mut data) = (String::new(), None);
        while let Some(line) = self.0.next().await {
            match line.split_once(':') {
                Some(("id", rest)) => id = rest.trim().to_owned(),
                Some(("data", rest)) => data = Some(rest.trim().to_owned()),
                _ if line.is_empty() && data.is_some() => {
                    return Some((id, serde_json::from_str(&data.unwrap()).unwrap_or(Value::Null)));
                }
                _ => {}
            }
        }
        None
    }

    /// Returns whether no event comes within this time.
    pub async fn is_silent(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.next()).await.is_err()
    }
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

pub(super) fn call(name: &str, arguments: Value) -> Value {
    request("tools/call", json!({"name": name, "arguments": arguments}))
}

/// Metadata that every request of the newest version carries.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

pub(super) fn tool(name: &str, fields: Value) -> Value {
    let mut method = method(name, fields);
    method["mcp_tool"] = json!(true);
    method
}

pub(super) fn changed() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
}
