//! Methods over HTTP, with tasks in place of agents: visibility, choice of the provider, and JSON-RPC responses.

use super::{TestResponse, TestServer};
use crate::{
    calls::{
        agent_link::{AgentLink, AgentOutboxReceiver},
        registry::{MethodConflict, ServeRequest},
    },
    model::{
        agent_protocol::{self, ToAgent},
        id::{SpaceId, UserId},
        method::Registration,
    },
};
use parking_lot::Mutex;
use serde_json::{Value, json, value::RawValue};
use std::sync::Arc;

/// A space with a fake agent that records its calls. The method `echo` returns its params, `fail` an error, and `hold`
/// never returns.
pub(super) struct TestSpace {
    pub id: SpaceId,
    name: &'static str,
    pub link: Arc<AgentLink>,
    received: Arc<Mutex<Vec<String>>>,
}

impl TestSpace {
    pub fn new(name: &'static str) -> Self {
        let id = SpaceId::new();
        let (link, line) = AgentLink::new(id);
        let received = Arc::default();
        tokio::spawn(serve(link.clone(), line, Arc::clone(&received)));
        Self { id, name, link, received }
    }

    pub fn register(&self, server: &TestServer, owner: UserId, methods: Value) -> Result<(), MethodConflict> {
        let registration = json!({"server": {"command": "x"}, "methods": methods});
        let registration: Registration = serde_json::from_value(registration).unwrap();
        let identity = &server.services.identity;
        let methods = registration.publish(self.name, |name| Some(identity.find_group(name)?.id)).unwrap();
        server.services.registry.register(ServeRequest {
            space: self.id,
            space_name: self.name.into(),
            owner,
            link: self.link.clone(),
            generation: 1,
            timeout: registration.server.timeout,
            mode: registration.server.mode,
            methods,
        })
    }

    /// Calls of this method that it has not answered.
    pub fn in_flight(&self, server: &TestServer, name: &str) -> usize {
        server.services.registry.provider(self.id, name).unwrap().in_flight()
    }

    pub fn received(&self) -> Vec<String> {
        std::mem::take(&mut *self.received.lock())
    }
}

