//! One request, answered for its caller: what rmcp asks of a server, which has tools and nothing else.

use super::{
    Inner,
    catalog::{Offer, Source},
    in_flight::Flight,
    raw_result::Inlay,
    tool::{self, Structure},
    tool_changes::News,
};
use crate::{
    calls::{call::CallError, registry::Viewer},
    identity::Caller,
    model::id::UserId,
    platform::keyed_limit::Share,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams, CompleteResult,
        CustomRequest, CustomResult, ErrorCode, Implementation, ListPromptsRequestMethod, ListPromptsResult,
        ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
        SubscriptionFilter, Tool,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde_json::value::RawValue;
use std::sync::Arc;

/// Tools in one answer to tools/list.
const PAGE: usize = 200;

/// What a cursor begins with, by which it is told from what only looks like one.
const CURSOR: &str = "after:";

/// What is told to a client whose request was taken back, and who no longer listens.
const RECALLED: ErrorCode = ErrorCode(-32800);

/// Who asks, and with what.
pub struct Visit {
    pub caller: Caller,
    /// Of a call, as they came.
    pub arguments: Option<Box<RawValue>>,
    /// Of a list, as it came: rmcp takes one that is no text for none.
    pub cursor: Option<Box<RawValue>>,
    /// If the client can take the request back by another one.
    pub flight: Option<Flight>,
    /// For the structured result of a call.
    pub inlay: Inlay,
    /// If this is a stream for as long as the client likes.
    pub _share: Option<Share<UserId>>,
}

/// The desk at which a visit is received.
#[derive(Clone)]
pub struct Desk {
    pub inner: Arc<Inner>,
    pub visit: Arc<Visit>,
}

impl Desk {
    fn viewer(&self) -> Viewer {
        Viewer::of_caller(&self.visit.caller)
    }

    fn find(&self, name: &str) -> Option<Offer> {
        self.inner.catalog.find(&self.viewer(), name)
    }

    /// Does what is behind an offer.
    async fn call(&self, offer: &Offer, structure: Structure) -> Result<CallToolResponse, ErrorData> {
        let empty = || RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
        // A client leaves out what would be empty; to whoever takes an object, nothing is none.
        let arguments = self.visit.arguments.clone().unwrap_or_else(empty);
        let result = match &offer.source {
            Source::Method { name, published } => {
                match self.inner.calls.call(&self.viewer(), name, Some(&arguments)).await {
                    Ok(outcome) => tool::result(published, &outcome, structure, &self.visit.inlay),
                    // It was withdrawn this moment.
                    Err(CallError::UnknownMethod(_)) => return Err(unknown(&offer.name)),
                    Err(error) => tool::failure(&error.to_string()),
                }
            }
            Source::Script(script) => {
                match self.inner.toolbox.run(script, self.visit.caller.user.id, arguments).await {
                    Ok(run) => tool::evaluated(run),
                    Err(error) => tool::failure(&format!("`{}`: {error}", script.name)),
                }
            }
        };
        Ok(result.into())
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut server = Implementation::new("svc", env!("CARGO_PKG_VERSION"));
        server.title = Some("svc event router".to_owned());
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(
            "The tools are methods that running workspaces publish, and scripts of the server. Which there are depends on \
             who you are, and changes as workspaces come and go.",
        )
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.find(name).map(|offer| tool::tool(&offer, Structure::Anything))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let structure = Structure::of_version(context.protocol_version().as_ref());
        let offers = self.inner.catalog.offers(&self.viewer());
        let start = match &self.visit.cursor {
            Some(cursor) => {
                let last = read_cursor(cursor).ok_or_else(|| ErrorData::invalid_params("unknown cursor", None))?;
                offers.partition_point(|offer| offer.name <= last)
            }
            None => 0,
        };
        let rest = &offers[start..];
        let page = &rest[..rest.len().min(PAGE)];
        let mut result =
            ListToolsResult::with_all_items(page.iter().map(|offer| tool::tool(offer, structure)).collect());
        if rest.len() > PAGE {
            result.next_cursor = page.last().map(|last| write_cursor(&last.name));
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let structure = Structure::of_version(context.protocol_version().as_ref());
        let offer = self.find(&request.name).ok_or_else(|| unknown(&request.name))?;
        let recalled = async {
            match &self.visit.flight {
                Some(flight) => flight.recalled().await,
                None => std::future::pending().await,
            }
        };
        // Whoever takes the request back, or hangs up, has the call dropped, and with it its place at the provider, or the
        // run of the script.
        tokio::select! {
            answer = self.call(&offer, structure) => answer,
            () = recalled => Err(ErrorData::new(RECALLED, "the request was cancelled", None)),
            () = context.ct.cancelled() => Err(ErrorData::new(RECALLED, "the request was cancelled", None)),
        }
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let user = self.visit.caller.user.id;
        let mut news = News::of(&self.inner.catalog, user);
        let telling = async {
            loop {
                news.next().await;
                if context.accepted().tools_list_changed == Some(true)
                    && context.sink().notify_tool_list_changed().await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = telling => {}
            () = context.cancelled() => {}
            () = self.inner.over(&self.visit.caller) => {}
        }
        Ok(())
    }

    // Where the params are not those of its method, rmcp takes a request for one that it does not know.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        match request.method.as_str() {
            known @ ("tools/call" | "tools/list" | "initialize" | "subscriptions/listen") => {
                Err(ErrorData::invalid_params(format!("the params are not those of {known}"), None))
            }
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)),
        }
    }

    // What we have not, rmcp would have us answer with an empty list.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// Hidden and absent look alike.
fn unknown(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("Unknown tool: {name}"), None)
}

/// A cursor is the last name of the page before, so that what stays in the list is listed once, whatever changes.
fn write_cursor(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR}{last}"))
}

/// The name in a cursor; `None` for what is none of ours.
fn read_cursor(cursor: &RawValue) -> Option<String> {
    let cursor: String = serde_json::from_str(cursor.get()).ok()?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    text.strip_prefix(CURSOR).map(ToOwned::to_owned)
}
