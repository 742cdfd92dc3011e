//! Lists in pages: `?limit=` and `?cursor=` in, `{"items": […], "next": cursor or null}` out.

use super::error::ApiError;
use crate::model::api::list::{List, PageQuery};
use std::{fmt::Display, str::FromStr};

impl<T> List<T> {
    /// The page of `all`, which is sorted by `id`, that comes after the cursor. The cursor is the last id of the
    /// page before, so that what is added or deleted in between moves nothing.
    ///
    /// # Errors
    ///
    /// Fails if the cursor is none of ours.
    pub fn page<R, I: FromStr + Display + Ord>(
        all: Vec<R>,
        page: &PageQuery,
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
    use crate::model::api::list::Limit;

    fn page(all: &[u32], limit: usize, cursor: Option<&str>) -> List<u32> {
        let page = PageQuery { limit: Limit::new(limit).unwrap(), cursor: cursor.map(str::to_owned) };
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
        let asked = PageQuery { cursor: Some("x".into()), ..PageQuery::default() };
        assert!(List::page(vec![1], &asked, |item| *item, |item| item).is_err());
    }
}
