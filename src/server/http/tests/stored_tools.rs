//! Stored tools at `/mcp`: visibility, runs, and notifications of changes.

use super::{
    TestServer,
    connections::LONG,
    mcp::{OLDER, call, changed, tool},
    methods::TestSpace,
};
use serde_json::{Value, json};
use std::time::Duration;

impl TestServer {
    /// Stores a tool and returns its id.
    async fn store_tool(&self, token: &str, name: &str, fields: Value) -> String {
        let mut body = json!({"name": name, "kind": "tool", "content": "return params"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let made = self.call(token, "POST", "/api/scripts", Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("id")
    }

    /// The result of a tool call, which must succeed.
    async fn use_tool(&self, token: &str, name: &str, arguments: Value) -> Value {
        let response = self.send_message(token, OLDER, &call(name, arguments), &[]).await;
        assert!(response.status == 200 && response.body["error"].is_null(), "{response:?}");
        response.body["result"].clone()
    }
}

const WRITER: &[&str] =
    &["use_methods", "use_mcp_server", "use_spaces", "manage_own_scripts", "manage_own_event_sinks"];

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}

#[tokio::test]
async fn own_tools_are_offered_beside_global_ones_and_hide_those_of_the_same_name() {
    let server = TestServer::start().await;
    let uma = server.member("uma", WRITER, &[]).await;
    let global = |what: &str| json!({"owner": "global", "content": format!("return '{what}'")});
    server.store_tool(&server.token, "text.upper", global("global")).await;
    server.store_tool(&server.token, "text.lower", global("global")).await;
    server.store_tool(&server.token, "mine", json!({})).await;
    server.store_tool(&uma, "text_lower", json!({"content": "return 'own'", "description": "Makes it small"})).await;
    server.store_tool(&uma, "off", json!({"active": false})).await;
    server.store_tool(&uma, "plain", json!({"kind": "script", "content": "return"})).await;
    assert_eq!(server.tools(&server.token).await, ["mine", "text_lower", "text_upper"]);
    assert_eq!(server.tools(&uma).await, ["text_lower", "text_upper"]);
    assert_eq!(text(&server.use_tool(&server.token, "text_lower", json!({})).await), "global");
    assert_eq!(text(&server.use_tool(&uma, "text_lower", json!({})).await), "own");
    assert_eq!(text(&server.use_tool(&uma, "text_upper", json!({})).await), "global");
    for hidden in ["mine", "off", "plain"] {
        let response = server.send_message(&uma, OLDER, &call(hidden, json!({})), &[]).await;
        assert_eq!(response.body["error"]["message"], format!("Unknown tool: {hidden}"));
    }
    let listed = server.mcp_result(&uma, "tools/list", json!({})).await;
    assert_eq!(
        listed["tools"][0],
        json!({
            "name": "text_lower", "description": "Makes it small", "inputSchema": {"type": "object"},
            "_meta": {"script": "text_lower", "owner": "uma", "keywords": []},
        })
    );
    assert_eq!(listed["tools"][1]["_meta"]["owner"], "global");
    // An own method wins over stored tools, and these over a method that another user shares.
    let space = TestSpace::new("s");
    let id = server.services.identity.user_named("uma").unwrap().id;
    space.register(&server, id, json!([tool("text.lower", json!({}))])).unwrap();
    let others = TestSpace::new("t");
    others.register(&server, server.admin(), json!([tool("x", json!({"scope": "shared"}))])).unwrap();
    server.store_tool(&uma, "user_admin_x", json!({"content": "return 'stored'"})).await;
    assert_eq!(text(&server.use_tool(&uma, "text_lower", json!({"n": 1})).await), "{\"n\":1}");
    assert_eq!(text(&server.use_tool(&uma, "user_admin_x", json!({})).await), "stored");
    server.stop().await;
}

#[tokio::test]
async fn a_tool_gets_arguments_that_fit_its_schema_as_a_table() {
    let server = TestServer::start().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let content = "print('adding') return {sum = params.n + 1, same = (...).n}";
    server.store_tool(&server.token, "add", json!({"params_schema": schema, "content": content})).await;
    let listed = server.mcp_result(&server.token, "tools/list", json!({})).await;
    assert_eq!(listed["tools"][0]["inputSchema"], schema);
    let done = server.use_tool(&server.token, "add", json!({"n": 2})).await;
    assert_eq!(serde_json::from_str::<Value>(text(&done)).unwrap(), json!({"sum": 3, "same": 2}));
    assert_eq!((&done["isError"], &done["_meta"]["log"]), (&json!(false), &json!(["adding"])));
    for wrong in [json!({}), json!({"n": "2"})] {
        let refused = server.use_tool(&server.token, "add", wrong).await;
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(refused["_meta"], Value::Null, "it did not run: {refused}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_failure_in_a_tool_is_a_tool_error() {
    let server = TestServer::start_with(LONG, |config| {
        config.script.cpu = crate::platform::config::Span(Duration::from_millis(100))
    })
    .await;
    let says = async |name: &str, content: &str| {
        server.store_tool(&server.token, name, json!({ "content": content })).await;
        let failed = server.use_tool(&server.token, name, json!({})).await;
        assert_eq!(failed["isError"], true, "{failed}");
        failed
    };
    let raised = says("a", "error{code = 7, message = 'no such note', data = {id = 1}}").await;
    assert_eq!(text(&raised), "no such note");
    assert_eq!(raised["_meta"]["error"], json!({"code": 7, "message": "no such note", "data": {"id": 1}}));
    assert!(text(&says("b", "local x\nerror('plainly')").await).contains("2: plainly"));
    assert!(text(&says("c", "while true do end").await).contains("processor"));
    assert!(text(&says("d", "return print").await).contains("function"));
    assert_eq!(server.tools(&server.token).await, ["a", "b", "c", "d"], "the session goes on");
    server.stop().await;
}

#[tokio::test]
async fn a_tool_acts_as_its_caller() {
    let server = TestServer::start().await;
    let uma = server.member("uma", WRITER, &[]).await;
    let olaf = server.member("olaf", &["use_mcp_server"], &[]).await;
    let sink = |name: &str, owner: &str| {
        let script = json!({"source": "return"});
        json!({"name": name, "owner": owner, "type": "script", "events": "custom.*", "script": script})
    };
    for (token, name, owner) in
        [(&server.token, "admins", "me"), (&server.token, "all", "global"), (&uma, "umas", "me")]
    {
        let made = server.call(token, "POST", "/api/event-sinks", Some(sink(name, owner))).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    let content = "local receipt = svc.event.emit('note.made', {n = params.n}) return receipt.event_id";
    server.store_tool(&server.token, "note", json!({"owner": "global", "content": content})).await;
    let id = server.use_tool(&uma, "note", json!({"n": 1})).await;
    let event = server.get(&format!("/api/events/{}", text(&id))).await.body;
    assert_eq!(event["type"], "custom.note.made", "{event}");
    assert_eq!(event["space_id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!((&event["actor"]["username"], &event["data"]), (&json!("uma"), &json!({"n": 1})));
    let own = server.call(&uma, "GET", &format!("/api/events/{}", text(&id)), None).await.body;
    let received = own["deliveries"].as_array().unwrap().iter().map(|delivery| delivery["name"].as_str().unwrap());
    let mut received: Vec<_> = received.collect();
    received.sort_unstable();
    assert_eq!(received, ["all", "umas"], "the caller's own sinks and global ones receive it");
    // The tool has the permissions of its caller.
    let refused = server.use_tool(&olaf, "note", json!({"n": 1})).await;
    assert!(refused["isError"] == true && text(&refused).contains("use_spaces"), "{refused}");
    // The tool calls the methods that its caller sees.
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([tool("secret", json!({}))])).unwrap();
    let content = "return svc.call('secret', {n = 1})";
    server.store_tool(&server.token, "ask", json!({"owner": "global", "content": content})).await;
    assert_eq!(text(&server.use_tool(&server.token, "ask", json!({})).await), "{\"n\":1}");
    assert_eq!(server.use_tool(&uma, "ask", json!({})).await["isError"], true);
    server.stop().await;
}

#[tokio::test]
async fn users_of_a_stored_tool_are_notified_when_it_changes() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let uma = server.member("uma", WRITER, &[]).await;
    let (mut admins, mut umas) = (server.open_stream(&server.token, &[]).await, server.open_stream(&uma, &[]).await);
    assert!(admins.next().await.is_some() && umas.next().await.is_some());
    let id = server.store_tool(&server.token, "mine", json!({})).await;
    assert_eq!(admins.next().await.unwrap().1, changed());
    server.store_tool(&server.token, "all", json!({"owner": "global"})).await;
    assert_eq!(umas.next().await.unwrap().1, changed());
    assert_eq!(admins.next().await.unwrap().1, changed());
    // A change of a tool's code is not visible to clients, and neither is a script that is no tool.
    let path = format!("/api/scripts/{id}");
    let patched = server.call(&server.token, "PATCH", &path, Some(json!({"content": "return 2"}))).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    server.store_tool(&server.token, "no", json!({"kind": "script", "content": "return"})).await;
    assert!(admins.is_silent(Duration::from_millis(1500)).await);
    assert_eq!(server.call(&server.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(admins.next().await.unwrap().1, changed());
    assert!(umas.is_silent(Duration::from_millis(300)).await);
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_tool_call_ends_the_tool() {
    let server = TestServer::start_with(LONG, |_| {}).await;
    let space = TestSpace::new("s");
    let hold = json!([tool("hold", json!({"local_name": "hold"}))]);
    space.register(&server, server.admin(), hold).unwrap();
    server.store_tool(&server.token, "wait", json!({"content": "return svc.call('hold', {})"})).await;
    let session = server.start_session(&server.token).await;
    let session = [("Mcp-Session-Id", session.as_str())];
    let waits = call("wait", json!({}));
    let waits = server.send_message(&server.token, OLDER, &waits, &session);
    let takes_back = async {
        while space.in_flight(&server, "hold") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(server.send_message(&server.token, OLDER, &back, &session).await.status, 202);
    };
    let (response, ()) = tokio::join!(waits, takes_back);
    assert_eq!(response.body["error"]["message"], "the request was cancelled", "{response:?}");
    while space.in_flight(&server, "hold") > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.stop().await;
}
