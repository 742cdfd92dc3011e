//! `svc mcp`: the tools of all pages, and settings that clients understand.

use super::{
    fake::{FakeApi, USER, error},
    run,
};
use serde_json::{Value, json};

fn tool(name: &str) -> Value {
    json!({
        "name": name, "description": "Finds notes", "inputSchema": {"type": "object", "required": ["q"]},
        "_meta": {"method": "notes.search", "owner": "ada", "keywords": ["find"]},
    })
}

/// A server whose list has two pages.
fn server() -> FakeApi {
    FakeApi::new(|line, before| match (line, before % 2) {
        ("POST /mcp", 0) => (200, page(json!({"tools": [tool("a")], "nextCursor": "next"}))),
        ("POST /mcp", _) => (200, page(json!({"tools": [tool("b")]}))),
        ("GET /api/whoami", _) => (
            200,
            json!({"id": USER, "name": "ada", "roles": [], "groups": [], "permissions": [], "via": "token", "scopes": []}),
        ),
        ("POST /api/tokens", _) => {
            let times = "2026-11-15T08:00:00.000000Z";
            (
                201,
                json!({"id": USER, "name": "cursor", "scopes": ["mcp"], "created_at": times, "last_used_at": null, "expires_at": null, "token": "svc_new"}),
            )
        }
        _ => (404, error("not_found", line)),
    })
}

fn page(result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

#[test]
fn tools_are_listed_over_all_pages_as_a_client_would() {
    let fake = server();
    let ran = fake.run(&["mcp", "tools"]);
    assert_eq!(
        ran.out, "NAME  OWNER  DESCRIPTION\na     ada    Finds notes\nb     ada    Finds notes\n",
        "{}",
        ran.err
    );
    let seen = fake.seen();
    assert_eq!((seen.len(), &seen[1].json()["params"]["cursor"]), (2, &json!("next")));
    for header in ["authorization: bearer svc_test", "mcp-protocol-version: 2026-07-28", "mcp-method: tools/list"] {
        assert!(seen[0].headers.iter().any(|line| line.to_lowercase() == header), "{header}: {:?}", seen[0].headers);
    }
    let ran = fake.run(&["mcp", "tools", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), json!({"tools": [tool("a"), tool("b")]}));
}

#[test]
fn one_tool_is_shown_with_its_schema() {
    let fake = server();
    let ran = fake.run(&["mcp", "tools", "b"]);
    assert!(ran.out.contains("notes.search") && ran.out.contains("input:\n{\n"), "{}", ran.out);
    let ran = fake.run(&["mcp", "tools", "b", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), tool("b"));
    let ran = fake.run(&["mcp", "tools", "c"]);
    assert_eq!((ran.code, ran.err.contains("`svc mcp tools`")), (1, true), "{}", ran.err);
}

#[test]
fn a_caller_who_may_not_use_mcp_is_refused() {
    let fake = FakeApi::always(403, error("insufficient_scope", "this token has the scope methods"));
    assert_eq!(fake.run(&["mcp", "tools"]).code, 4);
    let fake = FakeApi::always(200, json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no"}}));
    let ran = fake.run(&["mcp", "tools"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "svc: no\n"));
}

#[test]
fn the_settings_of_one_client_stand_alone_on_stdout() {
    let fake = server();
    let ran = fake.run(&["mcp", "config", "cursor"]);
    let url = format!("{}/mcp", fake.url);
    let headers = json!({"Authorization": "Bearer svc_test"});
    let settings = json!({"mcpServers": {"svc": {"url": url, "headers": headers}}});
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), settings);
    assert!(ran.err.contains("--new-token") && ran.err.contains("~/.cursor/mcp.json"), "{}", ran.err);
    let ran = fake.run(&["mcp", "config", "cursor", "--new-token", "cursor", "--name", "zone"]);
    assert!(ran.out.contains("\"zone\"") && ran.out.contains("Bearer svc_new"), "{}", ran.out);
    assert!(!ran.err.contains("--new-token"), "{}", ran.err);
    let made = fake.seen().into_iter().find(|seen| seen.line == "POST /api/tokens").unwrap();
    assert_eq!(made.json(), json!({"name": "cursor", "scopes": ["mcp"]}));
}

#[test]
fn settings_that_cannot_work_are_not_printed_and_no_token_is_made_for_them() {
    for config in [&["mcp", "config", "cursor"][..], &["mcp", "config", "cursor", "--new-token", "x"]] {
        let fake = FakeApi::always(403, error("forbidden", "this needs the permission use_mcp_server"));
        let ran = fake.run(config);
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{}", ran.err);
        assert!(fake.seen().iter().all(|seen| seen.line == "POST /mcp"));
    }
}

#[test]
fn without_a_client_there_are_settings_for_all_of_them() {
    let fake = server();
    let ran = fake.run(&["mcp", "config"]);
    assert!(ran.out.starts_with("# claude-code: ") && ran.out.contains("\n\n# codex: "), "{}", ran.out);
    let ran = fake.run(&["mcp", "config", "--json"]);
    let all: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&all["headers"]["Authorization"], all["clients"].as_array().unwrap().len()),
        (&json!("Bearer svc_test"), 8)
    );
    let ran = run(&["mcp", "config", "emacs"]);
    assert_eq!((ran.code, ran.err.contains("claude-code")), (2, true), "{}", ran.err);
    let ran = run(&["mcp", "config"]);
    assert_eq!((ran.code, ran.err.contains("svc login")), (2, true), "{}", ran.err);
}
