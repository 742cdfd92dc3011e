//! Permission to deliver, which a worker may keep from one event to the next.

use super::{recipient::Recipient, sink_pools::SinkPermit};
use crate::delivery::sinks::Sink;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Permission to run deliveries of one queue, released when dropped.
pub(super) enum DeliveryPermit {
    Sink(SinkPermit),
    Method(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit),
}

/// A permit that a worker keeps for the next event of its sink, as the sink was.
pub(super) struct KeptPermit {
    permit: SinkPermit,
    sink: Arc<Sink>,
}

impl KeptPermit {
    /// Keeps the permit of an event that was delivered, if the sink has its turn still.
    pub fn new(permit: DeliveryPermit, recipient: &Recipient) -> Option<Self> {
        match (permit, recipient) {
            (DeliveryPermit::Sink(permit), Recipient::Sink(sink)) if permit.has_turn() => {
                Some(Self { permit, sink: sink.clone() })
            }
            _ => None,
        }
    }

    /// The permit, unless the sink has changed since: it counts as new then.
    pub fn take_for(self, recipient: &Recipient) -> Option<DeliveryPermit> {
        let is_same = matches!(recipient, Recipient::Sink(sink) if Arc::ptr_eq(sink, &self.sink));
        is_same.then_some(DeliveryPermit::Sink(self.permit))
    }
}
