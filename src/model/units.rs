//! Durations and sizes as users write them in settings: `5s`, `15m`, `7d`; `256KiB`, `1GiB`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

/// A length of time, such as `5s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes, such as `256KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The error for a text that is no duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("`{0}` is no duration: write a number and ms, s, m, h or d, such as \"15s\"")]
    Span(String),
    #[error("`{0}` is no size: write a number and B, KiB, MiB or GiB, such as \"256KiB\"")]
    Size(String),
}

const SPANS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

impl Size {
    /// The size for use as a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let millis = scaled(text, &SPANS).ok_or_else(|| UnitError::Span(text.to_owned()))?;
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        scaled(text, &SIZES).map(Self).ok_or_else(|| UnitError::Size(text.to_owned()))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        largest_unit(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPANS, f)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        largest_unit(self.0, &SIZES, f)
    }
}

/// A number followed by one of the units, as that many of the smallest.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn largest_unit(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fits = units.iter().rev().find(|(_, scale)| value.is_multiple_of(*scale) && value >= *scale);
    let (name, scale) = fits.unwrap_or(&units[0]);
    write!(f, "{}{name}", value / scale)
}

macro_rules! as_text {
    ($($name:ident)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}
as_text!(Span Size);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_print_as_they_read() {
        for text in ["5s", "15m", "1500ms", "12h", "7d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["100B", "256KiB", "32MiB", "1GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("0s".parse::<Span>().unwrap().to_string(), "0ms");
    }

    #[test]
    fn a_unit_is_never_guessed() {
        assert_eq!("5".parse::<Span>(), Err(UnitError::Span("5".into())));
        assert_eq!("5 fortnights".parse::<Span>(), Err(UnitError::Span("5 fortnights".into())));
        assert_eq!("1MB".parse::<Size>(), Err(UnitError::Size("1MB".into())));
        assert_eq!("99999999999GiB".parse::<Size>(), Err(UnitError::Size("99999999999GiB".into())));
    }
}
