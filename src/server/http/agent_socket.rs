//! The agents' door: a WebSocket for whoever came by the token of a space.

use super::{
    App, Response,
    error::ApiError,
    guard::Admission,
    request::{Call, NoContent},
};
use crate::{identity::Via, model::agent_protocol, server::agent_hub::Frame};
use futures_util::{Sink, SinkExt, Stream, StreamExt, future};
use std::sync::Arc;
use warp::{
    Filter, Reply,
    ws::{Message, WebSocket, Ws},
};

/// Takes requests for a WebSocket at the agents' path. The guard has let them pass, as it does every request.
pub(super) fn filter(
    app: Arc<App>,
) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
    warp::path!("api" / "agent").and(warp::ext::get::<Arc<Admission>>()).and(warp::ws()).map(
        move |admission: Arc<Admission>, upgrade: Ws| {
            link(&app, &admission, upgrade).unwrap_or_else(ApiError::into_response)
        },
    )
}

/// What a request there gets that asks for no WebSocket.
pub async fn explain(_: Call) -> Result<NoContent, ApiError> {
    Err(ApiError::BadRequest("this is a WebSocket for agents: `svc agent start` speaks it".to_owned()))
}

fn link(app: &App, admission: &Admission, upgrade: Ws) -> Result<Response, ApiError> {
    let space = require_agent(admission)?;
    let caller = admission.caller.clone().ok_or(ApiError::Unauthorized("an agent has a token"))?;
    let sessions = app.sessions.clone();
    let upgrade = upgrade.max_message_size(agent_protocol::MAX_MESSAGE).max_frame_size(agent_protocol::MAX_MESSAGE);
    let upgraded =
        upgrade.on_upgrade(move |socket| async move { sessions.converse(caller, space, framed(socket)).await });
    Ok(upgraded.into_response())
}

fn require_agent(admission: &Admission) -> Result<crate::model::id::SpaceId, ApiError> {
    match admission.caller.as_ref().map(|caller| &caller.via) {
        Some(Via::Agent { space, .. }) => Ok(*space),
        _ => Err(ApiError::Forbidden(
            "only the agent of a space is let in here: use its agent token, which `svc space token` makes".to_owned(),
        )),
    }
}

/// A socket as sessions know it.
fn framed(socket: WebSocket) -> impl Stream<Item = Result<Frame, warp::Error>> + Sink<Frame, Error = warp::Error> {
    let read = |message: Message| {
        if message.is_binary() || message.is_text() {
            Frame::Message(message.into_bytes())
        } else if message.is_close() {
            Frame::Close
        } else {
            Frame::Sign
        }
    };
    let write = |frame: Frame| match frame {
        Frame::Message(bytes) => Message::binary(bytes),
        Frame::Ping | Frame::Sign => Message::ping(bytes::Bytes::new()),
        Frame::Close => Message::close(),
    };
    socket.map(move |message| message.map(read)).with(move |frame| future::ok::<_, warp::Error>(write(frame)))
}
