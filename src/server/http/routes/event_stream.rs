//! `GET /api/events/stream`: events and the outcomes of their deliveries as they happen.
//!
//! An item is taken from the feed and written as text only when the client is ready for more. Waiting items stay in the
//! feed, once for all streams. The connection of a client that reads nothing is closed like any other.

use super::ownership::sees_all_events;
use crate::{
    identity::Caller,
    model::{
        api::events::{DeliveryNotice, LaggedNotice, StreamQuery},
        event::EventType,
        id::UserId,
        owner::Owner,
        pattern::Patterns,
    },
    platform::keyed_limit::KeyedPermit,
    routing::feed::{DeliveryUpdate, FeedItem},
    server::http::{ApiError, ApiRequest, EventStream, Query, services::EventServices},
};
use futures_util::{StreamExt, stream};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use warp::sse;

/// Interval of keep-alive comments on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The feed as one caller sees it.
struct CallerFeed {
    feed: Receiver<FeedItem>,
    caller: Caller,
    pattern: Option<Patterns>,
    _permit: KeyedPermit<UserId>,
}

pub async fn watch(
    services: Arc<EventServices>,
    request: ApiRequest,
    Query(query): Query<StreamQuery>,
) -> Result<EventStream, ApiError> {
    let caller = request.caller().clone();
    let permit = services.user_limits.stream(caller.user.id)?;
    let feed =
        CallerFeed { feed: services.feed.subscribe(), caller: caller.clone(), pattern: query.pattern, _permit: permit };
    let (identity, shutdown) = (services.identity.clone(), request.shutdown.clone());
    let ended = async move {
        tokio::select! {
            () = identity.wait_until_invalid(&caller) => {}
            () = shutdown.cancelled() => {}
        }
    };
    let events = stream::unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        Some((Ok::<_, Infallible>(event), feed))
    });
    let reply = sse::reply(sse::keep_alive().interval(HEARTBEAT).stream(events.take_until(ended)));
    Ok(EventStream(warp::Reply::into_response(reply)))
}

impl CallerFeed {
    /// The next event of the stream; `None` once the feed is closed.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            let item = match self.feed.recv().await {
                Ok(item) => Ok(item),
                Err(RecvError::Lagged(missed)) => Err(missed),
                Err(RecvError::Closed) => return None,
            };
            if let Some(event) = self.event(item) {
                return Some(event);
            }
        }
    }

    /// A feed item, or a number of missed ones, as an event; `None` if the caller may not see it or did not ask for it.
    fn event(&self, item: Result<FeedItem, u64>) -> Option<sse::Event> {
        let caller = &self.caller;
        let asked_for = |kind: &EventType| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(kind.as_str()));
        let (name, data) = match item {
            Err(missed) => ("lagged", serde_json::to_string(&LaggedNotice { missed }).ok()?),
            Ok(FeedItem::Accepted(event)) => {
                let visible = event.user_id == caller.user.id || sees_all_events(caller);
                if !asked_for(&event.kind) || !visible {
                    return None;
                }
                ("event", serde_json::to_string(&*event).ok()?)
            }
            Ok(FeedItem::Delivery(update)) => {
                let visible = update.user == caller.user.id || sees_all_events(caller) && update.owner == Owner::Global;
                if !asked_for(&update.event_type) || !visible {
                    return None;
                }
                ("delivery", serde_json::to_string(&delivery_notice(caller, &update)).ok()?)
            }
        };
        Some(sse::Event::default().event(name).data(data))
    }
}

/// The notice of an attempt. The error of a global sink is shown only to those who manage global sinks.
fn delivery_notice(caller: &Caller, update: &DeliveryUpdate) -> DeliveryNotice {
    let shows_error = update.owner != Owner::Global || sees_all_events(caller);
    DeliveryNotice {
        attempt: update.attempt,
        error: update.error.clone().filter(|_| shows_error),
        event_id: update.event_id,
        event_type: update.event_type.clone(),
        name: update.name.clone(),
        outcome: update.outcome.into(),
        sequence: update.sequence,
        sink_id: update.sink_id,
        state: update.state.into(),
        status: update.status,
    }
}
