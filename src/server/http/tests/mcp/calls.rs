//! Calls of tools: arguments, results, errors and cancellation.

use super::{NEWEST, OLDER, call, meta, tool};
use crate::server::http::tests::{TestServer, connections::LONG, methods::TestSpace};
use futures_util::AsyncReadExt as _;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn arguments_and_results_pass_unchanged_and_method_errors_are_tool_errors() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    let methods = json!([
        tool("echo", json!({"result_schema": {"type": "object"}})),
        tool("plain", json!({})),
        tool("fail", json!({"local_name": "fail"})),
    ]);
    space.register(&server, server.admin(), methods).unwrap();
    let raw = async |body: &str| {
        let request = server
            .request("POST", "/mcp")
            .header("Authorization", format!("Bearer {}", server.token))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let mut response = server.client.send_async(request.body(body.to_owned()).unwrap()).await.unwrap();
        let mut text = String::new();
        response.body_mut().read_to_string(&mut text).await.unwrap();
        text
    };
    let arguments = r#"{ "z":1.0,"b":18446744073709551616,"a":[] }"#;
    let sent = |name: &str| {
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#)
    };
    let response = raw(&sent("echo")).await;
    assert_eq!(space.received(), [format!("echo {arguments}")]);
    assert!(response.contains(&format!(r#""structuredContent":{arguments}"#)), "{response}");
    let response: Value = serde_json::from_str(&response).unwrap();
    assert_eq!(response["result"]["content"], json!([{"type": "text", "text": arguments}]));
    assert_eq!(response["result"]["isError"], false);
    // Arguments that rmcp cannot hold pass too.
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for arguments in [r#"{ "n":1e400 }"#, &deep] {
        space.received();
        let response = raw(&sent("plain").replace(r#"{ "z":1.0,"b":18446744073709551616,"a":[] }"#, arguments)).await;
        assert_eq!(space.received(), [format!("echo {arguments}")], "{response}");
        assert!(response.contains(r#""isError":false"#), "{response}");
    }
    let response: Value = serde_json::from_str(&raw(&sent("plain").replace(arguments, "[1e400]")).await).unwrap();
    assert_eq!(response["error"]["code"], -32602, "{response}");
    // Without a result schema there is no structured result.
    let plain: Value = serde_json::from_str(&raw(&sent("plain")).await).unwrap();
    assert_eq!(plain["result"]["structuredContent"], Value::Null);
    assert_eq!(plain["result"]["content"][0]["text"], arguments);
    // Absent arguments count as an empty object.
    space.received();
    raw(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain"}}"#).await;
    assert_eq!(space.received(), ["echo {}"]);
    let failed = server.mcp_result(&server.token, "tools/call", json!({"name": "fail"})).await;
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"], json!([{"type": "text", "text": "no"}]));
    assert_eq!(failed["_meta"]["error"], json!({"code": 7, "message": "no", "data": [1.0]}));
    server.stop().await;
}

#[tokio::test]
async fn a_slow_or_lost_provider_fails_only_its_own_call() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let (slow, quick) = (TestSpace::new("slow"), TestSpace::new("quick"));
    slow.register(&server, server.admin(), json!([tool("hold", json!({"local_name": "hold"}))])).unwrap();
    quick.register(&server, server.admin(), json!([tool("echo", json!({}))])).unwrap();
    let session = server.start_session(&server.token).await;
    let session = [("Mcp-Session-Id", session.as_str())];
    let held = call("hold", json!({}));
    let held = server.send_message(&server.token, OLDER, &held, &session);
    let others = async {
        while slow.in_flight(&server, "hold") == 0 {
            tokio::task::yield_now().await;
        }
        let echo = server.send_message(&server.token, OLDER, &call("echo", json!({})), &session).await;
        assert_eq!(echo.body["result"]["isError"], false);
        assert_eq!(server.tools(&server.token).await, ["echo", "hold"]);
        slow.link.down();
    };
    let held = tokio::join!(held, others).0;
    assert_eq!(held.body["result"]["isError"], true, "{held:?}");
    let text = held.body["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("`hold` is not available"), "{text}");
    // Its tool is still listed, beside all others.
    assert_eq!(server.tools(&server.token).await, ["echo", "hold"]);
    let again = server.mcp_result(&server.token, "tools/call", json!({"name": "hold"})).await;
    assert_eq!(again["isError"], true);
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_call_frees_its_place_at_the_provider() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([tool("hold", json!({"local_name": "hold"}))])).unwrap();
    let other = server.member("uma", &["use_mcp_server"], &[]).await;
    let (session, others) = (server.start_session(&server.token).await, server.start_session(&other).await);
    let session = [("Mcp-Session-Id", session.as_str())];
    let held = call("hold", json!({}));
    let held = server.send_message(&server.token, OLDER, &held, &session);
    let takes_back = async {
        while space.in_flight(&server, "hold") == 0 {
            tokio::task::yield_now().await;
        }
        let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        // Another user's session cannot cancel it.
        let foreign = server.send_message(&other, OLDER, &back, &[("Mcp-Session-Id", &others)]).await;
        assert_eq!((foreign.status, space.in_flight(&server, "hold")), (202, 1));
        assert_eq!(server.send_message(&server.token, OLDER, &back, &session).await.status, 202);
    };
    let (held, ()) = tokio::join!(held, takes_back);
    assert_eq!(held.body["error"]["message"], "the request was cancelled", "{held:?}");
    assert_eq!(space.in_flight(&server, "hold"), 0);
    assert_eq!(space.received(), ["hold {}", "cancel"]);

    // Hanging up cancels the call in every version.
    for version in [NEWEST, OLDER] {
        let client = server.address;
        let mut message = call("hold", json!({}));
        message["params"]["_meta"] = meta();
        let body = message.to_string();
        let mut caller = tokio::net::TcpStream::connect(client).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: hold\r\nContent-Length: {}\r\n\r\n{body}",
            server.token,
            body.len()
        );
        let head = if version == OLDER { head.replace(NEWEST, OLDER) } else { head };
        tokio::io::AsyncWriteExt::write_all(&mut caller, head.as_bytes()).await.unwrap();
        while space.in_flight(&server, "hold") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(caller);
        while space.in_flight(&server, "hold") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_header_that_repeats_an_argument_must_agree_with_it() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    space.register(&server, server.admin(), json!([tool("n", json!({"params_schema": schema}))])).unwrap();
    let message = call("n", json!({"region": "north"}));
    let response = server.send_message(&server.token, NEWEST, &message, &[("Mcp-Param-Region", "north")]).await;
    assert_eq!(response.status, 200, "{response:?}");
    let response = server.send_message(&server.token, NEWEST, &message, &[("Mcp-Param-Region", "south")]).await;
    assert_eq!(response.status, 400, "{response:?}");
    server.stop().await;
}
