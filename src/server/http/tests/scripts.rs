//! Stored scripts: visibility, changes, references from other records, and runs.

use super::{TestResponse, TestServer};
use serde_json::{Value, json};

impl TestServer {
    async fn store(&self, token: &str, script: Value) -> TestResponse {
        self.call(token, "POST", "/api/scripts", Some(script)).await
    }

    /// Stores a valid script and returns its id.
    async fn stored(&self, token: &str, script: Value) -> String {
        let made = self.store(token, script).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("id")
    }

    async fn run(&self, token: &str, id: &str, body: Value) -> TestResponse {
        self.call(token, "POST", &format!("/api/scripts/{id}/run"), Some(body)).await
    }
}

fn names(response: &TestResponse) -> Vec<&str> {
    response.body["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_script_is_created_read_changed_and_deleted_and_each_change_is_audited() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let made = server.store(&ada, json!({"name": "on-deploy", "content": "print(1)"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let expected = json!({"kind": "script", "language": "lua", "owner": "me", "active": true, "size": 8,
        "description": "", "content": "print(1)", "params_schema": null, "name": "on-deploy"});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&made.body[field], value, "{field}");
    }
    let path = format!("/api/scripts/{}", made.text("id"));
    assert_eq!(server.call(&ada, "GET", &path, None).await.body, made.body);
    let listed = server.call(&ada, "GET", "/api/scripts?name=on-deploy&kind=script&owner=me", None).await;
    assert_eq!((names(&listed), &listed.body["items"][0]["content"]), (vec!["on-deploy"], &json!(null)));
    assert!(names(&server.call(&ada, "GET", "/api/scripts?kind=tool", None).await).is_empty());

    let patched = server.call(&ada, "PATCH", &path, Some(json!({"description": "d", "active": false}))).await;
    assert_eq!(
        (patched.status, &patched.body["description"], &patched.body["content"]),
        (200, &json!("d"), &json!("print(1)"))
    );
    let put = json!({"name": "on-deploy", "content": "print(2)"});
    let replaced = server.call(&ada, "PUT", &path, Some(put)).await;
    let now = (&replaced.body["description"], &replaced.body["content"], &replaced.body["active"]);
    assert_eq!((replaced.status, now), (200, (&json!(""), &json!("print(2)"), &json!(false))), "{replaced:?}");
    assert_eq!(replaced.body["created_at"], made.body["created_at"]);
    let other = server.call(&ada, "PATCH", &path, Some(json!({"kind": "tool"}))).await;
    assert_eq!(other.status, 400, "{other:?}");
    assert_eq!(server.call(&ada, "DELETE", &path, None).await.status, 204);
    assert_eq!(server.call(&ada, "GET", &path, None).await.status, 404);

    let audit = server.get("/api/audit?limit=200").await;
    let entries = audit.body["items"].as_array().unwrap().iter();
    let ours = entries.filter(|entry| entry["object"] == format!("script:{}", made.text("id")));
    let actions: Vec<&str> = ours.map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["script.delete", "script.update", "script.update", "script.create"]);
    server.stop().await;
}

#[tokio::test]
async fn concurrent_changes_to_different_fields_are_all_made() {
    let server = TestServer::start().await;
    let id = server.stored(&server.token, json!({"name": "x", "content": "", "kind": "tool"})).await;
    let path = format!("/api/scripts/{id}");
    let fields = json!({"name": "y", "content": "return 1", "description": "d", "active": false, "params_schema": {"type": "object"}});
    let patches = fields.as_object().unwrap().iter().map(|(field, value)| {
        let change = Value::Object([(field.clone(), value.clone())].into_iter().collect());
        server.call(&server.token, "PATCH", &path, Some(change))
    });
    for patched in futures_util::future::join_all(patches).await {
        assert_eq!(patched.status, 200, "{patched:?}");
    }
    let now = server.get(&path).await.body;
    for (field, value) in fields.as_object().unwrap() {
        assert_eq!(&now[field], value, "{field}");
    }
    let nobodys = server.call(&server.token, "PATCH", &path, Some(json!({"owner": null}))).await;
    assert_eq!(nobodys.status, 400, "{nobodys:?}");
    server.stop().await;
}

