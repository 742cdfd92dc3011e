//! Bodies that a sink's template renders before their attempts: while one event is on its way, those that follow it are rendered,
//! several in one run.
//!
//! A body is used only for the attempt that it was rendered for, by the sink as it was then. One that fails or takes long ahead of
//! its turn is rendered again at its turn, and what happens then counts.

use crate::{
    delivery::sinks::{self, EventBody, Sink, SinkContext},
    scripting::lua::EventInput,
};
use std::{collections::VecDeque, sync::Arc};
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
pub(super) const SINKS_AHEAD: usize = 128;

/// The bodies of one sink.
#[derive(Default)]
pub(super) struct BodiesAhead {
    /// The sink whose template they are from, and its share of the memory.
    of: Option<(Arc<Sink>, OwnedSemaphorePermit)>,
    ready: VecDeque<(EventInput, EventBody)>,
    rendering: Option<RenderingAhead>,
}

/// A run, and the events that it is for. Dropping it ends the run.
struct RenderingAhead {
    inputs: Vec<EventInput>,
    run: AbortOnDropHandle<Vec<EventBody>>,
}

impl BodiesAhead {
    /// Takes the body for this attempt, if it was rendered by this very sink.
    pub async fn take(&mut self, sink: &Arc<Sink>, input: &EventInput) -> Option<EventBody> {
        let (of, _) = self.of.as_ref()?;
        if !Arc::ptr_eq(of, sink) {
            *self = Self::default();
            return None;
        }
        let is_awaited = |rendering: &RenderingAhead| {
            rendering.run.is_finished()
                || (self.ready.is_empty() && rendering.inputs.iter().any(|of| of.sequence == input.sequence))
        };
        if let Some(RenderingAhead { inputs, run }) = self.rendering.take_if(|rendering| is_awaited(rendering)) {
            // A run that panicked has rendered nothing.
            let bodies = run.await.unwrap_or_default();
            if bodies.iter().map(|body| body.bytes.len()).sum::<usize>() <= KEPT_BYTES {
                self.ready.extend(inputs.into_iter().zip(bodies));
            }
        }
        while let Some((rendered, body)) = self.ready.pop_front() {
            if rendered.sequence >= input.sequence {
                return is_same(&rendered, input).then_some(body);
            }
        }
        None
    }

    /// The number of bodies that are ready, if more should be rendered now.
    pub fn wants_more_than(&self) -> Option<usize> {
        (self.rendering.is_none() && self.ready.len() <= LEFT).then_some(self.ready.len())
    }

    /// Begins to render the bodies of the events that follow those whose bodies are ready.
    pub fn begin(
        &mut self,
        context: &SinkContext,
        sink: &Arc<Sink>,
        inputs: Vec<EventInput>,
        sinks_ahead: &Arc<Semaphore>,
    ) {
        if self.of.is_none() {
            let Ok(permit) = sinks_ahead.clone().try_acquire_owned() else { return };
            self.of = Some((sink.clone(), permit));
        }
        let (context, sink, rendered) = (context.clone(), sink.clone(), inputs.clone());
        let run = tokio::spawn(async move { sinks::render_ahead(&context, &sink, rendered).await });
        self.rendering = Some(RenderingAhead { inputs, run: AbortOnDropHandle::new(run) });
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

    async fn taken(ahead: &mut BodiesAhead, sink: &Arc<Sink>, input: &EventInput) -> Option<String> {
        ahead.take(sink, input).await.map(|body| String::from_utf8(body.bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_body_is_used_for_the_attempt_that_it_was_rendered_for() {
        let (fixture, sink, places) = (SinkFixture::new(), failing_at(0), Arc::new(Semaphore::new(1)));
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(2..=6));
        assert_eq!(ahead.wants_more_than(), Some(0));
        ahead.begin(&fixture.context, &sink, inputs.clone(), &places);
        assert_eq!(ahead.wants_more_than(), None, "a run is under way");
        assert_eq!(taken(&mut ahead, &sink, &inputs[0]).await.as_deref(), Some("number 2"));
        assert_eq!(ahead.wants_more_than(), Some(4));
        // The third was not asked for.
        assert_eq!(taken(&mut ahead, &sink, &inputs[2]).await.as_deref(), Some("number 4"));
        let retried = EventInput { attempt: 2, ..inputs[3].clone() };
        assert_eq!(taken(&mut ahead, &sink, &retried).await, None, "another attempt");
        assert_eq!(taken(&mut ahead, &sink, &inputs[4]).await.as_deref(), Some("number 6"));
        assert_eq!(taken(&mut ahead, &sink, &inputs[4]).await, None, "each is used once");
    }

    #[tokio::test]
    async fn bodies_of_a_sink_that_was_changed_are_dropped() {
        let (fixture, before, places) = (SinkFixture::new(), failing_at(0), Arc::new(Semaphore::new(1)));
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=3));
        ahead.begin(&fixture.context, &before, inputs.clone(), &places);
        assert_eq!(taken(&mut ahead, &before, &inputs[0]).await.as_deref(), Some("number 1"));
        assert_eq!(places.available_permits(), 0);
        assert_eq!(taken(&mut ahead, &failing_at(0), &inputs[1]).await, None);
        assert_eq!(taken(&mut ahead, &before, &inputs[2]).await, None);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_event_that_fails_ahead_of_its_turn_is_left_to_its_turn() {
        let (fixture, sink, places) = (SinkFixture::new(), failing_at(3), Arc::new(Semaphore::new(1)));
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=4));
        ahead.begin(&fixture.context, &sink, inputs.clone(), &places);
        let mut bodies = Vec::new();
        for input in &inputs {
            bodies.push(taken(&mut ahead, &sink, input).await);
        }
        assert_eq!(bodies, [Some("number 1".to_owned()), Some("number 2".to_owned()), None, None]);
    }

    #[tokio::test]
    async fn without_a_place_nothing_is_rendered_ahead() {
        let (fixture, sink, places) = (SinkFixture::new(), failing_at(0), Arc::new(Semaphore::new(0)));
        let (mut ahead, inputs) = (BodiesAhead::default(), inputs(1..=3));
        ahead.begin(&fixture.context, &sink, inputs.clone(), &places);
        assert_eq!((ahead.wants_more_than(), taken(&mut ahead, &sink, &inputs[0]).await), (Some(0), None));
    }
}
