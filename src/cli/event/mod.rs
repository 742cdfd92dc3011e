//! `svc event`: raises an event ([`emit`]), sends those that were kept ([`flush`]), lists and shows past ones with the
//! outcome of their deliveries, and follows them live ([`tail`]).

mod emit;
mod flush;
mod receiver;
mod spool;
mod tail;
mod wait;

pub use emit::EmitEvent;
pub use flush::FlushEvents;
pub use tail::TailEvents;

use crate::{
    cli::{
        arguments::{Moment, brief, parse_limit, parse_patterns},
        client::{DEFAULT_LIMIT, QueryString},
        failure::Failure,
        json,
        shell::{OutputFormat, Shell},
        sink::queues::find_queue,
        table::{Cell, Fit, TextTable, Tone, printable},
    },
    model::{
        api::{events::EventView, lenient::Lenient, sinks::TestView},
        delivery::{Attempt, AttemptOutcome, Delivery, DeliveryState},
        id::{EventId, SpaceId},
        pattern::Patterns,
        timestamp::Timestamp,
    },
};
use std::{num::NonZeroUsize, time::Duration};

command_family! {
    /// Raise an event, or show those that were raised. `svc event TYPE` is short for `svc event emit TYPE`.
    #[argh(
        example = "{command_name} deploy.done '{{\"version\": \"1.2\"}}'\n\
                   {command_name} deploy.done - --wait < payload.json\n\
                   {command_name} deploy.done --explain\n\
                   {command_name} list --state dead",
        note = "Every type gets `custom.` in front: `deploy.done` is raised as `custom.deploy.done`."
    )]
    EventCommand(EventSubcommand) = "event" { EmitEvent, FlushEvents, ListEvents, ShowEvent, TailEvents }
}

client_command! {
    /// List events, newest first.
    #[argh(
        example = "{command_name} --pattern 'custom.deploy.*' --since 1h\n{command_name} --sink slack --state dead --json"
    )]
    ListEvents = "list" {
        /// only events whose type matches, such as 'custom.deploy.*'
        #[argh(option, from_str_fn(parse_patterns))]
        pattern: Option<Patterns>,

        /// only events that went to this sink (name or id) or method (SPACE/METHOD)
        #[argh(option)]
        sink: Option<String>,

        /// only events with a delivery in this state: queued, delivered, skipped, dropped, dead or discarded
        #[argh(option)]
        state: Option<DeliveryState>,

        /// only events since then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        since: Option<Moment>,

        /// only events before then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        until: Option<Moment>,

        /// the most to list (default 50)
        #[argh(option, default = "DEFAULT_LIMIT", arg_name = "n", from_str_fn(parse_limit))]
        limit: NonZeroUsize,

        /// go on where an earlier list ended: its `next`
        #[argh(option)]
        cursor: Option<String>,
    }
}

client_command! {
    /// Show one event with every delivery and attempt.
    #[argh(example = "{command_name} 01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77")]
    ShowEvent = "show" {
        /// the event's id
        #[argh(positional)]
        id: EventId,
    }
}

/// One attempt as it is printed. A test of a sink has neither a number nor a time, as it is in no queue.
pub struct AttemptLine<'a> {
    number: Option<u32>,
    at: Option<Timestamp>,
    duration_ms: f64,
    outcome: Lenient<AttemptOutcome>,
    status: Option<u16>,
    error: Option<&'a str>,
    response: Option<&'a str>,
    log: &'a [String],
}

impl ListEvents {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let sink = match &self.sink {
            Some(text) => Some(find_queue(&client, text)?),
            None => None,
        };
        let query = QueryString::default()
            .with_some("pattern", self.pattern.as_ref().map(Patterns::as_str))
            .with_some("sink", sink)
            .with_some("state", self.state)
            .with_some("since", self.since.map(Moment::past))
            .with_some("until", self.until.map(Moment::past));
        let listing = client.list_from("/api/events", &query, self.limit.get(), self.cursor.clone())?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&listing.to_json());
        }
        let events: Vec<EventView> = listing.read(&client)?;
        let mut table = TextTable::new(&[
            ("ID", Fit::Rigid),
            ("TIME", Fit::Rigid),
            ("TYPE", Fit::Elastic),
            ("BY", Fit::Elastic),
            ("DELIVERIES", Fit::Elastic),
        ]);
        for event in events {
            let deliveries = summary(&event.deliveries);
            let [id, kind, by] = [event.id.to_string(), event.kind.to_string(), event.actor.username].map(Cell::from);
            table.row([id, brief(event.ts).into(), kind, by, deliveries]);
        }
        shell.out.table(&table)?;
        shell.note_next_page(listing.next());
        Ok(())
    }
}