#[tokio::test]
async fn any_number_of_concurrent_changes_to_a_script_succeed() {
    let server = TestServer::start().await;
    let id = server.stored(&server.token, json!({"name": "x", "content": ""})).await;
    let path = format!("/api/scripts/{id}");
    let patches = (0..60).map(|n| {
        let change = json!({"content": format!("return {n}")});
        server.call(&server.token, "PATCH", &path, Some(change))
    });
    let patched = futures_util::future::join_all(patches).await;
    let refused: Vec<_> = patched.iter().filter(|patched| patched.status != 200).collect();
    assert!(refused.is_empty(), "{} were refused, such as {:?}", refused.len(), refused[0]);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_field_cannot_be_unset_either() {
    let server = TestServer::start().await;
    let id = server.stored(&server.token, json!({"name": "x", "content": ""})).await;
    let path = format!("/api/scripts/{id}");
    let before = server.get(&path).await.body;
    let refused = server.call(&server.token, "PATCH", &path, Some(json!({"foo": null}))).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.to_string().contains("`foo`"), "{refused:?}");
    assert_eq!(server.get(&path).await.body, before);
    // Unsetting a known field that is not set is allowed.
    let nothing = server.call(&server.token, "PATCH", &path, Some(json!({"params_schema": null}))).await;
    assert_eq!(nothing.status, 200, "{nothing:?}");
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_script_is_refused_with_its_field_and_line() {
    let server = TestServer::start().await;
    for (script, said) in [
        (json!({"name": "x", "content": "local a = 1\nlocal b = = 2"}), "`content` does not compile: line 2"),
        (json!({"name": "x y", "content": ""}), "`name`"),
        (json!({"name": "x", "content": "", "params_schema": {}}), "`params_schema`"),
        (json!({"name": "json", "kind": "library", "content": ""}), "comes with svc"),
        (json!({"name": "x", "content": "", "kind": "macro"}), "`kind`"),
        (json!({"name": "x", "content": "", "colour": 1}), "`colour`"),
        (json!({"name": "x"}), "`content`"),
    ] {
        let refused = server.store(&server.token, script.clone()).await;
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(refused.status == 400 && message.contains(said), "{script}: {refused:?}");
    }
    let large = server.store(&server.token, json!({"name": "x", "content": " ".repeat(65537)})).await;
    assert_eq!(large.status, 400, "{large:?}");
    server.stored(&server.token, json!({"name": "a.b", "kind": "tool", "content": "return 1"})).await;
    for (name, kind) in [("a.b", "script"), ("a_b", "tool")] {
        let taken = server.store(&server.token, json!({"name": name, "kind": kind, "content": ""})).await;
        assert_eq!(taken.status, 409, "{taken:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn all_users_read_global_scripts_and_none_those_of_others() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let (_, bob) = server.user("bob", &[]).await;
    let role = json!({"name": "librarian", "permissions": ["manage_global_scripts"]});
    assert_eq!(server.post("/api/roles", role).await.status, 201);
    let (_, eve) = server.user("eve", &["librarian"]).await;
    let own = server.stored(&ada, json!({"name": "own", "content": ""})).await;
    let library = json!({"name": "text", "kind": "library", "owner": "global", "content": "return {}"});
    assert_eq!(server.store(&ada, library.clone()).await.status, 403);
    let global = server.stored(&eve, library).await;
    server.stored(&eve, json!({"name": "eves", "content": ""})).await;

    let at = |id: &str| format!("/api/scripts/{id}");
    for (token, seen) in [(&ada, vec!["own", "text"]), (&bob, vec!["text"]), (&eve, vec!["text", "eves"])] {
        assert_eq!(names(&server.call(token, "GET", "/api/scripts", None).await), seen);
        assert_eq!(server.call(token, "GET", &at(&global), None).await.status, 200);
    }
    for token in [&bob, &eve, &server.token] {
        assert_eq!(server.call(token, "GET", &at(&own), None).await.status, 404);
    }
    assert_eq!(server.call(&eve, "DELETE", &at(&own), None).await.status, 404);
    for method in ["PATCH", "DELETE"] {
        let body = (method == "PATCH").then(|| json!({"description": "mine"}));
        assert_eq!(server.call(&ada, method, &at(&global), body.clone()).await.status, 403, "{method}");
        assert_eq!(server.call(&bob, method, &at(&global), body).await.status, 403, "{method}");
    }
    assert_eq!(server.store(&bob, json!({"name": "x", "content": ""})).await.status, 403);
    let shared = server.call(&ada, "PATCH", &at(&own), Some(json!({"owner": "global"}))).await;
    assert_eq!(shared.status, 403, "{shared:?}");
    server.stop().await;
}

#[tokio::test]
async fn the_scripts_of_a_user_are_limited_in_number_and_deleted_with_the_user() {
    let server = TestServer::start_with(std::time::Duration::from_secs(5), |config| config.limits.scripts = 1).await;
    let (id, ada) = server.user("ada", &["member"]).await;
    server.stored(&ada, json!({"name": "a", "content": ""})).await;
    let second = server.store(&ada, json!({"name": "b", "content": ""})).await;
    assert!(second.status == 409 && second.text_of_error().contains("limits.scripts"), "{second:?}");
    assert_eq!(server.call(&server.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    assert!(server.services.scripts.all().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_sink_runs_the_current_version_of_the_script_it_names() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let library = json!({"name": "acme.text", "kind": "library", "content": "return { loud = string.upper }"});
    server.stored(&ada, library).await;
    let content = "print(require('acme.text').loud(event.data.word))";
    let script = server.stored(&ada, json!({"name": "shout", "content": content})).await;
    let tool = server.stored(&ada, json!({"name": "tool", "kind": "tool", "content": ""})).await;
    let sink = |script: Value, owner: &str| json!({"name": "s", "events": "*", "type": "script", "owner": owner, "script": script});
    for (wrong, said) in [
        (json!({"script_id": uuid::Uuid::now_v7()}), "`script.script_id`"),
        (json!({"script_id": tool}), "is a tool"),
        (json!({"script_id": script, "source": ""}), "`script`: give either"),
        (json!({}), "`script`: give either"),
    ] {
        let refused = server.call(&ada, "POST", "/api/event-sinks", Some(sink(wrong, "me"))).await;
        assert!(refused.status == 400 && refused.text_of_error().contains(said), "{refused:?}");
    }
    // Neither the administrator's sink nor a global one can name Ada's script.
    for owner in ["me", "global"] {
        let refused = server.post("/api/event-sinks", sink(json!({"script_id": script}), owner)).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    let made = server.call(&ada, "POST", "/api/event-sinks", Some(sink(json!({"script_id": script}), "me"))).await;
    assert_eq!((made.status, &made.body["script"]), (201, &json!({"script_id": script})), "{made:?}");
    let test = format!("/api/event-sinks/{}/test", made.text("id"));
    let try_it = || server.call(&ada, "POST", &test, Some(json!({"payload": {"word": "hi"}})));
    assert_eq!(try_it().await.body["log"], json!(["HI"]));

    let at = format!("/api/scripts/{script}");
    let patch = |fields: Value| server.call(&ada, "PATCH", &at, Some(fields));
    assert_eq!(patch(json!({"content": "print('other')"})).await.status, 200);
    assert_eq!(try_it().await.body["log"], json!(["other"]));
    assert_eq!(patch(json!({"active": false})).await.status, 200);
    let inactive = try_it().await;
    assert_eq!(inactive.body["outcome"], "failed");
    assert!(inactive.body["error"].as_str().unwrap().contains("`shout` is not active"), "{inactive:?}");

    let refused = server.call(&ada, "DELETE", &at, None).await;
    assert!(refused.status == 409 && refused.text_of_error().contains("the sink `s`"), "{refused:?}");
    let sink = format!("/api/event-sinks/{}", made.text("id"));
    assert_eq!(server.call(&ada, "DELETE", &sink, None).await.status, 204);
    assert_eq!(server.call(&ada, "DELETE", &at, None).await.status, 204);
    server.stop().await;
}

#[tokio::test]
async fn spaces_and_templates_name_only_scripts_that_they_can_use() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let own = server.stored(&ada, json!({"name": "own", "content": ""})).await;
    let global = json!({"name": "set-up", "owner": "global", "content": ""});
    let global = server.stored(&server.token, global).await;
    let library = server.stored(&ada, json!({"name": "lib", "kind": "library", "content": ""})).await;
    let none = uuid::Uuid::now_v7().to_string();
    let space = |name: &str, script: &str| json!({"name": name, "startup_script_id": script});
    for (token, script) in [(&ada, &none), (&ada, &library), (&server.token, &own)] {
        let refused = server.call(token, "POST", "/api/spaces", Some(space("x", script))).await;
        assert!(refused.status == 400 && refused.text_of_error().contains("`startup_script_id`"), "{refused:?}");
    }
    let made = server.call(&ada, "POST", "/api/spaces", Some(space("one", &own))).await;
    assert_eq!((made.status, &made.body["startup_script_id"]), (201, &json!(own)), "{made:?}");
    let path = format!("/api/spaces/{}", made.text("id"));
    let patched = server.call(&ada, "PATCH", &path, Some(json!({"startup_script_id": none}))).await;
    assert_eq!(patched.status, 400, "{patched:?}");
    // All users can make spaces from a template.
    assert_eq!(server.post("/api/templates", space("t", &own)).await.status, 400);
    let template = server.post("/api/templates", space("t", &global)).await;
    assert_eq!(template.status, 201, "{template:?}");
    let put = json!({"name": "t", "startup_script_id": library});
    let refused =
        server.call(&server.token, "PUT", &format!("/api/templates/{}", template.text("id")), Some(put)).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let of_template = json!({"name": "two", "template": "t"});
    assert_eq!(server.call(&ada, "POST", "/api/spaces", Some(of_template)).await.status, 201);

    let refused = server.call(&ada, "DELETE", &format!("/api/scripts/{own}"), None).await;
    assert!(refused.status == 409 && refused.text_of_error().contains("the space `one`"), "{refused:?}");
    let at = format!("/api/scripts/{global}");
    for (method, body) in [("DELETE", None), ("PATCH", Some(json!({"owner": "me"})))] {
        let refused = server.call(&server.token, method, &at, body).await;
        let said = refused.text_of_error();
        assert!(refused.status == 409 && said.contains("the template `t`"), "{refused:?}");
        assert!(said.contains("the space `two`"), "managers of spaces see them: {said}");
    }
    // A caller who does not see them learns only their number.
    let role = json!({"name": "librarian", "permissions": ["manage_global_scripts"]});
    assert_eq!(server.post("/api/roles", role).await.status, 201);
    let (_, eve) = server.user("eve", &["librarian"]).await;
    let refused = server.call(&eve, "DELETE", &at, None).await;
    let said = refused.text_of_error();
    assert!(refused.status == 409 && said.contains("2 things of others") && !said.contains("two"), "{said}");
    server.stop().await;
}

#[tokio::test]
async fn only_a_user_who_manages_a_script_learns_how_many_records_of_others_name_it() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let (_, bob) = server.user("bob", &["member"]).await;
    let script = json!({"name": "shout", "owner": "global", "content": "print(1)"});
    let id = server.stored(&server.token, script).await;
    let sink = json!({"name": "s", "events": "*", "type": "script", "script": {"script_id": id}});
    assert_eq!(server.call(&ada, "POST", "/api/event-sinks", Some(sink)).await.status, 201);
    let path = format!("/api/scripts/{id}/references");
    let of_ada = server.call(&ada, "GET", &path, None).await.body;
    assert_eq!((&of_ada["records"][0]["name"], &of_ada["hidden"]), (&json!("s"), &json!(0)));
    let of_bob = server.call(&bob, "GET", &path, None).await.body;
    assert_eq!(of_bob, json!({"records": [], "hidden": 0}));
    assert_eq!(server.get(&path).await.body, json!({"records": [], "hidden": 1}));
    server.stop().await;
}

#[tokio::test]
async fn a_tool_runs_with_valid_arguments_as_its_caller() {
    let server = TestServer::start().await;
    let (_, ada) = server.user("ada", &["member"]).await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let tool = json!({"name": "add", "kind": "tool", "owner": "global", "params_schema": schema,
        "content": "print('adding', params.a)\nif params.a < 0 then error{code = 7, message = 'too small', data = {a = params.a}} end\n\
                    if params.a == 0 then error('zero') end\nreturn {sum = params.a + 1}"});
    let id = server.stored(&server.token, tool).await;
    let ran = server.run(&ada, &id, json!({"params": {"a": 1}})).await;
    assert_eq!(
        (ran.status, &ran.body["outcome"], &ran.body["result"]),
        (200, &json!("done"), &json!({"sum": 2})),
        "{ran:?}"
    );
    assert_eq!(ran.body["log"], json!(["adding\t1"]));
    assert!(ran.body["cpu_ms"].is_number() && ran.body.get("error").is_none(), "{ran:?}");
    let failed = server.run(&ada, &id, json!({"params": {"a": -1}})).await;
    let expected = json!({"code": 7, "message": "too small", "data": {"a": -1}});
    assert_eq!((failed.status, &failed.body["outcome"], &failed.body["error"]), (200, &json!("failed"), &expected));
    let failed = server.run(&ada, &id, json!({"params": {"a": 0}})).await;
    assert!(failed.body["error"]["message"].as_str().unwrap().contains(":3: zero"), "{failed:?}");
    for body in
        [json!({}), json!({"params": {"a": "one"}}), json!({"params": []}), json!({"params": {"a": 1}, "type": "x"})]
    {
        let refused = server.run(&ada, &id, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
    }

    let emits = json!({"name": "emits", "kind": "tool", "owner": "global",
        "content": "return svc.event.emit('tool.ran', {n = 1})"});
    let emits = server.stored(&server.token, emits).await;
    let ran = server.run(&ada, &emits, json!({})).await;
    assert_eq!(ran.body["result"]["event_type"], "custom.tool.ran", "{ran:?}");
    let emitted = server.get(&format!("/api/events/{}", ran.body["result"]["event_id"].as_str().unwrap())).await;
    assert_eq!((&emitted.body["actor"]["username"], &emitted.body["data"]), (&json!("ada"), &json!({"n": 1})));
    let role = json!({"name": "client", "permissions": ["use_mcp_server"]});
    assert_eq!(server.post("/api/roles", role).await.status, 201);
    let (_, bob) = server.user("bob", &["client"]).await;
    let ran = server.run(&bob, &emits, json!({})).await;
    assert!(ran.body["error"]["message"].as_str().unwrap().contains("use_spaces"), "{ran:?}");
    let (_, eve) = server.user("eve", &[]).await;
    assert_eq!(server.run(&eve, &id, json!({"params": {"a": 1}})).await.status, 403);

    let off = server.call(&server.token, "PATCH", &format!("/api/scripts/{id}"), Some(json!({"active": false}))).await;
    assert_eq!(off.status, 200, "{off:?}");
    assert_eq!(server.run(&ada, &id, json!({"params": {"a": 1}})).await.status, 409);
    assert_eq!(server.run(&server.token, &id, json!({"params": {"a": 1}})).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_script_runs_on_a_sample_event_and_a_library_does_not_run() {
    let server = TestServer::start().await;
    let content = "print(event.type, event.data.n)\nif event.data.n == 2 then return svc.skip('not mine') end\n\
                   if event.data.n == 3 then error('no') end";
    let id = server.stored(&server.token, json!({"name": "s", "content": content})).await;
    for (n, outcome, log) in [
        (1, "delivered", json!(["custom.a.b\t1"])),
        (2, "skipped", json!(["custom.a.b\t2", "skipped: not mine"])),
        (3, "failed", json!(["custom.a.b\t3"])),
    ] {
        let ran = server.run(&server.token, &id, json!({"type": "a.b", "payload": {"n": n}})).await;
        assert_eq!((ran.status, &ran.body["outcome"], &ran.body["log"]), (200, &json!(outcome), &log), "{ran:?}");
        assert_eq!(ran.body.get("error").is_some(), outcome == "failed", "{ran:?}");
    }
    assert_eq!(server.run(&server.token, &id, json!({"params": {}})).await.status, 400);
    let library = server.stored(&server.token, json!({"name": "l", "kind": "library", "content": ""})).await;
    assert_eq!(server.run(&server.token, &library, json!({})).await.status, 400);
    let role = json!({"name": "client", "permissions": ["use_mcp_server"]});
    assert_eq!(server.post("/api/roles", role).await.status, 201);
    let (_, bob) = server.user("bob", &["client"]).await;
    assert_eq!(server.run(&bob, &id, json!({})).await.status, 404);
    let global = server.stored(&server.token, json!({"name": "g", "owner": "global", "content": ""})).await;
    assert_eq!(server.run(&bob, &global, json!({})).await.status, 403);
    server.stop().await;
}
