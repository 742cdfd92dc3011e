//! Routes and the lookup of a path among them. The routes of the service are in [`super::route_table`].

use super::{
    Response,
    error::ApiError,
    extract::{HeaderUse, RequestBody},
    handler::{Handler, OperationSchema},
    request::ApiRequest,
    route_access::RouteAccess,
    services::HttpServices,
};
use crate::model::permission::TokenScope;
use futures_util::future::BoxFuture;
use hyper::Method;
use schemars::SchemaGenerator;
use std::ops::Range;

/// One route: method and path, access, and handler.
pub struct Route {
    pub method: Method,
    /// `{name}` stands for one segment; a path has at most one.
    pub path: &'static str,
    pub access: RouteAccess,
    /// The scope by which scoped tokens reach the route; `None` closes it to them.
    pub scope: Option<TokenScope>,
    pub summary: &'static str,
    pub body: RequestBody,
    pub headers: HeaderUse,
    /// Largest body in bytes, if the route takes less than the service's limit.
    pub max_body: Option<usize>,
    pub schema: fn(&mut SchemaGenerator) -> OperationSchema,
    handler: RouteHandler,
}

/// A handler with its types erased: it takes its services and its input out of the arguments.
type RouteHandler = Box<dyn Fn(&HttpServices, ApiRequest) -> RouteFuture + Send + Sync>;
type RouteFuture = BoxFuture<'static, Result<Response, ApiError>>;

/// Routes with a tree over the segments of their paths.
pub struct RouteTable {
    routes: Vec<Route>,
    root: PathNode,
}

/// Result of looking up a method and path.
pub enum RouteMatch<'t> {
    /// The route, and the position of its parameter in the path (empty without one).
    Found(&'t Route, Range<usize>),
    /// The path exists, but not with this method.
    OtherMethods(Vec<&'t Route>),
    NotFound,
}

#[derive(Default)]
struct PathNode {
    literals: Vec<(&'static str, PathNode)>,
    parameter: Option<Box<PathNode>>,
    /// Positions in the table of the routes that end here.
    routes: Vec<usize>,
}

pub fn get<A>(path: &'static str, access: RouteAccess, handler: impl Handler<A>, summary: &'static str) -> Route {
    Route::new(Method::GET, path, access, handler, summary)
}

pub fn post<A>(path: &'static str, access: RouteAccess, handler: impl Handler<A>, summary: &'static str) -> Route {
    Route::new(Method::POST, path, access, handler, summary)
}

pub fn put<A>(path: &'static str, access: RouteAccess, handler: impl Handler<A>, summary: &'static str) -> Route {
    Route::new(Method::PUT, path, access, handler, summary)
}

pub fn patch<A>(path: &'static str, access: RouteAccess, handler: impl Handler<A>, summary: &'static str) -> Route {
    Route::new(Method::PATCH, path, access, handler, summary)
}

pub fn delete<A>(path: &'static str, access: RouteAccess, handler: impl Handler<A>, summary: &'static str) -> Route {
    Route::new(Method::DELETE, path, access, handler, summary)
}

impl Route {
    fn new<A, H: Handler<A>>(
        method: Method,
        path: &'static str,
        access: RouteAccess,
        handler: H,
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            path,
            access,
            scope: None,
            summary,
            body: H::BODY,
            headers: H::HEADERS,
            max_body: None,
            schema: H::schema,
            handler: Box::new(move |services, request| handler.handle(services, request)),
        }
    }

    /// Opens the route to tokens with this scope.
    pub fn in_scope(self, scope: TokenScope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    pub fn with_max_body(self, bytes: usize) -> Self {
        Self { max_body: Some(bytes), ..self }
    }

    /// The largest body the route takes, given the service's limit.
    pub fn body_limit(&self, service_limit: usize) -> usize {
        self.max_body.map_or(service_limit, |own| own.min(service_limit))
    }

    pub fn handle(
        &self,
        services: &HttpServices,
        request: ApiRequest,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        (self.handler)(services, request)
    }
}

impl RouteTable {
    pub fn new(routes: Vec<Route>) -> Self {
        let mut root = PathNode::default();
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

    /// Looks up a method and path. HEAD finds the route of GET.
    pub fn find(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        let mut node = &self.root;
        let mut parameter = 0..0;
        // A name may equal a literal: `GET /api/methods/call` is about the method named `call`, since the literal `call` takes
        // only POST. An id never does.
        let mut by_parameter = None;
        for segment in segments(path) {
            let range = || {
                let start = segment.as_ptr() as usize - path.as_ptr() as usize;
                start..start + segment.len()
            };
            let literal = node.literals.iter().find(|(literal, _)| *literal == segment);
            by_parameter = node.parameter.as_deref().filter(|_| literal.is_some()).map(|node| (node, range()));
            if let Some((_, child)) = literal {
                node = child;
            } else if let Some(child) = node.parameter.as_deref().filter(|_| !segment.is_empty()) {
                parameter = range();
                node = child;
            } else {
                return RouteMatch::NotFound;
            }
        }
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let at = |node: &PathNode| {
            let mut here = node.routes.iter().map(|index| &self.routes[*index]);
            here.find(|route| route.method == *method)
        };
        let by_name = |node| at(node).filter(|route| !route.path.contains("{id}"));
        let by_parameter = by_parameter.and_then(|(node, range)| Some((by_name(node)?, range)));
        match at(node).map(|route| (route, parameter)).or(by_parameter) {
            Some((route, parameter)) => RouteMatch::Found(route, parameter),
            None if node.routes.is_empty() => RouteMatch::NotFound,
            None => RouteMatch::OtherMethods(node.routes.iter().map(|index| &self.routes[*index]).collect()),
        }
    }
}

impl PathNode {
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

/// Segments between slashes, after the first slash.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}