async fn serve(link: Arc<AgentLink>, mut line: AgentOutboxReceiver, received: Arc<Mutex<Vec<String>>>) {
    while let Some(message) = line.recv().await.map(|queued| queued.message) {
        match message {
            ToAgent::Call { id, method, params, notification, .. } => {
                let params = params.as_deref().map_or("nothing", RawValue::get).to_owned();
                received.lock().push(format!("{method} {params}{}", if notification { " !" } else { "" }));
                let raw = |json: String| RawValue::from_string(json).unwrap();
                match &*method {
                    _ if notification => {}
                    "fail" => {
                        let error = raw(r#"{"code": 7,  "message": "no", "data": [1.0]}"#.to_owned());
                        link.resolve(id, agent_protocol::CallReply::Error(error));
                    }
                    "hold" => {}
                    _ => link.resolve(id, agent_protocol::CallReply::Result(raw(params.replace("nothing", "null")))),
                }
            }
            ToAgent::Cancel { .. } => received.lock().push("cancel".to_owned()),
            _ => {}
        }
    }
}

pub(super) fn method(name: &str, fields: Value) -> Value {
    let mut method = json!({"name": name, "local_name": "echo", "description": "Says it again"});
    method.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    method
}

impl TestServer {
    pub(super) fn admin(&self) -> UserId {
        self.services.identity.user_named("admin").unwrap().id
    }

    pub(super) async fn member(&self, name: &str, permissions: &[&str], groups: &[&str]) -> String {
        let role = json!({"name": format!("role-{name}"), "permissions": permissions});
        assert_eq!(self.post("/api/roles", role).await.status, 201);
        let (id, token) = self.user(name, &[&format!("role-{name}")]).await;
        assert_eq!(
            self.call(&self.token, "PATCH", &format!("/api/users/{id}"), Some(json!({"groups": groups}))).await.status,
            200
        );
        token
    }

    async fn sees(&self, token: &str) -> Vec<String> {
        let listed = self.call(token, "GET", "/api/methods", None).await;
        assert_eq!(listed.status, 200, "{listed:?}");
        let methods = listed.body["methods"].as_array().unwrap().clone();
        methods.iter().map(|method| method["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The raw text that a JSON-RPC body is answered with.
    async fn rpc(&self, token: &str, body: &str) -> (u16, String) {
        let request = self.request("POST", "/api/methods/call").header("Authorization", format!("Bearer {token}"));
        let request = request.header("Content-Type", "application/json").body(body.to_owned()).unwrap();
        let mut response = self.client.send_async(request).await.unwrap();
        let text = isahc::AsyncReadResponseExt::text(&mut response).await.unwrap();
        (response.status().as_u16(), text)
    }

    /// The code of the error that calling `name` gives, 0 for a result.
    async fn code(&self, token: &str, name: &str) -> i64 {
        let call = json!({"jsonrpc": "2.0", "method": name, "params": {}, "id": 1});
        let (status, text) = self.rpc(token, &call.to_string()).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["error"]["code"].as_i64().unwrap_or(0)
    }
}

#[tokio::test]
async fn users_see_and_call_exactly_the_methods_that_the_visibility_rules_allow() {
    let server = TestServer::start().await;
    for group in ["ops", "dev"] {
        assert_eq!(server.post("/api/groups", json!({"name": group})).await.status, 201);
    }
    let user = server.member("uma", &["use_methods"], &["dev"]).await;
    let outsider = server.member("olaf", &["use_spaces"], &["dev"]).await;
    let space = TestSpace::new("s");
    let methods = json!([
        method("mine", json!({})),
        method("all", json!({"scope": "shared"})),
        method("dotted.all", json!({"scope": "shared"})),
        method("dev", json!({"scope": "shared", "groups": ["dev"]})),
        method("ops", json!({"scope": "shared", "groups": ["ops"]})),
        method("listed", json!({"groups": ["dev"]})),
    ]);
    space.register(&server, server.admin(), methods).unwrap();

    // The owner sees all its methods, under their bare names.
    assert_eq!(server.sees(&server.token).await, ["all", "dev", "dotted.all", "listed", "mine", "ops"]);
    // Others see what is shared with them, under the owner's name.
    assert_eq!(server.sees(&user).await, ["user.admin.all", "user.admin.dev", "user.admin.dotted.all"]);
    // Without the permission a user sees nothing.
    assert_eq!(server.sees(&outsider).await, [""; 0]);

    let (there, missing) = (0, -32601);
    for (token, name, code) in [
        (&server.token, "mine", there),
        (&server.token, "dotted.all", there),
        (&server.token, "user.admin.all", missing),
        (&user, "user.admin.all", there),
        (&user, "user.admin.dotted.all", there),
        (&user, "user.admin.dev", there),
        (&user, "user.admin.ops", missing),
        (&user, "user.admin.mine", missing),
        (&user, "user.admin.listed", missing),
        (&user, "user.nobody.all", missing),
        (&user, "user.admin", missing),
        (&user, "all", missing),
        (&outsider, "user.admin.all", missing),
        (&outsider, "user.admin.dev", missing),
    ] {
        assert_eq!(server.code(token, name).await, code, "{name}");
        let status = server.call(token, "GET", &format!("/api/methods/{name}"), None).await.status;
        assert_eq!(status, if code == there { 200 } else { 404 }, "{name}");
    }
    // A hidden method and an absent one look alike, but for the name.
    let said = async |name: &str| {
        let call = json!({"jsonrpc": "2.0", "method": name, "id": 1}).to_string();
        server.rpc(&user, &call).await.1.replace(name, "NAME")
    };
    assert_eq!(said("user.admin.mine").await, said("user.admin.none").await);
    server.stop().await;
}

#[tokio::test]
async fn a_method_is_shown_with_its_description_schemas_and_providers() {
    let server = TestServer::start().await;
    let space = TestSpace::new("notes");
    let fields = json!({
        "keywords": ["find"], "scope": "shared", "mcp_tool": true, "events": ["custom.a.*", "space.created"],
        "params_schema": {"type": "object"}, "result_schema": {"type": "array"},
    });
    let methods = json!([method("{{space}}.search", fields), method("other", json!({}))]);
    space.register(&server, server.admin(), methods).unwrap();
    let mut expected = json!({
        "name": "notes.search", "description": "Says it again", "keywords": ["find"], "scope": "shared", "groups": [],
        "owner": "admin", "mcp_tool": true, "params_schema": {"type": "object"}, "result_schema": {"type": "array"},
        "events": ["custom.a.*", "space.created"], "provider_count": 1, "available_count": 1,
    });
    let found = server.get("/api/methods?q=FIND").await;
    assert_eq!(found.body, json!({"methods": [expected]}));
    space.link.down();
    expected["available_count"] = json!(0);
    expected["providers"] = json!([{"space_id": space.id, "space": "notes", "health": "unlinked", "in_flight": 0}]);
    assert_eq!(server.get("/api/methods/notes.search").await.body, expected);
    server.stop().await;
}

#[tokio::test]
async fn results_and_errors_of_methods_are_returned_unchanged() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    let methods = json!([method("a.b", json!({})), method("f", json!({"local_name": "fail"}))]);
    space.register(&server, server.admin(), methods).unwrap();
    for (call, response) in [
        (
            r#"{"jsonrpc":"2.0","method":"a.b","params":{ "n":1.0,"b":18446744073709551616 },"id":"x"}"#,
            r#"{"jsonrpc":"2.0","result":{ "n":1.0,"b":18446744073709551616 },"id":"x"}"#,
        ),
        (r#"{"jsonrpc":"2.0","method":"a.b","id":1.50}"#, r#"{"jsonrpc":"2.0","result":null,"id":1.50}"#),
        (
            r#"{"jsonrpc":"2.0","method":"f","params":[],"id":null}"#,
            r#"{"jsonrpc":"2.0","error":{"code": 7,  "message": "no", "data": [1.0]},"id":null}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"g","id":7}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"no method named `g`"},"id":7}"#,
        ),
        (
            "[]",
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"an empty batch: send at least one request"},"id":null}"#,
        ),
    ] {
        assert_eq!(server.rpc(&server.token, call).await, (200, response.to_owned()));
    }
    let (status, text) = server.rpc(&server.token, "{").await;
    assert!(status == 200 && text.contains("-32700"), "{text}");
    let many = format!("[{}1]", "1,".repeat(1000));
    assert!(server.rpc(&server.token, &many).await.1.contains("-32600"));
    server.stop().await;
}

#[tokio::test]
async fn a_batch_is_answered_in_order_and_without_its_notifications() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([method("e", json!({}))])).unwrap();
    let batch = r#"[{"jsonrpc":"2.0","method":"e","params":[1],"id":1}, 5, {"jsonrpc":"2.0","method":"e","params":[2]},
        {"jsonrpc":"2.0","method":"none","id":3}, {"jsonrpc":"2.0","method":"none"},
        {"jsonrpc":"2.0","method":"e","params":[4],"id":1}]"#;
    let (status, text) = server.rpc(&server.token, batch).await;
    let answers: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 200);
    let ids: Vec<_> = answers.iter().map(|response| response["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(null), json!(3), json!(1)]);
    let codes: Vec<_> = answers.iter().map(|response| response["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [None, Some(-32600), Some(-32601), None]);
    assert_eq!((&answers[0]["result"], &answers[3]["result"]), (&json!([1]), &json!([4])));
    let mut received = space.received();
    received.sort();
    assert_eq!(received, ["echo [1]", "echo [2] !", "echo [4]"]);

    let silent = r#"{"jsonrpc":"2.0","method":"e"}"#;
    assert_eq!(server.rpc(&server.token, silent).await, (204, String::new()));
    assert_eq!(server.rpc(&server.token, &format!("[{silent},{silent}]")).await, (204, String::new()));
    assert_eq!(server.rpc(&server.token, r#"{"jsonrpc":"2.0","method":"none"}"#).await, (204, String::new()));
    server.stop().await;
}

#[tokio::test]
async fn a_batch_is_spread_over_the_providers_by_their_calls_in_flight() {
    let server = TestServer::start().await;
    let spaces = [TestSpace::new("one"), TestSpace::new("two")];
    for space in &spaces {
        space.register(&server, server.admin(), json!([method("e", json!({"local_name": "hold"}))])).unwrap();
    }
    let call = |id: u32| format!(r#"{{"jsonrpc":"2.0","method":"e","params":[{id}],"id":{id}}}"#);
    let batch = format!("[{}]", (1..=5).map(call).collect::<Vec<_>>().join(","));
    // A separate client: the shared one keeps the connection of a dropped request open.
    let mut caller = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /api/methods/call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{batch}",
        server.token,
        batch.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut caller, head.as_bytes()).await.unwrap();
    let provider = |space: &TestSpace| server.services.registry.provider(space.id, "e").unwrap();
    while provider(&spaces[0]).in_flight() + provider(&spaces[1]).in_flight() < 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(provider(&spaces[0]).in_flight(), 3);
    // The caller hangs up: every call is cancelled and its place is free.
    drop(caller);
    while provider(&spaces[0]).in_flight() + provider(&spaces[1]).in_flight() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let went =
        spaces.map(|space| space.received().into_iter().filter(|received| received != "cancel").collect::<Vec<_>>());
    assert_eq!(went, [vec!["hold [1]", "hold [3]", "hold [5]"], vec!["hold [2]", "hold [4]"]]);
    server.stop().await;
}

#[tokio::test]
async fn a_method_without_a_running_provider_is_unavailable_before_and_during_a_call() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    let methods = json!([method("e", json!({})), method("h", json!({"local_name": "hold"}))]);
    space.register(&server, server.admin(), methods).unwrap();
    let held = server.code(&server.token, "h");
    let dies = async {
        while server.services.registry.provider(space.id, "h").unwrap().in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        space.link.down();
    };
    assert_eq!(tokio::join!(held, dies).0, -32000);
    assert_eq!(server.code(&server.token, "e").await, -32000);
    assert_eq!(server.sees(&server.token).await, ["e", "h"], "it is listed all the same");
    server.stop().await;
}

#[tokio::test]
async fn a_token_for_methods_reaches_methods_and_nothing_else() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    space.register(&server, server.admin(), json!([method("e", json!({}))])).unwrap();
    let token = async |scopes: Value| {
        let made = server.post("/api/tokens", json!({"name": "t", "scopes": scopes})).await;
        made.text("token")
    };
    let (methods, mcp) = (token(json!(["methods"])).await, token(json!(["mcp"])).await);
    assert_eq!(server.code(&methods, "e").await, 0);
    assert_eq!(server.sees(&methods).await, ["e"]);
    let forbidden = |response: TestResponse| assert_eq!(response.code(), "insufficient_scope");
    forbidden(server.call(&methods, "GET", "/api/whoami", None).await);
    forbidden(server.call(&methods, "GET", "/api/spaces", None).await);
    forbidden(server.call(&methods, "POST", "/mcp", Some(json!({}))).await);
    forbidden(server.call(&mcp, "GET", "/api/methods", None).await);
    forbidden(server.call(&mcp, "POST", "/api/methods/call", Some(json!({}))).await);
    server.stop().await;
}
