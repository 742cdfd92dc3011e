//! `svc sink test` and `preview`: what a sink makes of a sample event, sent or not.

use super::create::stored_script;
use crate::{
    cli::{
        api::{Previewed, Tested},
        event::show_attempt,
        failure::Failure,
        json,
        named::Kind,
        payload::Source,
        shell::{Form, Shell},
        sink_file,
        table::printable,
    },
    model::sink_spec::SinkSpec,
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::path::PathBuf;

client_command! {
    /// Deliver a sample event now, outside the queue, and show what came of it.
    #[argh(
        example = "{command_name} slack\n{command_name} slack '{{\"version\": \"1.2\"}}' --type deploy.done"
    )]
    Test = "test" {
        /// the sink's name or id
        #[argh(positional)]
        sink: String,

        /// the sample's payload: a JSON object, @FILE, or - for stdin
        #[argh(positional, arg_name = "json")]
        payload: Option<String>,

        /// the sample's type
        #[argh(option, long = "type", arg_name = "type")]
        kind: Option<String>,
    }
}

client_command! {
    /// Render a sample event as a sink would send it, and send nothing.
    #[argh(
        example = "{command_name} slack '{{\"version\": \"1.2\"}}' --type deploy.done\n\
                   {command_name} --file sinks/slack.toml '{{\"version\": \"1.2\"}}'"
    )]
    Preview = "preview" {
        /// the sink's name or id, unless --file names one; then the sample's payload
        #[argh(positional, arg_name = "sink-and-json")]
        words: Vec<String>,

        /// a sink's TOML file, which need not have been applied
        #[argh(option)]
        file: Option<PathBuf>,

        /// the sample's type
        #[argh(option, long = "type", arg_name = "type")]
        kind: Option<String>,
    }
}

/// Which sink a preview is of.
#[derive(Debug, PartialEq, Eq)]
enum Subject<'a> {
    Saved(&'a str),
    File(&'a PathBuf),
}

#[derive(Serialize)]
struct Sample<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sink: Option<SinkSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sink_id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

impl Test {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let payload = payload(shell, self.payload.as_deref())?;
        let client = self.client(shell)?;
        let path = format!("{}/test", Kind::Sink.path_of(&client, &self.sink)?);
        let sample = Sample { sink: None, sink_id: None, kind: self.kind.as_deref(), payload };
        let answer = client.post_raw(&path, sample.to_json())?;
        let tested: Tested = client.read(&answer)?;
        match self.form() {
            Form::Json => shell.out.json(answer.as_str())?,
            Form::Text => {
                show_attempt(shell, &tested.attempt)?;
                if let Some(sent) = &tested.sent {
                    shell.out.line("sent:")?;
                    show_body(shell, sent)?;
                }
            }
        }
        match tested.attempt.outcome.as_str() {
            "delivered" | "skipped" => Ok(()),
            _ => {
                Err(Failure::Bad(format!("the sample was not delivered to `{}`: see above for the reason", self.sink)))
            }
        }
    }
}

impl Preview {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let (subject, argument) = self.meaning()?;
        let payload = payload(shell, argument)?;
        let client = self.client(shell)?;
        let (sink, sink_id) = match subject {
            Subject::Saved(name) => (None, Some(Kind::Sink.find(&client, name)?.id)),
            Subject::File(path) => {
                let draft = sink_file::read(path, shell.environment)?;
                (Some(draft.resolve(|owner, script| stored_script(&client, owner, script))?), None)
            }
        };
        let sample = Sample { sink, sink_id, kind: self.kind.as_deref(), payload };
        let answer = client.post_raw("/api/event-sinks/preview", sample.to_json())?;
        match self.form() {
            Form::Json => shell.out.json(answer.as_str()),
            Form::Text => show_body(shell, &client.read::<Previewed>(&answer)?.body),
        }
    }

    fn meaning(&self) -> Result<(Subject<'_>, Option<&str>), Failure> {
        let mut words = self.words.iter().map(String::as_str);
        let subject = match &self.file {
            Some(path) => Subject::File(path),
            None => Subject::Saved(
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

impl Sample<'_> {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and JSON are JSON")
    }
}

/// The sample's payload if one was given. Stdin is read only when asked for: the server has a sample of its own.
fn payload(shell: &mut Shell<'_>, argument: Option<&str>) -> Result<Option<Box<RawValue>>, Failure> {
    match argument {
        Some(_) => Source::of_argument(argument).read(shell).map(Some),
        None => Ok(None),
    }
}

/// A body: laid out if it is JSON, line by line if it is text.
fn show_body(shell: &mut Shell<'_>, text: &str) -> Result<(), Failure> {
    if serde_json::from_str::<&RawValue>(text).is_ok() {
        let laid_out = json::indented(text);
        return shell.out.line(&laid_out.lines().map(printable).collect::<Vec<_>>().join("\n"));
    }
    text.lines().try_for_each(|line| shell.out.line(&printable(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn preview(words: &[&str]) -> Preview {
        Preview::from_args(&["svc", "sink", "preview"], words).unwrap()
    }

    #[test]
    fn a_file_takes_the_place_of_the_name() {
        assert_eq!(preview(&["slack", "{}"]).meaning().unwrap(), (Subject::Saved("slack"), Some("{}")));
        let path = PathBuf::from("a.toml");
        assert_eq!(preview(&["--file", "a.toml", "{}"]).meaning().unwrap(), (Subject::File(&path), Some("{}")));
        assert_eq!(preview(&["--file", "a.toml"]).meaning().unwrap(), (Subject::File(&path), None));
    }

    #[test]
    fn too_few_and_too_many_words_are_bad_usage() {
        for words in [&[][..], &["a", "{}", "x"], &["--file", "a.toml", "slack"]] {
            assert_eq!(preview(words).meaning().unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
