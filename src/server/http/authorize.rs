//! Authorization of a request by its head, before any of its body is read.
//!
//! [`authorize`] runs the steps in this order: look the route up, [`authenticate`] the credential (unless the route is
//! open), [`check_token_scope`], refuse a path or method without a route, [`check_agent`],
//! [`RouteAccess::check_permissions`], [`check_session_origin`], [`check_body`].
//!
//! Under `/api` and `/mcp` the credential and its scope are checked before the result of the lookup is shown: a caller
//! without a credential does not even learn which paths exist, and a scoped token does not learn of paths outside its
//! scopes.

use super::{
    body::is_json,
    client_info::ClientInfo,
    error::ApiError,
    extract::{HeaderUse, RequestBody},
    request::RequestHead,
    route::{Route, RouteMatch, RouteTable},
    route_access::RouteAccess,
    services::HttpSettings,
};
use crate::{
    identity::{Caller, Credential, Identity},
    model::permission::TokenScope,
    platform::config::MetricsAccess,
};
use hyper::{
    Method, Request,
    body::Body,
    header::{CONTENT_LENGTH, HOST, HeaderMap, ORIGIN},
};
use std::{net::SocketAddr, sync::Arc};

/// The open route that answers with a cookie.
const LOGIN: &str = "/api/auth/login";

/// A request that may go on to its route.
#[derive(Clone)]
pub struct Authorized {
    pub route: &'static Route,
    pub head: Arc<RequestHead>,
}

/// Finds the route of a request and checks that the caller may use it.
pub fn authorize<B: Body>(
    table: &'static RouteTable,
    identity: &Identity,
    settings: &HttpSettings,
    request: &Request<B>,
    peer: SocketAddr,
) -> Result<Authorized, ApiError> {
    let headers = request.headers();
    let found = visible(table.find(request.method(), request.uri().path()), settings.metrics);
    let caller = authenticate(identity, &found, settings.metrics, request)?;
    if let Some(caller) = &caller {
        check_token_scope(caller.scopes(), &found)?;
    }
    let (route, parameter) = match found {
        RouteMatch::Found(route, parameter) => (route, parameter),
        RouteMatch::OtherMethods(routes) => return Err(ApiError::MethodNotAllowed { allow: methods(&routes) }),
        RouteMatch::NotFound => return Err(ApiError::NotFound("there is nothing at this path".to_owned())),
    };
    if let Some(caller) = &caller {
        check_agent(caller, route)?;
        route.access.check_permissions(caller)?;
        check_session_origin(caller, request)?;
    } else if route.path == LOGIN {
        // Another page must not log its visitor in as somebody else.
        check_origin(request)?;
    }
    let body_limit = route.body_limit(settings.body);
    check_body(request, route.body, body_limit)?;
    let head = RequestHead {
        uri: request.uri().clone(),
        parameter,
        caller,
        access: route.access,
        client: ClientInfo::of(headers, peer, &settings.trusted_proxies),
        headers: match route.headers {
            HeaderUse::Read => headers.clone(),
            HeaderUse::Unused => HeaderMap::new(),
        },
        body_limit,
    };
    Ok(Authorized { route, head: Arc::new(head) })
}

