//! Lists in pages: `?limit=` and `?cursor=` in, `{"items": […], "next": cursor or null}` out.

use super::error::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{fmt::Display, str::FromStr};

/// How many items a page has; 1 to 200, 50 unless told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub struct Limit(#[schemars(range(min = 1, max = 200))] usize);

/// The query of a list that has no filters.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Items on the page.
    #[serde(default)]
    pub limit: Limit,
    /// The `next` of the page before.
    pub cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub struct List<T> {
    pub items: Vec<T>,
    /// Give this as `cursor` for the page after this one; null on the last.
    pub next: Option<String>,
}

impl Limit {
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
        match usize::deserialize(deserializer)? {
            limit @ 1..=200 => Ok(Self(limit)),
            _ => Err(de::Error::custom("must be from 1 to 200")),
        }
    }
}

impl<T> List<T> {
    /// The page of `all`, which is sorted by `id`, that comes after the cursor. The cursor is the last id of the
    /// page before, so that what is added or deleted in between moves nothing.
    ///
    /// # Errors
    ///
    /// Fails if the cursor is none of ours.
    pub fn page<R, I: FromStr + Display + Ord>(
        all: Vec<R>,
        page: &Page,
        id: impl Fn(&R) -> I,
        show: impl Fn(R) -> T,
    ) -> Result<Self, ApiError> {
        let after: Option<I> = cursor(page.cursor.as_deref())?;
        let mut rest = all.into_iter().filter(|item| after.as_ref().is_none_or(|after| id(item) > *after));
        let mut last = None;
        let mut items = Vec::new();
        for item in rest.by_ref().take(page.limit.get()) {
            last = Some(id(&item));
            items.push(show(item));
        }
        let next = last.filter(|_| rest.next().is_some()).map(|last| last.to_string());
        Ok(Self { items, next })
    }
}

/// The id in a cursor.
///
/// # Errors
///
/// Fails if the cursor is none of ours.
pub fn cursor<I: FromStr>(cursor: Option<&str>) -> Result<Option<I>, ApiError> {
    let wrong = |_| ApiError::BadRequest("`cursor`: give the `next` of an earlier page as it was".to_owned());
    cursor.map(str::parse).transpose().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(all: &[u32], limit: usize, cursor: Option<&str>) -> List<u32> {
        let page = Page { limit: Limit(limit), cursor: cursor.map(str::to_owned) };
        List::page(all.to_vec(), &page, |item| *item, |item| item).unwrap()
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let first = page(&[1, 2, 3], 2, None);
        assert_eq!((first.items, first.next.as_deref()), (vec![1, 2], Some("2")));
        let second = page(&[1, 2, 3], 2, Some("2"));
        assert_eq!((second.items, second.next), (vec![3], None));
        let exact = page(&[1, 2], 2, None);
        assert_eq!((exact.items, exact.next), (vec![1, 2], None), "a full last page has no next");
        assert_eq!(page(&[], 2, None).next, None);
    }

    #[test]
    fn what_a_cursor_pointed_at_may_be_gone() {
        assert_eq!(page(&[1, 3], 2, Some("2")).items, [3]);
    }

    #[test]
    fn a_made_up_cursor_is_refused() {
        let asked = Page { cursor: Some("x".into()), ..Page::default() };
        assert!(List::page(vec![1], &asked, |item| *item, |item| item).is_err());
    }
}
