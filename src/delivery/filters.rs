//! The filters of sinks and subscriptions, and the errors of each.
//!
//! A filter that fails counts as a match: an event that was not meant for a sink does less harm than one that is
//! missing. [`crate::routing::emit`] asks for the filters of routes, [`super::subscriptions`] for those of formatters,
//! and [`super::deliver`] keeps them in line with the records. No lock is held while a filter runs.

use super::plain_filter::{FilteredEvent, PlainFilter};
use crate::{
    model::{event::Event, event_filter::EventFilter, id::SinkId, id_map::IdMap, owner::Owner, timestamp::Timestamp},
    platform::metrics::Metrics,
    routing::route::RouteFilters,
    scripting::{
        lua::FilterVerdict,
        workers::{LuaWorkers, ProgramText},
    },
};
use async_trait::async_trait;
use futures_util::future::join;
use parking_lot::{Mutex, RwLock};
use std::{collections::HashMap, sync::Arc};

/// All filters. Cloning the handle is cheap.
#[derive(Clone)]
pub struct EventFilters(Arc<EventFiltersShared>);

struct EventFiltersShared {
    workers: LuaWorkers,
    metrics: Arc<Metrics>,
    by_sink: RwLock<IdMap<SinkId, Arc<SinkFilter>>>,
}

/// The filter of one sink or subscription.
struct SinkFilter {
    owner: Owner,
    source: EventFilter,
    program: ProgramText,
    /// The same filter, if the server can answer it without a worker.
    plain: Option<PlainFilter>,
    errors: Mutex<Option<FilterErrors>>,
}

/// The errors of a filter since the server started, or the filter was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterErrors {
    pub count: u64,
    pub last: String,
    pub last_at: Timestamp,
}

impl EventFilters {
    pub fn new(workers: LuaWorkers, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(EventFiltersShared { workers, metrics, by_sink: RwLock::default() }))
    }

    /// Makes this the filter of a sink or subscription. An unchanged one keeps its errors.
    pub fn set(&self, sink: SinkId, owner: Owner, filter: Option<&EventFilter>) {
        let mut by_sink = self.0.by_sink.write();
        let Some(source) = filter else {
            by_sink.remove(&sink);
            return;
        };
        if by_sink.get(&sink).is_some_and(|known| known.owner == owner && known.source == *source) {
            return;
        }
        let program = ProgramText::filter(source.as_str());
        let plain = PlainFilter::parse(source.as_str());
        let filter = SinkFilter { owner, source: source.clone(), program, plain, errors: Mutex::default() };
        by_sink.insert(sink, Arc::new(filter));
    }

    pub fn remove(&self, sink: SinkId) {
        self.0.by_sink.write().remove(&sink);
    }

    /// The errors of a sink's filter, if it had any.
    pub fn errors(&self, sink: SinkId) -> Option<FilterErrors> {
        self.0.by_sink.read().get(&sink)?.errors.lock().clone()
    }

    /// Returns true unless the sink has a filter that refuses the event.
    pub async fn admits(&self, sink: SinkId, event: &Arc<Event>) -> bool {
        self.refused(event, vec![sink]).await.is_empty()
    }

    /// The answers of the filters of these sinks, as far as they have one. Errors are not counted.
    pub async fn verdicts(&self, event: &Arc<Event>, sinks: Vec<SinkId>) -> HashMap<SinkId, FilterVerdict> {
        let verdicts = self.run(event, sinks).await;
        verdicts.into_iter().map(|(sink, _, verdict)| (sink, verdict)).collect()
    }

    /// Runs the filters of these sinks: plain ones here, those of the event's user in one message to a worker, the
    /// global ones in another.
    async fn run(&self, event: &Arc<Event>, sinks: Vec<SinkId>) -> Vec<Answered> {
        let found: Vec<_> = {
            let by_sink = self.0.by_sink.read();
            sinks.into_iter().filter_map(|sink| Some((sink, by_sink.get(&sink)?.clone()))).collect()
        };
        let (mut verdicts, left) = answer_plain(event, found);
        let (global, own): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, filter)| filter.owner == Owner::Global);
        let (global, own) = join(self.run_of_owner(event, global), self.run_of_owner(event, own)).await;
        verdicts.extend(global.into_iter().chain(own));
        verdicts
    }

    /// Runs filters that belong to one owner.
    async fn run_of_owner(&self, event: &Arc<Event>, filters: Vec<(SinkId, Arc<SinkFilter>)>) -> Vec<Answered> {
        let Some(owner) = filters.first().map(|(_, filter)| filter.owner) else { return Vec::new() };
        let programs: Vec<_> = filters.iter().map(|(_, filter)| filter.program.clone()).collect();
        let verdicts = self.0.workers.run_filters(owner, &programs, event).await;
        filters.into_iter().zip(verdicts).map(|((sink, filter), verdict)| (sink, filter, verdict)).collect()
    }

    fn note_error(&self, sink: SinkId, filter: &SinkFilter, why: String) {
        self.0.metrics.filter_errors.increment();
        let mut errors = filter.errors.lock();
        let count = errors.as_ref().map_or(0, |errors| errors.count) + 1;
        if count == 1 {
            log::warn!("the filter of sink {sink} fails, which counts as a match: {why}");
        }
        *errors = Some(FilterErrors { count, last: why, last_at: Timestamp::now() });
    }
}

/// A sink with its filter, and the answer of the filter.
type Answered = (SinkId, Arc<SinkFilter>, FilterVerdict);

/// Answers the filters that need no worker, and returns the others beside.
fn answer_plain(
    event: &Event,
    filters: Vec<(SinkId, Arc<SinkFilter>)>,
) -> (Vec<Answered>, Vec<(SinkId, Arc<SinkFilter>)>) {
    let event = FilteredEvent::new(event);
    let (mut answered, mut left) = (Vec::new(), Vec::new());
    for (sink, filter) in filters {
        match filter.plain.as_ref().and_then(|plain| plain.admits(&event)) {
            Some(true) => answered.push((sink, filter, FilterVerdict::Match)),
            Some(false) => answered.push((sink, filter, FilterVerdict::Refuse)),
            None => left.push((sink, filter)),
        }
    }
    (answered, left)
}

#[async_trait]
impl RouteFilters for EventFilters {
    async fn refused(&self, event: &Arc<Event>, sinks: Vec<SinkId>) -> Vec<SinkId> {
        let mut refused = Vec::new();
        for (sink, filter, verdict) in self.run(event, sinks).await {
            match verdict {
                FilterVerdict::Match => {}
                FilterVerdict::Refuse => {
                    self.0.metrics.filtered.increment();
                    refused.push(sink);
                }
                FilterVerdict::Failed(why) => self.note_error(sink, &filter, why),
            }
        }
        refused
    }
}
