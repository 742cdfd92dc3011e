//! `svc script apply`: makes a stored script equal to a file.
//!
//! A script is identified by its owner and name. Fields without a flag stay as the server has them. A second run changes
//! nothing.

use crate::{
    cli::{
        arguments::read_file,
        client::{Client, ResponseText},
        failure::Failure,
        resource::ResourceKind,
        shell::Shell,
    },
    model::{library::Language, owner::OwnerSpec, script_spec::ScriptKind},
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

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
