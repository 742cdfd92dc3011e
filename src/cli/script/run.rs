//! `svc script run`: calls a tool, or tries a script on a sample event.

use crate::{
    cli::{
        api::{self, Ran},
        failure::Failure,
        named::Kind,
        payload::Source,
        shell::{Form, Shell},
        table::{Tone, printable},
    },
    model::script_spec::ScriptKind,
};
use serde::Serialize;
use serde_json::value::RawValue;

client_command! {
    /// Run a tool with arguments, or a script on a sample event, on the server and as you.
    #[argh(
        example = "{command_name} add '{{\"a\": 1, \"b\": 2}}'\n\
                   {command_name} shout '{{\"version\": \"1.2\"}}' --event deploy.done",
        note = "The result of a tool goes to stdout, and what it printed to stderr."
    )]
    Run = "run" {
        /// the name or id of a tool or script; of two of one name, yours
        #[argh(positional)]
        script: String,

        /// a tool's arguments or the sample event's payload: a JSON object, @FILE, or - for stdin
        #[argh(positional, arg_name = "json")]
        input: Option<String>,

        /// the type of the sample event (otherwise sample)
        #[argh(option, arg_name = "type")]
        event: Option<String>,
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
}

impl Run {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let input = Source::of_argument(self.input.as_deref()).read(shell)?;
        let client = self.client(shell)?;
        let path = Kind::Script.path_of(&client, &self.script)?;
        let script: api::Script = client.read(&client.get(&path)?)?;
        let body = match script.kind {
            ScriptKind::Tool if self.event.is_some() => {
                return Err(Failure::Usage(format!("`{}` is a tool, and hears of no --event", script.name)));
            }
            ScriptKind::Tool => Body { params: Some(&input), kind: None, payload: None },
            _ => Body { params: None, kind: self.event.as_deref(), payload: Some(&input) },
        };
        let body = serde_json::to_string(&body).expect("strings and JSON are JSON");
        let answer = client.post_raw(&format!("{path}/run"), body)?;
        let ran: Ran = client.read(&answer)?;
        match self.form() {
            Form::Json => shell.out.json(answer.as_str())?,
            Form::Text => show(shell, script.kind, &ran)?,
        }
        match ran.error {
            None => Ok(()),
            Some(error) => Err(Failure::Bad(format!("`{}` failed: {}", script.name, printable(&error.message)))),
        }
    }
}

fn show(shell: &mut Shell<'_>, kind: ScriptKind, ran: &Ran) -> Result<(), Failure> {
    for line in &ran.log {
        shell.note(&printable(line));
    }
    match kind {
        ScriptKind::Tool if ran.error.is_some() => Ok(()),
        ScriptKind::Tool => shell.out.json(ran.result.as_deref().map_or("null", RawValue::get)),
        ScriptKind::Script | ScriptKind::Library => {
            let outcome = Tone::of_state(&ran.outcome).paint(&printable(&ran.outcome), shell.out.paint());
            shell.out.line(&format!("{outcome}  {:.1} ms of processor time", ran.cpu_ms))
        }
    }
}
