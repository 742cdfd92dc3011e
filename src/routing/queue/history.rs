//! History as callers ask for it: a filter, and pages of events with their deliveries.
//!
//! The embedded engine reads the pages in [`super::sled`].

use super::{Attempt, Delivery, DeliveryState};
use crate::model::{
    delivery::AttemptKind,
    event::Event,
    id::{EventId, SinkId, UserId},
    pattern::Patterns,
    timestamp::Timestamp,
};
use std::{fmt, str::FromStr, sync::Arc};

/// An event with its deliveries.
#[derive(Clone, Debug)]
pub struct Record {
    /// The time at which the engine accepted it.
    pub accepted_at: Timestamp,
    pub event: Arc<Event>,
    pub deliveries: Vec<Delivery>,
}

/// Selects events of history. A field that is absent selects all.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// The event's user.
    pub user: Option<UserId>,
    pub pattern: Option<Patterns>,
    /// Events with a delivery to this sink.
    pub sink: Option<SinkId>,
    /// Events with a delivery in this state.
    pub state: Option<DeliveryState>,
    /// Events with such an attempt.
    pub attempt: Option<AttemptFilter>,
    /// The deliveries that the three fields above are about.
    pub deliveries: Option<DeliverySelection>,
    /// Events accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Events accepted at this time or earlier.
    pub until: Option<Timestamp>,
    /// Events whose payload has this text, as it was sent.
    pub text: Option<String>,
    /// Events older than the one at this position.
    pub after: Option<HistoryPosition>,
    pub limit: usize,
}

/// Selects deliveries by their event and their sink.
#[derive(Clone)]
pub struct DeliverySelection(Arc<SelectsDelivery>);

type SelectsDelivery = dyn Fn(&Event, SinkId) -> bool + Send + Sync;

/// Attempts of one kind, as the figures of the last hour count them.
#[derive(Clone, Copy, Debug)]
pub struct AttemptFilter {
    pub kind: AttemptKind,
    /// Attempts at this time or later.
    pub since: Option<Timestamp>,
}

/// A page of history, newest event first.
#[derive(Debug)]
pub struct HistoryPage {
    pub records: Vec<Record>,
    pub next: Option<HistoryPosition>,
}

/// The place of an event in history, which is in the order of acceptance. As a cursor it stands for the events before
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPosition {
    /// Given by the engine, and different for each event.
    pub accepted_at: Timestamp,
    pub id: EventId,
}

impl HistoryFilter {
    pub(super) fn selects_event(&self, event: &Event) -> bool {
        self.user.is_none_or(|user| user == event.user_id)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(event.kind.as_str()))
            && self.text.as_ref().is_none_or(|text| event.data.get().contains(text))
    }

    /// Returns true if one of the deliveries is of the sink and in the state that are asked for, and has such an
    /// attempt.
    pub(super) fn selects_any(&self, event: &Event, deliveries: &[Delivery]) -> bool {
        let selected = |delivery: &Delivery| {
            self.deliveries.as_ref().is_none_or(|selection| (selection.0)(event, delivery.sink_id))
                && self.sink.is_none_or(|sink| sink == delivery.sink_id)
                && self.state.is_none_or(|state| state == delivery.state)
                && self.attempt.is_none_or(|filter| delivery.attempts.iter().any(|attempt| filter.selects(attempt)))
        };
        self.sink.is_none() && self.state.is_none() && self.attempt.is_none() || deliveries.iter().any(selected)
    }
}

impl DeliverySelection {
    pub fn new(selects: impl Fn(&Event, SinkId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(selects))
    }
}

impl fmt::Debug for DeliverySelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeliverySelection")
    }
}

impl AttemptFilter {
    fn selects(&self, attempt: &Attempt) -> bool {
        self.kind == attempt.outcome.kind() && self.since.is_none_or(|since| since <= attempt.at)
    }
}

impl fmt::Display for HistoryPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.accepted_at.micros(), self.id)
    }
}

impl FromStr for HistoryPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (accepted_at, id) = text.split_once('.').ok_or(())?;
        let accepted_at = Timestamp::from_micros(accepted_at.parse().map_err(|_| ())?);
        Ok(Self { accepted_at, id: id.parse().map_err(|_| ())? })
    }
}
