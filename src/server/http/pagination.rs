//! Pages of lists: cursors from queries, and [`List`]s from records.

use super::error::ApiError;
use crate::model::api::list::{Limit, List, PageQuery};
use std::{fmt::Display, str::FromStr};

/// Number of records to fetch for a page: one more than it holds, which tells whether there is another page.
pub const fn fetch_count(limit: Limit) -> usize {
    limit.get() + 1
}

/// The id in a cursor.
pub fn cursor<I: FromStr>(cursor: Option<&str>) -> Result<Option<I>, ApiError> {
    let invalid = |_| ApiError::BadRequest("`cursor`: give the `next` of an earlier page as it was".to_owned());
    cursor.map(str::parse).transpose().map_err(invalid)
}

impl<T> List<T> {
    /// The page of `all`, sorted by `id`, that comes after the query's cursor. A cursor is the last id of the page before,
    /// so that records added or deleted meanwhile do not move the page.
    pub fn page<R, I: FromStr + Display + Ord>(
        all: Vec<R>,
        query: &PageQuery,
        id: impl Fn(&R) -> I,
        view: impl Fn(R) -> T,
    ) -> Result<Self, ApiError> {
        let after: Option<I> = cursor(query.cursor.as_deref())?;
        let rest = all.into_iter().filter(|record| after.as_ref().is_none_or(|after| id(record) > *after));
        Ok(Self::of_fetched(rest.take(fetch_count(query.limit)), query.limit, &id, view))
    }

    /// The page of records that were fetched for it, [`fetch_count`] of them if there are as many.
    pub fn of_fetched<R, I: Display>(
        fetched: impl IntoIterator<Item = R>,
        limit: Limit,
        id: impl Fn(&R) -> I,
        view: impl Fn(R) -> T,
    ) -> Self {
        let mut fetched = fetched.into_iter();
        let mut last = None;
        let mut items = Vec::new();
        for record in fetched.by_ref().take(limit.get()) {
            last = Some(id(&record));
            items.push(view(record));
        }
        let next = last.filter(|_| fetched.next().is_some()).map(|last| last.to_string());
        Self { items, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_record_of_a_cursor_may_be_deleted() {
        assert_eq!(page(&[1, 3], 2, Some("2")).items, [3]);
    }

    #[test]
    fn a_made_up_cursor_is_refused() {
        let asked = PageQuery { cursor: Some("x".into()), ..PageQuery::default() };
        assert!(List::page(vec![1], &asked, |item| *item, |item| item).is_err());
    }
}
