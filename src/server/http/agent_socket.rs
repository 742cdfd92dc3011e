//! `/api/agent`: upgrades the request of an agent to a WebSocket and hands it to [`crate::server::agent_hub`].

use super::{
    Response,
    authorize::Authorized,
    error::ApiError,
    request::{ApiRequest, RequestHead},
    response::NoContent,
};
use crate::{
    identity::Credential,
    model::{agent_protocol, id::SpaceId},
    server::agent_hub::{AgentHub, SocketFrame},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt, future};
use warp::{
    Filter, Reply,
    ws::{Message, WebSocket, Ws},
};

/// Takes authorized requests for a WebSocket at the agents' path.
pub(super) fn filter(
    agents: AgentHub,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::path!("api" / "agent").and(warp::ext::get::<Authorized>()).and(warp::ws()).map(
        move |authorized: Authorized, upgrade: Ws| {
            accept_agent(&agents, &authorized.head, upgrade).unwrap_or_else(ApiError::into_response)
        },
    )
}

/// Answers a request at the agents' path that asks for no WebSocket.
pub async fn explain(_: ApiRequest) -> Result<NoContent, ApiError> {
    Err(ApiError::BadRequest("this is a WebSocket for agents: `svc agent start` speaks it".to_owned()))
}

fn accept_agent(agents: &AgentHub, head: &RequestHead, upgrade: Ws) -> Result<Response, ApiError> {
    let space = require_agent(head)?;
    let caller = head.caller.clone().ok_or(ApiError::Unauthorized("send the token of a space's agent"))?;
    let agents = agents.clone();
    let upgrade = upgrade.max_message_size(agent_protocol::MAX_MESSAGE).max_frame_size(agent_protocol::MAX_MESSAGE);
    let upgraded =
        upgrade.on_upgrade(move |socket| async move { agents.run_session(caller, space, framed(socket)).await });
    Ok(upgraded.into_response())
}

fn require_agent(head: &RequestHead) -> Result<SpaceId, ApiError> {
    match head.caller.as_ref().map(|caller| &caller.via) {
        Some(Credential::Agent { space, .. }) => Ok(*space),
        _ => Err(ApiError::Forbidden(
            "only the agent of a space is let in here: use its agent token, which `svc space token` makes".to_owned(),
        )),
    }
}

/// Converts between WebSocket messages and the frames of an agent session.
fn framed(
    socket: WebSocket,
) -> impl Stream<Item = Result<SocketFrame, warp::Error>> + Sink<SocketFrame, Error = warp::Error> {
    let read = |message: Message| {
        if message.is_binary() || message.is_text() {
            SocketFrame::Message(message.into_bytes())
        } else if message.is_close() {
            SocketFrame::Close
        } else {
            SocketFrame::Alive
        }
    };
    let write = |frame: SocketFrame| match frame {
        SocketFrame::Message(bytes) => Message::binary(bytes),
        SocketFrame::Ping | SocketFrame::Alive => Message::ping(bytes::Bytes::new()),
        SocketFrame::Close => Message::close(),
    };
    socket.map(move |message| message.map(read)).with(move |frame| future::ok::<_, warp::Error>(write(frame)))
}
