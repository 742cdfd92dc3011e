//! What stands in front of every route: finds the route, tells who calls, and checks scope, permission, origin,
//! and the body's size and type, in this order. It looks at the head of a request only.
//!
//! Under `/api` and `/mcp` the credential comes first: who has none learns not even which paths exist, and a scoped
//! token learns of none outside its scopes.

use super::{
    App,
    body::is_json,
    error::ApiError,
    request::{Client, Head, Takes, Transport},
    route_table::{Access, Found, Route, TABLE},
};
use crate::{
    identity::{Caller, Via},
    model::permission::Scope,
};
use hyper::{
    Method, Request, Uri,
    body::Body,
    header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, ORIGIN},
};
use std::{net::SocketAddr, ops::Range};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The guard's word on a request it let pass.
pub struct Admission {
    pub route: &'static Route,
    pub uri: Uri,
    /// Where in the path the route's parameter is.
    pub parameter: Range<usize>,
    /// `None` on open routes only.
    pub caller: Option<Caller>,
    pub client: Client,
    /// Only where the route has them kept.
    pub headers: HeaderMap,
}

/// Decides on a request.
///
/// # Errors
///
/// Says why the request goes no further.
pub fn admit<B: Body>(app: &App, request: &Request<B>, peer: SocketAddr) -> Result<Admission, ApiError> {
    let headers = request.headers();
    let found = TABLE.find(request.method(), request.uri().path());
    let caller = if is_open(&found, request.uri().path()) {
        None
    } else {
        let caller = app.identity.authenticate(headers);
        Some(
            caller
                .ok_or(ApiError::Unauthorized("send a valid API token as `Authorization: Bearer svc_…`, or log in"))?,
        )
    };
    if let Some(caller) = &caller {
        check_scope(caller.scopes(), &found)?;
    }
    let (route, parameter) = match found {
        Found::Route(route, parameter) => (route, parameter),
        Found::OtherMethods(routes) => return Err(ApiError::MethodNotAllowed { allow: methods(&routes) }),
        Found::Nothing => return Err(ApiError::NotFound("there is nothing at this path".to_owned())),
    };
    if caller.as_ref().is_some_and(|caller| matches!(caller.via, Via::Agent { .. })) && !is_for_agents(route) {
        return Err(ApiError::Forbidden("an agent's token does not reach this: use a user's".to_owned()));
    }
    if let (Access::AnyOf(permissions), Some(caller)) = (route.access, &caller)
        && !caller.permissions.contains_any(permissions)
    {
        let names: Vec<_> = permissions.iter().map(|permission| permission.as_str()).collect();
        return Err(ApiError::Forbidden(format!("this needs the permission {}", names.join(" or "))));
    }
    if caller.as_ref().is_some_and(|caller| matches!(caller.via, Via::Session { .. })) {
        check_origin(request)?;
    }
    check_body(request, route.takes, route.body_limit(app.config.limits.body.bytes()))?;
    let kept = match route.head {
        Head::Kept => headers.clone(),
        Head::Dropped => HeaderMap::new(),
    };
    let (uri, client) = (request.uri().clone(), client(headers, peer));
    Ok(Admission { route, uri, parameter, caller, client, headers: kept })
}

/// Whether nobody needs to be known for what was found: an open route, or a path outside of `/api` and `/mcp`.
fn is_open(found: &Found<'_>, path: &str) -> bool {
    let open = |route: &Route| route.access == Access::Open;
    match found {
        Found::Route(route, _) => open(route),
        Found::OtherMethods(routes) => routes.iter().all(|route| open(route)),
        Found::Nothing => !matches!(path.split('/').nth(1), Some("api" | "mcp")),
    }
}

/// A scoped token reaches the routes that name one of its scopes; nothing else, existing or not.
fn check_scope(scopes: &[Scope], found: &Found<'_>) -> Result<(), ApiError> {
    let names = |route: &Route| route.scope.is_some_and(|scope| scopes.contains(&scope));
    let reached = match found {
        Found::Route(route, _) => names(route),
        // It may know of a path that it reaches by another method.
        Found::OtherMethods(routes) => routes.iter().any(|route| names(route)),
        Found::Nothing => false,
    };
    if scopes.is_empty() || reached {
        return Ok(());
    }
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    Err(ApiError::Forbidden(format!("this token is limited to the scope {}", names.join(" and "))))
}

