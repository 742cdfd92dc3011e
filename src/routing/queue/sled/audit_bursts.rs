//! Audit entries of events that a sink loses: the first in a minute at once, the others of that minute as one entry.
//!
//! A sink that is full or refuses everything loses events as fast as they are emitted; an entry for each would fill the
//! audit log. The sequence numbers in the summary say which events are meant. A crash loses the summary of the present
//! minute.

use crate::{model::id::SinkId, platform::audit::AuditEntry, routing::queue::BurstEnd};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The time after a first loss in which others are only counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The way in which a sink loses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventLoss {
    /// Its queue was full.
    Dropped,
    /// Its attempts are used up, or it was refused for good.
    GivenUp,
}

/// The losses of one sink in the present minute, of each kind.
#[derive(Debug, Default)]
pub(super) struct LossBursts {
    dropped: Option<Box<Burst>>,
    given_up: Option<Box<Burst>>,
}

/// The losses of one kind after the first one in a minute.
#[derive(Debug)]
struct Burst {
    since: Instant,
    count: u64,
    sequences: (u64, u64),
}

impl EventLoss {
    const ALL: [Self; 2] = [Self::Dropped, Self::GivenUp];

    const fn action(self) -> &'static str {
        match self {
            Self::Dropped => "event.drop",
            Self::GivenUp => "event.give_up",
        }
    }
}

impl LossBursts {
    pub const NONE: Self = Self { dropped: None, given_up: None };

    fn of(&mut self, loss: EventLoss) -> &mut Option<Box<Burst>> {
        match loss {
            EventLoss::Dropped => &mut self.dropped,
            EventLoss::GivenUp => &mut self.given_up,
        }
    }

    /// Counts a loss. Returns the entries to write now: a summary of the minute before, and the one of this loss if it
    /// is the first in its minute, with `detail`.
    pub fn count(
        &mut self,
        loss: EventLoss,
        (sink, name): (SinkId, &str),
        sequence: u64,
        detail: impl FnOnce() -> Value,
        now: Instant,
    ) -> Vec<AuditEntry> {
        let burst = self.of(loss);
        if let Some(burst) = burst
            && now < burst.since + MINUTE
        {
            burst.add(sequence);
            return Vec::new();
        }
        let summary = burst.take().and_then(|burst| burst.summary(loss, sink, name));
        *burst = Some(Box::new(Burst { since: now, count: 0, sequences: (0, 0) }));
        let first = AuditEntry::new(None, loss.action(), object(sink)).with(detail());
        summary.into_iter().chain([first]).collect()
    }

    /// Ends the minutes that are over, or all, and returns their summaries.
    pub fn end(&mut self, sink: SinkId, name: &str, end: BurstEnd, now: Instant) -> Vec<AuditEntry> {
        let is_over = |burst: &Burst| end == BurstEnd::All || now >= burst.since + MINUTE;
        let ended = EventLoss::ALL.map(|loss| {
            let burst = self.of(loss);
            match burst.as_deref().is_some_and(is_over) {
                true => burst.take().and_then(|burst| burst.summary(loss, sink, name)),
                false => None,
            }
        });
        ended.into_iter().flatten().collect()
    }
}

impl Burst {
    fn add(&mut self, sequence: u64) {
        let (first, last) = self.sequences;
        self.sequences = if self.count == 0 { (sequence, sequence) } else { (first.min(sequence), last.max(sequence)) };
        self.count += 1;
    }

    fn summary(self, loss: EventLoss, sink: SinkId, name: &str) -> Option<AuditEntry> {
        let (first, last) = self.sequences;
        let detail = json!({
            "sink": name, "count": self.count, "first_sequence": first, "last_sequence": last,
            "reason": "further events within a minute of the entry before",
        });
        (self.count > 0).then(|| AuditEntry::new(None, loss.action(), object(sink)).with(detail))
    }
}

fn object(sink: SinkId) -> String {
    format!("sink:{sink}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_in_a_minute_has_an_entry_and_the_others_one_together() {
        let (mut bursts, sink, start) = (LossBursts::default(), SinkId::new(), Instant::now());
        let mut lose = |loss, sequence, after: u64| {
            let now = start + Duration::from_secs(after);
            bursts.count(loss, (sink, "x"), sequence, || json!({"sequence": sequence}), now)
        };
        let first = lose(EventLoss::Dropped, 7, 0);
        assert_eq!((first.len(), &first[0].action[..], &first[0].detail), (1, "event.drop", &json!({"sequence": 7})));
        for sequence in 8..=20 {
            assert_eq!(lose(EventLoss::Dropped, sequence, 59), []);
        }
        assert_eq!(lose(EventLoss::GivenUp, 3, 59)[0].action, "event.give_up", "each kind has its own minute");
        let next = lose(EventLoss::Dropped, 30, 60);
        assert_eq!(next.iter().map(|entry| &entry.action[..]).collect::<Vec<_>>(), ["event.drop", "event.drop"]);
        let summary = &next[0].detail;
        assert_eq!(
            (&summary["count"], &summary["first_sequence"], &summary["last_sequence"]),
            (&json!(13), &json!(8), &json!(20))
        );
        assert_eq!(next[1].detail, json!({"sequence": 30}));
        lose(EventLoss::Dropped, 31, 61);
        let end = |bursts: &mut LossBursts, end, after| bursts.end(sink, "x", end, start + Duration::from_secs(after));
        assert_eq!(end(&mut bursts, BurstEnd::Over, 119), []);
        let ended = end(&mut bursts, BurstEnd::All, 119);
        assert_eq!((ended.len(), &ended[0].detail["count"]), (1, &json!(1)));
        assert_eq!(end(&mut bursts, BurstEnd::All, 300), []);
    }
}
