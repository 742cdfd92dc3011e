//! The tools that a caller is offered: visibility, names, schemas and pages.

use super::{NEWEST, OLDER, call, request, tool};
use crate::server::http::tests::{
    TestServer,
    methods::{TestSpace, method},
};
use serde_json::{Value, json};

#[tokio::test]
async fn two_users_see_different_tools_at_the_same_time_and_call_only_their_own() {
    let server = TestServer::start().await;
    assert_eq!(server.post("/api/groups", json!({"name": "dev"})).await.status, 201);
    let uma = server.member("uma", &["use_methods", "use_mcp_server"], &["dev"]).await;
    let olaf = server.member("olaf", &["use_methods", "use_mcp_server"], &[]).await;
    let space = TestSpace::new("s");
    let methods = json!([
        tool("notes.search", json!({})),
        tool("notes.all", json!({"scope": "shared"})),
        tool("notes.dev", json!({"scope": "shared", "groups": ["dev"]})),
        method("notes.plain", json!({"scope": "shared"})),
    ]);
    space.register(&server, server.admin(), methods).unwrap();
    let own = TestSpace::new("own");
    let id = server.services.identity.user_named("uma").unwrap().id;
    own.register(&server, id, json!([tool("deep.er.name", json!({}))])).unwrap();
    let (admins, umas, olafs) = tokio::join!(server.tools(&server.token), server.tools(&uma), server.tools(&olaf));
    assert_eq!(admins, ["notes_all", "notes_dev", "notes_search"]);
    assert_eq!(umas, ["deep_er_name", "user_admin_notes_all", "user_admin_notes_dev"]);
    assert_eq!(olafs, ["user_admin_notes_all"]);

    let says = async |token: &str, name: &str| {
        let response = server.send_message(token, OLDER, &call(name, json!({"n": 1})), &[]).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.body
    };
    for (token, name) in [
        (&server.token, "notes_search"),
        (&uma, "user_admin_notes_dev"),
        (&uma, "deep_er_name"),
        (&olaf, "user_admin_notes_all"),
    ] {
        let said = says(token, name).await;
        assert_eq!(said["result"]["content"], json!([{"type": "text", "text": "{\"n\":1}"}]), "{name}: {said}");
    }
    // A hidden tool and an absent one look alike, but for the name.
    let absent = says(&olaf, "user_admin_nothing").await.to_string();
    for hidden in ["user_admin_notes_dev", "user_admin_notes_search", "user_admin_notes_plain", "deep_er_name"] {
        assert_eq!(says(&olaf, hidden).await.to_string().replace(hidden, "user_admin_nothing"), absent);
    }
    assert_eq!(says(&server.token, "notes_plain").await["error"]["code"], -32602);
    server.stop().await;
}

#[tokio::test]
async fn a_tool_name_of_two_owners_means_the_callers_own_or_the_older_account_s() {
    let server = TestServer::start().await;
    let uma = server.member("uma", &["use_methods", "use_mcp_server"], &[]).await;
    let id = |name: &str| server.services.identity.user_named(name).unwrap().id;
    let shared = || json!({"scope": "shared"});
    let spaces = [TestSpace::new("one"), TestSpace::new("two"), TestSpace::new("three")];
    for name in ["a", "a_b"] {
        server.member(name, &["use_methods", "use_mcp_server"], &[]).await;
    }
    spaces[0].register(&server, id("a_b"), json!([tool("c", shared())])).unwrap();
    spaces[1].register(&server, id("a"), json!([tool("b.c", shared())])).unwrap();
    assert_eq!(server.tools(&uma).await, ["user_a_b_c"]);
    server.mcp_result(&uma, "tools/call", json!({"name": "user_a_b_c"})).await;
    assert_eq!([spaces[0].received().len(), spaces[1].received().len()], [0, 1], "`a` was there before `a_b`");
    spaces[2].register(&server, id("uma"), json!([tool("user_a_b_c", json!({}))])).unwrap();
    server.mcp_result(&uma, "tools/call", json!({"name": "user_a_b_c"})).await;
    assert_eq!((server.tools(&uma).await.len(), spaces[2].received().len()), (1, 1));
    server.stop().await;
}

