//! History as callers ask for it: a filter, and pages of events with their deliveries.
//!
//! The embedded engine reads the pages in [`super::sled`].

use super::{Delivery, DeliveryState};
use crate::model::{
    event::Event,
    id::{EventId, SinkId, UserId},
    pattern::Patterns,
    timestamp::Timestamp,
};
use std::{fmt, str::FromStr, sync::Arc};

/// An event with its deliveries.
#[derive(Clone, Debug)]
pub struct Record {
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
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub after: Option<HistoryCursor>,
    pub limit: usize,
}

/// A page of history, newest event first.
#[derive(Debug)]
pub struct HistoryPage {
    pub records: Vec<Record>,
    pub next: Option<HistoryCursor>,
}

/// A position in history; the page after it starts with the next older event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCursor {
    pub(super) ts: Timestamp,
    pub(super) id: EventId,
}

impl HistoryFilter {
    pub(super) fn selects_event(&self, event: &Event) -> bool {
        self.user.is_none_or(|user| user == event.user_id)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(event.kind.as_str()))
    }

    pub(super) fn selects_any(&self, deliveries: &[Delivery]) -> bool {
        let selected = |delivery: &Delivery| {
            self.sink.is_none_or(|sink| sink == delivery.sink_id)
                && self.state.is_none_or(|state| state == delivery.state)
        };
        self.sink.is_none() && self.state.is_none() || deliveries.iter().any(selected)
    }
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ts.micros(), self.id)
    }
}

impl FromStr for HistoryCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (ts, id) = text.split_once('.').ok_or(())?;
        let ts = ts.parse().map_err(|_| ())?;
        Ok(Self { ts: Timestamp::from_micros(ts), id: id.parse().map_err(|_| ())? })
    }
}