impl ShowEvent {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&format!("/api/events/{}", self.id))?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let event: EventView = client.read(&answer)?;
        let mut table = TextTable::of_fields();
        table.field("id", event.id.to_string());
        table.field("type", event.kind.as_str());
        table.field("time", event.ts.to_string());
        // An event that an agent kept until it reached the server was accepted later than it was raised.
        if event.accepted_at.since(event.ts) >= Duration::from_secs(1) {
            table.field("accepted", event.accepted_at.to_string());
        }
        table.field("by", format!("{} ({})", event.actor.username, event.actor.kind));
        table.field("zone", &*event.zone);
        if event.space_id != SpaceId::NIL {
            table.field("space", event.space_id.to_string());
        }
        shell.out.table(&table)?;
        shell.out.line(&printable_lines(&json::indented(event.data.get())))?;
        for delivery in &event.deliveries {
            shell.out.line("")?;
            print_delivery(shell, delivery)?;
        }
        Ok(())
    }
}

fn print_delivery(shell: &mut Shell<'_>, delivery: &Delivery) -> Result<(), Failure> {
    let painted = Tone::from(delivery.state).paint(delivery.state.as_str(), shell.out.paint());
    shell.out.line(&format!("{}: {painted}  #{}", printable(&delivery.name), delivery.sequence))?;
    for attempt in &delivery.attempts {
        print_attempt(shell, &AttemptLine::from(attempt))?;
    }
    Ok(())
}

/// Prints an attempt: one line about it, then the receiver's response and the script's log, indented.
///
/// # Errors
///
/// Fails if stdout cannot be written.
pub fn print_attempt(shell: &mut Shell<'_>, attempt: &AttemptLine<'_>) -> Result<(), Failure> {
    let outcome = Tone::from(&attempt.outcome).paint(&printable(&attempt.outcome.to_string()), shell.out.paint());
    let number = attempt.number.map(|number| format!("{number}  ")).unwrap_or_default();
    let at = attempt.at.map(|at| format!("{}  ", brief(at))).unwrap_or_default();
    let said = printable(&attempt.status_and_error());
    let line = format!("  {number}{at}{outcome}  {} ms  {said}", attempt.duration_ms.round());
    shell.out.line(line.trim_end())?;
    for line in attempt.response.iter().flat_map(|response| response.lines()).take(5) {
        shell.out.line(&format!("     < {}", printable(line)))?;
    }
    for line in attempt.log {
        shell.out.line(&format!("     | {}", printable(line)))?;
    }
    Ok(())
}

/// The states of an event's deliveries with their counts. The worst state decides the colour.
fn summary(deliveries: &[Delivery]) -> Cell {
    let count = |state: DeliveryState| deliveries.iter().filter(|delivery| delivery.state == state).count();
    let counts = DeliveryState::ALL.into_iter().map(|state| (state, count(state))).filter(|(_, count)| *count > 0);
    let text = counts.map(|(state, count)| format!("{count} {}", state.as_str())).collect::<Vec<_>>().join(", ");
    let tone = if deliveries.iter().any(|delivery| delivery.state.is_lost()) {
        Tone::Bad
    } else if deliveries.iter().any(|delivery| !delivery.state.is_settled()) {
        Tone::Doubtful
    } else if count(DeliveryState::Delivered) > 0 {
        Tone::Good
    } else {
        Tone::Quiet
    };
    Cell::toned(if text.is_empty() { "none".to_owned() } else { text }, tone)
}

/// Several lines, each made safe to print.
fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

impl AttemptLine<'_> {
    /// The receiver's status and the error, as far as there are any.
    pub fn status_and_error(&self) -> String {
        match (self.status, self.error) {
            (Some(status), Some(error)) if !error.contains(&status.to_string()) => format!("{status}: {error}"),
            (_, Some(error)) => error.to_owned(),
            (Some(status), None) => status.to_string(),
            (None, None) => String::new(),
        }
    }
}

impl<'a> From<&'a Attempt> for AttemptLine<'a> {
    fn from(attempt: &'a Attempt) -> Self {
        Self {
            number: Some(attempt.number),
            at: Some(attempt.at),
            duration_ms: attempt.duration_ms,
            outcome: attempt.outcome.into(),
            status: attempt.status,
            error: attempt.error.as_deref(),
            response: attempt.response.as_deref(),
            log: &attempt.log,
        }
    }
}

impl<'a> From<&'a TestView> for AttemptLine<'a> {
    fn from(test: &'a TestView) -> Self {
        Self {
            number: None,
            at: None,
            duration_ms: test.duration_ms,
            outcome: test.outcome.clone(),
            status: test.status,
            error: test.error.as_deref(),
            response: test.response.as_deref(),
            log: &test.log,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::SinkId;

    fn delivery(state: DeliveryState) -> Delivery {
        Delivery { sink_id: SinkId::new(), name: "".into(), state, sequence: 1, attempts: Vec::new() }
    }

    #[test]
    fn deliveries_are_summed_up_and_the_worst_decides_the_colour() {
        assert_eq!(summary(&[]), Cell::toned("none", Tone::Quiet));
        let all = [DeliveryState::Delivered, DeliveryState::Dead, DeliveryState::Delivered].map(delivery);
        assert_eq!(summary(&all), Cell::toned("2 delivered, 1 dead", Tone::Bad));
        assert_eq!(summary(&[delivery(DeliveryState::Delivered)]), Cell::toned("1 delivered", Tone::Good));
    }
}
