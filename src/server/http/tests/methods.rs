//! Methods over HTTP, served by links whose agents are played by a task: who sees what, who gets the call, and what
//! JSON-RPC answers.

use super::{Answer, Service};
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

/// A space with an agent that keeps what it is told and answers as it is asked: `echo` with its params, `fail` with
/// an error, `hold` never.
pub(super) struct Space {
    pub id: SpaceId,
    name: &'static str,
    pub link: Arc<AgentLink>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Space {
    pub fn new(name: &'static str) -> Self {
        let id = SpaceId::new();
        let (link, line) = AgentLink::new(id);
        let heard = Arc::default();
        tokio::spawn(serve(link.clone(), line, Arc::clone(&heard)));
        Self { id, name, link, heard }
    }

    pub fn register(&self, service: &Service, owner: UserId, methods: Value) -> Result<(), MethodConflict> {
        let registration = json!({"server": {"command": "x"}, "methods": methods});
        let registration: Registration = serde_json::from_value(registration).unwrap();
        let identity = &service.services.identity;
        let methods = registration.publish(self.name, |name| Some(identity.find_group(name)?.id)).unwrap();
        service.services.registry.register(ServeRequest {
            space: self.id,
            space_name: self.name.into(),
            owner,
            link: self.link.clone(),
            generation: 1,
            timeout: registration.server.timeout,
            methods,
        })
    }

    /// Calls of this method that it has not answered.
    pub fn in_flight(&self, service: &Service, name: &str) -> usize {
        service.services.registry.provider(self.id, name).unwrap().in_flight()
    }

    pub fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock())
    }
}

