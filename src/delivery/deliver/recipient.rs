//! The recipient behind a queue: a sink, or a method that subscribed to events.

use crate::{
    delivery::{
        CompletedAttempt, Postponed,
        sinks::{self, EventBody, Sink, SinkContext, Sinks},
        subscriptions::{self, MethodContext, Presence, Subscription, Subscriptions},
    },
    model::{batch_spec::BatchSpec, failure_policy::OnFailure, id::SinkId, owner::Owner},
    scripting::lua::EventInput,
};
use std::sync::Arc;

/// A recipient that can be delivered to now.
pub(super) enum Recipient {
    Sink(Arc<Sink>),
    Method(Arc<Subscription>),
}

/// Finds recipients and makes attempts at them.
pub(super) struct Recipients {
    pub sinks: Sinks,
    pub subscriptions: Subscriptions,
    pub sink_context: SinkContext,
    pub method_context: MethodContext,
}

impl Recipients {
    /// Returns the recipient of this queue. `None` if it is inactive, or its space is away; queued events wait then and
    /// use up no attempt.
    pub fn find(&self, id: SinkId) -> Option<Recipient> {
        if let Some(sink) = self.sinks.get(id) {
            return sink.active.then_some(Recipient::Sink(sink));
        }
        let subscription = self.subscriptions.get(id)?;
        let presence = self.method_context.methods.presence(subscription.space, &subscription.method);
        (presence == Presence::Ready).then_some(Recipient::Method(subscription))
    }

    /// Attempts to deliver these events as one, with a body that was rendered ahead if there is one. Only a sink with
    /// batches gets more than one.
    pub async fn attempt(
        &self,
        recipient: &Recipient,
        mut inputs: Vec<EventInput>,
        body: Option<EventBody>,
    ) -> Result<CompletedAttempt, Postponed> {
        match recipient {
            Recipient::Sink(sink) => sinks::attempt_batch(&self.sink_context, sink, inputs, body).await,
            Recipient::Method(subscription) => {
                // On the heap: an attempt of a webhook is smaller.
                Box::pin(subscriptions::attempt(&self.method_context, subscription, inputs.remove(0))).await
            }
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
            Self::Sink(sink) => (*sink.name).into(),
            Self::Method(subscription) => subscription.name().into(),
        }
    }

    /// The batches that it takes, if it does.
    pub fn batch(&self) -> Option<BatchSpec> {
        match self {
            Self::Sink(sink) => sink.batch(),
            Self::Method(_) => None,
        }
    }

    /// The consequence of the last failed attempt.
    pub fn on_failure(&self) -> OnFailure {
        match self {
            Self::Sink(sink) => sink.on_failure,
            Self::Method(_) => OnFailure::DeadLetter,
        }
    }

    pub fn owner(&self) -> Owner {
        match self {
            Self::Sink(sink) => sink.owner,
            Self::Method(subscription) => subscription.event_owner(),
        }
    }
}
