//! `svc sink dead-letters` and `redeliver`: what was given up, and sending it again.

use crate::{
    cli::{
        api::{DeadLetter, Redelivered},
        client::{DEFAULT_LIMIT, Query},
        failure::Failure,
        named::Kind,
        shell::{Form, Shell},
        subscription::find_queue,
        table::{Cell, Fit, Table},
        time::brief,
    },
    model::id::EventId,
};
use serde_json::json;
use std::num::NonZeroUsize;

client_command! {
    /// List the events that a sink, or a subscribed method, could not be given.
    #[argh(example = "{command_name} slack\n{command_name} notes/notes.on_deploy")]
    DeadLetters = "dead-letters" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,

        /// how many at most (default 50)
        #[argh(option, default = "DEFAULT_LIMIT", arg_name = "n")]
        limit: NonZeroUsize,

        /// go on where an earlier list ended: its `next`
        #[argh(option)]
        cursor: Option<String>,
    }
}

client_command! {
    /// Send dead letters again: these events, or all there are.
    #[argh(example = "{command_name} slack\n{command_name} slack 01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77")]
    Redeliver = "redeliver" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,

        /// ids of events; all dead letters if left out
        #[argh(positional)]
        event: Vec<EventId>,
    }
}

impl DeadLetters {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/{}/dead-letters", Kind::Sink.path(), find_queue(&client, &self.sink)?);
        let listing = client.list_from(&path, &Query::default(), self.limit.get(), self.cursor.clone())?;
        if self.form() == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let letters: Vec<DeadLetter> = listing.read(&client)?;
        let mut table = Table::new(&[
            ("EVENT", Fit::Rigid),
            ("TYPE", Fit::Elastic),
            ("SEQUENCE", Fit::Rigid),
            ("DIED", Fit::Rigid),
            ("ATTEMPTS", Fit::Rigid),
            ("WHY", Fit::Elastic),
        ]);
        for letter in letters {
            let [event, kind, why] = [letter.event_id, letter.event_type, letter.why].map(Cell::from);
            let [sequence, attempts] = [letter.sequence, letter.attempts.into()].map(|n: u64| n.to_string().into());
            table.row([event, kind, sequence, brief(letter.died_at).into(), attempts, why]);
        }
        shell.out.table(&table)?;
        if let Some(next) = &listing.next {
            shell.note(&format!("there are more: --cursor {next}"));
        }
        Ok(())
    }
}

impl Redeliver {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/{}/redeliver", Kind::Sink.path(), find_queue(&client, &self.sink)?);
        let body = if self.event.is_empty() { json!({}) } else { json!({ "event_ids": self.event }) };
        let answer = client.post(&path, &body)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let Redelivered { redelivered, remaining } = client.read(&answer)?;
        let rest = match (remaining, self.event.is_empty()) {
            (0, _) => String::new(),
            (left, false) => format!("; {left} others remain dead"),
            (left, true) => format!("; {left} remain dead, as the queue has no room for more now"),
        };
        shell.out.line(&format!("queued {redelivered} again{rest}"))
    }
}
