//! `svc event tail`: events and deliveries as they happen, until interrupted.
//!
//! A stream that breaks is opened again, so that a restart of the server does not end it. Events of the time between
//! are in `svc event list`.

use crate::{
    cli::{
        arguments::{brief, parse_patterns},
        client::{Client, QueryString},
        failure::Failure,
        json,
        shell::{OutputFormat, Shell},
        table::{Tone, printable},
    },
    model::{
        api::events::{DeliveryNotice, LaggedNotice},
        event::Event,
        pattern::Patterns,
    },
    platform::backoff::Backoff,
};
use std::{
    io::{self, BufRead, BufReader},
    time::Duration,
};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(10);

client_command! {
    /// Follow events and their deliveries as they happen.
    #[argh(
        example = "{command_name}\n{command_name} --pattern 'custom.deploy.*' --json | jq .event.data"
    )]
    TailEvents = "tail" {
        /// only events whose type matches, such as 'custom.deploy.*'
        #[argh(option, from_str_fn(parse_patterns))]
        pattern: Option<Patterns>,
    }
}

impl TailEvents {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = QueryString::default()
            .with_some("pattern", self.pattern.as_ref().map(Patterns::as_str))
            .on("/api/events/stream");
        // The first connection is not retried: a wrong address does not become right by waiting.
        let mut body = client.stream(&path)?;
        let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        loop {
            for frame in SseFrames(BufReader::new(body)) {
                let Ok(frame) = frame else { break };
                // A stream that ends before its first event may do so again and again.
                backoff.reset();
                print_frame(shell, &client, &frame, self.format())?;
            }
            shell.note("the stream ended; connecting again");
            body = reopen(&client, &path, &mut backoff)?;
            shell.note("connected again; `svc event list` has what happened in between");
        }
    }
}

/// Opens the stream again, trying until the server is back. A refusal is final.
fn reopen(client: &Client, path: &str, backoff: &mut Backoff) -> Result<isahc::Body, Failure> {
    loop {
        std::thread::sleep(backoff.next_wait());
        match client.stream(path) {
            Ok(body) => return Ok(body),
            Err(failure @ Failure::Foreign { status: 401 | 403, .. }) => return Err(failure),
            Err(Failure::Unreachable { .. } | Failure::NoAnswer { .. } | Failure::Foreign { .. }) => {}
            Err(Failure::Rejected { status: 500.., .. }) => {}
            Err(failure) => return Err(failure),
        }
    }
}

fn print_frame(shell: &mut Shell<'_>, client: &Client, frame: &SseFrame, format: OutputFormat) -> Result<(), Failure> {
    if format == OutputFormat::Json {
        // One object a line, on a terminal too: a stream of indented objects is unreadable.
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
            let notice: DeliveryNotice = client.read_text(&frame.data)?;
            let state = Tone::from(&notice.state).paint(&printable(&notice.state.to_string()), shell.out.paint());
            format!("{:20}  {state}  {}", "", printable(&delivery_line(&notice)))
        }
        "lagged" => {
            let LaggedNotice { missed } = client.read_text(&frame.data)?;
            shell.note(&format!("too slow: {missed} messages were left out; `svc event list` has the events"));
            return Ok(());
        }
        // Newer servers may send other kinds.
        _ => return Ok(()),
    };
    shell.out.line(line.trim_end())
}

fn delivery_line(notice: &DeliveryNotice) -> String {
    let status = notice.status.map(|status| format!("  {status}")).unwrap_or_default();
    let error = notice.error.as_ref().map(|error| format!("  {error}")).unwrap_or_default();
    format!("{}  to {}  {}  attempt {}{status}{error}", notice.event_type, notice.name, notice.event_id, notice.attempt)
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SseFrame {
    /// The value of `event:`; `message` without one.
    kind: String,
    data: String,
}

/// The server-sent events of a body, until it ends. Comments, which are heartbeats, are skipped.
struct SseFrames<R>(R);

impl<R: BufRead> Iterator for SseFrames<R> {
    type Item = io::Result<SseFrame>;

    fn next(&mut self) -> Option<io::Result<SseFrame>> {
        let mut kind = String::new();
        let mut data: Option<String> = None;
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                // The end of the stream cuts off an incomplete event.
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                let Some(data) = data.take() else {
                    kind.clear();
                    continue;
                };
                let kind = if kind.is_empty() { "message".to_owned() } else { kind };
                return Some(Ok(SseFrame { kind, data }));
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => value.clone_into(&mut kind),
                "data" => match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => data = Some(value.to_owned()),
                },
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_separated_and_heartbeats_skipped() {
        let text =
            ":\n\nevent: event\ndata: {\"a\":1}\n\n: beat\n\nevent:delivery\r\ndata:x\r\ndata: y\r\n\r\ndata: cut";
        let frames: Vec<SseFrame> = SseFrames(text.as_bytes()).map(Result::unwrap).collect();
        let frame = |kind: &str, data: &str| SseFrame { kind: kind.to_owned(), data: data.to_owned() };
        assert_eq!(frames, [frame("event", "{\"a\":1}"), frame("delivery", "x\ny")]);
    }
}
