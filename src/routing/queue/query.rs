//! Asking for history: what is wanted, and a page of it.

use super::{Delivery, DeliveryState, Record};
use crate::model::{
    event::Event,
    id::{EventId, SinkId, UserId},
    pattern::Patterns,
    timestamp::Timestamp,
};
use std::{fmt, str::FromStr};

/// What part of history is wanted.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// This user's events only.
    pub user: Option<UserId>,
    pub pattern: Option<Patterns>,
    pub sink: Option<SinkId>,
    pub state: Option<DeliveryState>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub after: Option<Cursor>,
    pub limit: usize,
}

/// A page of history.
#[derive(Debug)]
pub struct Page {
    pub records: Vec<Record>,
    pub next: Option<Cursor>,
}

/// A place in history; the page after it starts with the next older event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(super) ts: Timestamp,
    pub(super) id: EventId,
}

impl Query {
    pub(super) fn wants_event(&self, event: &Event) -> bool {
        self.user.is_none_or(|user| user == event.user_id)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(event.kind.as_str()))
    }

    pub(super) fn wants_any(&self, deliveries: &[Delivery]) -> bool {
        let wanted = |delivery: &Delivery| {
            self.sink.is_none_or(|sink| sink == delivery.sink_id)
                && self.state.is_none_or(|state| state == delivery.state)
        };
        self.sink.is_none() && self.state.is_none() || deliveries.iter().any(wanted)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ts.micros(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (ts, id) = text.split_once('.').ok_or(())?;
        let ts = ts.parse().map_err(|_| ())?;
        Ok(Self { ts: Timestamp::from_micros(ts), id: id.parse().map_err(|_| ())? })
    }
}
