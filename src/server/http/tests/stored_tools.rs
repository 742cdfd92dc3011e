//! Stored scripts of kind `tool` at `/mcp`: who is offered which, what running one comes to, and who is told.

use super::{
    Service,
    connections::LONG,
    mcp::{OLDER, call, changed, tool},
    methods::Space,
};
use serde_json::{Value, json};
use std::time::Duration;

impl Service {
    /// Stores a tool and returns its id.
    async fn shelve(&self, token: &str, name: &str, fields: Value) -> String {
        let mut body = json!({"name": name, "kind": "tool", "content": "return params"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let made = self.call(token, "POST", "/api/scripts", Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("id")
    }

    /// The result of calling a tool, which must have one.
    async fn use_tool(&self, token: &str, name: &str, arguments: Value) -> Value {
        let answer = self.tell(token, OLDER, &call(name, arguments), &[]).await;
        assert!(answer.status == 200 && answer.body["error"].is_null(), "{answer:?}");
        answer.body["result"].clone()
    }
}

const WRITER: &[&str] =
    &["use_methods", "use_mcp_server", "use_spaces", "manage_own_scripts", "manage_own_event_sinks"];

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}

#[tokio::test]
async fn ones_own_tools_are_offered_beside_everybodys_and_hide_them() {
    let service = Service::start().await;
    let uma = service.member("uma", WRITER, &[]).await;
    let global = |what: &str| json!({"owner": "global", "content": format!("return '{what}'")});
    service.shelve(&service.token, "text.upper", global("global")).await;
    service.shelve(&service.token, "text.lower", global("global")).await;
    service.shelve(&service.token, "mine", json!({})).await;
    service.shelve(&uma, "text_lower", json!({"content": "return 'own'", "description": "Makes it small"})).await;
    service.shelve(&uma, "off", json!({"active": false})).await;
    service.shelve(&uma, "plain", json!({"kind": "script", "content": "return"})).await;
    assert_eq!(service.tools(&service.token).await, ["mine", "text_lower", "text_upper"]);
    assert_eq!(service.tools(&uma).await, ["text_lower", "text_upper"]);
    assert_eq!(text(&service.use_tool(&service.token, "text_lower", json!({})).await), "global");
    assert_eq!(text(&service.use_tool(&uma, "text_lower", json!({})).await), "own");
    assert_eq!(text(&service.use_tool(&uma, "text_upper", json!({})).await), "global");
    for hidden in ["mine", "off", "plain"] {
        let answer = service.tell(&uma, OLDER, &call(hidden, json!({})), &[]).await;
        assert_eq!(answer.body["error"]["message"], format!("Unknown tool: {hidden}"));
    }
    let listed = service.ask(&uma, "tools/list", json!({})).await;
    assert_eq!(
        listed["tools"][0],
        json!({
            "name": "text_lower", "description": "Makes it small", "inputSchema": {"type": "object"},
            "_meta": {"script": "text_lower", "owner": "uma", "keywords": []},
        })
    );
    assert_eq!(listed["tools"][1]["_meta"]["owner"], "global");
    // A method of one's own goes before all of them, one that another shares behind.
    let space = Space::new("s");
    let id = service.services.identity.user_named("uma").unwrap().id;
    space.register(&service, id, json!([tool("text.lower", json!({}))])).unwrap();
    let others = Space::new("t");
    others.register(&service, service.admin(), json!([tool("x", json!({"scope": "shared"}))])).unwrap();
    service.shelve(&uma, "user_admin_x", json!({"content": "return 'stored'"})).await;
    assert_eq!(text(&service.use_tool(&uma, "text_lower", json!({"n": 1})).await), "{\"n\":1}");
    assert_eq!(text(&service.use_tool(&uma, "user_admin_x", json!({})).await), "stored");
    service.stop().await;
}

#[tokio::test]
async fn a_tool_gets_its_arguments_as_a_table_once_they_fit_its_schema() {
    let service = Service::start().await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let content = "print('adding') return {sum = params.n + 1, same = (...).n}";
    service.shelve(&service.token, "add", json!({"params_schema": schema, "content": content})).await;
    let listed = service.ask(&service.token, "tools/list", json!({})).await;
    assert_eq!(listed["tools"][0]["inputSchema"], schema);
    let done = service.use_tool(&service.token, "add", json!({"n": 2})).await;
    assert_eq!(serde_json::from_str::<Value>(text(&done)).unwrap(), json!({"sum": 3, "same": 2}));
    assert_eq!((&done["isError"], &done["_meta"]["log"]), (&json!(false), &json!(["adding"])));
    for wrong in [json!({}), json!({"n": "2"})] {
        let refused = service.use_tool(&service.token, "add", wrong).await;
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(refused["_meta"], Value::Null, "it did not run: {refused}");
    }
    service.stop().await;
}

#[tokio::test]
async fn what_goes_wrong_in_a_tool_is_the_tools_error() {
    let service = Service::start_with(LONG, |config| {
        config.script.cpu = crate::platform::config::Span(Duration::from_millis(100))
    })
    .await;
    let says = async |name: &str, content: &str| {
        service.shelve(&service.token, name, json!({ "content": content })).await;
        let failed = service.use_tool(&service.token, name, json!({})).await;
        assert_eq!(failed["isError"], true, "{failed}");
        failed
    };
    let raised = says("a", "error{code = 7, message = 'no such note', data = {id = 1}}").await;
    assert_eq!(text(&raised), "no such note");
    assert_eq!(raised["_meta"]["error"], json!({"code": 7, "message": "no such note", "data": {"id": 1}}));
    assert!(text(&says("b", "local x\nerror('plainly')").await).contains("2: plainly"));
    assert!(text(&says("c", "while true do end").await).contains("processor"));
    assert!(text(&says("d", "return print").await).contains("function"));
    assert_eq!(service.tools(&service.token).await, ["a", "b", "c", "d"], "the session goes on");
    service.stop().await;
}

#[tokio::test]
async fn a_tool_acts_as_its_caller() {
    let service = Service::start().await;
    let uma = service.member("uma", WRITER, &[]).await;
    let olaf = service.member("olaf", &["use_mcp_server"], &[]).await;
    let sink = |name: &str, owner: &str| {
        let script = json!({"source": "return"});
        json!({"name": name, "owner": owner, "type": "script", "events": "custom.*", "script": script})
    };
    for (token, name, owner) in
        [(&service.token, "admins", "me"), (&service.token, "all", "global"), (&uma, "umas", "me")]
    {
        let made = service.call(token, "POST", "/api/event-sinks", Some(sink(name, owner))).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    let content = "local told = svc.event.emit('note.made', {n = params.n}) return told.event_id";
    service.shelve(&service.token, "note", json!({"owner": "global", "content": content})).await;
    let id = service.use_tool(&uma, "note", json!({"n": 1})).await;
    let event = service.get(&format!("/api/events/{}", text(&id))).await.body;
    assert_eq!(event["type"], "custom.note.made", "{event}");
    assert_eq!(event["space_id"], "00000000-0000-0000-0000-000000000000");
    assert_eq!((&event["actor"]["username"], &event["data"]), (&json!("uma"), &json!({"n": 1})));
    let own = service.call(&uma, "GET", &format!("/api/events/{}", text(&id)), None).await.body;
    let heard = own["deliveries"].as_array().unwrap().iter().map(|delivery| delivery["name"].as_str().unwrap());
    let mut heard: Vec<_> = heard.collect();
    heard.sort_unstable();
    assert_eq!(heard, ["all", "umas"], "the caller's own sinks and everybody's hear of it");
    // It may no more than its caller.
    let refused = service.use_tool(&olaf, "note", json!({"n": 1})).await;
    assert!(refused["isError"] == true && text(&refused).contains("use_spaces"), "{refused}");
    // And calls what its caller sees.
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([tool("secret", json!({}))])).unwrap();
    let content = "return svc.call('secret', {n = 1})";
    service.shelve(&service.token, "ask", json!({"owner": "global", "content": content})).await;
    assert_eq!(text(&service.use_tool(&service.token, "ask", json!({})).await), "{\"n\":1}");
    assert_eq!(service.use_tool(&uma, "ask", json!({})).await["isError"], true);
    service.stop().await;
}

#[tokio::test]
async fn whoever_sees_a_stored_tool_is_told_when_it_changes() {
    let service = Service::start_with(LONG, |_| {}).await;
    let uma = service.member("uma", WRITER, &[]).await;
    let (mut admins, mut umas) = (service.follow(&service.token, &[]).await, service.follow(&uma, &[]).await);
    assert!(admins.next().await.is_some() && umas.next().await.is_some());
    let id = service.shelve(&service.token, "mine", json!({})).await;
    assert_eq!(admins.next().await.unwrap().1, changed());
    service.shelve(&service.token, "all", json!({"owner": "global"})).await;
    assert_eq!(umas.next().await.unwrap().1, changed());
    assert_eq!(admins.next().await.unwrap().1, changed());
    // What it does is not what is seen of it, and what is no tool is seen by nobody.
    let path = format!("/api/scripts/{id}");
    let patched = service.call(&service.token, "PATCH", &path, Some(json!({"content": "return 2"}))).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    service.shelve(&service.token, "no", json!({"kind": "script", "content": "return"})).await;
    assert!(admins.is_silent(Duration::from_millis(1500)).await);
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert_eq!(admins.next().await.unwrap().1, changed());
    assert!(umas.is_silent(Duration::from_millis(300)).await);
    service.stop().await;
}

#[tokio::test]
async fn a_tool_whose_client_takes_the_call_back_ends() {
    let service = Service::start_with(LONG, |_| {}).await;
    let space = Space::new("s");
    let hold = json!([tool("hold", json!({"local_name": "hold"}))]);
    space.register(&service, service.admin(), hold).unwrap();
    service.shelve(&service.token, "wait", json!({"content": "return svc.call('hold', {})"})).await;
    let session = service.session(&service.token).await;
    let session = [("Mcp-Session-Id", session.as_str())];
    let waits = call("wait", json!({}));
    let waits = service.tell(&service.token, OLDER, &waits, &session);
    let takes_back = async {
        while space.in_flight(&service, "hold") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(service.tell(&service.token, OLDER, &back, &session).await.status, 202);
    };
    let (answer, ()) = tokio::join!(waits, takes_back);
    assert_eq!(answer.body["error"]["message"], "the request was cancelled", "{answer:?}");
    while space.in_flight(&service, "hold") > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.stop().await;
}