/// An agent reads what its owner does, raises events, keeps sinks and calls methods, as tools too. It changes nothing else, not even
/// its own space: whoever gets hold of its token must not gain what stays when the space is gone.
fn is_for_agents(route: &Route) -> bool {
    const CHANGES: [&str; 4] = ["/api/events/", "/api/event-sinks", "/api/methods/call", "/mcp"];
    route.method == Method::GET || CHANGES.iter().any(|path| route.path.starts_with(path))
}

/// A browser sends the cookie along with whatever a page makes it send; so a change by cookie must come from our
/// own pages. The cookie is `SameSite=Strict` besides, and a form cannot send JSON.
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

fn check_body<B: Body>(request: &Request<B>, takes: Takes, limit: usize) -> Result<(), ApiError> {
    let headers = request.headers();
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::TooLarge { limit });
    }
    let must_be_json = match takes {
        Takes::Nothing => false,
        Takes::MaybeJson => !request.body().is_end_stream(),
        Takes::Json => true,
    };
    if must_be_json && !is_json(headers) { Err(ApiError::UnsupportedMediaType) } else { Ok(()) }
}

/// Where the request comes from. Only a proxy on this machine is believed about it, and only in what it added itself:
/// the last address of the list.
fn client(headers: &HeaderMap, peer: SocketAddr) -> Client {
    let mut client = Client { address: peer.ip().to_canonical(), transport: Transport::Plain };
    if client.address.is_loopback() {
        let last = headers.get_all(&FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
        if let Some(address) = last.and_then(|list| list.rsplit(',').next()?.trim().parse().ok()) {
            client.address = address;
        }
        if headers.get(&FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https")) {
            client.transport = Transport::Encrypted;
        }
    }
    client
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
    use crate::server::http::{route_table::get, routes::ops};

    fn headers(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_scope_reaches_the_routes_that_name_it_and_nothing_else() {
        let closed = get("/x", Access::User, ops::health, "");
        let mut methods = get("/y", Access::User, ops::health, "");
        methods.scope = Some(Scope::Methods);
        let reaches = |scopes: &[Scope], found| check_scope(scopes, &found).is_ok();
        for (scopes, to_methods) in [(&[Scope::Methods][..], true), (&[Scope::Mcp], false), (Scope::ALL, true)] {
            assert_eq!(reaches(scopes, Found::Route(&methods, 0..0)), to_methods);
            assert!(!reaches(scopes, Found::Route(&closed, 0..0)));
            assert_eq!(reaches(scopes, Found::OtherMethods(vec![&methods])), to_methods);
            assert!(!reaches(scopes, Found::OtherMethods(vec![&closed])));
            assert!(!reaches(scopes, Found::Nothing));
        }
        assert!(reaches(&[], Found::Route(&closed, 0..0)) && reaches(&[], Found::Nothing), "no scopes, no limits");
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
                "PATCH /api/event-sinks/{id}",
                "POST /api/event-sinks",
                "POST /api/event-sinks/preview",
                "POST /api/event-sinks/{id}/redeliver",
                "POST /api/event-sinks/{id}/test",
                "POST /api/events/emit",
                "POST /api/events/explain",
                "POST /api/methods/call",
                "POST /mcp",
                "PUT /api/event-sinks/{id}",
            ]
        );
    }

    #[test]
    fn only_a_proxy_on_this_machine_is_believed_about_the_address() {
        let said = headers(&[(&FORWARDED_FOR, "10.9.9.9, 192.0.2.7"), (&FORWARDED_PROTO, "https")]);
        let near = client(&said, "127.0.0.1:5".parse().unwrap());
        assert_eq!(near, Client { address: "192.0.2.7".parse().unwrap(), transport: Transport::Encrypted });
        let far = client(&said, "198.51.100.1:5".parse().unwrap());
        assert_eq!(far, Client { address: "198.51.100.1".parse().unwrap(), transport: Transport::Plain });
        let mapped = client(&HeaderMap::new(), "[::ffff:198.51.100.1]:5".parse().unwrap());
        assert_eq!(mapped.address.to_string(), "198.51.100.1");
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
    fn a_change_by_cookie_must_come_from_our_own_pages() {
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
