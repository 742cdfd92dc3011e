//! `svc script`: programs stored on the server by name. `apply` makes a stored script equal to a file, `run` calls a
//! tool or tries a script on a sample event.
//!
//! A script is identified by its owner and name. Fields without a flag stay as the server has them. A second run of
//! `apply` changes nothing.

use super::{
    arguments::{PayloadSource, brief, read_file},
    client::{Client, QueryString, ResponseText},
    failure::Failure,
    resource::{self, Resource, ResourceKind, print_source},
    shell::{OutputFormat, Shell},
    table::{Cell, Fit, TextTable, Tone, printable, yes_or_no},
};
use crate::model::{
    api::scripts::{RunBody, RunView, ScriptSummary, ScriptView},
    library::Language,
    owner::OwnerSpec,
    script_spec::ScriptKind,
};
use serde_json::{Map, Value, json, value::RawValue};
use std::path::{Path, PathBuf};

command_family! {
    /// Manage stored scripts: the Lua that sinks and spaces run, libraries, and tools.
    #[argh(
        example = "{command_name} apply shout.lua\n\
                   {command_name} apply acme.text.lua --kind library --global\n\
                   {command_name} run add '{{\"a\": 1, \"b\": 2}}'"
    )]
    ScriptCommand(ScriptSubcommand) = "script" { ListScripts, ShowScript, ApplyScript, RunScript, DeleteScript }
}

client_command! {
    /// List your stored scripts and the global ones.
    #[argh(example = "{command_name}\n{command_name} --kind library --owner global")]
    ListScripts = "list" {
        /// only those of this kind: script, library or tool
        #[argh(option)]
        kind: Option<ScriptKind>,

        /// only those of this owner: me or global
        #[argh(option)]
        owner: Option<OwnerSpec>,
    }
}

show_and_delete_commands! {
    /// Show one stored script and its source.
    #[argh(example = "{command_name} shout")]
    ShowScript,
    /// Delete a stored script that no sink, space or template names.
    #[argh(example = "{command_name} shout")]
    DeleteScript
    of ScriptView by
    /// the script's name or id; of two of one name, yours
    script
}

client_command! {
    /// Store a file as a script, library or tool, or replace the one of its name.
    #[argh(
        example = "{command_name} shout.lua\n\
                   {command_name} acme.text.lua --kind library --global\n\
                   {command_name} add.lua --kind tool --description 'Adds two numbers' --params-schema add.json",
        note = "A file that ends in .lua is Lua, one in .py a Python library. A script is known by its owner and name; \
                what no flag mentions stays as it is on the server. Kind and language of one that is there cannot change."
    )]
    ApplyScript = "apply" {
        /// the file with its source
        #[argh(positional)]
        file: PathBuf,

        /// its name (otherwise that of the file, without its ending)
        #[argh(option)]
        name: Option<String>,

        /// script, library or tool (otherwise a script, or a library if it is Python)
        #[argh(option)]
        kind: Option<ScriptKind>,

        /// for everybody, not only you
        #[argh(switch)]
        global: bool,

        /// what it is for
        #[argh(option)]
        description: Option<String>,

        /// for a tool: a JSON file with the schema of its arguments
        #[argh(option, arg_name = "file")]
        params_schema: Option<PathBuf>,

        /// have it run and found again
        #[argh(switch)]
        active: bool,

        /// keep it, and have it neither run nor found
        #[argh(switch)]
        inactive: bool,
    }
}

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

impl ListScripts {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default().with_some("kind", self.kind).with_some("owner", self.owner);
        resource::list::<ScriptView>(shell, &client, &query, self.format())
    }
}

impl Resource for ScriptView {
    const KIND: ResourceKind = ResourceKind::SCRIPT;
    type Item = ScriptSummary;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("KIND", Fit::Rigid),
        ("LANGUAGE", Fit::Rigid),
        ("OWNER", Fit::Rigid),
        ("ACTIVE", Fit::Rigid),
        ("DESCRIPTION", Fit::Elastic),
        ("ID", Fit::Rigid),
    ];

    fn row(script: ScriptSummary) -> Vec<Cell> {
        vec![
            script.name.into(),
            script.kind.as_str().into(),
            script.language.as_str().into(),
            script.owner.as_str().into(),
            yes_or_no(script.active),
            script.description.into(),
            script.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, _: &Client) {
        let script = &self.summary;
        table.field("id", script.id.to_string());
        table.field("name", script.name.as_str());
        table.field("description", script.description.as_str());
        table.field("kind", script.kind.as_str());
        table.field("language", script.language.as_str());
        table.field("owner", script.owner.as_str());
        table.field("active", yes_or_no(script.active));
        if let Some(schema) = &self.params_schema {
            table.field("params schema", schema.to_string());
        }
        table.field("created", brief(script.created_at));
        table.field("updated", brief(script.updated_at));
    }

    fn show_source(&self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        print_source(shell, "content", &self.content)
    }
}

