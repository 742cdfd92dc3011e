//! Timestamps: RFC 3339 in UTC with microseconds in JSON and text; an integer in store keys.

use chrono::{DateTime, Datelike as _, SecondsFormat, Timelike as _, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point in time with microsecond precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The current time of the system clock.
    pub fn now() -> Self {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        // Several times for every event, and chrono would work out the date.
        Self(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since_1970) => micros(since_1970),
            Err(earlier) => -micros(earlier.duration()),
        })
    }

    /// The time this many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, the unit of Standard Webhooks timestamps.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This time plus `span`, saturating.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This time minus `span`, saturating.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time left until this timestamp; zero once it has passed.
    pub fn from_now(self) -> Duration {
        self.since(Self::now())
    }

    /// The time from `earlier` to this timestamp; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or(DateTime::<Utc>::MAX_UTC);
        if !(0..=9999).contains(&moment.year()) {
            return f.write_str(&moment.to_rfc3339_opts(SecondsFormat::Micros, true));
        }
        // This runs several times for every delivery, and chrono takes longer to go through its description of the
        // format.
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let fields = [
            (0..4, moment.year().unsigned_abs()),
            (5..7, moment.month()),
            (8..10, moment.day()),
            (11..13, moment.hour()),
            (14..16, moment.minute()),
            (17..19, moment.second()),
            (20..26, moment.timestamp_subsec_micros()),
        ];
        for (place, mut number) in fields {
            for digit in text[place].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        f.write_str(std::str::from_utf8(&text).expect("digits are ASCII"))
    }
}

impl FromStr for Timestamp {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DateTime::parse_from_rfc3339(text).map(|moment| Self(moment.timestamp_micros()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|_| de::Error::custom("expected an RFC 3339 time such as 2026-01-31T12:00:00Z"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_is_utc_with_six_decimals_and_reads_back() {
        let moment = Timestamp::from_micros(1_700_000_000_000_120);
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.000120Z");
        assert_eq!(moment.to_string().parse(), Ok(moment));
        assert_eq!("2023-11-14T23:13:20.00012+01:00".parse(), Ok(moment));
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn every_field_is_printed_as_chrono_prints_it() {
        let day = 86_400_000_000;
        let ends = [i64::MIN, i64::MAX, -62_167_219_200_000_001, 253_402_300_799_999_999, 253_402_300_800_000_000];
        for micros in (-40_000..40_000).map(|n| n * day * 7 + n * 997_331).chain(ends) {
            let moment = DateTime::<Utc>::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC);
            assert_eq!(Timestamp::from_micros(micros).to_string(), moment.to_rfc3339_opts(SecondsFormat::Micros, true));
        }
    }
}