#[tokio::test]
async fn a_tool_is_listed_with_everything_its_method_declares() {
    let server = TestServer::start().await;
    let space = TestSpace::new("notes");
    let params = json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let full = json!({
        "keywords": ["find", "notes"], "params_schema": params,
        "result_schema": {"type": "object", "properties": {"hits": {"type": "array"}}},
    });
    let list = json!({"params_schema": {"type": "array"}, "result_schema": {"type": "array"}});
    let methods = json!([tool("{{space}}.search", full), tool("{{space}}.list", list)]);
    space.register(&server, server.admin(), methods).unwrap();
    let mut listed = json!({
        "name": "notes_list", "description": "Says it again", "inputSchema": {"type": "object"},
        "_meta": {"method": "notes.list", "owner": "admin", "keywords": []},
    });
    let search = json!({
        "name": "notes_search", "description": "Says it again", "inputSchema": params,
        "outputSchema": {"type": "object", "properties": {"hits": {"type": "array"}}},
        "_meta": {"method": "notes.search", "owner": "admin", "keywords": ["find", "notes"]},
    });
    let response = server.mcp_result(&server.token, "tools/list", json!({})).await;
    assert_eq!(response, json!({"tools": [listed, search]}));
    // The newest version takes results of every type.
    listed["outputSchema"] = json!({"type": "array"});
    let response = server.send_message(&server.token, NEWEST, &request("tools/list", json!({})), &[]).await;
    assert_eq!(response.body["result"]["tools"], json!([listed, search]), "{response:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_tool_whose_name_is_too_long_for_clients_is_not_offered() {
    let server = TestServer::start().await;
    let uma = server.member("uma", &["use_methods", "use_mcp_server"], &[]).await;
    let (short, long) = ("x".repeat(117), "y".repeat(118));
    let space = TestSpace::new("s");
    let shared = |name: &str| tool(name, json!({"scope": "shared"}));
    space.register(&server, server.admin(), json!([shared(&short), shared(&long)])).unwrap();
    assert_eq!(server.tools(&server.token).await, [short.clone(), long.clone()]);
    assert_eq!(server.tools(&uma).await, [format!("user_admin_{short}")]);
    let hidden = server.send_message(&uma, OLDER, &call(&format!("user_admin_{long}"), json!({})), &[]).await;
    assert_eq!(hidden.body["error"]["code"], -32602, "{hidden:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_long_list_comes_in_pages_that_miss_no_tool_that_stays() {
    let server = TestServer::start().await;
    let space = TestSpace::new("s");
    let register = |from: usize, to: usize| {
        let methods: Vec<_> = (from..to).map(|n| tool(&format!("n{n:04}"), json!({}))).collect();
        space.register(&server, server.admin(), json!(methods)).unwrap();
    };
    let page = async |cursor: Option<Value>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let result = server.mcp_result(&server.token, "tools/list", params).await;
        let names = result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), result.get("nextCursor").cloned())
    };
    register(0, 200);
    let (names, next) = page(None).await;
    assert_eq!((names.len(), next), (200, None));
    register(0, 450);
    let (first, next) = page(None).await;
    // Meanwhile the first tools are removed.
    register(100, 450);
    let (second, next) = page(next).await;
    let (third, next) = page(next).await;
    assert_eq!((first.len(), second.len(), third.len(), next), (200, 200, 50, None));
    let expected: Vec<_> = (0..450).map(|n| format!("n{n:04}")).collect();
    assert_eq!([first, second, third].concat(), expected);
    for cursor in [json!("!"), json!("\u{e4}"), json!("QUJD"), json!(""), json!(7), json!({})] {
        let response =
            server.send_message(&server.token, OLDER, &request("tools/list", json!({"cursor": cursor})), &[]).await;
        assert_eq!(response.body["error"]["code"], -32602, "{response:?}");
    }
    server.stop().await;
}