/// Hides the metrics if they have a listener of their own.
fn visible(found: RouteMatch<'_>, metrics: MetricsAccess) -> RouteMatch<'_> {
    let is_elsewhere =
        |route: &Route| route.access == RouteAccess::Metrics && matches!(metrics, MetricsAccess::Listener(_));
    match found {
        RouteMatch::Found(route, _) if is_elsewhere(route) => RouteMatch::NotFound,
        RouteMatch::OtherMethods(routes) if routes.iter().all(|route| is_elsewhere(route)) => RouteMatch::NotFound,
        found => found,
    }
}

/// Resolves the request's token or session cookie to its caller; `None` if the request needs no caller.
fn authenticate<B>(
    identity: &Identity,
    found: &RouteMatch<'_>,
    metrics: MetricsAccess,
    request: &Request<B>,
) -> Result<Option<Caller>, ApiError> {
    if is_open(found, metrics, request.uri().path()) {
        return Ok(None);
    }
    let caller = identity.authenticate(request.headers());
    caller.map(Some).ok_or(ApiError::Unauthorized("send a valid API token as `Authorization: Bearer svc_…`, or log in"))
}

/// Returns whether a request needs no caller: it is for an open route, or for a path outside of `/api` and `/mcp`.
fn is_open(found: &RouteMatch<'_>, metrics: MetricsAccess, path: &str) -> bool {
    let open = |route: &Route| match route.access {
        RouteAccess::Open => true,
        RouteAccess::Metrics => metrics == MetricsAccess::Open,
        RouteAccess::User | RouteAccess::AnyOf(_) | RouteAccess::AllPermissions => false,
    };
    match found {
        RouteMatch::Found(route, _) => open(route),
        RouteMatch::OtherMethods(routes) => routes.iter().all(|route| open(route)),
        RouteMatch::NotFound => !matches!(path.split('/').nth(1), Some("api" | "mcp")),
    }
}

/// Limits a scoped token to the routes that name one of its scopes. It is refused everything else; a route without a scope
/// and an absent one look alike. A credential without scopes is not limited.
fn check_token_scope(scopes: &[TokenScope], found: &RouteMatch<'_>) -> Result<(), ApiError> {
    if scopes.is_empty() {
        return Ok(());
    }
    let needed = match found {
        RouteMatch::Found(route, _) => route.scope.into_iter().collect(),
        // The token may know of a path that it reaches by another method.
        RouteMatch::OtherMethods(routes) => routes.iter().filter_map(|route| route.scope).collect(),
        RouteMatch::NotFound => Vec::new(),
    };
    if needed.iter().any(|scope| scopes.contains(scope)) {
        return Ok(());
    }
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    let has = format!("this token has the scope {}", names.join(" and "));
    Err(ApiError::InsufficientScope(match needed.first() {
        Some(scope) => {
            let scope = scope.as_str();
            format!("{has}, and this needs the scope {scope}: use a token with that scope, or one without scopes")
        }
        None => format!("{has}, and this is closed to scoped tokens: use one without scopes"),
    }))
}

fn check_agent(caller: &Caller, route: &Route) -> Result<(), ApiError> {
    if matches!(caller.via, Credential::Agent { .. }) && !is_for_agents(route) {
        return Err(ApiError::Forbidden("an agent's token does not reach this: use a user's".to_owned()));
    }
    Ok(())
}

/// An agent reads what its owner reads, emits events, manages sinks and calls methods, as tools too. It changes nothing
/// else, not even its own space: a stolen agent token must not gain anything that stays when the space is gone.
fn is_for_agents(route: &Route) -> bool {
    const CHANGES: [&str; 4] = ["/api/events/", "/api/event-sinks", "/api/methods/call", "/mcp"];
    let is_reading = route.method == Method::GET && route.access != RouteAccess::AllPermissions;
    is_reading || CHANGES.iter().any(|path| route.path.starts_with(path))
}

fn check_session_origin<B: Body>(caller: &Caller, request: &Request<B>) -> Result<(), ApiError> {
    if matches!(caller.via, Credential::Session { .. }) { check_origin(request) } else { Ok(()) }
}

/// Refuses a change by cookie that does not come from the service's own pages: a browser sends the cookie with every
/// request that any page makes. The cookie is `SameSite=Strict` besides, and a form cannot send JSON.
fn check_origin<B: Body>(request: &Request<B>) -> Result<(), ApiError> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    let headers = request.headers();
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default().split_once("://").map_or("", |(_, host)| host);
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or(request.uri().authority().map(|authority| authority.as_str())).unwrap_or_default();
        if origin.is_empty() || !origin.eq_ignore_ascii_case(host) {
            return Err(ApiError::Forbidden("a session can only be used from the service's own pages".to_owned()));
        }
    }
    if !request.body().is_end_stream() && !is_json(headers) {
        return Err(ApiError::UnsupportedMediaType);
    }
    Ok(())
}

fn check_body<B: Body>(request: &Request<B>, body: RequestBody, limit: usize) -> Result<(), ApiError> {
    let headers = request.headers();
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::TooLarge { limit });
    }
    let must_be_json = match body {
        RequestBody::None | RequestBody::Raw => false,
        RequestBody::OptionalJson => !request.body().is_end_stream(),
        RequestBody::Json => true,
    };
    if must_be_json && !is_json(headers) { Err(ApiError::UnsupportedMediaType) } else { Ok(()) }
}

