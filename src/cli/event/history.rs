//! `svc event list` and `svc event show`: what was raised and what became of it.

use crate::{
    cli::{
        api::{Attempt, Delivery, Event, State},
        client::{DEFAULT_LIMIT, Query},
        failure::Failure,
        json,
        shell::{Form, Shell},
        subscription::find_queue,
        table::{Cell, Fit, Table, Tone, printable},
        time::{Moment, brief},
    },
    model::id::{EventId, SpaceId},
};
use std::num::NonZeroUsize;

client_command! {
    /// List events, newest first.
    #[argh(
        example = "{command_name} --pattern 'custom.deploy.*' --since 1h\n{command_name} --sink slack --state dead --json"
    )]
    List = "list" {
        /// only events whose type matches, such as 'custom.deploy.*'
        #[argh(option)]
        pattern: Option<String>,

        /// only events that went to this sink (name or id) or method (SPACE/METHOD)
        #[argh(option)]
        sink: Option<String>,

        /// only events with a delivery in this state: queued, delivered, skipped, dropped, dead or discarded
        #[argh(option)]
        state: Option<State>,

        /// only events since then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        since: Option<Moment>,

        /// only events before then: a time, or a span such as 15m
        #[argh(option, arg_name = "when")]
        until: Option<Moment>,

        /// how many at most (default 50)
        #[argh(option, default = "DEFAULT_LIMIT", arg_name = "n")]
        limit: NonZeroUsize,

        /// go on where an earlier list ended: its `next`
        #[argh(option)]
        cursor: Option<String>,
    }
}

client_command! {
    /// Show one event with every delivery and attempt.
    #[argh(example = "{command_name} 01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77")]
    Show = "show" {
        /// the event's id
        #[argh(positional)]
        id: EventId,
    }
}

impl List {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let sink = match &self.sink {
            Some(text) => Some(find_queue(&client, text)?),
            None => None,
        };
        let query = Query::default()
            .with_some("pattern", self.pattern.as_deref())
            .with_some("sink", sink)
            .with_some("state", self.state.map(State::as_str))
            .with_some("since", self.since.map(Moment::past))
            .with_some("until", self.until.map(Moment::past));
        let listing = client.list_from("/api/events", &query, self.limit.get(), self.cursor.clone())?;
        if self.form() == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let events: Vec<Event> = listing.read(&client)?;
        let mut table = Table::new(&[
            ("ID", Fit::Rigid),
            ("TIME", Fit::Rigid),
            ("TYPE", Fit::Elastic),
            ("BY", Fit::Elastic),
            ("DELIVERIES", Fit::Elastic),
        ]);
        for event in events {
            let deliveries = in_brief(&event.deliveries);
            let [id, kind, by] = [event.id, event.kind, event.actor.username].map(Cell::from);
            table.row([id, brief(event.ts).into(), kind, by, deliveries]);
        }
        shell.out.table(&table)?;
        if let Some(next) = &listing.next {
            shell.note(&format!("there are more: --cursor {next}"));
        }
        Ok(())
    }
}

impl Show {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&format!("/api/events/{}", self.id))?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let event: Event = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", event.id);
        table.field("type", event.kind);
        table.field("time", event.ts.to_string());
        table.field("by", format!("{} ({})", event.actor.username, event.actor.kind));
        table.field("zone", event.zone);
        if event.space_id != SpaceId::NIL.to_string() {
            table.field("space", event.space_id);
        }
        shell.out.table(&table)?;
        shell.out.line(&printable_lines(&json::indented(event.data.get())))?;
        for delivery in &event.deliveries {
            shell.out.line("")?;
            show_delivery(shell, delivery)?;
        }
        Ok(())
    }
}

fn show_delivery(shell: &mut Shell<'_>, delivery: &Delivery) -> Result<(), Failure> {
    let state = delivery.state.as_str();
    let painted = Tone::of_state(state).paint(state, shell.out.paint());
    shell.out.line(&format!("{}: {painted}  #{}", printable(&delivery.name), delivery.sequence))?;
    for attempt in &delivery.attempts {
        show_attempt(shell, attempt)?;
    }
    Ok(())
}

/// One attempt: a line about it, then what the receiver said and the script logged, indented.
pub fn show_attempt(shell: &mut Shell<'_>, attempt: &Attempt) -> Result<(), Failure> {
    let outcome = Tone::of_state(&attempt.outcome).paint(&printable(&attempt.outcome), shell.out.paint());
    let number = attempt.number.map(|number| format!("{number}  ")).unwrap_or_default();
    let at = attempt.at.map(|at| format!("{}  ", brief(at))).unwrap_or_default();
    let said = printable(&attempt.what_happened());
    let line = format!("  {number}{at}{outcome}  {} ms  {said}", attempt.duration_ms.round());
    shell.out.line(line.trim_end())?;
    for line in attempt.response.iter().flat_map(|response| response.lines()).take(5) {
        shell.out.line(&format!("     < {}", printable(line)))?;
    }
    for line in &attempt.log {
        shell.out.line(&format!("     | {}", printable(line)))?;
    }
    Ok(())
}

/// How the deliveries of an event stand, in a few words: the worst state decides the colour.
fn in_brief(deliveries: &[Delivery]) -> Cell {
    let count = |state: State| deliveries.iter().filter(|delivery| delivery.state == state).count();
    let counts = State::ALL.into_iter().map(|state| (state, count(state))).filter(|(_, count)| *count > 0);
    let text = counts.map(|(state, count)| format!("{count} {}", state.as_str())).collect::<Vec<_>>().join(", ");
    let tone = if deliveries.iter().any(|delivery| delivery.state.is_lost()) {
        Tone::Bad
    } else if deliveries.iter().any(|delivery| !delivery.state.is_settled()) {
        Tone::Doubtful
    } else if count(State::Delivered) > 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(state: State) -> Delivery {
        Delivery { sink_id: String::new(), name: String::new(), state, sequence: 1, attempts: Vec::new() }
    }

    #[test]
    fn deliveries_are_summed_up_and_the_worst_decides_the_colour() {
        assert_eq!(in_brief(&[]), Cell::toned("none", Tone::Quiet));
        let all = [State::Delivered, State::Dead, State::Delivered].map(delivery);
        assert_eq!(in_brief(&all), Cell::toned("2 delivered, 1 dead", Tone::Bad));
        assert_eq!(in_brief(&[delivery(State::Delivered)]), Cell::toned("1 delivered", Tone::Good));
    }
}
