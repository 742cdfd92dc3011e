//! Keeps routes and queues in step with the books of sinks and subscriptions: whatever they say has a queue and hears
//! its patterns, and nothing else does.

use super::Deliverer;
use crate::{
    delivery::{sinks::Sink, subscriptions::Subscription},
    model::{id::SinkId, owner::Owner, pattern::Patterns},
    platform::store::Change,
    routing::{
        matcher::Routes,
        queue::{Engine, Target},
    },
};
use std::{collections::HashSet, sync::Arc};

/// Makes routes and queues agree with the deliverer's books now, and from now on with every change to them.
pub fn follow(routes: &Arc<Routes<Target>>, deliverer: &Deliverer) {
    let parts = &deliverer.0.parts;
    let (sinks, subscriptions) = (parts.book.all(), parts.subscriptions.all());
    let with_queue = sinks.iter().filter(|sink| sink.subscribes()).map(|sink| sink.id);
    let known: HashSet<SinkId> = with_queue.chain(subscriptions.iter().map(|subscription| subscription.id)).collect();
    for orphan in parts.engine.sinks().into_iter().filter(|sink| !known.contains(sink)) {
        discard(&parts.engine, orphan);
    }

    let follower = Follower { routes: routes.clone(), deliverer: deliverer.clone() };
    for sink in sinks {
        follower.apply(None, of_sink(&sink));
    }
    for subscription in subscriptions {
        follower.apply(None, Some(of_subscription(&subscription)));
    }
    let of_methods = follower.clone();
    parts.book.listen(move |change: &Change<Sink>| {
        let (before, after) = change.sides();
        follower.apply(before.and_then(of_sink), after.and_then(of_sink));
    });
    parts.subscriptions.listen(move |change| {
        let (before, after) = change.sides();
        of_methods.apply(before.map(of_subscription), after.map(of_subscription));
    });
}

#[derive(Clone)]
struct Follower {
    routes: Arc<Routes<Target>>,
    deliverer: Deliverer,
}

/// Everything the routes need to know of one who hears events.
struct Listener<'a> {
    patterns: &'a Patterns,
    owner: Owner,
    target: Target,
}

impl Follower {
    fn apply(&self, before: Option<Listener<'_>>, after: Option<Listener<'_>>) {
        let engine = &self.deliverer.0.parts.engine;
        if let Some(listener) = &after {
            // Before the routes: an event routed to a sink without a queue would pass it by.
            engine.open(listener.target.sink);
        }
        self.routes.replace(before.as_ref().map(Listener::route), after.as_ref().map(Listener::route));
        match (before, after) {
            (Some(gone), None) => discard(engine, gone.target.sink),
            // What waited while it was switched off, or failed before it was mended, is tried at once.
            (Some(_), Some(listener)) => self.deliverer.hurry(listener.target.sink),
            (None, Some(listener)) => self.deliverer.wake(listener.target.sink),
            (None, None) => {}
        }
    }
}

impl Listener<'_> {
    fn route(&self) -> (&Patterns, Owner, &Target) {
        (self.patterns, self.owner, &self.target)
    }
}

/// `None` for a formatter, which hears nothing itself.
fn of_sink(sink: &Sink) -> Option<Listener<'_>> {
    let target = Target { sink: sink.id, name: sink.name.as_str().into() };
    sink.subscribes().then_some(Listener { patterns: &sink.events, owner: sink.owner, target })
}

fn of_subscription(subscription: &Subscription) -> Listener<'_> {
    let target = Target { sink: subscription.id, name: subscription.name().into() };
    Listener { patterns: &subscription.events, owner: subscription.hears(), target }
}

fn discard(engine: &Arc<dyn Engine>, sink: SinkId) {
    let engine = engine.clone();
    tokio::spawn(async move {
        match engine.discard(sink).await {
            Ok(0) => {}
            Ok(waiting) => log::info!("sink {sink} is gone, and {waiting} undelivered events with it"),
            // The queue is an orphan now, and the next start throws it away.
            Err(error) => log::error!("the queue of deleted sink {sink} could not be thrown away: {error}"),
        }
    });
}
