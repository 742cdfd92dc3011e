//! The routes of the service: method, path, access, handler and summary, one line each.
//!
//! Access is enforced by [`super::authorize`], before a handler runs.

use super::{
    agent_socket,
    error::ApiError,
    openapi::{self, OpenApiDocument},
    request::ApiRequest,
    route::{Route, RouteTable, delete, get, patch, post, put},
    route_access::RouteAccess,
    routes::{
        activity, audit, auth, backup, event_explanation, event_stream, events, groups, inbound, mcp, methods, queues,
        replays, roles, script_runs, scripts, sequences, sink_preview, sinks, sources, spaces, status, subscriptions,
        templates, tokens, users,
    },
};
use crate::model::permission::{Permission, TokenScope};
use serde_json::Value;
use std::sync::LazyLock;

/// Every route of the service, ready for lookup.
pub static TABLE: LazyLock<RouteTable> = LazyLock::new(|| RouteTable::new(routes()));

/// The OpenAPI document of [`TABLE`], built once.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| openapi::build(TABLE.routes()));

/// All routes, by subject.
fn routes() -> Vec<Route> {
    use RouteAccess::{AllPermissions, AnyOf, Metrics, Open, User};
    const EVENTS: RouteAccess = AnyOf(&[Permission::UseSpaces, Permission::ManageSpaces]);
    const SPACES: RouteAccess = EVENTS;
    const TEMPLATES: RouteAccess = AnyOf(&[Permission::ManageSpaces]);
    const SINKS: RouteAccess = AnyOf(&[Permission::ManageOwnEventSinks, Permission::ManageGlobalEventSinks]);
    // Queues belong to sinks, or to subscriptions, which users of spaces have.
    const QUEUES: RouteAccess = AnyOf(&[
        Permission::ManageOwnEventSinks,
        Permission::ManageGlobalEventSinks,
        Permission::UseSpaces,
        Permission::ManageSpaces,
    ]);
    const SCRIPTS: RouteAccess = AnyOf(&[Permission::ManageOwnScripts, Permission::ManageGlobalScripts]);
    // Lua is written for sinks as well.
    const SCRIPT_CHECKS: RouteAccess = AnyOf(&[
        Permission::ManageOwnScripts,
        Permission::ManageGlobalScripts,
        Permission::ManageOwnEventSinks,
        Permission::ManageGlobalEventSinks,
    ]);
    // MCP clients run tools too.
    const RUNS: RouteAccess =
        AnyOf(&[Permission::ManageOwnScripts, Permission::ManageGlobalScripts, Permission::UseMcpServer]);
    const USERS: RouteAccess = AnyOf(&[Permission::ManageUsers]);
    const ROLES: RouteAccess = AnyOf(&[Permission::ManageRoles]);
    const GROUPS: RouteAccess = AnyOf(&[Permission::ManageGroups]);
    const MCP: RouteAccess = AnyOf(&[Permission::UseMcpServer]);
    // Names and passwords are short, and anybody may send them.
    const CREDENTIALS: usize = 8 << 10;
    vec![
        get("/healthz", Open, status::health, "Answers 200 while the process is alive and its store takes writes"),
        get(
            "/readyz",
            Open,
            status::ready,
            "Answers 200 while the service takes events, 503 with the reason otherwise",
        ),
        get(
            "/metrics",
            Metrics,
            status::metrics,
            "Counters and latencies as Prometheus text, as `http.metrics` allows",
        ),
        get("/api/openapi.json", User, openapi_document, "This document"),
        post("/api/auth/login", Open, auth::login, "Starts a session, carried by the cookie svc_session")
            .with_max_body(CREDENTIALS),
        post("/api/auth/logout", User, auth::logout, "Ends the session of the request's cookie")
            .with_max_body(CREDENTIALS),
        post("/api/auth/password", User, auth::password, "Changes the caller's own password")
            .with_max_body(CREDENTIALS),
        get("/api/whoami", User, auth::whoami, "The caller, its permissions and its kind of credential"),
        get("/api/tokens", User, tokens::list, "The caller's API tokens"),
        post("/api/tokens", User, tokens::create, "Makes an API token; only this response shows it"),
        get(
            "/api/tokens/{id}",
            User,
            tokens::show,
            "A token: the caller's, or one of a user that a caller with manage_users may change",
        ),
        delete("/api/tokens/{id}", User, tokens::delete, "Deletes such a token, which is refused from then on"),
        get("/api/users", USERS, users::list, "All users"),
        post("/api/users", USERS, users::create, "Makes a user"),
        get(
            "/api/users/{id}",
            User,
            users::show,
            "A user: any for callers with manage_users, otherwise the caller itself",
        ),
        put("/api/users/{id}", USERS, users::replace, "Replaces a user, who keeps the old password if none is given"),
        patch("/api/users/{id}", USERS, users::update, "Changes the given fields of a user"),
        delete("/api/users/{id}", USERS, users::delete, "Deletes a user with all its sinks, spaces and scripts"),
        get(
            "/api/users/{id}/tokens",
            USERS,
            users::list_tokens,
            "The API tokens of a user who may do no more than the caller",
        ),
        post(
            "/api/users/{id}/tokens",
            USERS,
            users::create_token,
            "Makes an API token for such a user; only this response shows it",
        ),
        get("/api/roles", User, roles::list, "All roles"),
        post("/api/roles", ROLES, roles::create, "Makes a role"),
        get("/api/roles/{id}", User, roles::show, "A role"),
        put("/api/roles/{id}", ROLES, roles::replace, "Replaces a role for all users who have it"),
        patch("/api/roles/{id}", ROLES, roles::update, "Changes the given fields of a role"),
        delete("/api/roles/{id}", ROLES, roles::delete, "Deletes a role and takes it from all users who have it"),
        get("/api/groups", User, groups::list, "All groups"),
        post("/api/groups", GROUPS, groups::create, "Makes a group"),
        get("/api/groups/{id}", User, groups::show, "A group"),
        put("/api/groups/{id}", GROUPS, groups::rename, "Renames a group"),
        patch("/api/groups/{id}", GROUPS, groups::rename, "Renames a group"),
        delete("/api/groups/{id}", GROUPS, groups::delete, "Deletes a group and takes it from its members"),
        post("/api/events/emit", EVENTS, events::emit, "Emits an event; the response comes once it is on disk"),
        post(
            "/api/events/explain",
            EVENTS,
            event_explanation::explain,
            "Explains which sinks and methods an event would reach; emits nothing",
        ),
        get("/api/events", EVENTS, events::history, "Events with their deliveries and attempts, newest first"),
        get("/api/events/stream", EVENTS, event_stream::watch, "Events and outcomes of deliveries as they happen"),
        get("/api/events/{id}", EVENTS, events::show, "An event with its deliveries and attempts"),
        get("/api/event-sinks", SINKS, sinks::list, "The caller's sinks, and global ones for callers who manage them"),
        post("/api/event-sinks", SINKS, sinks::create, "Makes a sink"),
        post(
            "/api/event-sinks/preview",
            SINKS,
            sink_preview::preview,
            "Renders a sink's body for a sample event; sends nothing",
        ),
        get("/api/event-sinks/{id}", SINKS, sinks::show, "A sink with its secret"),
        put(
            "/api/event-sinks/{id}",
            SINKS,
            sinks::replace,
            "Replaces a sink; owner and secret stay if they are not given",
        ),
        patch(
            "/api/event-sinks/{id}",
            SINKS,
            sinks::update,
            "Changes the given fields of a sink; a part such as `webhook` is replaced as a whole, except for its secret",
        ),
        delete("/api/event-sinks/{id}", SINKS, sinks::delete, "Deletes a sink with its queue and dead letters"),
        post(
            "/api/event-sinks/{id}/rotate-secret",
            SINKS,
            sinks::rotate_secret,
            "Gives a webhook a new secret; the present one is used beside it for a grace period",
        ),
        get(
            "/api/event-sinks/{id}/public-key",
            SINKS,
            sinks::public_key,
            "The public key of a webhook with Ed25519 signatures",
        ),
        post("/api/event-sinks/{id}/test", SINKS, sink_preview::test, "Delivers a sample event now, beside the queue"),
        get(
            "/api/event-sinks/{id}/dead-letters",
            QUEUES,
            queues::dead_letters,
            "Dead letters of a sink or subscription, oldest first",
        ),
        get(
            "/api/event-sinks/{id}/sequence",
            QUEUES,
            sequences::show,
            "What became of the events with these sequence numbers of a sink or subscription",
        ),
        post("/api/event-sinks/{id}/redeliver", QUEUES, queues::redeliver, "Queues dead letters again"),
        post(
            "/api/event-sinks/{id}/replay",
            QUEUES,
            replays::start,
            "Starts a job that sends events of the history again, those that were lost by default",
        ),
        delete("/api/event-sinks/{id}/replay", QUEUES, replays::cancel, "Ends the job; events that it has queued stay"),
        post("/api/event-sinks/{id}/replay/pause", QUEUES, replays::pause, "Pauses the job"),
        post("/api/event-sinks/{id}/replay/resume", QUEUES, replays::resume, "Continues the job"),
        get(
            "/api/event-sinks/{id}/replays",
            QUEUES,
            replays::list,
            "The last jobs of a sink or subscription, newest first",
        ),
        post("/in/{slug}", Open, inbound::take, "Takes a request of another service; the source verifies it"),
        get("/api/sources", SINKS, sources::list, "The caller's sources, and global ones for callers who manage them"),
        post("/api/sources", SINKS, sources::create, "Makes a source"),
        get("/api/sources/{id}", SINKS, sources::show, "A source, without its secret"),
        put(
            "/api/sources/{id}",
            SINKS,
            sources::replace,
            "Replaces a source; owner and secret stay if they are not given, and a new secret overlaps with the old",
        ),
        patch(
            "/api/sources/{id}",
            SINKS,
            sources::update,
            "Changes the given fields of a source; `verify` is replaced as a whole, except for its secret",
        ),
        delete("/api/sources/{id}", SINKS, sources::delete, "Deletes a source with its dead letters"),
        post(
            "/api/sources/{id}/test",
            SINKS,
            sources::test,
            "Runs the transform of a source on a sample request; emits nothing",
        ),
        get(
            "/api/sources/{id}/dead-letters",
            SINKS,
            sources::dead_letters,
            "Verified requests that did not become events, oldest first",
        ),
        post(
            "/api/sources/{id}/redeliver",
            SINKS,
            sources::redeliver,
            "Gives dead letters of a source to its transform again",
        ),
        get(
            "/api/activity",
            QUEUES,
            activity::show,
            "Events, attempts and losses of the last hour by minute, and what needs attention",
        ),
        get(
            "/api/subscriptions",
            EVENTS,
            subscriptions::list,
            "Subscriptions: the caller's methods that are called for events",
        ),
        get("/api/spaces", SPACES, spaces::list, "The caller's spaces, and all spaces for callers who manage them"),
        post("/api/spaces", SPACES, spaces::create, "Makes a space; only this response shows its agent's token"),
        get("/api/spaces/{id}", SPACES, spaces::show, "A space"),
        patch("/api/spaces/{id}", SPACES, spaces::update, "Changes the given settings of a space"),
        delete("/api/spaces/{id}", SPACES, spaces::delete, "Deletes a space, its agent's token and its methods"),
        post("/api/spaces/{id}/start", SPACES, spaces::start, "Starts a space: the server runs its agent"),
        post("/api/spaces/{id}/stop", SPACES, spaces::stop, "Stops a space and ends its agent"),
        post(
            "/api/spaces/{id}/token",
            SPACES,
            spaces::rotate_token,
            "Makes a new agent token, which only this response shows; the old one is refused from then on",
        ),
        get("/api/templates", SPACES, templates::list, "All templates of spaces"),
        post("/api/templates", TEMPLATES, templates::create, "Makes a template"),
        get("/api/templates/{id}", SPACES, templates::show, "A template"),
        put(
            "/api/templates/{id}",
            TEMPLATES,
            templates::replace,
            "Replaces a template; spaces made from it stay as they are",
        ),
        patch("/api/templates/{id}", TEMPLATES, templates::update, "Changes the given fields of a template"),
        delete("/api/templates/{id}", TEMPLATES, templates::delete, "Deletes a template; spaces made from it stay"),
        get("/api/scripts", User, scripts::list, "The caller's stored scripts and the global ones, without content"),
        post("/api/scripts", SCRIPTS, scripts::create, "Stores a script, library or tool"),
        post("/api/scripts/check", SCRIPT_CHECKS, scripts::check, "Compiles Lua; stores and runs nothing"),
        get("/api/scripts/{id}", User, scripts::show, "A stored script: the caller's, or a global one"),
        put(
            "/api/scripts/{id}",
            SCRIPTS,
            scripts::replace,
            "Replaces a stored script; owner, kind and language stay if they are not given",
        ),
        patch("/api/scripts/{id}", SCRIPTS, scripts::update, "Changes the given fields of a stored script"),
        delete("/api/scripts/{id}", SCRIPTS, scripts::delete, "Deletes a stored script that no record names"),
        get("/api/scripts/{id}/references", User, scripts::references, "The records that name a stored script"),
        post(
            "/api/scripts/{id}/run",
            RUNS,
            script_runs::run,
            "Runs a tool with arguments, or a script on a sample event, as the caller",
        ),
        get("/api/methods", User, methods::list, "The methods the caller can call, by name")
            .in_scope(TokenScope::Methods),
        post("/api/methods/call", User, methods::call, "A JSON-RPC request, notification or batch")
            .in_scope(TokenScope::Methods),
        get("/api/methods/{name}", User, methods::show, "A method by the name the caller calls it by")
            .in_scope(TokenScope::Methods),
        post("/mcp", MCP, mcp::answer, "A message of the Model Context Protocol; the caller's methods are its tools")
            .in_scope(TokenScope::Mcp),
        get("/mcp", MCP, mcp::follow, "A stream of notifications for MCP clients up to version 2025-11-25")
            .in_scope(TokenScope::Mcp),
        get("/api/agent", User, agent_socket::explain, "The WebSocket of agents; needs the agent token of a space"),
        get("/api/audit", AnyOf(&[Permission::ViewAuditLog]), audit::list, "The audit log, newest first"),
        get(
            "/api/backup",
            AllPermissions,
            backup::create,
            "Everything the server holds, secrets included, as one archive",
        ),
    ]
}

