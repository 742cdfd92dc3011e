//! Whom a queue is delivered to: a sink, or a method that subscribed to events. Here is all that a worker needs to know
//! of either.

use super::Shared;
use crate::{
    delivery::{
        sinks::{self, Attempted, Sink, Target},
        subscriptions::{self, Presence, Subscription},
    },
    model::{id::SinkId, owner::Owner},
    scripting::lua::EventInput,
};
use std::sync::Arc;

/// One that can be delivered to now.
pub(super) enum Recipient {
    Sink(Arc<Sink>),
    Method(Arc<Subscription>),
}

impl Shared {
    /// The recipient of this queue, unless it is switched off, or its space is away: then what waits goes on waiting.
    pub(super) fn recipient(&self, id: SinkId) -> Option<Recipient> {
        if let Some(sink) = self.parts.book.get(id) {
            return sink.active.then_some(Recipient::Sink(sink));
        }
        let subscription = self.parts.subscriptions.get(id)?;
        // What would only be refused waits, and uses up no attempt.
        let open = self.parts.door.presence(subscription.space, &subscription.method) == Presence::Ready;
        open.then_some(Recipient::Method(subscription))
    }

    pub(super) async fn attempt(&self, recipient: &Recipient, input: EventInput) -> Attempted {
        match recipient {
            Recipient::Sink(sink) => sinks::attempt(&self.parts.context, sink, input).await,
            Recipient::Method(method) => subscriptions::attempt(&self.methods, method, input).await,
        }
    }
}

impl Recipient {
    pub fn id(&self) -> SinkId {
        match self {
            Self::Sink(sink) => sink.id,
            Self::Method(subscription) => subscription.id,
        }
    }

    pub fn name(&self) -> Arc<str> {
        match self {
            Self::Sink(sink) => sink.name.as_str().into(),
            Self::Method(subscription) => subscription.name().into(),
        }
    }

    pub fn owner(&self) -> Owner {
        match self {
            Self::Sink(sink) => sink.owner,
            Self::Method(subscription) => subscription.hears(),
        }
    }

    /// Whether it says itself when the next attempt is to be made, and not only when it is too early.
    pub fn keeps_the_time(&self) -> bool {
        matches!(self, Self::Sink(sink) if matches!(sink.target, Target::Script(_)))
    }
}
