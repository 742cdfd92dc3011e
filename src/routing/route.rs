//! Routes of events: a target whose patterns match, and the filters that may refuse an event nevertheless.

use crate::{
    model::{event::Event, id::SinkId},
    routing::queue::RouteTarget,
};
use async_trait::async_trait;
use std::{cmp::Ordering, sync::Arc};

/// The route to a sink or subscription. Two routes are the same if their targets are.
#[derive(Clone, Debug)]
pub struct EventRoute {
    pub target: RouteTarget,
    /// The target has a filter.
    pub filtered: bool,
    /// `*` among its patterns matches reports too.
    pub all_reports: bool,
}

/// Runs the filters of routes. It is asked only for events that match a route with a filter.
#[async_trait]
pub trait RouteFilters: Send + Sync {
    /// Returns those of these sinks whose filter refuses the event. A filter that fails refuses nothing.
    async fn refused(&self, event: &Arc<Event>, sinks: Vec<SinkId>) -> Vec<SinkId>;
}

/// Refuses nothing.
pub struct NoFilters;

#[async_trait]
impl RouteFilters for NoFilters {
    async fn refused(&self, _: &Arc<Event>, _: Vec<SinkId>) -> Vec<SinkId> {
        Vec::new()
    }
}

impl PartialEq for EventRoute {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

impl Eq for EventRoute {}

impl PartialOrd for EventRoute {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EventRoute {
    fn cmp(&self, other: &Self) -> Ordering {
        self.target.cmp(&other.target)
    }
}
