//! Keeps routes and queues in step with the book of sinks: whatever the book says has a queue and hears
//! its patterns, and nothing else does.

use super::Deliverer;
use crate::{
    id::SinkId,
    owner::Owner,
    pattern::Patterns,
    queue::{Engine, Target},
    route::Routes,
    sink::{Book, Change, Sink},
};
use std::{collections::HashSet, sync::Arc};

/// Makes routes and queues agree with the book now, and from now on with every change to it.
pub fn follow(book: &Book, routes: &Arc<Routes<Target>>, engine: &Arc<dyn Engine>, deliverer: &Deliverer) {
    let subscribed: HashSet<SinkId> = book.all().iter().filter(|sink| sink.subscribes()).map(|sink| sink.id).collect();
    for orphan in engine.sinks().into_iter().filter(|sink| !subscribed.contains(sink)) {
        discard(engine, orphan);
    }
    let (routes, engine, deliverer) = (routes.clone(), engine.clone(), deliverer.clone());
    let apply = move |change: &Change<Sink>| {
        let (before, after) = change.sides();
        let (before, after) = (before.filter(|sink| sink.subscribes()), after.filter(|sink| sink.subscribes()));
        if let Some(sink) = after {
            // Before the routes: an event routed to a sink without a queue would pass it by.
            engine.open(sink.id);
        }
        let (old, new) = (before.map(listener), after.map(listener));
        routes.replace(old.as_ref().map(route), new.as_ref().map(route));
        match (before, after) {
            (Some(sink), None) => discard(&engine, sink.id),
            // What waited while it was switched off, or failed before it was mended, is tried at once.
            (Some(_), Some(sink)) if sink.active => deliverer.hurry(sink.id),
            (None, Some(sink)) => deliverer.wake(sink.id),
            _ => {}
        }
    };
    for sink in book.all() {
        apply(&Change::Created(sink));
    }
    book.listen(apply);
}

/// Everything the routes need to know of a sink.
type Listener<'a> = (&'a Patterns, Owner, Target);

fn listener(sink: &Sink) -> Listener<'_> {
    (&sink.events, sink.owner, Target { sink: sink.id, name: sink.name.as_str().into() })
}

fn route<'a>((patterns, owner, target): &'a Listener<'a>) -> (&'a Patterns, Owner, &'a Target) {
    (patterns, *owner, target)
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
