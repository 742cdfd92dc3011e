//! `svc script run`: calls a tool, or tries a script on a sample event.

use crate::{
    cli::{
        arguments::PayloadSource,
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::{Tone, printable},
    },
    model::{
        api::scripts::{RunBody, RunView, ScriptView},
        script_spec::ScriptKind,
    },
};
use serde_json::value::RawValue;

client_command! {
    /// Run a tool with arguments, or a script on a sample event, on the server and as you.
    #[argh(
        example = "{command_name} add '{{\"a\": 1, \"b\": 2}}'\n\
                   {command_name} shout '{{\"version\": \"1.2\"}}' --event deploy.done",
        note = "The result of a tool goes to stdout, and what it printed to stderr."
    )]
    RunScript = "run" {
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

impl RunScript {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let input = PayloadSource::of_argument(self.input.as_deref()).read(shell)?;
        let client = self.client(shell)?;
        let path = ResourceKind::SCRIPT.path_of(&client, &self.script)?;
        let script: ScriptView = client.read(&client.get(&path)?)?;
        let script = script.summary;
        let body = match script.kind {
            ScriptKind::Tool if self.event.is_some() => {
                return Err(Failure::Usage(format!("`{}` is a tool and takes no --event", script.name)));
            }
            ScriptKind::Tool => RunBody { params: Some(input), kind: None, payload: None },
            _ => RunBody { params: None, kind: self.event.clone(), payload: Some(input) },
        };
        let answer = client.post(&format!("{path}/run"), &body)?;
        let ran: RunView = client.read(&answer)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str())?,
            OutputFormat::Text => show(shell, script.kind, &ran)?,
        }
        match ran.error {
            None => Ok(()),
            Some(error) => Err(Failure::Bad(format!("`{}` failed: {}", script.name, printable(&error.message)))),
        }
    }
}

fn show(shell: &mut Shell<'_>, kind: ScriptKind, ran: &RunView) -> Result<(), Failure> {
    for line in &ran.log {
        shell.note(&printable(line));
    }
    match kind {
        ScriptKind::Tool if ran.error.is_some() => Ok(()),
        ScriptKind::Tool => shell.out.json(ran.result.as_deref().map_or("null", RawValue::get)),
        ScriptKind::Script | ScriptKind::Library => {
            let outcome = Tone::from(&ran.outcome).paint(&printable(&ran.outcome.to_string()), shell.out.paint());
            shell.out.line(&format!("{outcome}  {:.1} ms of processor time", ran.cpu_ms))
        }
    }
}
