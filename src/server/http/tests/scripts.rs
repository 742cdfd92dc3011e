//! Stored scripts at the edge: who sees and changes them, what names them, and running them.

use super::{Answer, Service};
use serde_json::{Value, json};

impl Service {
    async fn store(&self, token: &str, script: Value) -> Answer {
        self.call(token, "POST", "/api/scripts", Some(script)).await
    }

    /// Stores what must be right, and gives its id.
    async fn stored(&self, token: &str, script: Value) -> String {
        let made = self.store(token, script).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("id")
    }

    async fn run(&self, token: &str, id: &str, body: Value) -> Answer {
        self.call(token, "POST", &format!("/api/scripts/{id}/run"), Some(body)).await
    }
}

fn names(answer: &Answer) -> Vec<&str> {
    answer.body["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_script_is_made_read_changed_and_deleted_and_each_is_audited() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let made = service.store(&ada, json!({"name": "on-deploy", "content": "print(1)"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let expected = json!({"kind": "script", "language": "lua", "owner": "me", "active": true, "size": 8,
        "description": "", "content": "print(1)", "params_schema": null, "name": "on-deploy"});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&made.body[field], value, "{field}");
    }
    let path = format!("/api/scripts/{}", made.text("id"));
    assert_eq!(service.call(&ada, "GET", &path, None).await.body, made.body);
    let listed = service.call(&ada, "GET", "/api/scripts?name=on-deploy&kind=script&owner=me", None).await;
    assert_eq!((names(&listed), &listed.body["items"][0]["content"]), (vec!["on-deploy"], &json!(null)));
    assert!(names(&service.call(&ada, "GET", "/api/scripts?kind=tool", None).await).is_empty());

    let patched = service.call(&ada, "PATCH", &path, Some(json!({"description": "d", "active": false}))).await;
    assert_eq!(
        (patched.status, &patched.body["description"], &patched.body["content"]),
        (200, &json!("d"), &json!("print(1)"))
    );
    let put = json!({"name": "on-deploy", "content": "print(2)"});
    let replaced = service.call(&ada, "PUT", &path, Some(put)).await;
    let now = (&replaced.body["description"], &replaced.body["content"], &replaced.body["active"]);
    assert_eq!((replaced.status, now), (200, (&json!(""), &json!("print(2)"), &json!(false))), "{replaced:?}");
    assert_eq!(replaced.body["created_at"], made.body["created_at"]);
    let other = service.call(&ada, "PATCH", &path, Some(json!({"kind": "tool"}))).await;
    assert_eq!(other.status, 400, "{other:?}");
    assert_eq!(service.call(&ada, "DELETE", &path, None).await.status, 204);
    assert_eq!(service.call(&ada, "GET", &path, None).await.status, 404);

    let audit = service.get("/api/audit?limit=200").await;
    let entries = audit.body["items"].as_array().unwrap().iter();
    let ours = entries.filter(|entry| entry["object"] == format!("script:{}", made.text("id")));
    let actions: Vec<&str> = ours.map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["script.delete", "script.update", "script.update", "script.create"]);
    service.stop().await;
}

#[tokio::test]
async fn changes_at_once_to_different_fields_are_all_made() {
    let service = Service::start().await;
    let id = service.stored(&service.token, json!({"name": "x", "content": "", "kind": "tool"})).await;
    let path = format!("/api/scripts/{id}");
    let fields = json!({"name": "y", "content": "return 1", "description": "d", "active": false, "params_schema": {"type": "object"}});
    let patches = fields.as_object().unwrap().iter().map(|(field, value)| {
        let change = Value::Object([(field.clone(), value.clone())].into_iter().collect());
        service.call(&service.token, "PATCH", &path, Some(change))
    });
    for patched in futures_util::future::join_all(patches).await {
        assert_eq!(patched.status, 200, "{patched:?}");
    }
    let now = service.get(&path).await.body;
    for (field, value) in fields.as_object().unwrap() {
        assert_eq!(&now[field], value, "{field}");
    }
    let nobodys = service.call(&service.token, "PATCH", &path, Some(json!({"owner": null}))).await;
    assert_eq!(nobodys.status, 400, "{nobodys:?}");
    service.stop().await;
}

