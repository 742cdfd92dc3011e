//! `/mcp` over real sockets, in the words of the protocol: who is offered what, what calls come to, who is told of
//! changes, and who is not let in. The official clients have their say in `tests/it/mcp.rs`.

use super::{
    Answer, Service,
    connections::LONG,
    methods::{Space, method},
};
use futures_util::{AsyncBufReadExt as _, AsyncReadExt as _, StreamExt as _, io::BufReader};
use isahc::http::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An older version, whose sessions and streams are ours, and the newest, which has neither.
pub(super) const OLDER: &str = "2025-11-25";
const NEWEST: &str = "2026-07-28";

impl Service {
    /// Sends a message as a client of this version does, with these headers besides.
    pub(super) async fn tell(&self, token: &str, version: &str, message: &Value, headers: &[(&str, &str)]) -> Answer {
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

    /// The result of a request in the older version, which must have one.
    pub(super) async fn ask(&self, token: &str, method: &str, params: Value) -> Value {
        let answer = self.tell(token, OLDER, &request(method, params), &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body["error"].is_null(), "{answer:?}");
        answer.body["result"].clone()
    }

    /// The names of the tools that are offered to whose token this is.
    pub(super) async fn tools(&self, token: &str) -> Vec<String> {
        let result = self.ask(token, "tools/list", json!({})).await;
        result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) async fn session(&self, token: &str) -> String {
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": OLDER, "capabilities": {}, "clientInfo": client});
        let answer = self.tell(token, OLDER, &request("initialize", params), &[]).await;
        assert_eq!(answer.body["result"]["protocolVersion"], OLDER, "{answer:?}");
        answer.headers["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// Opens the stream of the older versions and waits until it is there.
    pub(super) async fn follow(&self, token: &str, headers: &[(&str, &str)]) -> Followed {
        let request = self
            .request("GET", "/mcp")
            .header("Authorization", format!("Bearer {token}"))
            .header("Accept", "text/event-stream")
            .header("MCP-Protocol-Version", OLDER);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = self.client.send_async(request.body(()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Followed::new(response)
    }

    /// Subscribes as the newest version does, under the id `s`.
    async fn listen(&self, token: &str) -> Followed {
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
        Followed::new(response)
    }
}

/// A stream of events, read line by line.
pub(super) struct Followed(futures_util::stream::BoxStream<'static, String>);

impl Followed {
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

    /// Whether nothing is told for so long.
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

/// What every request of the newest version brings along.
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

#[tokio::test]
async fn two_users_see_different_tools_at_the_same_time_and_call_only_their_own() {
    let service = Service::start().await;
    assert_eq!(service.post("/api/groups", json!({"name": "dev"})).await.status, 201);
    let uma = service.member("uma", &["use_methods", "use_mcp_server"], &["dev"]).await;
    let olaf = service.member("olaf", &["use_methods", "use_mcp_server"], &[]).await;
    let space = Space::new("s");
    let methods = json!([
        tool("notes.search", json!({})),
        tool("notes.all", json!({"scope": "shared"})),
        tool("notes.dev", json!({"scope": "shared", "groups": ["dev"]})),
        method("notes.plain", json!({"scope": "shared"})),
    ]);
    space.register(&service, service.admin(), methods).unwrap();
    let own = Space::new("own");
    let id = service.services.identity.user_named("uma").unwrap().id;
    own.register(&service, id, json!([tool("deep.er.name", json!({}))])).unwrap();
    let (admins, umas, olafs) = tokio::join!(service.tools(&service.token), service.tools(&uma), service.tools(&olaf));
    assert_eq!(admins, ["notes_all", "notes_dev", "notes_search"]);
    assert_eq!(umas, ["deep_er_name", "user_admin_notes_all", "user_admin_notes_dev"]);
    assert_eq!(olafs, ["user_admin_notes_all"]);

    let says = async |token: &str, name: &str| {
        let answer = service.tell(token, OLDER, &call(name, json!({"n": 1})), &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    };
    for (token, name) in [
        (&service.token, "notes_search"),
        (&uma, "user_admin_notes_dev"),
        (&uma, "deep_er_name"),
        (&olaf, "user_admin_notes_all"),
    ] {
        let said = says(token, name).await;
        assert_eq!(said["result"]["content"], json!([{"type": "text", "text": "{\"n\":1}"}]), "{name}: {said}");
    }
    // Hidden and absent look alike, but for the name.
    let absent = says(&olaf, "user_admin_nothing").await.to_string();
    for hidden in ["user_admin_notes_dev", "user_admin_notes_search", "user_admin_notes_plain", "deep_er_name"] {
        assert_eq!(says(&olaf, hidden).await.to_string().replace(hidden, "user_admin_nothing"), absent);
    }
    assert_eq!(says(&service.token, "notes_plain").await["error"]["code"], -32602);
    service.stop().await;
}

#[tokio::test]
async fn a_name_that_two_owners_come_to_means_the_callers_own_or_the_elders() {
    let service = Service::start().await;
    let uma = service.member("uma", &["use_methods", "use_mcp_server"], &[]).await;
    let id = |name: &str| service.services.identity.user_named(name).unwrap().id;
    let shared = || json!({"scope": "shared"});
    let spaces = [Space::new("one"), Space::new("two"), Space::new("three")];
    for name in ["a", "a_b"] {
        service.member(name, &["use_methods", "use_mcp_server"], &[]).await;
    }
    spaces[0].register(&service, id("a_b"), json!([tool("c", shared())])).unwrap();
    spaces[1].register(&service, id("a"), json!([tool("b.c", shared())])).unwrap();
    assert_eq!(service.tools(&uma).await, ["user_a_b_c"]);
    service.ask(&uma, "tools/call", json!({"name": "user_a_b_c"})).await;
    assert_eq!([spaces[0].heard().len(), spaces[1].heard().len()], [0, 1], "`a` was there before `a_b`");
    spaces[2].register(&service, id("uma"), json!([tool("user_a_b_c", json!({}))])).unwrap();
    service.ask(&uma, "tools/call", json!({"name": "user_a_b_c"})).await;
    assert_eq!((service.tools(&uma).await.len(), spaces[2].heard().len()), (1, 1));
    service.stop().await;
}

#[tokio::test]
async fn a_tool_is_shown_with_all_that_its_method_declares() {
    let service = Service::start().await;
    let space = Space::new("notes");
    let params = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let full = json!({
        "keywords": ["find", "notes"], "params_schema": params,
        "result_schema": {"type": "object", "properties": {"hits": {"type": "array"}}},
    });
    let list = json!({"params_schema": {"type": "array"}, "result_schema": {"type": "array"}});
    let methods = json!([tool("{{space}}.search", full), tool("{{space}}.list", list)]);
    space.register(&service, service.admin(), methods).unwrap();
    let mut listed = json!({
        "name": "notes_list", "description": "Says it again", "inputSchema": {"type": "object"},
        "_meta": {"method": "notes.list", "owner": "admin", "keywords": []},
    });
    let search = json!({
        "name": "notes_search", "description": "Says it again", "inputSchema": params,
        "outputSchema": {"type": "object", "properties": {"hits": {"type": "array"}}},
        "_meta": {"method": "notes.search", "owner": "admin", "keywords": ["find", "notes"]},
    });
    let answer = service.ask(&service.token, "tools/list", json!({})).await;
    assert_eq!(answer, json!({"tools": [listed, search]}));
    // The newest version takes results of every type.
    listed["outputSchema"] = json!({"type": "array"});
    let answer = service.tell(&service.token, NEWEST, &request("tools/list", json!({})), &[]).await;
    assert_eq!(answer.body["result"]["tools"], json!([listed, search]), "{answer:?}");
    service.stop().await;
}

#[tokio::test]
async fn arguments_and_results_pass_as_they_came_and_errors_are_the_tools() {
    let service = Service::start().await;
    let space = Space::new("s");
    let methods = json!([
        tool("echo", json!({"result_schema": {"type": "object"}})),
        tool("plain", json!({})),
        tool("fail", json!({"local_name": "fail"})),
    ]);
    space.register(&service, service.admin(), methods).unwrap();
    let raw = async |body: &str| {
        let request = service
            .request("POST", "/mcp")
            .header("Authorization", format!("Bearer {}", service.token))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let mut response = service.client.send_async(request.body(body.to_owned()).unwrap()).await.unwrap();
        let mut text = String::new();
        response.body_mut().read_to_string(&mut text).await.unwrap();
        text
    };
    let arguments = r#"{ "z":1.0,"b":18446744073709551616,"a":[] }"#;
    let sent = |name: &str| {
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#)
    };
    let answer = raw(&sent("echo")).await;
    assert_eq!(space.heard(), [format!("echo {arguments}")]);
    assert!(answer.contains(&format!(r#""structuredContent":{arguments}"#)), "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["content"], json!([{"type": "text", "text": arguments}]));
    assert_eq!(answer["result"]["isError"], false);
    // What rmcp cannot hold is no matter either.
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for arguments in [r#"{ "n":1e400 }"#, &deep] {
        space.heard();
        let answer = raw(&sent("plain").replace(r#"{ "z":1.0,"b":18446744073709551616,"a":[] }"#, arguments)).await;
        assert_eq!(space.heard(), [format!("echo {arguments}")], "{answer}");
        assert!(answer.contains(r#""isError":false"#), "{answer}");
    }
    let answer: Value = serde_json::from_str(&raw(&sent("plain").replace(arguments, "[1e400]")).await).unwrap();
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // Without a schema of the result there is none to be structured by.
    let plain: Value = serde_json::from_str(&raw(&sent("plain")).await).unwrap();
    assert_eq!(plain["result"]["structuredContent"], Value::Null);
    assert_eq!(plain["result"]["content"][0]["text"], arguments);
    // Nothing is as much as an empty object.
    space.heard();
    raw(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain"}}"#).await;
    assert_eq!(space.heard(), ["echo {}"]);
    let failed = service.ask(&service.token, "tools/call", json!({"name": "fail"})).await;
    assert_eq!(failed["isError"], true);
    assert_eq!(failed["content"], json!([{"type": "text", "text": "no"}]));
    assert_eq!(failed["_meta"]["error"], json!({"code": 7, "message": "no", "data": [1.0]}));
    service.stop().await;
}

#[tokio::test]
async fn a_provider_that_is_slow_or_gone_fails_its_own_call_and_holds_up_no_other() {
    let service = Service::start_with(LONG, |_| {}).await;
    let (slow, quick) = (Space::new("slow"), Space::new("quick"));
    slow.register(&service, service.admin(), json!([tool("hold", json!({"local_name": "hold"}))])).unwrap();
    quick.register(&service, service.admin(), json!([tool("echo", json!({}))])).unwrap();
    let session = service.session(&service.token).await;
    let session = [("Mcp-Session-Id", session.as_str())];
    let held = call("hold", json!({}));
    let held = service.tell(&service.token, OLDER, &held, &session);
    let others = async {
        while slow.in_flight(&service, "hold") == 0 {
            tokio::task::yield_now().await;
        }
        let echo = service.tell(&service.token, OLDER, &call("echo", json!({})), &session).await;
        assert_eq!(echo.body["result"]["isError"], false);
        assert_eq!(service.tools(&service.token).await, ["echo", "hold"]);
        slow.link.down();
    };
    let held = tokio::join!(held, others).0;
    assert_eq!(held.body["result"]["isError"], true, "{held:?}");
    let text = held.body["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("`hold` is not available"), "{text}");
    // It is listed all the same, and so is everybody else.
    assert_eq!(service.tools(&service.token).await, ["echo", "hold"]);
    let again = service.ask(&service.token, "tools/call", json!({"name": "hold"})).await;
    assert_eq!(again["isError"], true);
    service.stop().await;
}

#[tokio::test]
async fn a_call_that_its_client_takes_back_frees_its_place_at_the_provider() {
    let service = Service::start_with(LONG, |_| {}).await;
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([tool("hold", json!({"local_name": "hold"}))])).unwrap();
    let other = service.member("uma", &["use_mcp_server"], &[]).await;
    let (session, others) = (service.session(&service.token).await, service.session(&other).await);
    let session = [("Mcp-Session-Id", session.as_str())];
    let held = call("hold", json!({}));
    let held = service.tell(&service.token, OLDER, &held, &session);
    let takes_back = async {
        while space.in_flight(&service, "hold") == 0 {
            tokio::task::yield_now().await;
        }
        let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        // Nobody else can do so.
        let foreign = service.tell(&other, OLDER, &back, &[("Mcp-Session-Id", &others)]).await;
        assert_eq!((foreign.status, space.in_flight(&service, "hold")), (202, 1));
        assert_eq!(service.tell(&service.token, OLDER, &back, &session).await.status, 202);
    };
    let (held, ()) = tokio::join!(held, takes_back);
    assert_eq!(held.body["error"]["message"], "the request was cancelled", "{held:?}");
    assert_eq!(space.in_flight(&service, "hold"), 0);
    assert_eq!(space.heard(), ["hold {}", "cancel"]);

    // In the newest version, and in every other, hanging up does it.
    for version in [NEWEST, OLDER] {
        let client = service.address;
        let mut message = call("hold", json!({}));
        message["params"]["_meta"] = meta();
        let body = message.to_string();
        let mut caller = tokio::net::TcpStream::connect(client).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {version}\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: hold\r\nContent-Length: {}\r\n\r\n{body}",
            service.token,
            body.len()
        );
        let head = if version == OLDER { head.replace(NEWEST, OLDER) } else { head };
        tokio::io::AsyncWriteExt::write_all(&mut caller, head.as_bytes()).await.unwrap();
        while space.in_flight(&service, "hold") == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(caller);
        while space.in_flight(&service, "hold") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    service.stop().await;
}

#[tokio::test]
async fn news_reach_those_whose_tools_changed_and_at_most_once_a_second() {
    let service = Service::start_with(LONG, |_| {}).await;
    let uma = service.member("uma", &["use_methods", "use_mcp_server"], &[]).await;
    let (mut admins, mut umas) = (service.follow(&service.token, &[]).await, service.follow(&uma, &[]).await);
    // The first event tells nothing but where the stream begins.
    assert_eq!((admins.next().await.unwrap().1, umas.next().await.unwrap().1), (Value::Null, Value::Null));
    let space = Space::new("s");
    let began = Instant::now();
    for n in 0..20 {
        let name = format!("n{n}");
        space.register(&service, service.admin(), json!([tool(&name, json!({}))])).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(admins.next().await.unwrap().1, changed());
    assert_eq!(admins.next().await.unwrap().1, changed());
    assert!(began.elapsed() >= Duration::from_secs(1), "two pieces of news within {:?}", began.elapsed());
    // Nothing was changed for others, and nothing is by a method that is no tool.
    space.register(&service, service.admin(), json!([tool("n19", json!({})), method("m", json!({}))])).unwrap();
    let (admin, uma) = tokio::join!(admins.is_silent(LATER), umas.is_silent(LATER));
    assert!(admin && uma);
    // What is shared changes for both.
    let shared = json!([tool("n19", json!({"scope": "shared"}))]);
    space.register(&service, service.admin(), shared.clone()).unwrap();
    assert_eq!(umas.next().await.unwrap().1, changed());
    // A registration that says the same again is no news.
    space.register(&service, service.admin(), shared).unwrap();
    assert!(umas.is_silent(LATER).await);
    service.stop().await;
    assert!(umas.next().await.is_none() && admins.next().await.is_none(), "streams end with the server");
}

/// Time in which news would have come.
const LATER: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn who_comes_back_to_a_stream_hears_what_was_missed() {
    let service = Service::start_with(LONG, |_| {}).await;
    let mut stream = service.follow(&service.token, &[]).await;
    let known = stream.next().await.unwrap().0;
    drop(stream);
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([tool("n", json!({}))])).unwrap();
    let mut stream = service.follow(&service.token, &[("Last-Event-ID", &known)]).await;
    assert_eq!(stream.next().await.unwrap().1, Value::Null);
    let (id, told) = stream.next().await.unwrap();
    assert_eq!(told, changed());
    drop(stream);
    let mut stream = service.follow(&service.token, &[("Last-Event-ID", &id)]).await;
    assert_eq!(stream.next().await.unwrap().1, Value::Null);
    assert!(stream.is_silent(LATER).await, "nothing was missed");
    service.stop().await;
}

#[tokio::test]
async fn the_newest_version_subscribes_to_news_by_a_request_of_its_own() {
    let service = Service::start_with(LONG, |_| {}).await;
    let mut stream = service.listen(&service.token).await;
    let begun = stream.next().await.unwrap().1;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
    assert_eq!(begun["params"]["notifications"], json!({"toolsListChanged": true}), "{begun}");
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([tool("n", json!({}))])).unwrap();
    let told = stream.next().await.unwrap().1;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s", "{told}");
    assert_eq!(service.services.mcp.streams(), 1);
    let services = service.services.clone();
    service.stop().await;
    let end = stream.next().await.unwrap().1;
    assert_eq!((&end["id"], end["result"].is_object()), (&json!("s"), true), "the end is told: {end}");
    assert!(stream.next().await.is_none());
    assert_eq!(services.mcp.streams(), 0);
}

#[tokio::test]
async fn a_stream_ends_when_its_caller_would_not_be_let_in_again() {
    let service = Service::start_with(LONG, |_| {}).await;
    let made = service.post("/api/tokens", json!({"name": "t", "scopes": ["mcp"]})).await;
    let mut stream = service.follow(&made.text("token"), &[]).await;
    assert!(stream.next().await.is_some());
    let path = format!("/api/tokens/{}", made.text("id"));
    assert_eq!(service.call(&service.token, "DELETE", &path, None).await.status, 204);
    assert!(stream.next().await.is_none());
    service.stop().await;
}

#[tokio::test]
async fn a_stream_tells_what_other_permissions_change_and_ends_without_its_own() {
    let service = Service::start_with(LONG, |_| {}).await;
    let uma = service.member("uma", &["use_mcp_server"], &[]).await;
    let roles = service.services.identity.roles();
    let path = format!("/api/roles/{}", roles.iter().find(|role| role.name.as_str() == "role-uma").unwrap().id);
    let permit = async |permissions: Value| {
        let change = json!({ "permissions": permissions });
        assert_eq!(service.call(&service.token, "PATCH", &path, Some(change)).await.status, 200);
    };
    let space = Space::new("s");
    space.register(&service, service.admin(), json!([tool("n", json!({"scope": "shared"}))])).unwrap();
    assert_eq!(service.tools(&uma).await, [""; 0]);
    let (mut older, mut newest) = (service.follow(&uma, &[]).await, service.listen(&uma).await);
    assert_eq!(older.next().await.unwrap().1, Value::Null);
    assert_eq!(newest.next().await.unwrap().1["method"], "notifications/subscriptions/acknowledged");
    permit(json!(["use_mcp_server", "use_methods"])).await;
    assert_eq!(service.tools(&uma).await, ["user_admin_n"]);
    assert_eq!(older.next().await.unwrap().1, changed());
    assert_eq!(newest.next().await.unwrap().1["method"], "notifications/tools/list_changed");
    permit(json!(["use_methods"])).await;
    assert!(older.next().await.is_none());
    assert_eq!(newest.next().await.unwrap().1["id"], "s", "the end is told");
    assert!(newest.next().await.is_none());
    service.stop().await;
}

#[tokio::test]
async fn a_user_has_so_many_streams_and_no_more() {
    let service = Service::start_with(LONG, |_| {}).await;
    let other = service.member("uma", &["use_mcp_server"], &[]).await;
    let mut streams = Vec::new();
    for _ in 0..15 {
        streams.push(service.follow(&service.token, &[]).await);
    }
    let mut last = tokio::net::TcpStream::connect(service.address).await.unwrap();
    let head = format!(
        "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer {}\r\n\r\n",
        service.token
    );
    tokio::io::AsyncWriteExt::write_all(&mut last, head.as_bytes()).await.unwrap();
    while service.services.mcp.streams() < 16 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"notifications": {}}});
    assert_eq!(service.tell(&service.token, NEWEST, &listen, &[]).await.code(), "too_many_requests");
    service.follow(&other, &[]).await;
    // Who leaves makes room.
    drop(last);
    while service.services.mcp.streams() > 16 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.follow(&service.token, &[]).await;
    service.stop().await;
}

#[tokio::test]
async fn a_name_that_is_too_long_for_clients_is_no_tools() {
    let service = Service::start().await;
    let uma = service.member("uma", &["use_methods", "use_mcp_server"], &[]).await;
    let (short, long) = ("x".repeat(117), "y".repeat(118));
    let space = Space::new("s");
    let shared = |name: &str| tool(name, json!({"scope": "shared"}));
    space.register(&service, service.admin(), json!([shared(&short), shared(&long)])).unwrap();
    assert_eq!(service.tools(&service.token).await, [short.clone(), long.clone()]);
    assert_eq!(service.tools(&uma).await, [format!("user_admin_{short}")]);
    let hidden = service.tell(&uma, OLDER, &call(&format!("user_admin_{long}"), json!({})), &[]).await;
    assert_eq!(hidden.body["error"]["code"], -32602, "{hidden:?}");
    service.stop().await;
}

#[tokio::test]
async fn a_long_list_comes_in_pages_in_which_nothing_that_stays_is_missed() {
    let service = Service::start().await;
    let space = Space::new("s");
    let register = |from: usize, to: usize| {
        let methods: Vec<_> = (from..to).map(|n| tool(&format!("n{n:04}"), json!({}))).collect();
        space.register(&service, service.admin(), json!(methods)).unwrap();
    };
    let page = async |cursor: Option<Value>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let result = service.ask(&service.token, "tools/list", params).await;
        let names = result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), result.get("nextCursor").cloned())
    };
    register(0, 200);
    let (names, next) = page(None).await;
    assert_eq!((names.len(), next), (200, None));
    register(0, 450);
    let (first, next) = page(None).await;
    // Meanwhile the list loses its beginning.
    register(100, 450);
    let (second, next) = page(next).await;
    let (third, next) = page(next).await;
    assert_eq!((first.len(), second.len(), third.len(), next), (200, 200, 50, None));
    let expected: Vec<_> = (0..450).map(|n| format!("n{n:04}")).collect();
    assert_eq!([first, second, third].concat(), expected);
    for cursor in [json!("!"), json!("\u{e4}"), json!("QUJD"), json!(""), json!(7), json!({})] {
        let answer = service.tell(&service.token, OLDER, &request("tools/list", json!({"cursor": cursor})), &[]).await;
        assert_eq!(answer.body["error"]["code"], -32602, "{answer:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn scope_and_permission_are_asked_of_every_method_of_the_endpoint() {
    let service = Service::start().await;
    let token = async |scopes: Value| {
        let made = service.post("/api/tokens", json!({"name": "t", "scopes": scopes})).await;
        made.text("token")
    };
    let (mcp, methods) = (token(json!(["mcp"])).await, token(json!(["methods"])).await);
    let unpermitted = service.member("uma", &["use_methods"], &[]).await;
    let list = request("tools/list", json!({}));
    assert_eq!(service.tell(&mcp, OLDER, &list, &[]).await.status, 200);
    for token in [&methods, &unpermitted] {
        assert_eq!(service.tell(token, OLDER, &list, &[]).await.code(), "forbidden");
        assert_eq!(service.call(token, "GET", "/mcp", None).await.code(), "forbidden");
    }
    assert_eq!(service.call(&methods, "DELETE", "/mcp", None).await.code(), "forbidden");
    for method in ["GET", "POST", "DELETE"] {
        assert_eq!(service.call("svc_wrong", method, "/mcp", None).await.code(), "unauthorized");
        let nobody = service.send(service.request(method, "/mcp").body(()).unwrap()).await;
        assert_eq!(nobody.code(), "unauthorized");
    }
    // There is nothing of a session to delete, and clients know how to take that.
    assert_eq!(service.call(&mcp, "DELETE", "/mcp", None).await.code(), "method_not_allowed");
    service.stop().await;
}

#[tokio::test]
async fn a_session_is_of_its_user_alone() {
    let service = Service::start().await;
    let other = service.member("uma", &["use_mcp_server"], &[]).await;
    let session = service.session(&service.token).await;
    let list = request("tools/list", json!({}));
    let with = [("Mcp-Session-Id", session.as_str())];
    assert_eq!(service.tell(&service.token, OLDER, &list, &with).await.status, 200);
    assert_eq!(service.tell(&other, OLDER, &list, &with).await.code(), "not_found");
    let follow = service.request("GET", "/mcp").header("Authorization", format!("Bearer {other}"));
    let follow = follow.header("Accept", "text/event-stream").header("Mcp-Session-Id", &session);
    assert_eq!(service.send(follow.body(()).unwrap()).await.code(), "not_found");
    let made_up = [("Mcp-Session-Id", "made-up")];
    assert_eq!(service.tell(&service.token, OLDER, &list, &made_up).await.code(), "not_found");
    service.stop().await;
}

#[tokio::test]
async fn a_page_or_a_name_of_somebody_else_is_not_let_in() {
    let service = Service::start_with(LONG, |config| {
        config.mcp.hosts = vec!["svc.example".to_owned()];
        config.mcp.origins = vec!["https://inspector.example".to_owned()];
    })
    .await;
    let list = request("tools/list", json!({}));
    let own = format!("http://{}", service.address);
    for (headers, status) in [
        (vec![], 200),
        (vec![("Origin", own.as_str())], 200),
        (vec![("Origin", "https://inspector.example")], 200),
        (vec![("Origin", "https://evil.example")], 403),
        (vec![("Origin", "null")], 403),
        (vec![("Host", "svc.example")], 200),
        (vec![("Host", "svc.example"), ("Origin", "https://svc.example")], 200),
        (vec![("Host", "evil.example")], 403),
        (vec![("Host", "evil.example"), ("Origin", "http://evil.example")], 403),
    ] {
        assert_eq!(service.tell(&service.token, OLDER, &list, &headers).await.status, status, "{headers:?}");
        let request = service.request("GET", "/mcp").header("Authorization", format!("Bearer {}", service.token));
        let request = request.header("Accept", "text/event-stream").header("MCP-Protocol-Version", OLDER);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        assert_eq!(service.send(request.body(()).unwrap()).await.status, status, "{headers:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_browser_lets_a_listed_page_call_and_no_other() {
    let page = "https://inspector.example";
    let service = Service::start_with(LONG, |config| config.mcp.origins = vec![page.to_owned()]).await;
    let asks = async |path: &str, origin: &str| {
        let request = service.request("OPTIONS", path).header("Origin", origin);
        let request = request.header("Access-Control-Request-Method", "POST");
        service.send(request.body(()).unwrap()).await
    };
    let consent = asks("/mcp", page).await;
    assert_eq!((consent.status, consent.header("access-control-allow-origin")), (204, page));
    assert!(consent.header("access-control-allow-headers").contains("Authorization"), "{consent:?}");
    for (path, origin) in [("/mcp", "https://evil.example"), ("/api/tokens", page)] {
        let refused = asks(path, origin).await;
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, ""), "{path} {origin}");
    }
    let list = request("tools/list", json!({}));
    let shown = service.tell(&service.token, OLDER, &list, &[("Origin", page)]).await;
    assert_eq!((shown.status, shown.header("access-control-allow-origin")), (200, page));
    // Also what is refused: the page should be able to tell its user why.
    let refused = service.tell("svc_none", OLDER, &list, &[("Origin", page)]).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, page));
    service.stop().await;
}

#[tokio::test]
async fn what_is_no_message_or_too_large_is_refused() {
    let service = Service::start_with(LONG, |config| config.limits.body = crate::platform::config::Size(10_000)).await;
    let post = async |body: String, kind: &str| {
        let request = service
            .request("POST", "/mcp")
            .header("Authorization", format!("Bearer {}", service.token))
            .header("Accept", "application/json, text/event-stream")
            .header("Content-Type", kind);
        service.send(request.body(body).unwrap()).await
    };
    let json = "application/json";
    let large = call("x", json!({"text": "x".repeat(10_000)})).to_string();
    assert_eq!(post(large, json).await.code(), "too_large");
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("7", -32600),
        (r#"{"method":7}"#, -32600),
        (r#"{"id":7}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600),
    ] {
        let answer = post(body.to_owned(), json).await;
        assert_eq!((answer.status, answer.body["error"]["code"].as_i64()), (400, Some(code)), "{answer:?}");
    }
    assert_eq!(post(request("ping", json!({})).to_string(), "text/plain").await.code(), "unsupported_media_type");
    let get = async |version: &str, accept: &str| {
        let request = service.request("GET", "/mcp").header("Authorization", format!("Bearer {}", service.token));
        let request = request.header("Accept", accept).header("MCP-Protocol-Version", version);
        service.send(request.body(()).unwrap()).await
    };
    for (body, code) in [
        (request("tools/call", json!({"name": 7})), -32602),
        (request("tools/call", json!({"name": "x", "arguments": [1]})), -32602),
        (request("tools/fly", json!({})), -32601),
    ] {
        let answer = post(body.to_string(), json).await;
        assert_eq!((answer.status, answer.body["error"]["code"].as_i64()), (200, Some(code)), "{answer:?}");
    }
    let ping = request("ping", json!({})).to_string();
    // A plain HTTP client takes whatever comes; one that names what it takes must name both.
    for (accept, status) in [(None, 200), (Some("*/*"), 200), (Some("application/json"), 406)] {
        let request = service.request("POST", "/mcp").header("Authorization", format!("Bearer {}", service.token));
        let request = accept.into_iter().fold(request, |request, accept| request.header("Accept", accept));
        let request = request.header("Content-Type", json).body(ping.clone()).unwrap();
        assert_eq!(service.send(request).await.status, status, "{accept:?}");
    }
    let future = service.tell(&service.token, "2099-01-01", &request("ping", json!({})), &[]).await;
    assert_eq!(future.code(), "bad_request");
    assert_eq!(get(OLDER, json).await.code(), "not_acceptable");
    assert_eq!(get(NEWEST, "text/event-stream").await.code(), "method_not_allowed");
    service.stop().await;
}

#[tokio::test]
async fn every_version_is_spoken_and_what_we_have_not_is_not_there() {
    let service = Service::start().await;
    let client = json!({"name": "test", "version": "1"});
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let answer = service.tell(&service.token, version, &request("initialize", params), &[]).await;
        assert_eq!(answer.body["result"]["protocolVersion"], version, "{answer:?}");
        assert_eq!(answer.body["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
        let answer = service.tell(&service.token, version, &request("tools/list", json!({})), &[]).await;
        assert_eq!(answer.body["result"], json!({"tools": []}), "{answer:?}");
    }
    let answer = service.tell(&service.token, NEWEST, &request("server/discover", json!({})), &[]).await;
    assert_eq!(answer.body["result"]["supportedVersions"].as_array().unwrap().len(), 5, "{answer:?}");
    let answer = service.tell(&service.token, NEWEST, &request("tools/list", json!({})), &[]).await;
    assert_eq!(answer.body["result"]["cacheScope"], "private", "{answer:?}");
    for absent in ["prompts/list", "resources/list", "resources/templates/list", "logging/setLevel"] {
        let params = json!({"level": "info"});
        let answer = service.tell(&service.token, OLDER, &request(absent, params), &[]).await;
        assert_eq!(answer.body["error"]["code"], -32601, "{absent}: {answer:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_header_that_stands_for_an_argument_must_agree_with_it() {
    let service = Service::start().await;
    let space = Space::new("s");
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    space.register(&service, service.admin(), json!([tool("n", json!({"params_schema": schema}))])).unwrap();
    let message = call("n", json!({"region": "north"}));
    let answer = service.tell(&service.token, NEWEST, &message, &[("Mcp-Param-Region", "north")]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = service.tell(&service.token, NEWEST, &message, &[("Mcp-Param-Region", "south")]).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    service.stop().await;
}
