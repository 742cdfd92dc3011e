//! The budget of one check for matching patterns, and its end when nobody waits for the check any more.
//!
//! The library offers a keyword no way to carry state through a check, so the budget is in the thread that makes it.

use super::patterns::BoundedPattern;
use regex_automata::meta::Cache;
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The most states that the patterns of one check may enter: less than half a second in an unoptimised build, for the
/// worst pattern, and a few milliseconds for usual ones. A text of 1 MiB fits a pattern of 45 states.
pub const MAX_STATES: u64 = 50_000_000;

thread_local! {
    static CURRENT: RefCell<Option<MatchBudget>> = const { RefCell::new(None) };
}

/// The budget of the check that this thread makes.
struct MatchBudget {
    left: u64,
    cancelled: Arc<AtomicBool>,
    stopped: Option<MatchStop>,
    /// Memory of the searches, by the address of the pattern. It is freed with the check.
    caches: HashMap<usize, Cache>,
}

/// The reason a check ended before its result was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchStop {
    /// The patterns and the texts are too long for each other.
    Exhausted,
    Cancelled,
}

/// Makes a check under a new budget. A check that was stopped has no result.
pub fn run<T>(cancelled: &Arc<AtomicBool>, check: impl FnOnce() -> T) -> Result<T, MatchStop> {
    let budget = MatchBudget { left: MAX_STATES, cancelled: cancelled.clone(), stopped: None, caches: HashMap::new() };
    let outer = CURRENT.replace(Some(budget));
    let result = check();
    match CURRENT.replace(outer).and_then(|budget| budget.stopped) {
        Some(stop) => Err(stop),
        None => Ok(result),
    }
}

/// Matches a text within the budget; false once the check is stopped, so that it soon ends.
pub fn is_match(pattern: &BoundedPattern, text: &str) -> bool {
    CURRENT.with_borrow_mut(|current| match current {
        Some(budget) => budget.is_match(pattern, text),
        None => pattern.is_match(text, &mut pattern.create_cache()),
    })
}

impl MatchBudget {
    fn is_match(&mut self, pattern: &BoundedPattern, text: &str) -> bool {
        if self.stopped.is_some() {
            return false;
        }
        if self.cancelled.load(Ordering::Relaxed) {
            self.stopped = Some(MatchStop::Cancelled);
            return false;
        }
        let Some(left) = self.left.checked_sub(pattern.cost(text.len())) else {
            self.stopped = Some(MatchStop::Exhausted);
            return false;
        };
        self.left = left;
        let address = std::ptr::from_ref(pattern).addr();
        pattern.is_match(text, self.caches.entry(address).or_insert_with(|| pattern.create_cache()))
    }
}
