//! The handler of one request: implements rmcp's server interface for a server that has tools and nothing else.

use super::{
    catalog::{ToolOffer, ToolSource},
    request_state::RequestState,
    state::EndpointState,
    tool::{self, Structure},
    tool_changes::ToolChanges,
};
use crate::calls::{call::CallError, registry::Viewer};
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

/// Tools in one response to tools/list.
const PAGE_SIZE: usize = 200;

/// Beginning of every cursor, by which a forged one is recognized.
const CURSOR_PREFIX: &str = "after:";

/// Error of a request that its client cancelled. Nobody reads it.
const CANCELLED: ErrorCode = ErrorCode(-32800);

/// Answers one request for its caller.
#[derive(Clone)]
pub struct ToolsHandler {
    pub state: Arc<EndpointState>,
    pub request: Arc<RequestState>,
}

impl ToolsHandler {
    fn viewer(&self) -> Viewer {
        Viewer::of_caller(&self.request.caller)
    }

    fn find(&self, name: &str) -> Option<ToolOffer> {
        self.state.catalog.find(&self.viewer(), name)
    }

    /// Calls the method or runs the stored tool behind an offer.
    async fn call(&self, offer: &ToolOffer, structure: Structure) -> Result<CallToolResponse, ErrorData> {
        let empty = || RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
        // A client may leave out empty arguments; a method or tool that takes an object gets an empty one.
        let arguments = self.request.arguments.clone().unwrap_or_else(empty);
        let result = match &offer.source {
            ToolSource::Method { name, published } => {
                match self.state.calls.call(&self.viewer(), name, Some(&arguments)).await {
                    Ok(outcome) => tool::result(published, &outcome, structure, &self.request.result),
                    // It was unregistered between the lookup and the call.
                    Err(CallError::UnknownMethod(_)) => return Err(unknown(&offer.name)),
                    Err(error) => tool::failure(&error.to_string()),
                }
            }
            ToolSource::Script(script) => {
                match self.state.tools.run(script, self.request.caller.user.id, arguments).await {
                    Ok(run) => tool::evaluated(run),
                    Err(error) => tool::failure(&format!("`{}`: {error}", script.name)),
                }
            }
        };
        Ok(result.into())
    }
}

impl ServerHandler for ToolsHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut server = Implementation::new("svc", env!("CARGO_PKG_VERSION"));
        server.title = Some("svc event router".to_owned());
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(
            "The tools are methods that running spaces publish, and scripts of the server. The list depends on the user \
             and changes as spaces come and go.",
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
        let offers = self.state.catalog.offers(&self.viewer());
        let start = match &self.request.cursor {
            Some(cursor) => {
                let last = read_cursor(cursor).ok_or_else(|| ErrorData::invalid_params("unknown cursor", None))?;
                offers.partition_point(|offer| offer.name <= last)
            }
            None => 0,
        };
        let rest = &offers[start..];
        let page = &rest[..rest.len().min(PAGE_SIZE)];
        let mut result =
            ListToolsResult::with_all_items(page.iter().map(|offer| tool::tool(offer, structure)).collect());
        if rest.len() > PAGE_SIZE {
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
        let cancelled = async {
            match &self.request.in_flight {
                Some(request) => request.cancelled().await,
                None => std::future::pending().await,
            }
        };
        // A client that cancels or hangs up drops the call, and with it its slot at the provider or the run of the script.
        tokio::select! {
            response = self.call(&offer, structure) => response,
            () = cancelled => Err(ErrorData::new(CANCELLED, "the request was cancelled", None)),
            () = context.ct.cancelled() => Err(ErrorData::new(CANCELLED, "the request was cancelled", None)),
        }
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let user = self.request.caller.user.id;
        let mut changes = ToolChanges::of(&self.state.catalog, user);
        let notifying = async {
            loop {
                changes.next().await;
                if context.accepted().tools_list_changed == Some(true)
                    && context.sink().notify_tool_list_changed().await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = notifying => {}
            () = context.cancelled() => {}
            () = self.state.streams_must_end(&self.request.caller) => {}
        }
        Ok(())
    }

    // rmcp takes a known method with wrong params for an unknown one.
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

    // By default rmcp answers these with an empty list, as if they were supported.

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

/// A hidden tool and an absent one look alike.
fn unknown(name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("Unknown tool: {name}"), None)
}

/// A cursor holds the last name of the page before, so that a tool that stays is listed once, whatever changes meanwhile.
fn write_cursor(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR_PREFIX}{last}"))
}

/// The name in a cursor; `None` if the server did not issue it.
fn read_cursor(cursor: &RawValue) -> Option<String> {
    let cursor: String = serde_json::from_str(cursor.get()).ok()?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    text.strip_prefix(CURSOR_PREFIX).map(ToOwned::to_owned)
}
