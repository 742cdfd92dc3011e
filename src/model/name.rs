//! The name of a user, a role or a group.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::{fmt, str::FromStr};

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The name of a user, a role or a group. Names are part of method names and of command lines, hence the plain
/// alphabet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// The text breaks the rule for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to {MAX_NAME_BYTES} of [A-Za-z0-9_.-] and begins with a letter or digit")]
pub struct NameError;

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets a map keyed by names be searched by text.
impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if starts && plain && text.len() <= MAX_NAME_BYTES { Ok(Self(text.to_owned())) } else { Err(NameError) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_short() {
        for good in ["a", "9", "ada.lovelace_2-x", &"a".repeat(64)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "_a", "a b", "é", "a/b", &"a".repeat(65)] {
            assert_eq!(bad.parse::<Name>(), Err(NameError), "{bad}");
        }
    }
}
