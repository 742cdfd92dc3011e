//! `/api/agent`: upgrades the request of an agent to a WebSocket and hands it to [`crate::server::agent_hub`].

use super::{
    Response,
    authorize::Authorized,
    error::ApiError,
    hello_limit::HelloLimit,
    request::{ApiRequest, RequestHead},
    response::NoContent,
};
use crate::{
    identity::Credential,
    model::{agent_protocol, id::SpaceId},
    platform::task,
    server::agent_hub::{AgentHub, MAX_SOCKETS, SocketFrame},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt, future};
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use hyper::{StatusCode, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};
use warp::Filter;

/// Advice to an agent that has too many sockets. They end when their agents do not answer heartbeats.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Takes authorized requests for a WebSocket at the agents' path.
pub(super) fn filter(
    agents: AgentHub,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::path!("api" / "agent")
        .and(warp::ext::get::<Authorized>())
        .and(warp::header::exact_ignore_case("upgrade", "websocket"))
        .and(warp::header::exact("sec-websocket-version", "13"))
        .and(warp::header::<String>("sec-websocket-key"))
        .and(warp::ext::get::<OnUpgrade>())
        .map(move |authorized: Authorized, key: String, upgrade: OnUpgrade| {
            accept_agent(&agents, &authorized.head, &key, upgrade).unwrap_or_else(ApiError::into_response)
        })
}

/// Answers a request at the agents' path that asks for no WebSocket.
pub async fn explain(_: ApiRequest) -> Result<NoContent, ApiError> {
    Err(ApiError::BadRequest("this is a WebSocket for agents: `svc agent start` speaks it".to_owned()))
}

fn accept_agent(agents: &AgentHub, head: &RequestHead, key: &str, upgrade: OnUpgrade) -> Result<Response, ApiError> {
    let space = require_agent(head)?;
    let caller = head.caller.clone().ok_or(ApiError::Unauthorized("send the token of a space's agent"))?;
    let place = agents.admit_socket(space).ok_or_else(|| ApiError::TooManyRequests {
        message: format!(
            "{MAX_SOCKETS} connections with this agent token are open already: end the other agents that use it"
        ),
        wait: RETRY_AFTER,
    })?;
    let agents = agents.clone();
    task::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let limit = HelloLimit::new();
            let stream = limit.applied_to(TokioIo::new(upgraded));
            let config = WebSocketConfig::default()
                .max_message_size(Some(agent_protocol::MAX_MESSAGE))
                .max_frame_size(Some(agent_protocol::MAX_MESSAGE));
            let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
            agents.run_session(caller, space, framed(socket, limit)).await;
        }
        drop(place);
    });
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept.expect("base64 is a header"));
    Ok(response)
}

fn require_agent(head: &RequestHead) -> Result<SpaceId, ApiError> {
    match head.caller.as_ref().map(|caller| &caller.via) {
        Some(Credential::Agent { space, .. }) => Ok(*space),
        _ => Err(ApiError::Forbidden(
            "only the agent of a space is let in here: use its agent token, which `svc space token` makes".to_owned(),
        )),
    }
}

/// Converts between WebSocket messages and the frames of an agent session. The first message ends the limit of the stream:
/// it is the hello, or the session ends.
fn framed<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    limit: HelloLimit,
) -> impl Stream<Item = Result<SocketFrame, tungstenite::Error>> + Sink<SocketFrame, Error = tungstenite::Error> {
    let read = move |message: Message| match message {
        Message::Binary(_) | Message::Text(_) => {
            limit.lift();
            SocketFrame::Message(message.into_data())
        }
        Message::Close(_) => SocketFrame::Close,
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => SocketFrame::Alive,
    };
    let write = |frame: SocketFrame| match frame {
        SocketFrame::Message(bytes) => Message::Binary(bytes),
        SocketFrame::Ping | SocketFrame::Alive => Message::Ping(bytes::Bytes::new()),
        SocketFrame::Close => Message::Close(None),
    };
    let reading = socket.map(move |message| message.map(&read));
    reading.with(move |frame| future::ok::<_, tungstenite::Error>(write(frame)))
}
