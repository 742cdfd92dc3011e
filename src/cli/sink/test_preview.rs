//! `svc sink test` and `preview`: a sample or recorded event through a sink, delivered or only rendered.

use crate::{
    cli::{
        arguments::{PayloadSource, parse_event_type},
        event::{AttemptLine, print_attempt},
        failure::Failure,
        json,
        resource::{ResourceKind, find_script},
        shell::{OutputFormat, Shell},
        sink_file,
        table::printable,
    },
    model::{
        api::sinks::{PreviewBody, PreviewView, SampleEvent, TestView},
        delivery::AttemptOutcome,
        id::{EventId, SinkId},
    },
};
use serde_json::value::RawValue;
use std::path::PathBuf;

client_command! {
    /// Deliver a sample event now, outside the queue, and show the outcome.
    #[argh(
        example = "{command_name} slack\n{command_name} slack '{{\"version\": \"1.2\"}}' --type deploy.done\n{command_name} slack --event 0198c0de-0000-7000-8000-000000000000"
    )]
    TestSink = "test" {
        /// the sink's name or id
        #[argh(positional)]
        sink: String,

        /// the sample's payload: a JSON object, @FILE, or - for stdin
        #[argh(positional, arg_name = "json")]
        payload: Option<String>,

        /// the sample's type
        #[argh(option, long = "type", arg_name = "type", from_str_fn(parse_event_type))]
        kind: Option<String>,

        /// a recorded event, by its id, in place of a sample
        #[argh(option, arg_name = "id")]
        event: Option<EventId>,
    }
}

client_command! {
    /// Render a sample event as a sink would send it, and send nothing.
    #[argh(
        example = "{command_name} slack '{{\"version\": \"1.2\"}}' --type deploy.done\n\
                   {command_name} --file sinks/slack.toml '{{\"version\": \"1.2\"}}'"
    )]
    PreviewSink = "preview" {
        /// the sink's name or id, unless --file names one; then the sample's payload
        #[argh(positional, arg_name = "sink-and-json")]
        words: Vec<String>,

        /// a sink's TOML file, which need not have been applied
        #[argh(option)]
        file: Option<PathBuf>,

        /// the sample's type
        #[argh(option, long = "type", arg_name = "type", from_str_fn(parse_event_type))]
        kind: Option<String>,

        /// a recorded event, by its id, in place of a sample
        #[argh(option, arg_name = "id")]
        event: Option<EventId>,
    }
}

/// The sink of a preview.
#[derive(Debug, PartialEq, Eq)]
enum PreviewedSink<'a> {
    Saved(&'a str),
    File(&'a PathBuf),
}

impl TestSink {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let payload = payload(shell, self.payload.as_deref())?;
        let client = self.client(shell)?;
        let path = format!("{}/test", ResourceKind::SINK.path_of(&client, &self.sink)?);
        let answer = client.post(&path, &SampleEvent { kind: self.kind.clone(), payload, event_id: self.event })?;
        let tested: TestView = client.read(&answer)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str())?,
            OutputFormat::Text => {
                print_attempt(shell, &AttemptLine::from(&tested))?;
                if let Some(sent) = &tested.sent {
                    shell.out.line("sent:")?;
                    print_body(shell, sent)?;
                }
            }
        }
        match tested.outcome.known() {
            Some(AttemptOutcome::Delivered | AttemptOutcome::Skipped) => Ok(()),
            _ => {
                Err(Failure::Bad(format!("the sample was not delivered to `{}`: see above for the reason", self.sink)))
            }
        }
    }
}

impl PreviewSink {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let (subject, argument) = self.sink_and_payload()?;
        let payload = payload(shell, argument)?;
        let client = self.client(shell)?;
        let (sink, sink_id) = match subject {
            PreviewedSink::Saved(name) => (None, Some(parse_id(&ResourceKind::SINK.find(&client, name)?.id)?)),
            PreviewedSink::File(path) => {
                let draft = sink_file::read(path, shell.environment)?;
                (Some(draft.resolve(|owner, script| find_script(&client, owner, script))?), None)
            }
        };
        let body = PreviewBody { sink, sink_id, kind: self.kind.clone(), payload, event_id: self.event };
        let answer = client.post("/api/event-sinks/preview", &body)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str()),
            OutputFormat::Text => print_body(shell, &client.read::<PreviewView>(&answer)?.body),
        }
    }

    /// The sink and the payload among the positional words.
    fn sink_and_payload(&self) -> Result<(PreviewedSink<'_>, Option<&str>), Failure> {
        let mut words = self.words.iter().map(String::as_str);
        let subject = match &self.file {
            Some(path) => PreviewedSink::File(path),
            None => PreviewedSink::Saved(
                words.next().ok_or_else(|| Failure::Usage("name a sink, or a file with --file".to_owned()))?,
            ),
        };
        let payload = words.next();
        match (words.next(), payload) {
            (Some(extra), _) => Err(Failure::Usage(format!("`{extra}` is one word too many"))),
            (None, Some(name)) if self.file.is_some() && !name.starts_with(['{', '@']) => {
                Err(Failure::Usage(format!("`{name}` and --file both name a sink: use one")))
            }
            (None, payload) => Ok((subject, payload)),
        }
    }
}

/// The payload that was given. Without one, stdin is not read: the server has a sample of its own.
fn payload(shell: &mut Shell<'_>, argument: Option<&str>) -> Result<Option<Box<RawValue>>, Failure> {
    match argument {
        Some(_) => PayloadSource::of_argument(argument).read(shell).map(Some),
        None => Ok(None),
    }
}

/// Prints a body: indented if it is JSON, line by line if it is text.
fn print_body(shell: &mut Shell<'_>, text: &str) -> Result<(), Failure> {
    if serde_json::from_str::<&RawValue>(text).is_ok() {
        let laid_out = json::indented(text);
        return shell.out.line(&laid_out.lines().map(printable).collect::<Vec<_>>().join("\n"));
    }
    text.lines().try_for_each(|line| shell.out.line(&printable(line)))
}

fn parse_id(id: &str) -> Result<SinkId, Failure> {
    id.parse().map_err(|_| Failure::NoSuch(format!("`{id}` is no id of a sink")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn preview(words: &[&str]) -> PreviewSink {
        PreviewSink::from_args(&["svc", "sink", "preview"], words).unwrap()
    }

    #[test]
    fn a_file_takes_the_place_of_the_name() {
        assert_eq!(preview(&["slack", "{}"]).sink_and_payload().unwrap(), (PreviewedSink::Saved("slack"), Some("{}")));
        let path = PathBuf::from("a.toml");
        assert_eq!(
            preview(&["--file", "a.toml", "{}"]).sink_and_payload().unwrap(),
            (PreviewedSink::File(&path), Some("{}"))
        );
        assert_eq!(preview(&["--file", "a.toml"]).sink_and_payload().unwrap(), (PreviewedSink::File(&path), None));
    }

    #[test]
    fn too_few_and_too_many_words_are_bad_usage() {
        for words in [&[][..], &["a", "{}", "x"], &["--file", "a.toml", "slack"]] {
            assert_eq!(preview(words).sink_and_payload().unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
