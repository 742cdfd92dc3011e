//! `svc event tail`: events and deliveries as they happen, until interrupted.
//!
//! A stream that breaks is opened again: a restart of the server must not end somebody's watch. What
//! happened in between is in `svc event list`.

use crate::cli::{
    api::{DeliveryNews, Event, Lagged},
    client::{Client, Query},
    failure::Failure,
    json,
    shell::{Form, Shell},
    stream::{Frame, Frames},
    table::{Tone, printable},
    time::brief,
};
use std::{io::BufReader, time::Duration};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(10);

client_command! {
    /// Follow events and their deliveries as they happen.
    #[argh(
        example = "{command_name}\n{command_name} --pattern 'custom.deploy.*' --json | jq .event.data"
    )]
    Tail = "tail" {
        /// only events whose type matches, such as 'custom.deploy.*'
        #[argh(option)]
        pattern: Option<String>,
    }
}

impl Tail {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = Query::default().with_some("pattern", self.pattern.as_deref()).on("/api/events/stream");
        // The first time must work: an address that is wrong will not become right by waiting.
        let mut body = client.stream(&path)?;
        loop {
            for frame in Frames(BufReader::new(body)) {
                let Ok(frame) = frame else { break };
                tell(shell, &client, &frame, self.form())?;
            }
            shell.note("the stream ended; connecting again");
            body = reopened(&client, &path)?;
            shell.note("connected again; `svc event list` has what happened in between");
        }
    }
}

/// Tries until the server is back. Being refused is final.
fn reopened(client: &Client, path: &str) -> Result<isahc::Body, Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        std::thread::sleep(pause);
        match client.stream(path) {
            Ok(body) => return Ok(body),
            Err(Failure::Unreachable { .. } | Failure::Foreign { .. }) => {}
            Err(Failure::Rejected { status: 500.., .. }) => {}
            Err(failure) => return Err(failure),
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn tell(shell: &mut Shell<'_>, client: &Client, frame: &Frame, form: Form) -> Result<(), Failure> {
    if form == Form::Json {
        // One object a line, on a terminal too: a stream of indented objects cannot be followed.
        let kind = serde_json::Value::from(frame.kind.as_str());
        return shell.out.line(&format!("{{{kind}:{}}}", json::on_one_line(&frame.data)));
    }
    let line = match frame.kind.as_str() {
        "event" => {
            let event: Event = client.read_text(&frame.data)?;
            let what = format!("{}  {}  {}", event.kind, event.actor.username, json::on_one_line(event.data.get()));
            format!("{}  {}", brief(event.ts), printable(&what))
        }
        "delivery" => {
            let news: DeliveryNews = client.read_text(&frame.data)?;
            let state = Tone::of_state(&news.state).paint(&printable(&news.state), shell.out.paint());
            format!("{:20}  {state}  {}", "", printable(&of_delivery(&news)))
        }
        "lagged" => {
            let Lagged { missed } = client.read_text(&frame.data)?;
            shell.note(&format!("too slow: {missed} messages were left out; `svc event list` has the events"));
            return Ok(());
        }
        // Newer servers may say more than we understand.
        _ => return Ok(()),
    };
    shell.out.line(line.trim_end())
}

fn of_delivery(news: &DeliveryNews) -> String {
    let status = news.status.map(|status| format!("  {status}")).unwrap_or_default();
    let error = news.error.as_ref().map(|error| format!("  {error}")).unwrap_or_default();
    format!("{}  to {}  {}  attempt {}{status}{error}", news.event_type, news.name, news.event_id, news.attempt)
}
