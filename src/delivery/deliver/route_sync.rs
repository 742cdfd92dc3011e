//! Keeps routes, filters and queues in line with the sinks and subscriptions: each that receives events has a queue and
//! a route for its patterns, and nothing else has. A change of a stored script counts as one of the sinks that run it.

use super::{Deliverer, sink_worker::DelivererState};
use crate::{
    delivery::{sinks::Sink, subscriptions::Subscription},
    model::{
        id::{ScriptId, SinkId},
        owner::Owner,
        pattern::Patterns,
    },
    platform::{collection::Change, task},
    routing::{
        matcher::{RouteEntry, Routes},
        queue::{Engine, RouteTarget},
        route::EventRoute,
    },
};
use std::{collections::HashSet, sync::Arc};

/// Brings routes and queues in line with the deliverer's sinks and subscriptions, now and on every later change.
pub fn sync_routes(routes: &Arc<Routes<EventRoute>>, deliverer: &Deliverer) {
    let (engine, recipients) = (&deliverer.0.engine, &deliverer.0.recipients);
    let (sinks, subscriptions) = (recipients.sinks.all(), recipients.subscriptions.all());
    let with_queue = sinks.iter().filter(|sink| sink.receives_events()).map(|sink| sink.id);
    let known: HashSet<SinkId> = with_queue.chain(subscriptions.iter().map(|subscription| subscription.id)).collect();
    for orphan in engine.sinks().into_iter().filter(|sink| !known.contains(sink)) {
        discard_queue(engine, orphan);
    }
    let failures = &deliverer.0.failures;
    failures.sinks().into_iter().filter(|sink| !known.contains(sink)).for_each(|orphan| failures.forget(orphan));

    let sync = RouteSync { routes: routes.clone(), deliverer: deliverer.clone() };
    for sink in sinks {
        sync.apply_sink(None, Some(&sink));
    }
    for subscription in subscriptions {
        sync.apply_subscription(None, Some(&subscription));
    }
    let (subscription_sync, script_sync) = (sync.clone(), sync.clone());
    recipients.sinks.listen(move |change: &Change<Sink>| {
        let (before, after) = change.sides();
        sync.apply_sink(before, after);
    });
    recipients.subscriptions.listen(move |change| {
        let (before, after) = change.sides();
        subscription_sync.apply_subscription(before, after);
    });
    recipients.sink_context.scripts.listen(move |change| {
        // A library takes effect with the next attempt.
        script_sync.deliverer.0.ahead.change_libraries();
        if let (Some(_), Some(script)) = change.sides() {
            script_sync.retry_sinks_of(script.id);
        }
    });
}

#[derive(Clone)]
struct RouteSync {
    routes: Arc<Routes<EventRoute>>,
    deliverer: Deliverer,
}

/// The route of one sink or subscription.
struct RecipientRoute<'a> {
    patterns: &'a Patterns,
    owner: Owner,
    route: EventRoute,
}

impl RouteSync {
    fn apply_sink(&self, before: Option<&Sink>, after: Option<&Sink>) {
        let filters = &self.deliverer.0.recipients.method_context.filters;
        // A filter is there before the route that needs it, and as long.
        if let Some(sink) = after {
            filters.set(sink.id, sink.owner, sink.filter.as_ref());
        }
        self.apply(before.and_then(sink_route), after.and_then(sink_route));
        if let (Some(sink), None) = (before, after) {
            filters.remove(sink.id);
        }
    }

    fn apply_subscription(&self, before: Option<&Subscription>, after: Option<&Subscription>) {
        let filters = &self.deliverer.0.recipients.method_context.filters;
        if let Some(subscription) = after {
            filters.set(subscription.id, subscription.event_owner(), subscription.filter.as_ref());
        }
        self.apply(before.map(subscription_route), after.map(subscription_route));
        if let (Some(subscription), None) = (before, after) {
            filters.remove(subscription.id);
        }
    }

    /// Makes the retries of the sinks that run a stored script due at once.
    fn retry_sinks_of(&self, script: ScriptId) {
        let DelivererState { engine, recipients, sink_pools, .. } = &*self.deliverer.0;
        let running = recipients.sinks.page(None, usize::MAX, |sink| sink.script_id() == Some(script));
        for sink in running.iter().map(|sink| sink.id) {
            let Some(head) = engine.queue_head(sink) else { continue };
            if head.failures > 0 {
                sink_pools.renew(sink);
            }
            // An attempt that is under way with the old script may fail yet, and its retry is due at once then.
            self.deliverer.retry_now(sink);
        }
    }

    fn apply(&self, before: Option<RecipientRoute<'_>>, after: Option<RecipientRoute<'_>>) {
        let DelivererState { engine, sink_pools, failures, .. } = &*self.deliverer.0;
        if let Some(route) = &after {
            // Before the route is added: an event routed to a sink without a queue would miss that sink.
            engine.open_queue(&route.route.target, route.owner);
        }
        self.routes.replace(before.as_ref().map(RecipientRoute::entry), after.as_ref().map(RecipientRoute::entry));
        match (before, after) {
            (Some(removed), None) => {
                sink_pools.forget(removed.route.target.sink);
                failures.forget(removed.route.target.sink);
                discard_queue(engine, removed.route.target.sink);
            }
            // An event that waited while the sink was inactive, or failed before the sink was corrected, is due at
            // once.
            (Some(_), Some(changed)) => {
                sink_pools.renew(changed.route.target.sink);
                self.deliverer.retry_now(changed.route.target.sink);
            }
            (None, Some(added)) => self.deliverer.wake(added.route.target.sink),
            (None, None) => {}
        }
    }
}

impl RecipientRoute<'_> {
    fn entry(&self) -> RouteEntry<'_, EventRoute> {
        (self.patterns, self.owner, &self.route)
    }
}

/// Returns `None` for a formatter, which receives no events.
fn sink_route(sink: &Sink) -> Option<RecipientRoute<'_>> {
    let target = RouteTarget { sink: sink.id, name: (*sink.name).into() };
    let route = EventRoute { target, filtered: sink.filter.is_some(), all_reports: sink.internal };
    sink.receives_events().then_some(RecipientRoute { patterns: &sink.events, owner: sink.owner, route })
}

fn subscription_route(subscription: &Subscription) -> RecipientRoute<'_> {
    let target = RouteTarget { sink: subscription.id, name: subscription.name().into() };
    let route = EventRoute { target, filtered: subscription.filter.is_some(), all_reports: false };
    RecipientRoute { patterns: &subscription.events, owner: subscription.event_owner(), route }
}

fn discard_queue(engine: &Arc<dyn Engine>, sink: SinkId) {
    let engine = engine.clone();
    task::spawn(async move {
        match engine.discard_queue(sink).await {
            Ok(0) => {}
            Ok(queued) => log::info!("sink {sink} was deleted, and {queued} undelivered events with it"),
            // The queue is an orphan now, and the next start deletes it.
            Err(error) => log::error!("the queue of deleted sink {sink} could not be deleted: {error}"),
        }
    });
}
