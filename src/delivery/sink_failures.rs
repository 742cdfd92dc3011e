//! Sinks whose deliveries fail: those that gave an event up, those that hold one, and those whose queue drops events.
//!
//! [`super::deliver`] records failures and successes here, the queue engine drops; the HTTP API shows them. A failure
//! lasts until an event is delivered, also over a restart. Each change of state makes a report, which is stored with
//! the new state and emitted afterwards ([`super::sink_report_emitter`]), so that a crash loses and repeats none.
//!
//! Reports are bounded: a sink makes few of them in a minute, and one that was caused by another report says so in its
//! `depth`, which has a limit. A state that was not reported because of the first limit is reported later, if it lasts.

use super::{
    completed_attempt::FailureKind,
    sink_failure::{FailureState, ReportedSink, SinkFailure},
    sink_report::{EventCause, SinkReport},
};
use crate::{
    model::{event::Event, id::SinkId, timestamp::Timestamp},
    platform::store::{Store, StoreError, Table, keys, readable},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// The longest reason that is kept, in characters.
const MAX_REASON: usize = 500;

/// The most reports of one sink in a minute, and the most that wait to be emitted.
const MAX_REPORTS: usize = 10;
const REPORT_TIME: Duration = Duration::from_secs(60);

/// The failures of all sinks. Cloning the handle is cheap.
#[derive(Clone)]
pub struct SinkFailures {
    store: Store,
    state: Arc<Mutex<FailuresState>>,
    /// Receives each sink with reports to emit.
    reports: mpsc::UnboundedSender<SinkId>,
}

#[derive(Default)]
struct FailuresState {
    records: HashMap<SinkId, FailureRecord>,
    /// The times of the last reports of each sink.
    recent: HashMap<SinkId, VecDeque<Instant>>,
}

/// Everything that is kept of one sink. It is stored as this JSON, and deleted when nothing is left in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FailureRecord {
    sink: SinkId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<SinkFailure>,
    /// The state that was last reported; `None` stands for a sink that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reported: Option<FailureState>,
    /// The cause of the last change of state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<EventCause>,
    /// The queue has dropped an event and is still more than half full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dropping: bool,
    /// Events that may not have been emitted yet, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    outbox: VecDeque<SinkReport>,
}

/// The sinks with reports to emit, for [`super::sink_report_emitter`].
pub type SinksToReport = mpsc::UnboundedReceiver<SinkId>;

impl SinkFailures {
    const TABLE: Table<FailureRecord> = Table::new(keys::SINK_FAILURES);

