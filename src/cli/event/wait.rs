//! `svc event --wait`: polls an event until all its deliveries have settled.

use super::{AttemptLine, receiver::EventReceiver};
use crate::{
    cli::{
        failure::Failure,
        shell::{OutputFormat, Shell},
        table::{Tone, printable},
    },
    model::{api::events::EventView, delivery::Delivery, id::EventId},
    platform::{backoff::Backoff, config::Span},
};
use serde_json::json;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// The pauses between two polls of an event: short at first, because most deliveries are fast, then doubled up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// An event that was raised.
pub struct RaisedEvent {
    pub id: EventId,
    pub event_type: String,
}

/// Polls the event until all its deliveries have settled, and prints a line for each; as JSON, the event once it has
/// settled or the time is up.
pub fn wait_for_deliveries(
    shell: &mut Shell<'_>,
    receiver: &EventReceiver,
    raised: &RaisedEvent,
    format: OutputFormat,
    at_most: Duration,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut settled = HashSet::new();
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    if format == OutputFormat::Text {
        shell.out.line(&format!("{}  {}", raised.id, raised.event_type))?;
    }
    let time_left = || at_most.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
    let (answer, event) = loop {
        // A poll of its own even if the time is up: short waits see deliveries that have settled already.
        let poll = time_left().unwrap_or(FIRST_PAUSE).max(Duration::from_secs(1));
        let found = match receiver.event(raised.id, poll)? {
            Some(answer) => {
                let event: EventView = receiver.read(&answer)?;
                Some((answer, event))
            }
            None => None,
        };
        if let Some((_, event)) = &found {
            for delivery in event.deliveries.iter().filter(|delivery| delivery.state.is_settled()) {
                if settled.insert(delivery.sink_id) && format == OutputFormat::Text {
                    print_delivery(shell, delivery)?;
                }
            }
        }
        let left = time_left();
        match (found, left) {
            (Some((answer, event)), _) if settled.len() == event.deliveries.len() => break (answer, event),
            (_, Some(left)) => std::thread::sleep(backoff.next_wait().min(left)),
            (Some((answer, event)), None) => {
                if format == OutputFormat::Json {
                    shell.out.json(answer.as_str())?;
                }
                return Err(timed_out(&event, at_most));
            }
            (None, None) => {
                if format == OutputFormat::Json {
                    shell.out.json(&json!({"id": raised.id, "type": raised.event_type}).to_string())?;
                }
                return Err(not_at_a_server(raised.id, at_most));
            }
        }
    };
    match format {
        OutputFormat::Json => shell.out.json(answer.as_str())?,
        OutputFormat::Text if event.deliveries.is_empty() => shell.out.line("no sink matches")?,
        OutputFormat::Text => {}
    }
    let lost = event.deliveries.iter().filter(|delivery| delivery.state.is_lost()).count();
    match lost {
        0 => Ok(()),
        _ => Err(Failure::Bad(format!(
            "{lost} of {} deliveries failed: `svc event show {}` tells what happened",
            event.deliveries.len(),
            event.id
        ))),
    }
}

/// Prints one settled delivery in one line.
fn print_delivery(shell: &mut Shell<'_>, delivery: &Delivery) -> Result<(), Failure> {
    let attempts = match delivery.attempts.len() {
        0 => String::new(),
        1 => "  1 attempt".to_owned(),
        many => format!("  {many} attempts"),
    };
    let last =
        delivery.attempts.last().map(|attempt| AttemptLine::from(attempt).status_and_error()).unwrap_or_default();
    let said = if last.is_empty() { last } else { format!("  {}", printable(&last)) };
    let state = Tone::from(delivery.state).paint(&format!("{:<9}", delivery.state.as_str()), shell.out.paint());
    shell.out.line(format!("{state}  {}{attempts}{said}", printable(&delivery.name)).trim_end())
}

fn timed_out(event: &EventView, at_most: Duration) -> Failure {
    let waiting = event.deliveries.iter().filter(|delivery| !delivery.state.is_settled());
    let names = waiting.map(|delivery| &*delivery.name).collect::<Vec<_>>().join(", ");
    Failure::Bad(format!(
        "still queued for {names} after {}: `svc event show {}` tells how it goes on",
        Span(at_most),
        event.id
    ))
}

fn not_at_a_server(id: EventId, at_most: Duration) -> Failure {
    Failure::Bad(format!(
        "the agent keeps event {id}, and no server has shown it within {}: `svc agent status` tells why",
        Span(at_most)
    ))
}