fn methods(routes: &[&Route]) -> String {
    let mut methods: Vec<_> = routes.iter().map(|route| route.method.as_str()).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::{route::get, route_table::TABLE, routes::status};

    #[test]
    fn a_scope_reaches_the_routes_that_name_it_and_nothing_else() {
        let closed = get("/x", RouteAccess::User, status::health, "");
        let mut methods = get("/y", RouteAccess::User, status::health, "");
        methods.scope = Some(TokenScope::Methods);
        let reaches = |scopes: &[TokenScope], found| check_token_scope(scopes, &found).is_ok();
        let refusal = |found| match check_token_scope(&[TokenScope::Mcp], &found) {
            Err(ApiError::InsufficientScope(message)) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            refusal(RouteMatch::Found(&methods, 0..0)),
            "this token has the scope mcp, and this needs the scope methods: use a token with that scope, or one without \
             scopes"
        );
        let closed_to_all =
            "this token has the scope mcp, and this is closed to scoped tokens: use one without scopes".to_owned();
        assert_eq!(refusal(RouteMatch::Found(&closed, 0..0)), closed_to_all);
        assert_eq!(refusal(RouteMatch::NotFound), closed_to_all, "a route that is closed looks like an absent one");
        for (scopes, to_methods) in
            [(&[TokenScope::Methods][..], true), (&[TokenScope::Mcp], false), (TokenScope::ALL, true)]
        {
            assert_eq!(reaches(scopes, RouteMatch::Found(&methods, 0..0)), to_methods);
            assert!(!reaches(scopes, RouteMatch::Found(&closed, 0..0)));
            assert_eq!(reaches(scopes, RouteMatch::OtherMethods(vec![&methods])), to_methods);
            assert!(!reaches(scopes, RouteMatch::OtherMethods(vec![&closed])));
            assert!(!reaches(scopes, RouteMatch::NotFound));
        }
        assert!(
            reaches(&[], RouteMatch::Found(&closed, 0..0)) && reaches(&[], RouteMatch::NotFound),
            "no scopes, no limits"
        );
    }

    #[test]
    fn an_agent_changes_events_and_sinks_and_calls_methods_and_nothing_else() {
        let changing = TABLE.routes().iter().filter(|route| route.method != Method::GET && is_for_agents(route));
        let mut paths: Vec<_> = changing.map(|route| format!("{} {}", route.method, route.path)).collect();
        paths.sort();
        assert_eq!(
            paths,
            [
                "DELETE /api/event-sinks/{id}",
                "DELETE /api/event-sinks/{id}/replay",
                "PATCH /api/event-sinks/{id}",
                "POST /api/event-sinks",
                "POST /api/event-sinks/preview",
                "POST /api/event-sinks/{id}/redeliver",
                "POST /api/event-sinks/{id}/replay",
                "POST /api/event-sinks/{id}/replay/pause",
                "POST /api/event-sinks/{id}/replay/resume",
                "POST /api/event-sinks/{id}/rotate-secret",
                "POST /api/event-sinks/{id}/test",
                "POST /api/events/emit",
                "POST /api/events/explain",
                "POST /api/methods/call",
                "POST /mcp",
                "PUT /api/event-sinks/{id}",
            ]
        );
    }

    fn origin(method: Method, origin: Option<&str>, body: &'static str, kind: Option<&str>) -> Result<(), ApiError> {
        let mut request = Request::builder().method(method).uri("/api/x").header(HOST, "svc.example:7300");
        for (name, value) in [(ORIGIN, origin), (hyper::header::CONTENT_TYPE, kind)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        check_origin(&request.body(http_body_util::Full::<bytes::Bytes>::from(body)).unwrap())
    }

    #[test]
    fn a_change_by_cookie_must_come_from_the_service_s_own_pages() {
        assert!(origin(Method::POST, None, "", None).is_ok());
        assert!(origin(Method::POST, Some("https://SVC.example:7300"), "{}", Some("application/json")).is_ok());
        assert!(origin(Method::GET, Some("https://evil.example"), "", None).is_ok());
        for foreign in ["https://evil.example", "null", "https://svc.example", "svc.example:7300"] {
            assert!(
                matches!(origin(Method::DELETE, Some(foreign), "", None), Err(ApiError::Forbidden(_))),
                "{foreign}"
            );
        }
        let form = origin(Method::POST, None, "a=b", Some("application/x-www-form-urlencoded"));
        assert!(matches!(form, Err(ApiError::UnsupportedMediaType)));
    }
}