    /// Reads the failures that lasted when the server ended. One whose record is damaged is forgotten.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn open(store: Store) -> Result<(Self, SinksToReport), StoreError> {
        let (reports, reported) = mpsc::unbounded_channel();
        let mut records = HashMap::new();
        for entry in store.scan(&[keys::SINK_FAILURES]) {
            let Some((_, value)) = readable(entry)? else { continue };
            let Ok(record) = serde_json::from_slice::<FailureRecord>(&value) else { continue };
            if !record.outbox.is_empty() {
                // The receiver is right here.
                let _ = reports.send(record.sink);
            }
            records.insert(record.sink, record);
        }
        let state = FailuresState { records, recent: HashMap::new() };
        Ok((Self { store, state: Arc::new(Mutex::new(state)), reports }, reported))
    }

    pub fn get(&self, sink: SinkId) -> Option<SinkFailure> {
        self.state.lock().records.get(&sink)?.failure.clone()
    }

    /// Every sink that something is kept of.
    pub fn sinks(&self) -> Vec<SinkId> {
        self.state.lock().records.keys().copied().collect()
    }

    /// Records a failure that the attempt at `event` showed. One that lasts keeps its beginning.
    pub fn fail(&self, sink: ReportedSink<'_>, event: &Event, state: FailureState, reason: &str, kind: FailureKind) {
        let reason: String = reason.chars().take(MAX_REASON).collect();
        self.change(sink, |record| {
            let known = record.failure.as_ref().filter(|known| known.state == state);
            let since = known.map_or_else(Timestamp::now, |known| known.since);
            record.failure = Some(SinkFailure { state, reason, needs_change: kind != FailureKind::Passing, since });
            if record.reported != Some(state) {
                record.cause = Some(EventCause::of(event));
            }
        });
    }

    /// Ends the failure of a sink that `event` was delivered to.
    pub fn end(&self, sink: ReportedSink<'_>, event: &Event) {
        // Nearly always there is none, and this runs for every delivery.
        if !self
            .state
            .lock()
            .records
            .get(&sink.id)
            .is_some_and(|record| record.failure.is_some() || record.reported.is_some())
        {
            return;
        }
        self.change(sink, |record| {
            record.failure = None;
            record.cause = Some(EventCause::of(event));
        });
    }

    /// Ends the failure of a sink that held `event`, which its script has given up. A sink that gave others up fails
    /// on.
    pub fn end_hold(&self, sink: ReportedSink<'_>, event: &Event) {
        if self.get(sink.id).is_some_and(|failure| failure.state == FailureState::Held) {
            self.end(sink, event);
        }
    }

    /// Records that the full queue of a sink dropped `event`. It does not block.
    pub fn dropped(&self, sink: ReportedSink<'_>, event: &Event) {
        let cause = EventCause::of(event);
        let state = &mut *self.state.lock();
        let record = state.records.entry(sink.id).or_insert_with(|| FailureRecord::new(sink.id));
        if !record.dropping && cause.may_report() && record.outbox_has_room() && take_turn(&mut state.recent, sink.id) {
            record.dropping = true;
            record.outbox.push_back(SinkReport::dropping(sink, &cause));
            let _ = self.reports.send(sink.id);
            self.save(record);
        } else if record.is_empty() {
            state.records.remove(&sink.id);
        }
    }

    /// Tells if the queue of a sink dropped an event, and [`SinkFailures::end_dropping`] was not called since.
    pub fn is_dropping(&self, sink: SinkId) -> bool {
        self.state.lock().records.get(&sink).is_some_and(|record| record.dropping)
    }

    /// Records that the queue of a sink has room again, so that the next drop is reported.
    pub fn end_dropping(&self, sink: SinkId) {
        let state = &mut *self.state.lock();
        if let Some(record) = state.records.get_mut(&sink) {
            record.dropping = false;
            self.save(record);
            if record.is_empty() {
                state.records.remove(&sink);
            }
        }
    }

    /// Forgets a sink that is deleted.
    pub fn forget(&self, sink: SinkId) {
        let state = &mut *self.state.lock();
        state.recent.remove(&sink);
        if state.records.remove(&sink).is_some() {
            self.store.write_soon(move |batch| Self::TABLE.delete(batch, sink.as_bytes()));
        }
    }

    /// Reports the states that could not be reported when they changed, because there were too many reports.
    /// `with_sink` calls its argument with the sink of an id, if there is one.
    pub fn report_late(&self, with_sink: impl Fn(SinkId, &mut dyn FnMut(ReportedSink<'_>))) {
        let unreported: Vec<SinkId> = {
            let mut state = self.state.lock();
            state.recent.retain(|_, times| times.back().is_some_and(|last| last.elapsed() < REPORT_TIME));
            state.records.values().filter(|record| record.is_unreported()).map(|record| record.sink).collect()
        };
        for id in unreported {
            with_sink(id, &mut |sink| self.change(sink, |_| ()));
        }
    }

    /// The next report of a sink to emit.
    pub(super) fn next_report(&self, sink: SinkId) -> Option<SinkReport> {
        self.state.lock().records.get(&sink)?.outbox.front().cloned()
    }

    /// Removes a report that was emitted.
    pub(super) fn emitted(&self, sink: SinkId, report: &SinkReport) {
        let state = &mut *self.state.lock();
        let Some(record) = state.records.get_mut(&sink) else { return };
        record.outbox.retain(|waiting| waiting.id != report.id);
        self.save(record);
        if record.is_empty() {
            state.records.remove(&sink);
        }
    }

    /// Changes the record of a sink, reports a new state, and stores both.
    fn change(&self, sink: ReportedSink<'_>, change: impl FnOnce(&mut FailureRecord)) {
        let state = &mut *self.state.lock();
        let record = state.records.entry(sink.id).or_insert_with(|| FailureRecord::new(sink.id));
        let before = (record.failure.clone(), record.reported);
        change(record);
        if record.is_unreported() && record.outbox_has_room() && take_turn(&mut state.recent, sink.id) {
            record.report(sink);
            // Fails only while the server stops; the next start emits it.
            let _ = self.reports.send(sink.id);
        }
        if (&record.failure, record.reported) != (&before.0, before.1) {
            self.save(record);
        }
        if record.is_empty() {
            state.records.remove(&sink.id);
        }
    }

    fn save(&self, record: &FailureRecord) {
        let (sink, record) = (record.sink, (!record.is_empty()).then(|| record.clone()));
        self.store.write_soon(move |batch| match record {
            Some(record) => Self::TABLE.put(batch, sink.as_bytes(), &record),
            None => Self::TABLE.delete(batch, sink.as_bytes()),
        });
    }
}

impl FailureRecord {
    fn new(sink: SinkId) -> Self {
        Self { sink, failure: None, reported: None, cause: None, dropping: false, outbox: VecDeque::new() }
    }

    fn is_empty(&self) -> bool {
        self.failure.is_none() && self.reported.is_none() && !self.dropping && self.outbox.is_empty()
    }

    fn state(&self) -> Option<FailureState> {
        self.failure.as_ref().map(|failure| failure.state)
    }

    /// Tells if the state is another than the one reported last, and may be reported.
    fn is_unreported(&self) -> bool {
        self.state() != self.reported && self.cause.as_ref().is_some_and(EventCause::may_report)
    }

    fn outbox_has_room(&self) -> bool {
        self.outbox.len() < MAX_REPORTS
    }

    fn report(&mut self, sink: ReportedSink<'_>) {
        let Some(cause) = &self.cause else { return };
        self.outbox.push_back(SinkReport::changed(sink, self.reported, self.failure.as_ref(), cause));
        self.reported = self.state();
    }
}

/// Takes one of the reports that a sink may make in a minute, if one is left.
fn take_turn(recent: &mut HashMap<SinkId, VecDeque<Instant>>, sink: SinkId) -> bool {
    let times = recent.entry(sink).or_default();
    while times.front().is_some_and(|first| first.elapsed() >= REPORT_TIME) {
        times.pop_front();
    }
    let is_left = times.len() < MAX_REPORTS;
    if is_left {
        times.push_back(Instant::now());
    }
    is_left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        event::Actor,
        id::{EventId, SpaceId, UserId},
        owner::Owner,
    };
    use serde_json::value::RawValue;
    use tempfile::TempDir;

    struct FailuresFixture {
        store: Store,
        failures: SinkFailures,
        _directory: TempDir,
        id: SinkId,
        owner: Owner,
    }

    impl FailuresFixture {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let store = Store::open(directory.path(), 0, Arc::default()).unwrap();
            let (failures, _) = SinkFailures::open(store.clone()).unwrap();
            Self { store, failures, _directory: directory, id: SinkId::new(), owner: Owner::User(UserId::new()) }
        }

        fn sink(&self) -> ReportedSink<'static> {
            ReportedSink { id: self.id, name: "s", owner: self.owner }
        }

        fn fail(&self, state: FailureState, reason: &str, depth: u32) {
            self.failures.fail(self.sink(), &event(depth), state, reason, FailureKind::Passing);
        }

        fn end(&self, depth: u32) {
            self.failures.end(self.sink(), &event(depth));
        }

        /// Emits what is to be emitted, and returns the types.
        fn emit(&self) -> Vec<String> {
            let mut kinds = Vec::new();
            while let Some(report) = self.failures.next_report(self.id) {
                kinds.push(report.kind.to_string());
                self.failures.emitted(self.id, &report);
            }
            kinds
        }

        async fn reopen(&mut self) {
            self.store.write(|_| ()).await.unwrap();
            (self.failures, _) = SinkFailures::open(self.store.clone()).unwrap();
        }
    }

    /// An event of a user for depth 0, or a report of this depth.
    fn event(depth: u32) -> Event {
        let kind = if depth == 0 { "custom.x" } else { "sink.failing" };
        Event {
            id: EventId::new(),
            kind: kind.parse().unwrap(),
            ts: Timestamp::now(),
            zone: "z".into(),
            space_id: SpaceId::NIL,
            user_id: UserId::NIL,
            actor: Actor::system(),
            space: None,
            data: RawValue::from_string(format!("{{\"depth\":{depth}}}")).unwrap(),
        }
    }

    #[tokio::test]
    async fn a_failure_lasts_over_a_restart_until_it_is_ended_and_keeps_its_beginning() {
        let mut fixture = FailuresFixture::new();
        fixture.fail(FailureState::Held, "no", 0);
        let first = fixture.failures.get(fixture.id).unwrap();
        fixture.fail(FailureState::Held, &"é".repeat(600), 0);
        let second = fixture.failures.get(fixture.id).unwrap();
        assert_eq!((second.since, second.reason.as_str()), (first.since, "é".repeat(MAX_REASON).as_str()));
        fixture.reopen().await;
        assert_eq!(fixture.failures.get(fixture.id), Some(second));
        assert_eq!(fixture.emit(), ["sink.held"]);
        fixture.end(0);
        assert_eq!((fixture.failures.get(fixture.id), fixture.emit()), (None, vec!["sink.recovered".to_owned()]));
        fixture.reopen().await;
        assert_eq!(fixture.failures.sinks(), []);
        fixture.store.close().await;
    }

    #[tokio::test]
    async fn an_event_that_its_script_gives_up_ends_a_hold_and_no_other_failure() {
        let fixture = FailuresFixture::new();
        fixture.fail(FailureState::Failing, "no", 0);
        fixture.failures.end_hold(fixture.sink(), &event(0));
        assert_eq!(fixture.failures.get(fixture.id).unwrap().state, FailureState::Failing);
        fixture.fail(FailureState::Held, "no", 0);
        fixture.failures.end_hold(fixture.sink(), &event(0));
        assert_eq!(fixture.failures.get(fixture.id), None);
        assert_eq!(fixture.emit(), ["sink.failing", "sink.held", "sink.recovered"]);
        fixture.store.close().await;
    }

    #[tokio::test]
    async fn only_a_change_of_state_is_reported_and_a_restart_is_none() {
        let mut fixture = FailuresFixture::new();
        fixture.end(0);
        assert_eq!(fixture.emit(), [""; 0]);
        for _ in 0..3 {
            fixture.fail(FailureState::Failing, "no", 0);
            fixture.reopen().await;
        }
        assert_eq!(fixture.emit(), ["sink.failing"]);
        fixture.fail(FailureState::Held, "no", 0);
        fixture.end(0);
        fixture.end(0);
        assert_eq!(fixture.emit(), ["sink.held", "sink.recovered"]);
        for _ in 0..3 {
            fixture.failures.dropped(fixture.sink(), &event(0));
            fixture.reopen().await;
        }
        assert_eq!(
            (fixture.emit(), fixture.failures.is_dropping(fixture.id)),
            (vec!["sink.dropping".to_owned()], true)
        );
        fixture.failures.end_dropping(fixture.id);
        fixture.failures.dropped(fixture.sink(), &event(0));
        assert_eq!(fixture.emit(), ["sink.dropping"]);
        fixture.store.close().await;
    }

    #[tokio::test]
    async fn reports_of_reports_end_and_a_user_event_reports_what_was_left_out() {
        let fixture = FailuresFixture::new();
        fixture.fail(FailureState::Failing, "no", 2);
        fixture.end(3);
        assert_eq!(fixture.emit(), ["sink.failing"], "a report of a third report is the last");
        fixture.failures.report_late(|_, report| report(fixture.sink()));
        fixture.failures.dropped(fixture.sink(), &event(3));
        assert_eq!((fixture.emit(), fixture.failures.get(fixture.id)), (vec![], None));
        fixture.fail(FailureState::Failing, "no", 0);
        assert_eq!(fixture.emit(), [""; 0], "the state is the one reported");
        fixture.end(0);
        assert_eq!(fixture.emit(), ["sink.recovered"]);
        fixture.store.close().await;
    }

    #[tokio::test]
    async fn a_sink_that_changes_all_the_time_reports_ten_times_in_a_minute() {
        let fixture = FailuresFixture::new();
        let mut emitted = 0;
        for _ in 0..50 {
            fixture.fail(FailureState::Failing, "no", 0);
            fixture.end(0);
            emitted += fixture.emit().len();
        }
        fixture.fail(FailureState::Failing, "no", 0);
        assert_eq!((emitted, fixture.emit()), (MAX_REPORTS, vec![]));
        fixture.failures.report_late(|_, report| report(fixture.sink()));
        assert_eq!(fixture.emit(), [""; 0], "the minute is not over");
        fixture.failures.state.lock().recent.clear();
        fixture.failures.report_late(|_, report| report(fixture.sink()));
        assert_eq!(fixture.emit(), ["sink.failing"]);
        fixture.store.close().await;
    }
}
