//! Sequence numbers of a sink: ranges of them, the reasons why a sink misses some, and what became of each.
//!
//! A number stands for one event in one sink's queue. An event that is queued again gets a new one.

use super::id::EventId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// The most ranges that are told at once.
pub const MAX_TOLD: usize = 20;

/// Numbers from the first to the last, both included. Written as `17` or `17-19`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SequenceRange {
    pub from: u64,
    pub to: u64,
}

/// A text that is no range of sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no range of sequence numbers: write 17 or 17-19, from 1 on and in ascending order")]
pub struct SequenceRangeError(String);

/// Numbers that a sink was not given, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedRange {
    pub from: u64,
    pub to: u64,
    pub reason: MissReason,
}

/// The reason that a sink misses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissReason {
    /// The queue was full when the event was accepted.
    QueueFull,
    /// Every attempt failed, or the event was refused for good; it is, or was, a dead letter.
    DeadLetter,
    /// The record of the event, or of the numbers themselves, was damaged.
    Damaged,
    /// More than one of the others: many ranges in a row are told as one.
    Several,
}

/// The state of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberState {
    Queued,
    Delivered,
    /// A script declined the event.
    Skipped,
    Dropped,
    Dead,
    /// The event is not in the history any more, or was not found among too many events of other sinks.
    Unknown,
}

/// A number of a sink's sequence: its state, and its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceNumber {
    pub sequence: u64,
    pub state: NumberState,
    pub reason: Option<MissReason>,
    pub event_id: Option<EventId>,
}

impl SequenceRange {
    pub const fn contains(&self, sequence: u64) -> bool {
        self.from <= sequence && sequence <= self.to
    }
}

impl MissReason {
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::DeadLetter, Self::Damaged, Self::Several];

    /// The name used in headers, JSON and Lua.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::DeadLetter => "dead-letter",
            Self::Damaged => "damaged",
            Self::Several => "several",
        }
    }
}

impl NumberState {
    pub const ALL: [Self; 6] = [Self::Queued, Self::Delivered, Self::Skipped, Self::Dropped, Self::Dead, Self::Unknown];

    /// The name used in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

/// Bounds ranges that are told at once: the oldest are joined into one that is for several reasons.
pub fn join_oldest(missed: &mut Vec<MissedRange>) {
    if missed.len() > MAX_TOLD {
        let surplus = missed.len() - MAX_TOLD;
        let joined = MissedRange { to: missed[surplus].to, reason: MissReason::Several, ..missed[0] };
        missed.splice(..=surplus, [joined]);
    }
}

/// The ranges as the header `X-Service-Missed` has them: `17-19;queue-full, 20;dead-letter`.
pub fn missed_header(missed: &[MissedRange]) -> String {
    missed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for SequenceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from == self.to {
            true => self.from.fmt(f),
            false => write!(f, "{}-{}", self.from, self.to),
        }
    }
}

impl FromStr for SequenceRange {
    type Err = SequenceRangeError;

    fn from_str(text: &str) -> Result<Self, SequenceRangeError> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let range = match text.split_once('-') {
            Some((from, to)) => number(from).zip(number(to)),
            None => number(text).map(|number| (number, number)),
        };
        let range = range.filter(|(from, to)| 1 <= *from && from <= to).map(|(from, to)| Self { from, to });
        range.ok_or_else(|| SequenceRangeError(text.to_owned()))
    }
}

impl Serialize for SequenceRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number, or a text of the form of [`SequenceRange`]'s display.
impl<'de> Deserialize<'de> for SequenceRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RangeVisitor;
        impl de::Visitor<'_> for RangeVisitor {
            type Value = SequenceRange;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence number from 1 on, or a range such as \"17-19\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<SequenceRange, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<SequenceRange, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SequenceRange, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(RangeVisitor)
    }
}

impl fmt::Display for MissedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};{}", SequenceRange { from: self.from, to: self.to }, self.reason)
    }
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NumberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_as_it_prints_and_anything_else_is_refused() {
        for text in ["17", "17-19", "1-18446744073709551615"] {
            assert_eq!(text.parse::<SequenceRange>().unwrap().to_string(), text);
        }
        assert_eq!("17-17".parse::<SequenceRange>().unwrap().to_string(), "17");
        for text in ["", "0", "0-3", "19-17", "-3", "3-", "a", "1-2-3", "18446744073709551616"] {
            assert_eq!(text.parse::<SequenceRange>(), Err(SequenceRangeError(text.to_owned())), "{text}");
        }
        let read: Vec<SequenceRange> = serde_json::from_str(r#"[17, "18-19"]"#).unwrap();
        assert_eq!(read, [SequenceRange { from: 17, to: 17 }, SequenceRange { from: 18, to: 19 }]);
        for json in ["-1", "0", "1.5", "null", "true", "\"x\""] {
            assert!(serde_json::from_str::<SequenceRange>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn missed_numbers_are_listed_with_their_reasons() {
        let missed = [
            MissedRange { from: 17, to: 19, reason: MissReason::QueueFull },
            MissedRange { from: 20, to: 20, reason: MissReason::DeadLetter },
        ];
        assert_eq!(missed_header(&missed), "17-19;queue-full, 20;dead-letter");
    }

    #[test]
    fn names_are_the_same_in_json_and_text() {
        for reason in MissReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        for state in NumberState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
