//! The one table of routes, and the lookup in it.

use super::{
    Response, agent_socket,
    error::ApiError,
    openapi,
    request::{Call, Handler, Head, Shape, Takes},
    routes::{
        audit, auth, events, groups, mcp, methods, ops, roles, script_runs, scripts, sinks, spaces, subscriptions,
        templates, tokens, users,
    },
};
use crate::model::permission::{Permission, Scope};
use futures_util::future::BoxFuture;
use hyper::Method;
use schemars::SchemaGenerator;
use std::{ops::Range, sync::LazyLock};

/// Every route of the service, ready for lookup.
pub static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new(routes()));

/// One route: how it is reached, by whom, and what it does.
pub struct Route {
    pub method: Method,
    /// `{name}` stands for one segment; a path has at most one.
    pub path: &'static str,
    pub access: Access,
    /// The scope by which scoped tokens reach it; `None` closes it to them.
    pub scope: Option<Scope>,
    pub summary: &'static str,
    pub takes: Takes,
    pub head: Head,
    /// The largest body it takes, if that is less than the service's limit.
    pub body: Option<usize>,
    pub shape: fn(&mut SchemaGenerator) -> Shape,
    handler: Box<dyn Fn(Call) -> BoxFuture<'static, Result<Response, ApiError>> + Send + Sync>,
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    Open,
    /// Every user. What of it they see is the handler's to decide.
    User,
    /// Users with at least one of these.
    AnyOf(&'static [Permission]),
}

/// The routes and a tree over their paths' segments.
pub struct Table {
    routes: Vec<Route>,
    root: Node,
}

/// What there is at a path.
pub enum Found<'t> {
    /// The route, and where in the path its parameter is (empty without one).
    Route(&'t Route, Range<usize>),
    /// Routes, but none with the method.
    OtherMethods(Vec<&'t Route>),
    Nothing,
}

#[derive(Default)]
struct Node {
    literals: Vec<(&'static str, Node)>,
    parameter: Option<Box<Node>>,
    routes: Vec<usize>,
}

/// The table itself, by subject.
fn routes() -> Vec<Route> {
    use Access::{AnyOf, Open, User};
    const EVENTS: Access = AnyOf(&[Permission::UseSpaces, Permission::ManageSpaces]);
    const SPACES: Access = EVENTS;
    const TEMPLATES: Access = AnyOf(&[Permission::ManageSpaces]);
    const SINKS: Access = AnyOf(&[Permission::ManageOwnEventSinks, Permission::ManageGlobalEventSinks]);
    // What a sink's queue gave up, or a subscribed method's: the latter is its space's owner's business.
    const QUEUES: Access = AnyOf(&[
        Permission::ManageOwnEventSinks,
        Permission::ManageGlobalEventSinks,
        Permission::UseSpaces,
        Permission::ManageSpaces,
    ]);
    const SCRIPTS: Access = AnyOf(&[Permission::ManageOwnScripts, Permission::ManageGlobalScripts]);
    // Tools are for MCP clients too.
    const RUNS: Access =
        AnyOf(&[Permission::ManageOwnScripts, Permission::ManageGlobalScripts, Permission::UseMcpServer]);
    const USERS: Access = AnyOf(&[Permission::ManageUsers]);
    const ROLES: Access = AnyOf(&[Permission::ManageRoles]);
    const GROUPS: Access = AnyOf(&[Permission::ManageGroups]);
    const MCP: Access = AnyOf(&[Permission::UseMcpServer]);
    // Names and passwords are short, and who sends them may be anybody.
    const CREDENTIALS: Option<usize> = Some(8 << 10);
    vec![
        get("/healthz", Open, ops::health, "Whether the process is alive"),
        get("/readyz", Open, ops::ready, "Whether the service takes events; 503 with the reason if not"),
        get("/metrics", Open, ops::metrics, "Counters and latencies as Prometheus text"),
        get("/api/openapi.json", User, openapi::document, "This document"),
        Route {
            body: CREDENTIALS,
            ..post("/api/auth/login", Open, auth::login, "Starts a session, carried by the cookie svc_session")
        },
        Route {
            body: CREDENTIALS,
            ..post("/api/auth/logout", User, auth::logout, "Ends the session of the request's cookie")
        },
        Route {
            body: CREDENTIALS,
            ..post("/api/auth/password", User, auth::password, "Changes the caller's own password")
        },
        get("/api/whoami", User, auth::whoami, "The caller, its permissions and how it came in"),
        get("/api/tokens", User, tokens::list, "The caller's API tokens"),
        post("/api/tokens", User, tokens::create, "Makes an API token; the answer shows it, once"),
        get("/api/tokens/{id}", User, tokens::show, "One of the caller's tokens"),
        delete("/api/tokens/{id}", User, tokens::delete, "Deletes a token, which opens nothing from then on"),
        get("/api/users", USERS, users::list, "All users"),
        post("/api/users", USERS, users::create, "Makes a user"),
        get("/api/users/{id}", User, users::show, "A user: any for manage_users, else the caller itself"),
        put("/api/users/{id}", USERS, users::replace, "Replaces a user; without a password it keeps the old one"),
        patch("/api/users/{id}", USERS, users::update, "Changes the given fields of a user"),
        delete(
            "/api/users/{id}",
            USERS,
            users::delete,
            "Deletes a user with all that is theirs, sinks, spaces and scripts included",
        ),
        get("/api/roles", User, roles::list, "All roles"),
        post("/api/roles", ROLES, roles::create, "Makes a role"),
        get("/api/roles/{id}", User, roles::show, "A role"),
        put("/api/roles/{id}", ROLES, roles::replace, "Replaces a role, for everybody who has it"),
        patch("/api/roles/{id}", ROLES, roles::update, "Changes the given fields of a role"),
        delete("/api/roles/{id}", ROLES, roles::delete, "Deletes a role and takes it from everybody who has it"),
        get("/api/groups", User, groups::list, "All groups"),
        post("/api/groups", GROUPS, groups::create, "Makes a group"),
        get("/api/groups/{id}", User, groups::show, "A group"),
        put("/api/groups/{id}", GROUPS, groups::rename, "Renames a group"),
        patch("/api/groups/{id}", GROUPS, groups::rename, "Renames a group"),
        delete("/api/groups/{id}", GROUPS, groups::delete, "Deletes a group and takes it from its members"),
        post("/api/events/emit", EVENTS, events::emit, "Raises an event; answered once it is on disk"),
        post(
            "/api/events/explain",
            EVENTS,
            events::explain,
            "Which sinks and methods an event would reach, and why; raises nothing",
        ),
        get("/api/events", EVENTS, events::history, "Events with their deliveries and attempts, newest first"),
        get("/api/events/stream", EVENTS, events::watch, "Events and outcomes as they happen"),
        get("/api/events/{id}", EVENTS, events::show, "An event with its deliveries and attempts"),
        get("/api/event-sinks", SINKS, sinks::list, "The caller's sinks, and the global ones for who manages them"),
        post("/api/event-sinks", SINKS, sinks::create, "Makes a sink"),
        post(
            "/api/event-sinks/preview",
            SINKS,
            sinks::preview,
            "Renders a sink's body for a sample event; sends nothing",
        ),
        get("/api/event-sinks/{id}", SINKS, sinks::show, "A sink with its secret"),
        put(
            "/api/event-sinks/{id}",
            SINKS,
            sinks::replace,
            "Replaces a sink; owner and secret stay if they are not given",
        ),
        patch("/api/event-sinks/{id}", SINKS, sinks::update, "Changes the given fields of a sink"),
        delete("/api/event-sinks/{id}", SINKS, sinks::delete, "Deletes a sink with its queue and dead letters"),
        post("/api/event-sinks/{id}/test", SINKS, sinks::test, "Delivers a sample event now, beside the queue"),
        get(
            "/api/event-sinks/{id}/dead-letters",
            QUEUES,
            sinks::dead_letters,
            "What was given up for a sink or a subscription, oldest first",
        ),
        post("/api/event-sinks/{id}/redeliver", QUEUES, sinks::redeliver, "Queues dead letters again"),
        get("/api/subscriptions", EVENTS, subscriptions::list, "The caller's methods that are called for events"),
        get("/api/spaces", SPACES, spaces::list, "The caller's spaces; everybody's for who manages them"),
        post("/api/spaces", SPACES, spaces::create, "Makes a space; the answer shows its agent's token, once"),
        get("/api/spaces/{id}", SPACES, spaces::show, "A space"),
        patch("/api/spaces/{id}", SPACES, spaces::update, "Changes the given settings of a space"),
        delete("/api/spaces/{id}", SPACES, spaces::delete, "Deletes a space, its agent's token and its methods"),
        post("/api/spaces/{id}/start", SPACES, spaces::start, "Has the server run the agent of a space"),
        post("/api/spaces/{id}/stop", SPACES, spaces::stop, "Stops a space and ends its agent"),
        post(
            "/api/spaces/{id}/token",
            SPACES,
            spaces::rotate_token,
            "Makes a new agent token, shown once; the old one opens nothing from then on",
        ),
        get("/api/templates", SPACES, templates::list, "What spaces can be made of"),
        post("/api/templates", TEMPLATES, templates::create, "Makes a template"),
        get("/api/templates/{id}", SPACES, templates::show, "A template"),
        put("/api/templates/{id}", TEMPLATES, templates::replace, "Replaces a template; spaces made of it stay"),
        patch("/api/templates/{id}", TEMPLATES, templates::update, "Changes the given fields of a template"),
        delete("/api/templates/{id}", TEMPLATES, templates::delete, "Deletes a template; spaces made of it stay"),
        get("/api/scripts", User, scripts::list, "The caller's stored scripts and the global ones, without content"),
        post("/api/scripts", SCRIPTS, scripts::create, "Stores a script, library or tool"),
        get("/api/scripts/{id}", User, scripts::show, "A stored script: the caller's, or a global one"),
        put(
            "/api/scripts/{id}",
            SCRIPTS,
            scripts::replace,
            "Replaces a stored script; owner, kind and language stay if they are not given",
        ),
        patch("/api/scripts/{id}", SCRIPTS, scripts::update, "Changes the given fields of a stored script"),
        delete("/api/scripts/{id}", SCRIPTS, scripts::delete, "Deletes a stored script that nothing names"),
        post(
            "/api/scripts/{id}/run",
            RUNS,
            script_runs::run,
            "Runs a tool with arguments, or a script on a sample event, as the caller",
        ),
        Route {
            scope: Some(Scope::Methods),
            ..get("/api/methods", User, methods::list, "The methods the caller can call, by name")
        },
        Route {
            scope: Some(Scope::Methods),
            ..post("/api/methods/call", User, methods::call, "A JSON-RPC request, notification or batch")
        },
        Route {
            scope: Some(Scope::Methods),
            ..get("/api/methods/{name}", User, methods::show, "A method by the name the caller calls it by")
        },
        Route {
            scope: Some(Scope::Mcp),
            ..post(
                "/mcp",
                MCP,
                mcp::answer,
                "A message of the Model Context Protocol; the caller's methods are its tools",
            )
        },
        Route {
            scope: Some(Scope::Mcp),
            ..get("/mcp", MCP, mcp::follow, "What the server has to tell MCP clients up to version 2025-11-25")
        },
        get("/api/agent", User, agent_socket::explain, "The agents' WebSocket, for the token of a space only"),
        get("/api/audit", AnyOf(&[Permission::ViewAuditLog]), audit::list, "Who did what, newest first"),
    ]
}

pub(super) fn get<I>(path: &'static str, access: Access, handler: impl Handler<I>, summary: &'static str) -> Route {
    Route::new(Method::GET, path, access, handler, summary)
}

fn post<I>(path: &'static str, access: Access, handler: impl Handler<I>, summary: &'static str) -> Route {
    Route::new(Method::POST, path, access, handler, summary)
}

fn put<I>(path: &'static str, access: Access, handler: impl Handler<I>, summary: &'static str) -> Route {
    Route::new(Method::PUT, path, access, handler, summary)
}

fn patch<I>(path: &'static str, access: Access, handler: impl Handler<I>, summary: &'static str) -> Route {
    Route::new(Method::PATCH, path, access, handler, summary)
}

fn delete<I>(path: &'static str, access: Access, handler: impl Handler<I>, summary: &'static str) -> Route {
    Route::new(Method::DELETE, path, access, handler, summary)
}

impl Route {
    fn new<I, H: Handler<I>>(
        method: Method,
        path: &'static str,
        access: Access,
        handler: H,
        summary: &'static str,
    ) -> Self {
        let handler = Box::new(move |call| handler.handle(call));
        Self {
            method,
            path,
            access,
            scope: None,
            summary,
            takes: H::TAKES,
            head: H::HEAD,
            body: None,
            shape: H::shape,
            handler,
        }
    }

    /// The largest body it takes, where the service takes `general`.
    pub fn body_limit(&self, general: usize) -> usize {
        self.body.map_or(general, |own| own.min(general))
    }

    pub fn handle(&self, call: Call) -> BoxFuture<'static, Result<Response, ApiError>> {
        (self.handler)(call)
    }
}

impl Table {
    fn new(routes: Vec<Route>) -> Self {
        let mut root = Node::default();
        for (index, route) in routes.iter().enumerate() {
            let mut node = &mut root;
            for segment in segments(route.path) {
                node = node.child(segment);
            }
            node.routes.push(index);
        }
        Self { routes, root }
    }

    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// What there is at `path`. A HEAD is a GET whose body stays away.
    pub fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let mut node = &self.root;
        let mut parameter = 0..0;
        // A name may be a word of ours too: `GET /api/methods/call` is about the method of that name.
        let mut named = None;
        for segment in segments(path) {
            let range = || {
                let start = segment.as_ptr() as usize - path.as_ptr() as usize;
                start..start + segment.len()
            };
            let literal = node.literals.iter().find(|(literal, _)| *literal == segment);
            named = node.parameter.as_deref().filter(|_| literal.is_some()).map(|node| (node, range()));
            if let Some((_, child)) = literal {
                node = child;
            } else if let Some(child) = node.parameter.as_deref().filter(|_| !segment.is_empty()) {
                parameter = range();
                node = child;
            } else {
                return Found::Nothing;
            }
        }
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let at = |node: &Node| {
            let mut here = node.routes.iter().map(|index| &self.routes[*index]);
            here.find(|route| route.method == *method)
        };
        let named = named.and_then(|(node, range)| Some((at(node)?, range)));
        match at(node).map(|route| (route, parameter)).or(named) {
            Some((route, parameter)) => Found::Route(route, parameter),
            None if node.routes.is_empty() => Found::Nothing,
            None => Found::OtherMethods(node.routes.iter().map(|index| &self.routes[*index]).collect()),
        }
    }
}

impl Node {
    fn child(&mut self, segment: &'static str) -> &mut Self {
        if segment.starts_with('{') {
            return self.parameter.get_or_insert_default();
        }
        let position = self.literals.iter().position(|(literal, _)| *literal == segment).unwrap_or_else(|| {
            self.literals.push((segment, Self::default()));
            self.literals.len() - 1
        });
        &mut self.literals[position].1
    }
}

/// What is between the slashes, from the first on.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &Method, path: &str) -> Option<(&'static str, String)> {
        match TABLE.find(method, path) {
            Found::Route(route, parameter) => Some((route.path, path[parameter].to_owned())),
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
    fn a_name_that_is_also_a_word_of_ours_is_found_by_the_methods_that_the_word_does_not_take() {
        assert_eq!(found(&Method::POST, "/api/methods/call"), Some(("/api/methods/call", String::new())));
        assert_eq!(found(&Method::GET, "/api/methods/call"), Some(("/api/methods/{name}", "call".to_owned())));
        assert_eq!(found(&Method::GET, "/api/events/stream"), Some(("/api/events/stream", String::new())));
        assert_eq!(found(&Method::DELETE, "/api/events/stream"), None);
    }

    #[test]
    fn nothing_is_found_beside_the_paths() {
        for path in
            ["", "/", "/api", "/api/", "/api/users/", "//api/users", "/api/users/x/y", "/api/Users", "/healthz/"]
        {
            assert!(matches!(TABLE.find(&Method::GET, path), Found::Nothing), "{path}");
        }
    }

    #[test]
    fn a_known_path_tells_its_other_methods() {
        let Found::OtherMethods(routes) = TABLE.find(&Method::DELETE, "/api/users") else { panic!("found") };
        assert_eq!(routes.iter().map(|route| &route.method).collect::<Vec<_>>(), [Method::GET, Method::POST]);
    }

    #[test]
    fn no_route_is_there_twice_and_all_are_reachable() {
        for route in TABLE.routes() {
            let Found::Route(reached, _) = TABLE.find(&route.method, route.path) else { panic!("{}", route.path) };
            assert!(std::ptr::eq(reached, route), "{} {} is there twice", route.method, route.path);
            assert!(route.path.matches('{').count() <= 1, "{}", route.path);
        }
    }

    #[test]
    fn only_what_needs_no_caller_is_open() {
        let open = TABLE.routes().iter().filter(|route| route.access == Access::Open).map(|route| route.path);
        assert_eq!(open.collect::<Vec<_>>(), ["/healthz", "/readyz", "/metrics", "/api/auth/login"]);
    }
}