async fn openapi_document(_: ApiRequest) -> Result<OpenApiDocument, ApiError> {
    Ok(OpenApiDocument(&DOCUMENT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::{extract::RequestBody, route::RouteMatch};
    use hyper::Method;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn found(method: &Method, path: &str) -> Option<(&'static str, String)> {
        match TABLE.find(method, path) {
            RouteMatch::Found(route, parameter) => Some((route.path, path[parameter].to_owned())),
            _ => None,
        }
    }

    #[test]
    fn a_path_is_found_with_its_parameter() {
        assert_eq!(found(&Method::GET, "/api/users"), Some(("/api/users", String::new())));
        assert_eq!(found(&Method::GET, "/api/users/x"), Some(("/api/users/{id}", "x".to_owned())));
        assert_eq!(found(&Method::HEAD, "/healthz"), Some(("/healthz", String::new())));
    }

    #[test]
    fn a_name_that_equals_a_literal_is_found_by_the_methods_that_the_literal_does_not_take_and_an_id_is_not() {
        assert_eq!(found(&Method::POST, "/api/methods/call"), Some(("/api/methods/call", String::new())));
        assert_eq!(found(&Method::GET, "/api/methods/call"), Some(("/api/methods/{name}", "call".to_owned())));
        assert_eq!(found(&Method::GET, "/api/events/stream"), Some(("/api/events/stream", String::new())));
        assert_eq!(found(&Method::DELETE, "/api/events/stream"), None);
        for (method, path, allowed) in [
            (Method::GET, "/api/events/emit", Method::POST),
            (Method::DELETE, "/api/scripts/check", Method::POST),
            (Method::GET, "/api/event-sinks/preview", Method::POST),
        ] {
            let RouteMatch::OtherMethods(routes) = TABLE.find(&method, path) else { panic!("{path} is no id") };
            assert_eq!(routes.iter().map(|route| &route.method).collect::<Vec<_>>(), [&allowed]);
        }
    }

    #[test]
    fn a_path_outside_the_table_is_not_found() {
        for path in
            ["", "/", "/api", "/api/", "/api/users/", "//api/users", "/api/users/x/y", "/api/Users", "/healthz/"]
        {
            assert!(matches!(TABLE.find(&Method::GET, path), RouteMatch::NotFound), "{path}");
        }
    }

    #[test]
    fn a_known_path_lists_its_other_methods() {
        let RouteMatch::OtherMethods(routes) = TABLE.find(&Method::DELETE, "/api/users") else { panic!("found") };
        assert_eq!(routes.iter().map(|route| &route.method).collect::<Vec<_>>(), [Method::GET, Method::POST]);
    }

    #[test]
    fn every_route_is_reachable_and_listed_once() {
        for route in TABLE.routes() {
            let RouteMatch::Found(reached, _) = TABLE.find(&route.method, route.path) else { panic!("{}", route.path) };
            assert!(std::ptr::eq(reached, route), "{} {} is listed twice", route.method, route.path);
            assert!(route.path.matches('{').count() <= 1, "{}", route.path);
        }
    }

    #[test]
    fn only_routes_that_need_no_caller_are_open() {
        let open = TABLE.routes().iter().filter(|route| route.access == RouteAccess::Open).map(|route| route.path);
        assert_eq!(open.collect::<Vec<_>>(), ["/healthz", "/readyz", "/api/auth/login", "/in/{slug}"]);
    }

    /// Every `$ref` in the document.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.insert(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_has_exactly_the_routes_of_the_table() {
        let table: BTreeSet<_> =
            TABLE.routes().iter().map(|route| (route.path.to_owned(), route.method.as_str().to_lowercase())).collect();
        let paths = DOCUMENT["paths"].as_object().unwrap();
        let documented = paths.iter().flat_map(|(path, operations)| {
            operations.as_object().unwrap().keys().map(move |method| (path.clone(), method.clone()))
        });
        assert_eq!(documented.collect::<BTreeSet<_>>(), table);
    }

    #[test]
    fn every_operation_describes_its_body_security_parameters_and_responses() {
        for route in TABLE.routes() {
            let operation = &DOCUMENT["paths"][route.path][route.method.as_str().to_lowercase()];
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{}", route.path);
            assert_eq!(operation.get("requestBody").is_some(), route.body != RequestBody::None, "{}", route.path);
            assert_eq!(operation["security"] == json!([]), route.access == RouteAccess::Open, "{}", route.path);
            let parameters = operation["parameters"].as_array().unwrap();
            let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(in_path, route.path.matches('{').count(), "{}", route.path);
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.keys().any(|status| status.starts_with('2')), "{}", route.path);
        }
    }

    #[test]
    fn every_reference_is_defined_and_every_operation_has_its_own_id() {
        let mut found = BTreeSet::new();
        references(&DOCUMENT, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            assert!(DOCUMENT.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
        }
        let ids: BTreeSet<_> = TABLE.routes().iter().map(openapi::operation_id).collect();
        assert_eq!(ids.len(), TABLE.routes().len());
    }

    #[test]
    fn a_patch_requires_nothing_and_a_put_what_has_no_default() {
        let required = |method: &str| {
            let body = &DOCUMENT["paths"]["/api/event-sinks/{id}"][method]["requestBody"];
            let reference = body["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
            DOCUMENT.pointer(&reference[1..]).unwrap()["required"].clone()
        };
        assert_eq!((required("put"), required("patch")), (json!(["name", "events", "type"]), Value::Null));
    }

    #[test]
    fn not_being_ready_is_described_with_its_own_body() {
        let responses = &DOCUMENT["paths"]["/readyz"]["get"]["responses"];
        assert_eq!(responses["503"]["content"], responses["200"]["content"]);
        assert_eq!(responses["503"]["description"], "Service Unavailable");
    }
}
