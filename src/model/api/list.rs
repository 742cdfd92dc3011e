//! Lists in pages: `?limit=` and `?cursor=` in, `{"items": […], "next": cursor or null}` out.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// The number of items on a page: 1 to [`Limit::MAX`], 50 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub struct Limit(#[schemars(range(min = 1, max = 200))] usize);

/// The query of a list without filters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// Items on the page.
    #[serde(default)]
    pub limit: Limit,
    /// The `next` of the page before.
    pub cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub struct List<T> {
    pub items: Vec<T>,
    /// Give this as `cursor` for the page after this one; null on the last.
    pub next: Option<String>,
}

impl Limit {
    pub const MAX: usize = 200;

    /// `None` outside 1 to [`Self::MAX`].
    pub const fn new(limit: usize) -> Option<Self> {
        match limit {
            1..=Self::MAX => Some(Self(limit)),
            _ => None,
        }
    }

    pub const fn get(self) -> usize {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(50)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(usize::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("must be from 1 to 200"))
    }
}
