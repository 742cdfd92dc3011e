//! Bodies that a sink's template renders before their attempts: while one event is on its way, those that follow it are
//! rendered, several in one run.
//!
//! A body is used only for the attempt that it was rendered for, by the sink and the libraries as they are. One that
//! fails or takes long ahead of its turn is rendered again at its turn, and what happens then counts. Bodies of events
//! that have to wait, because the one before them failed, are discarded.

use crate::{
    delivery::sinks::{self, EventBody, FirstBodies, Sink, SinkContext},
    scripting::lua::{EventInput, ScriptError},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

/// Events that are rendered in one run.
pub(super) const AHEAD: usize = 16;

/// Bytes of data of the events that are rendered in one run.
pub(super) const AHEAD_BYTES: usize = 64 << 10;

/// Bodies that are ready when the next ones are rendered.
const LEFT: usize = AHEAD / 2;

/// Bytes of bodies of one run that are kept. The run stops before it has rendered as many.
const KEPT_BYTES: usize = 4 * AHEAD_BYTES;

/// Sinks with bodies rendered ahead, which bounds the memory that those take. Others render at the turn.
const SINKS_AHEAD: usize = 128;

/// Everything that the bodies of all sinks share.
pub(super) struct AheadShared {
    places: Arc<Semaphore>,
    /// Raised by every change of a stored script, which a template may use as a library.
    libraries: AtomicU64,
}

/// The bodies of one sink.
#[derive(Default)]
pub(super) struct BodiesAhead {
    source: Option<BodySource>,
    ready: VecDeque<(EventInput, EventBody)>,
    rendering: Option<RenderingAhead>,
    /// An event that failed ahead of its turn. Runs end before it.
    failed_at: Option<u64>,
    /// A run was lost, or the server ended during an attempt: every event is rendered at its turn.
    off: bool,
}

/// The origin of bodies, and their share of the memory.
struct BodySource {
    sink: Arc<Sink>,
    libraries: u64,
    _place: OwnedSemaphorePermit,
}

/// A run, and the events that it is for. Dropping it ends the run.
struct RenderingAhead {
    inputs: Vec<EventInput>,
    run: AbortOnDropHandle<Result<FirstBodies, ScriptError>>,
}

impl AheadShared {
    pub fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(SINKS_AHEAD)), libraries: AtomicU64::new(0) }
    }

    /// Discards all bodies: a library may have changed.
    pub fn change_libraries(&self) {
        self.libraries.fetch_add(1, Relaxed);
    }
}

impl BodiesAhead {
    /// Takes the body for this attempt, if it was rendered by this very sink with the present libraries.
    pub async fn take(&mut self, shared: &AheadShared, sink: &Arc<Sink>, input: &EventInput) -> Option<EventBody> {
        if self.failed_at.is_some_and(|failed| failed <= input.sequence) {
            self.failed_at = None;
        }
        let source = self.source.as_ref()?;
        if !Arc::ptr_eq(&source.sink, sink) || source.libraries != shared.libraries.load(Relaxed) {
            self.clear();
            return None;
        }
        let is_awaited = |rendering: &RenderingAhead| {
            rendering.run.is_finished()
                || (self.ready.is_empty() && rendering.inputs.iter().any(|of| of.sequence == input.sequence))
        };
        if let Some(RenderingAhead { inputs, run }) = self.rendering.take_if(|rendering| is_awaited(rendering)) {
            match run.await {
                Ok(Ok(FirstBodies { bodies, failed })) => {
                    if failed {
                        self.failed_at = inputs.get(bodies.len()).map(|input| input.sequence);
                    }
                    self.ready.extend(inputs.into_iter().zip(bodies));
                }
                Ok(Err(ScriptError::Busy | ScriptError::Stopped)) => {}
                // Which event it was is not known.
                Ok(Err(_)) | Err(_) => self.off = true,
            }
        }
        while let Some((rendered, body)) = self.ready.pop_front_if(|(rendered, _)| rendered.sequence <= input.sequence)
        {
            if is_same(&rendered, input) {
                return Some(body);
            }
        }
        None
    }

    /// The number of bodies that are ready, if more should be rendered now.
    pub fn wants_more_than(&self) -> Option<usize> {
        (!self.off && self.rendering.is_none() && self.ready.len() <= LEFT).then_some(self.ready.len())
    }

    /// Begins to render the bodies of the events that follow those whose bodies are ready.
    pub fn begin(
        &mut self,
        shared: &AheadShared,
        context: &SinkContext,
        sink: &Arc<Sink>,
        mut inputs: Vec<EventInput>,
    ) {
        inputs.retain(|input| self.failed_at.is_none_or(|failed| input.sequence < failed));
        if inputs.is_empty() {
            return;
        }
        if self.source.is_none() {
            let Ok(place) = shared.places.clone().try_acquire_owned() else { return };
            let libraries = shared.libraries.load(Relaxed);
            self.source = Some(BodySource { sink: sink.clone(), libraries, _place: place });
        }
        let (context, sink, rendered) = (context.clone(), sink.clone(), inputs.clone());
        let run = tokio::spawn(async move {
            let first = sinks::render_ahead(&context, &sink, rendered).await?;
            let bytes: usize = first.bodies.iter().map(|body| body.bytes.len()).sum();
            Ok(if bytes <= KEPT_BYTES { first } else { FirstBodies::default() })
        });
        self.rendering = Some(RenderingAhead { inputs, run: AbortOnDropHandle::new(run) });
    }

    /// Discards the bodies: their events have to wait, or the sink has changed.
    pub fn clear(&mut self) {
        self.source = None;
        self.ready.clear();
        self.rendering = None;
    }