#[tokio::test]
async fn however_many_change_a_script_at_once_all_succeed() {
    let service = Service::start().await;
    let id = service.stored(&service.token, json!({"name": "x", "content": ""})).await;
    let path = format!("/api/scripts/{id}");
    let patches = (0..60).map(|n| {
        let change = json!({"content": format!("return {n}")});
        service.call(&service.token, "PATCH", &path, Some(change))
    });
    let patched = futures_util::future::join_all(patches).await;
    let refused: Vec<_> = patched.iter().filter(|patched| patched.status != 200).collect();
    assert!(refused.is_empty(), "{} were refused, such as {:?}", refused.len(), refused[0]);
    service.stop().await;
}

#[tokio::test]
async fn a_field_that_a_record_does_not_have_cannot_be_taken_away_either() {
    let service = Service::start().await;
    let id = service.stored(&service.token, json!({"name": "x", "content": ""})).await;
    let path = format!("/api/scripts/{id}");
    let before = service.get(&path).await.body;
    let refused = service.call(&service.token, "PATCH", &path, Some(json!({"foo": null}))).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.to_string().contains("`foo`"), "{refused:?}");
    assert_eq!(service.get(&path).await.body, before);
    // Taking away what is there but not set is no mistake.
    let nothing = service.call(&service.token, "PATCH", &path, Some(json!({"params_schema": null}))).await;
    assert_eq!(nothing.status, 200, "{nothing:?}");
    service.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_script_is_told_by_its_field_and_line() {
    let service = Service::start().await;
    for (script, said) in [
        (json!({"name": "x", "content": "local a = 1\nlocal b = = 2"}), "`content` does not compile: line 2"),
        (json!({"name": "x y", "content": ""}), "`name`"),
        (json!({"name": "x", "content": "", "params_schema": {}}), "`params_schema`"),
        (json!({"name": "json", "kind": "library", "content": ""}), "comes with svc"),
        (json!({"name": "x", "content": "", "kind": "macro"}), "`kind`"),
        (json!({"name": "x", "content": "", "colour": 1}), "`colour`"),
        (json!({"name": "x"}), "`content`"),
    ] {
        let refused = service.store(&service.token, script.clone()).await;
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(refused.status == 400 && message.contains(said), "{script}: {refused:?}");
    }
    let large = service.store(&service.token, json!({"name": "x", "content": " ".repeat(65537)})).await;
    assert_eq!(large.status, 400, "{large:?}");
    service.stored(&service.token, json!({"name": "a.b", "kind": "tool", "content": "return 1"})).await;
    for (name, kind) in [("a.b", "script"), ("a_b", "tool")] {
        let taken = service.store(&service.token, json!({"name": name, "kind": kind, "content": ""})).await;
        assert_eq!(taken.status, 409, "{taken:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn everybody_reads_global_scripts_and_nobody_those_of_others() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let (_, bob) = service.user("bob", &[]).await;
    let role = json!({"name": "librarian", "permissions": ["manage_global_scripts"]});
    assert_eq!(service.post("/api/roles", role).await.status, 201);
    let (_, eve) = service.user("eve", &["librarian"]).await;
    let own = service.stored(&ada, json!({"name": "own", "content": ""})).await;
    let library = json!({"name": "text", "kind": "library", "owner": "global", "content": "return {}"});
    assert_eq!(service.store(&ada, library.clone()).await.status, 403);
    let global = service.stored(&eve, library).await;
    service.stored(&eve, json!({"name": "eves", "content": ""})).await;

    let at = |id: &str| format!("/api/scripts/{id}");
    for (token, seen) in [(&ada, vec!["own", "text"]), (&bob, vec!["text"]), (&eve, vec!["text", "eves"])] {
        assert_eq!(names(&service.call(token, "GET", "/api/scripts", None).await), seen);
        assert_eq!(service.call(token, "GET", &at(&global), None).await.status, 200);
    }
    for token in [&bob, &eve, &service.token] {
        assert_eq!(service.call(token, "GET", &at(&own), None).await.status, 404);
    }
    assert_eq!(service.call(&eve, "DELETE", &at(&own), None).await.status, 404);
    for method in ["PATCH", "DELETE"] {
        let body = (method == "PATCH").then(|| json!({"description": "mine"}));
        assert_eq!(service.call(&ada, method, &at(&global), body.clone()).await.status, 403, "{method}");
        assert_eq!(service.call(&bob, method, &at(&global), body).await.status, 403, "{method}");
    }
    assert_eq!(service.store(&bob, json!({"name": "x", "content": ""})).await.status, 403);
    let shared = service.call(&ada, "PATCH", &at(&own), Some(json!({"owner": "global"}))).await;
    assert_eq!(shared.status, 403, "{shared:?}");
    service.stop().await;
}

#[tokio::test]
async fn a_users_scripts_go_with_the_user_and_are_bounded_in_number() {
    let service = Service::start_with(std::time::Duration::from_secs(5), |config| config.limits.scripts = 1).await;
    let (id, ada) = service.user("ada", &["member"]).await;
    service.stored(&ada, json!({"name": "a", "content": ""})).await;
    let second = service.store(&ada, json!({"name": "b", "content": ""})).await;
    assert!(second.status == 409 && second.text_of_error().contains("limits.scripts"), "{second:?}");
    assert_eq!(service.call(&service.token, "DELETE", &format!("/api/users/{id}"), None).await.status, 204);
    assert!(service.services.scripts.all().is_empty());
    service.stop().await;
}

#[tokio::test]
async fn a_sink_runs_the_stored_script_it_names_as_it_is_by_then() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let library = json!({"name": "acme.text", "kind": "library", "content": "return { loud = string.upper }"});
    service.stored(&ada, library).await;
    let content = "print(require('acme.text').loud(event.data.word))";
    let script = service.stored(&ada, json!({"name": "shout", "content": content})).await;
    let tool = service.stored(&ada, json!({"name": "tool", "kind": "tool", "content": ""})).await;
    let sink = |script: Value, owner: &str| json!({"name": "s", "events": "*", "type": "script", "owner": owner, "script": script});
    for (wrong, said) in [
        (json!({"script_id": uuid::Uuid::now_v7()}), "`script.script_id`"),
        (json!({"script_id": tool}), "is a tool"),
        (json!({"script_id": script, "source": ""}), "`script`: give either"),
        (json!({}), "`script`: give either"),
    ] {
        let refused = service.call(&ada, "POST", "/api/event-sinks", Some(sink(wrong, "me"))).await;
        assert!(refused.status == 400 && refused.text_of_error().contains(said), "{refused:?}");
    }
    // Neither the administrator's sink nor a global one can name what is Ada's.
    for owner in ["me", "global"] {
        let refused = service.post("/api/event-sinks", sink(json!({"script_id": script}), owner)).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    let made = service.call(&ada, "POST", "/api/event-sinks", Some(sink(json!({"script_id": script}), "me"))).await;
    assert_eq!((made.status, &made.body["script"]), (201, &json!({"script_id": script})), "{made:?}");
    let test = format!("/api/event-sinks/{}/test", made.text("id"));
    let try_it = || service.call(&ada, "POST", &test, Some(json!({"payload": {"word": "hi"}})));
    assert_eq!(try_it().await.body["log"], json!(["HI"]));

    let at = format!("/api/scripts/{script}");
    let patch = |fields: Value| service.call(&ada, "PATCH", &at, Some(fields));
    assert_eq!(patch(json!({"content": "print('other')"})).await.status, 200);
    assert_eq!(try_it().await.body["log"], json!(["other"]));
    assert_eq!(patch(json!({"active": false})).await.status, 200);
    let inactive = try_it().await;
    assert_eq!(inactive.body["outcome"], "failed");
    assert!(inactive.body["error"].as_str().unwrap().contains("`shout` is not active"), "{inactive:?}");

    let refused = service.call(&ada, "DELETE", &at, None).await;
    assert!(refused.status == 409 && refused.text_of_error().contains("the sink `s`"), "{refused:?}");
    let sink = format!("/api/event-sinks/{}", made.text("id"));
    assert_eq!(service.call(&ada, "DELETE", &sink, None).await.status, 204);
    assert_eq!(service.call(&ada, "DELETE", &at, None).await.status, 204);
    service.stop().await;
}

#[tokio::test]
async fn spaces_and_templates_name_only_scripts_that_are_for_them() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let own = service.stored(&ada, json!({"name": "own", "content": ""})).await;
    let global = json!({"name": "set-up", "owner": "global", "content": ""});
    let global = service.stored(&service.token, global).await;
    let library = service.stored(&ada, json!({"name": "lib", "kind": "library", "content": ""})).await;
    let none = uuid::Uuid::now_v7().to_string();
    let space = |name: &str, script: &str| json!({"name": name, "startup_script_id": script});
    for (token, script) in [(&ada, &none), (&ada, &library), (&service.token, &own)] {
        let refused = service.call(token, "POST", "/api/spaces", Some(space("x", script))).await;
        assert!(refused.status == 400 && refused.text_of_error().contains("`startup_script_id`"), "{refused:?}");
    }
    let made = service.call(&ada, "POST", "/api/spaces", Some(space("one", &own))).await;
    assert_eq!((made.status, &made.body["startup_script_id"]), (201, &json!(own)), "{made:?}");
    let path = format!("/api/spaces/{}", made.text("id"));
    let patched = service.call(&ada, "PATCH", &path, Some(json!({"startup_script_id": none}))).await;
    assert_eq!(patched.status, 400, "{patched:?}");
    // Everybody can make spaces of a template.
    assert_eq!(service.post("/api/templates", space("t", &own)).await.status, 400);
    let template = service.post("/api/templates", space("t", &global)).await;
    assert_eq!(template.status, 201, "{template:?}");
    let put = json!({"name": "t", "startup_script_id": library});
    let refused =
        service.call(&service.token, "PUT", &format!("/api/templates/{}", template.text("id")), Some(put)).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let of_template = json!({"name": "two", "template": "t"});
    assert_eq!(service.call(&ada, "POST", "/api/spaces", Some(of_template)).await.status, 201);

    let refused = service.call(&ada, "DELETE", &format!("/api/scripts/{own}"), None).await;
    assert!(refused.status == 409 && refused.text_of_error().contains("the space `one`"), "{refused:?}");
    let at = format!("/api/scripts/{global}");
    for (method, body) in [("DELETE", None), ("PATCH", Some(json!({"owner": "me"})))] {
        let refused = service.call(&service.token, method, &at, body).await;
        let said = refused.text_of_error();
        assert!(refused.status == 409 && said.contains("the template `t`"), "{refused:?}");
        assert!(said.contains("the space `two`"), "who manages spaces sees them: {said}");
    }
    // Who does not is told only that there are some.
    let role = json!({"name": "librarian", "permissions": ["manage_global_scripts"]});
    assert_eq!(service.post("/api/roles", role).await.status, 201);
    let (_, eve) = service.user("eve", &["librarian"]).await;
    let refused = service.call(&eve, "DELETE", &at, None).await;
    let said = refused.text_of_error();
    assert!(refused.status == 409 && said.contains("2 things of others") && !said.contains("two"), "{said}");
    service.stop().await;
}

#[tokio::test]
async fn a_tool_is_run_with_arguments_that_fit_and_as_its_caller() {
    let service = Service::start().await;
    let (_, ada) = service.user("ada", &["member"]).await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let tool = json!({"name": "add", "kind": "tool", "owner": "global", "params_schema": schema,
        "content": "print('adding', params.a)\nif params.a < 0 then error{code = 7, message = 'too small', data = {a = params.a}} end\n\
                    if params.a == 0 then error('zero') end\nreturn {sum = params.a + 1}"});
    let id = service.stored(&service.token, tool).await;
    let ran = service.run(&ada, &id, json!({"params": {"a": 1}})).await;
    assert_eq!(
        (ran.status, &ran.body["outcome"], &ran.body["result"]),
        (200, &json!("done"), &json!({"sum": 2})),
        "{ran:?}"
    );
    assert_eq!(ran.body["log"], json!(["adding\t1"]));
    assert!(ran.body["cpu_ms"].is_number() && ran.body.get("error").is_none(), "{ran:?}");
    let failed = service.run(&ada, &id, json!({"params": {"a": -1}})).await;
    let expected = json!({"code": 7, "message": "too small", "data": {"a": -1}});
    assert_eq!((failed.status, &failed.body["outcome"], &failed.body["error"]), (200, &json!("failed"), &expected));
    let failed = service.run(&ada, &id, json!({"params": {"a": 0}})).await;
    assert!(failed.body["error"]["message"].as_str().unwrap().contains(":3: zero"), "{failed:?}");
    for body in
        [json!({}), json!({"params": {"a": "one"}}), json!({"params": []}), json!({"params": {"a": 1}, "type": "x"})]
    {
        let refused = service.run(&ada, &id, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}: {refused:?}");
    }

    let emits = json!({"name": "emits", "kind": "tool", "owner": "global",
        "content": "return svc.event.emit('tool.ran', {n = 1})"});
    let emits = service.stored(&service.token, emits).await;
    let ran = service.run(&ada, &emits, json!({})).await;
    assert_eq!(ran.body["result"]["event_type"], "custom.tool.ran", "{ran:?}");
    let raised = service.get(&format!("/api/events/{}", ran.body["result"]["event_id"].as_str().unwrap())).await;
    assert_eq!((&raised.body["actor"]["username"], &raised.body["data"]), (&json!("ada"), &json!({"n": 1})));
    let role = json!({"name": "client", "permissions": ["use_mcp_server"]});
    assert_eq!(service.post("/api/roles", role).await.status, 201);
    let (_, bob) = service.user("bob", &["client"]).await;
    let ran = service.run(&bob, &emits, json!({})).await;
    assert!(ran.body["error"]["message"].as_str().unwrap().contains("use_spaces"), "{ran:?}");
    let (_, eve) = service.user("eve", &[]).await;
    assert_eq!(service.run(&eve, &id, json!({"params": {"a": 1}})).await.status, 403);

    let off =
        service.call(&service.token, "PATCH", &format!("/api/scripts/{id}"), Some(json!({"active": false}))).await;
    assert_eq!(off.status, 200, "{off:?}");
    assert_eq!(service.run(&ada, &id, json!({"params": {"a": 1}})).await.status, 409);
    assert_eq!(service.run(&service.token, &id, json!({"params": {"a": 1}})).await.status, 200);
    service.stop().await;
}

#[tokio::test]
async fn a_script_is_tried_on_a_sample_event_and_a_library_is_not_run() {
    let service = Service::start().await;
    let content = "print(event.type, event.data.n)\nif event.data.n == 2 then return svc.skip('not mine') end\n\
                   if event.data.n == 3 then error('no') end";
    let id = service.stored(&service.token, json!({"name": "s", "content": content})).await;
    for (n, outcome, log) in [
        (1, "delivered", json!(["custom.a.b\t1"])),
        (2, "skipped", json!(["custom.a.b\t2", "skipped: not mine"])),
        (3, "failed", json!(["custom.a.b\t3"])),
    ] {
        let ran = service.run(&service.token, &id, json!({"type": "a.b", "payload": {"n": n}})).await;
        assert_eq!((ran.status, &ran.body["outcome"], &ran.body["log"]), (200, &json!(outcome), &log), "{ran:?}");
        assert_eq!(ran.body.get("error").is_some(), outcome == "failed", "{ran:?}");
    }
    assert_eq!(service.run(&service.token, &id, json!({"params": {}})).await.status, 400);
    let library = service.stored(&service.token, json!({"name": "l", "kind": "library", "content": ""})).await;
    assert_eq!(service.run(&service.token, &library, json!({})).await.status, 400);
    let role = json!({"name": "client", "permissions": ["use_mcp_server"]});
    assert_eq!(service.post("/api/roles", role).await.status, 201);
    let (_, bob) = service.user("bob", &["client"]).await;
    assert_eq!(service.run(&bob, &id, json!({})).await.status, 404);
    let global = service.stored(&service.token, json!({"name": "g", "owner": "global", "content": ""})).await;
    assert_eq!(service.run(&bob, &global, json!({})).await.status, 403);
    service.stop().await;
}