async fn serve(link: Arc<AgentLink>, mut line: AgentOutboxReceiver, heard: Arc<Mutex<Vec<String>>>) {
    while let Some(message) = line.recv().await.map(|queued| queued.message) {
        match message {
            ToAgent::Call { id, method, params, notification, .. } => {
                let params = params.as_deref().map_or("nothing", RawValue::get).to_owned();
                heard.lock().push(format!("{method} {params}{}", if notification { " !" } else { "" }));
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
            ToAgent::Cancel { .. } => heard.lock().push("cancel".to_owned()),
            _ => {}
        }
    }
}

pub(super) fn method(name: &str, fields: Value) -> Value {
    let mut method = json!({"name": name, "local_name": "echo", "description": "Says it again"});
    method.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    method
}

impl Service {
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
async fn everybody_sees_and_calls_exactly_what_the_visibility_rules_say() {
    let service = Service::start().await;
    for group in ["ops", "dev"] {
        assert_eq!(service.post("/api/groups", json!({"name": group})).await.status, 201);
    }
    let user = service.member("uma", &["use_methods"], &["dev"]).await;
    let outsider = service.member("olaf", &["use_spaces"], &["dev"]).await;
    let space = Space::new("s");
    let methods = json!([
        method("mine", json!({})),
        method("all", json!({"scope": "shared"})),
        method("dotted.all", json!({"scope": "shared"})),
        method("dev", json!({"scope": "shared", "groups": ["dev"]})),
        method("ops", json!({"scope": "shared", "groups": ["ops"]})),
        method("listed", json!({"groups": ["dev"]})),
    ]);
    space.register(&service, service.admin(), methods).unwrap();

    // V1, V5: the owner sees all, under the bare names.
    assert_eq!(service.sees(&service.token).await, ["all", "dev", "dotted.all", "listed", "mine", "ops"]);
    // V2, V3, V4, V6: others see what is shared with them, under the owner's name.
    assert_eq!(service.sees(&user).await, ["user.admin.all", "user.admin.dev", "user.admin.dotted.all"]);
    // V2: nothing without the permission.
    assert_eq!(service.sees(&outsider).await, [""; 0]);

    let (there, missing) = (0, -32601);
    for (token, name, code) in [
        (&service.token, "mine", there),
        (&service.token, "dotted.all", there),
        (&service.token, "user.admin.all", missing),
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
        assert_eq!(service.code(token, name).await, code, "{name}");
        let status = service.call(token, "GET", &format!("/api/methods/{name}"), None).await.status;
        assert_eq!(status, if code == there { 200 } else { 404 }, "{name}");
    }
    // Hidden and absent look alike, but for the name that was asked for.
    let said = async |name: &str| {
        let call = json!({"jsonrpc": "2.0", "method": name, "id": 1}).to_string();
        service.rpc(&user, &call).await.1.replace(name, "NAME")
    };
    assert_eq!(said("user.admin.mine").await, said("user.admin.none").await);
    service.stop().await;
}

#[tokio::test]
async fn a_method_is_shown_with_all_that_discovery_promises() {
    let service = Service::start().await;
    let space = Space::new("notes");
    let fields = json!({
        "keywords": ["find"], "scope": "shared", "mcp_tool": true, "events": ["custom.a.*", "space.created"],
        "params_schema": {"type": "object"}, "result_schema": {"type": "array"},
    });
    let methods = json!([method("{{space}}.search", fields), method("other", json!({}))]);
    space.register(&service, service.admin(), methods).unwrap();
    let mut expected = json!({
        "name": "notes.search", "description": "Says it again", "keywords": ["find"], "scope": "shared", "groups": [],
        "owner": "admin", "mcp_tool": true, "params_schema": {"type": "object"}, "result_schema": {"type": "array"},
        "events": ["custom.a.*", "space.created"], "provider_count": 1, "available_count": 1,
    });
    let found = service.get("/api/methods?q=FIND").await;
    assert_eq!(found.body, json!({"methods": [expected]}));
    space.link.down();
    expected["available_count"] = json!(0);
    expected["providers"] = json!([{"space_id": space.id, "space": "notes", "health": "unlinked", "in_flight": 0}]);
    assert_eq!(service.get("/api/methods/notes.search").await.body, expected);
    service.stop().await;
}

#[tokio::test]
async fn results_and_errors_come_back_as_the_method_gave_them() {
    let service = Service::start().await;
    let space = Space::new("s");
    let methods = json!([method("a.b", json!({})), method("f", json!({"local_name": "fail"}))]);
    space.register(&service, service.admin(), methods).unwrap();
    for (call, answer) in [
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
        assert_eq!(service.rpc(&service.token, call).await, (200, answer.to_owned()));
    }
    let (status, text) = service.rpc(&service.token, "{").await;
    assert!(status == 200 && text.contains("-32700"), "{text}");
    let many = format!("[{}1]", "1,".repeat(1000));
    assert!(service.rpc(&service.token, &many).await.1.contains("-32600"));
    service.stop().await;
}

#[tokio::test]
async fn a_batch_is_answered_in_order_and_its_notifications_not_at_all() {
    let service = Service::start().await;
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([method("e", json!({}))])).unwrap();
    let batch = r#"[{"jsonrpc":"2.0","method":"e","params":[1],"id":1}, 5, {"jsonrpc":"2.0","method":"e","params":[2]},
        {"jsonrpc":"2.0","method":"none","id":3}, {"jsonrpc":"2.0","method":"none"},
        {"jsonrpc":"2.0","method":"e","params":[4],"id":1}]"#;
    let (status, text) = service.rpc(&service.token, batch).await;
    let answers: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 200);
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(null), json!(3), json!(1)]);
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [None, Some(-32600), Some(-32601), None]);
    assert_eq!((&answers[0]["result"], &answers[3]["result"]), (&json!([1]), &json!([4])));
    let mut heard = space.heard();
    heard.sort();
    assert_eq!(heard, ["echo [1]", "echo [2] !", "echo [4]"]);

    let silent = r#"{"jsonrpc":"2.0","method":"e"}"#;
    assert_eq!(service.rpc(&service.token, silent).await, (204, String::new()));
    assert_eq!(service.rpc(&service.token, &format!("[{silent},{silent}]")).await, (204, String::new()));
    assert_eq!(service.rpc(&service.token, r#"{"jsonrpc":"2.0","method":"none"}"#).await, (204, String::new()));
    service.stop().await;
}

#[tokio::test]
async fn a_batch_is_spread_over_the_providers_by_their_calls_in_flight() {
    let service = Service::start().await;
    let spaces = [Space::new("one"), Space::new("two")];
    for space in &spaces {
        space.register(&service, service.admin(), json!([method("e", json!({"local_name": "hold"}))])).unwrap();
    }
    let call = |id: u32| format!(r#"{{"jsonrpc":"2.0","method":"e","params":[{id}],"id":{id}}}"#);
    let batch = format!("[{}]", (1..=5).map(call).collect::<Vec<_>>().join(","));
    // A client of our own: the other keeps a connection whose request was given up.
    let mut caller = tokio::net::TcpStream::connect(service.address).await.unwrap();
    let head = format!(
        "POST /api/methods/call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{batch}",
        service.token,
        batch.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut caller, head.as_bytes()).await.unwrap();
    let provider = |space: &Space| service.services.registry.provider(space.id, "e").unwrap();
    while provider(&spaces[0]).in_flight() + provider(&spaces[1]).in_flight() < 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(provider(&spaces[0]).in_flight(), 3);
    // The caller hangs up: every call is withdrawn and its place free.
    drop(caller);
    while provider(&spaces[0]).in_flight() + provider(&spaces[1]).in_flight() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let went = spaces.map(|space| space.heard().into_iter().filter(|heard| heard != "cancel").collect::<Vec<_>>());
    assert_eq!(went, [vec!["hold [1]", "hold [3]", "hold [5]"], vec!["hold [2]", "hold [4]"]]);
    service.stop().await;
}

#[tokio::test]
async fn a_method_that_nobody_runs_is_unavailable_at_once_and_one_that_dies_during_the_call_too() {
    let service = Service::start().await;
    let space = Space::new("s");
    let methods = json!([method("e", json!({})), method("h", json!({"local_name": "hold"}))]);
    space.register(&service, service.admin(), methods).unwrap();
    let held = service.code(&service.token, "h");
    let dies = async {
        while service.services.registry.provider(space.id, "h").unwrap().in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        space.link.down();
    };
    assert_eq!(tokio::join!(held, dies).0, -32000);
    assert_eq!(service.code(&service.token, "e").await, -32000);
    assert_eq!(service.sees(&service.token).await, ["e", "h"], "it is listed all the same");
    service.stop().await;
}

#[tokio::test]
async fn a_token_for_methods_reaches_methods_and_nothing_else() {
    let service = Service::start().await;
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([method("e", json!({}))])).unwrap();
    let token = async |scopes: Value| {
        let made = service.post("/api/tokens", json!({"name": "t", "scopes": scopes})).await;
        made.text("token")
    };
    let (methods, mcp) = (token(json!(["methods"])).await, token(json!(["mcp"])).await);
    assert_eq!(service.code(&methods, "e").await, 0);
    assert_eq!(service.sees(&methods).await, ["e"]);
    let forbidden = |answer: Answer| assert_eq!(answer.code(), "forbidden");
    forbidden(service.call(&methods, "GET", "/api/whoami", None).await);
    forbidden(service.call(&methods, "GET", "/api/spaces", None).await);
    forbidden(service.call(&methods, "POST", "/mcp", Some(json!({}))).await);
    forbidden(service.call(&mcp, "GET", "/api/methods", None).await);
    forbidden(service.call(&mcp, "POST", "/api/methods/call", Some(json!({}))).await);
    service.stop().await;
}