    /// Discards the bodies and renders every event at its turn from now on.
    pub fn turn_off(&mut self) {
        self.clear();
        self.off = true;
    }
}

/// Returns true if a template sees the same in both.
fn is_same(one: &EventInput, other: &EventInput) -> bool {
    one.event.id == other.event.id
        && (one.sequence, one.attempt, one.replay) == (other.sequence, other.attempt, other.replay)
        && one.missed == other.missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::sinks::test_support::{SinkFixture, input, sink};
    use serde_json::json;

    /// A sink whose template fails for the event with this number.
    fn failing_at(sequence: u64) -> Arc<Sink> {
        let template =
            format!("if event.sequence == {sequence} then error('no') end return 'number ' .. event.sequence");
        Arc::new(sink(json!({"type": "webhook", "webhook": {"url": "http://127.0.0.1:9", "template": template}})))
    }

    fn inputs(sequences: std::ops::RangeInclusive<u64>) -> Vec<EventInput> {
        let event = input().event;
        sequences.map(|sequence| EventInput { sequence, ..EventInput::sample(event.clone()) }).collect()
    }

    async fn taken(
        ahead: &mut BodiesAhead,
        shared: &AheadShared,
        sink: &Arc<Sink>,
        input: &EventInput,
    ) -> Option<String> {
        ahead.take(shared, sink, input).await.map(|body| String::from_utf8(body.bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_body_is_used_for_the_attempt_that_it_was_rendered_for() {
        let (fixture, sink, shared) = (SinkFixture::new(), failing_at(0), AheadShared::new());
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(2..=6));
        assert_eq!(ahead.wants_more_than(), Some(0));
        ahead.begin(&shared, &fixture.context, &sink, inputs.clone());
        assert_eq!(ahead.wants_more_than(), None, "a run is under way");
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[0]).await.as_deref(), Some("number 2"));
        assert_eq!(ahead.wants_more_than(), Some(4));
        // The third was not asked for.
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[2]).await.as_deref(), Some("number 4"));
        let retried = EventInput { attempt: 2, ..inputs[3].clone() };
        assert_eq!(taken(&mut ahead, &shared, &sink, &retried).await, None, "another attempt");
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[4]).await.as_deref(), Some("number 6"));
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[4]).await, None, "each is used once");
    }

    #[tokio::test]
    async fn bodies_of_a_sink_that_was_changed_are_dropped() {
        let (fixture, before, shared) = (SinkFixture::new(), failing_at(0), AheadShared::new());
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=3));
        ahead.begin(&shared, &fixture.context, &before, inputs.clone());
        assert_eq!(taken(&mut ahead, &shared, &before, &inputs[0]).await.as_deref(), Some("number 1"));
        assert_eq!(shared.places.available_permits(), SINKS_AHEAD - 1);
        assert_eq!(taken(&mut ahead, &shared, &failing_at(0), &inputs[1]).await, None);
        assert_eq!(taken(&mut ahead, &shared, &before, &inputs[2]).await, None);
        assert_eq!(shared.places.available_permits(), SINKS_AHEAD);
    }

    #[tokio::test]
    async fn an_event_that_fails_ahead_of_its_turn_is_left_to_its_turn() {
        let (fixture, sink, shared) = (SinkFixture::new(), failing_at(3), AheadShared::new());
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=4));
        ahead.begin(&shared, &fixture.context, &sink, inputs.clone());
        let mut bodies = Vec::new();
        for input in &inputs {
            bodies.push(taken(&mut ahead, &shared, &sink, input).await);
        }
        assert_eq!(bodies, [Some("number 1".to_owned()), Some("number 2".to_owned()), None, None]);
    }

    #[tokio::test]
    async fn without_a_place_nothing_is_rendered_ahead() {
        let (fixture, sink, shared) = (SinkFixture::new(), failing_at(0), AheadShared::new());
        let places = shared.places.clone().try_acquire_many_owned(u32::try_from(SINKS_AHEAD).unwrap()).unwrap();
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=3));
        ahead.begin(&shared, &fixture.context, &sink, inputs.clone());
        assert_eq!((ahead.wants_more_than(), taken(&mut ahead, &shared, &sink, &inputs[0]).await), (Some(0), None));
        drop(places);
        ahead.turn_off();
        assert_eq!(ahead.wants_more_than(), None);
    }

    #[tokio::test]
    async fn a_changed_library_discards_the_bodies() {
        let (fixture, sink, shared) = (SinkFixture::new(), failing_at(0), AheadShared::new());
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=3));
        ahead.begin(&shared, &fixture.context, &sink, inputs.clone());
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[0]).await.as_deref(), Some("number 1"));
        shared.change_libraries();
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[1]).await, None);
    }

    #[tokio::test]
    async fn an_event_that_never_ends_ahead_of_its_turn_costs_the_bodies_before_it_nothing() {
        let template = "while event.sequence == 3 do end return 'number ' .. event.sequence";
        let sink =
            Arc::new(sink(json!({"type": "webhook", "webhook": {"url": "http://127.0.0.1:9", "template": template}})));
        let (fixture, shared) = (SinkFixture::new(), AheadShared::new());
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=5));
        ahead.begin(&shared, &fixture.context, &sink, inputs.clone());
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[0]).await.as_deref(), Some("number 1"));
        // No further run meets it.
        ahead.begin(&shared, &fixture.context, &sink, inputs[2..].to_vec());
        assert_eq!(ahead.wants_more_than(), Some(1), "none is under way");
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[1]).await.as_deref(), Some("number 2"));
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[2]).await, None);
        ahead.begin(&shared, &fixture.context, &sink, inputs[3..].to_vec());
        assert_eq!(taken(&mut ahead, &shared, &sink, &inputs[3]).await.as_deref(), Some("number 4"));
    }
}