impl ApplyScript {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let (name, language) = self.name_and_language()?;
        let fields = self.fields(&name, language)?;
        let client = self.client(shell)?;
        let (done, answer) = match existing(&client, &name, self.owner())? {
            None => ("created", client.post(ResourceKind::SCRIPT.path, &Value::Object(self.whole(fields, language)))?),
            Some((path, before)) if is_same(&client, &before, &fields)? => {
                log::debug!("{path} is as the file says");
                ("unchanged", before)
            }
            Some((path, _)) => ("updated", client.patch(&path, &Value::Object(fields))?),
        };
        ResourceKind::SCRIPT.report(shell, done, &client, &answer, self.format())
    }

    fn owner(&self) -> OwnerSpec {
        if self.global { OwnerSpec::Global } else { OwnerSpec::Me }
    }

    fn name_and_language(&self) -> Result<(String, Language), Failure> {
        let all = [Language::Lua, Language::Python];
        let ending = self.file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let language = all.into_iter().find(|language| language.extension() == ending).ok_or_else(|| {
            Failure::Usage(format!("{}: a script's file ends in .lua, or .py for a library", self.file.display()))
        })?;
        let stem = || self.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((self.name.clone().unwrap_or_else(stem), language))
    }

    /// The fields that the file and the flags give.
    fn fields(&self, name: &str, language: Language) -> Result<Map<String, Value>, Failure> {
        if self.active && self.inactive {
            return Err(Failure::Usage("--active and --inactive contradict each other: use one".to_owned()));
        }
        let mut fields = Map::new();
        let mut put = |field: &str, value: Value| drop(fields.insert(field.to_owned(), value));
        put("name", name.into());
        put("content", read_file(&self.file)?.into());
        put("language", json!(language));
        if let Some(kind) = self.kind {
            put("kind", json!(kind));
        }
        if let Some(description) = &self.description {
            put("description", description.as_str().into());
        }
        if let Some(path) = &self.params_schema {
            put("params_schema", read_schema(path)?);
        }
        if self.active || self.inactive {
            put("active", self.active.into());
        }
        Ok(fields)
    }

    /// The fields of a new script.
    fn whole(&self, mut fields: Map<String, Value>, language: Language) -> Map<String, Value> {
        fields.insert("owner".to_owned(), json!(self.owner()));
        if language == Language::Python {
            fields.entry("kind").or_insert_with(|| json!(ScriptKind::Library));
        }
        fields
    }
}

/// The path of the script of this owner and name, and the script as the server has it.
fn existing(client: &Client, name: &str, owner: OwnerSpec) -> Result<Option<(String, ResponseText)>, Failure> {
    let Some(named) = ResourceKind::SCRIPT.named(client, name, owner)? else { return Ok(None) };
    let path = ResourceKind::SCRIPT.path_of_id(named.id);
    let answer = client.get(&path)?;
    Ok(Some((path, answer)))
}

fn is_same(client: &Client, there: &ResponseText, fields: &Map<String, Value>) -> Result<bool, Failure> {
    let there: Map<String, Value> = client.read(there)?;
    Ok(fields.iter().all(|(field, value)| there.get(field) == Some(value)))
}

fn read_schema(path: &Path) -> Result<Value, Failure> {
    let text = read_file(path)?;
    serde_json::from_str(&text).map_err(|error| Failure::Malformed { path: path.to_owned(), why: error.to_string() })
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
            ScriptKind::Tool => RunBody { params: Some(input), ..RunBody::default() },
            _ => RunBody { kind: self.event.clone(), payload: Some(input), ..RunBody::default() },
        };
        let answer = client.post(&format!("{path}/run"), &body)?;
        let ran: RunView = client.read(&answer)?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str())?,
            OutputFormat::Text => show_run(shell, script.kind, &ran)?,
        }
        match ran.error {
            None => Ok(()),
            Some(error) => Err(Failure::Bad(format!("`{}` failed: {}", script.name, printable(&error.message)))),
        }
    }
}

fn show_run(shell: &mut Shell<'_>, kind: ScriptKind, ran: &RunView) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn apply(words: &[&str]) -> ApplyScript {
        ApplyScript::from_args(&["svc", "script", "apply"], words).unwrap()
    }

    #[test]
    fn the_file_gives_name_and_language_unless_a_flag_does() {
        let told = |words: &[&str]| apply(words).name_and_language().unwrap();
        assert_eq!(told(&["lib/acme.text.lua"]), ("acme.text".to_owned(), Language::Lua));
        assert_eq!(told(&["text.py"]), ("text".to_owned(), Language::Python));
        assert_eq!(told(&["x.lua", "--name", "y"]).0, "y");
        for file in ["x", "x.js", ".lua"] {
            assert_eq!(apply(&[file]).name_and_language().unwrap_err().exit_code(), 2, "{file}");
        }
    }

    #[test]
    fn only_given_fields_are_sent_to_an_existing_script() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("text.py");
        std::fs::write(&path, "x = 1\n").unwrap();
        let command = apply(&[path.to_str().unwrap(), "--global", "--inactive"]);
        let fields = command.fields("text", Language::Python).unwrap();
        let expected = json!({"name": "text", "content": "x = 1\n", "language": "python", "active": false});
        assert_eq!(Value::Object(fields.clone()), expected);
        let whole = command.whole(fields, Language::Python);
        assert_eq!((&whole["owner"], &whole["kind"]), (&json!("global"), &json!("library")));
        let both = apply(&[path.to_str().unwrap(), "--active", "--inactive"]);
        assert_eq!(both.fields("text", Language::Python).unwrap_err().exit_code(), 2);
    }
}
