//! Moments on the command line: as a time, or as a span before or after now.

use crate::{model::timestamp::Timestamp, platform::config::Span};

/// A moment as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Such as `2026-01-31T12:00:00Z`.
    At(Timestamp),
    /// Such as `15m`; whether that is ago or ahead depends on the question.
    Off(Span),
}

impl Moment {
    /// The moment, a span being that long ago.
    pub fn past(self) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Off(span) => Timestamp::now().before(span.0),
        }
    }

    /// The moment, a span being that far ahead.
    pub fn future(self) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::Off(span) => Timestamp::now().after(span.0),
        }
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let moment = text.parse().map(Self::At);
        moment.or_else(|_| text.parse().map(Self::Off)).map_err(|_| {
            format!("`{text}` is no time: write one such as 2026-01-31T12:00:00Z, or a span such as 15m, 2h or 7d")
        })
    }
}

/// A time to the second, as tables show it.
pub fn brief(moment: Timestamp) -> String {
    let whole = moment.to_string();
    match whole.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_span_is_counted_from_now_in_the_direction_asked_for() {
        let hour: Moment = "1h".parse().unwrap();
        let now = Timestamp::now();
        assert!(hour.past() < now.before(Duration::from_secs(3590)));
        assert!(hour.future() > now.after(Duration::from_secs(3590)));
        let noon: Moment = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(noon.past(), noon.future());
        assert!("yesterday".parse::<Moment>().unwrap_err().contains("2h"));
    }

    #[test]
    fn a_table_shows_whole_seconds() {
        assert_eq!(brief(Timestamp::from_micros(1_700_000_000_000_120)), "2023-11-14T22:13:20Z");
    }
}
