//! A sink kept in a file: the TOML form of a [`SinkSpec`], with its Lua beside it and its secrets outside.
//!
//! ```toml
//! name = "slack"
//! events = "custom.deploy.*"
//! type = "webhook"
//! [webhook]
//! url = { env = "SLACK_WEBHOOK_URL" }
//! template_file = "slack.lua"
//! [values]
//! channel = "#ops"
//! ```
//!
//! A script sink has its Lua in `script.source` or `script.source_file`, or names a stored script: `script.stored =
//! "shout"`, which is looked up on the server when the sink is sent there.
//!
//! `{ env = "NAME", prefix = "Bearer " }` stands for a text from the environment, so that a file can be in git and its
//! secrets are not. `[values]` reach the Lua as a local table `values`. Paths are relative to the file.

use crate::model::{
    batch_spec::BatchSpec,
    body_template::BodyTemplate,
    configured_value::{ConfiguredValue, ValueReference},
    failure_policy::{OnFailure, OnGone},
    id::ScriptId,
    owner::OwnerSpec,
    sink_spec::{ScriptSinkSpec, SinkKind, SinkSpec, WebhookBody, WebhookSpec},
    text_or_object::{self, TextOrObject},
    toml_input::{self, InvalidToml},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::Write,
    io,
    path::{Path, PathBuf},
};

/// A file that cannot be read as a sink or a source.
#[derive(Debug, thiserror::Error)]
pub enum SinkFileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Toml { path: PathBuf, source: InvalidToml },
    /// All unset variables, so that one run names them all.
    #[error("{}", .0.iter().map(Unset::to_string).collect::<Vec<_>>().join("; "))]
    Unset(Vec<Unset>),
    #[error("{}: give either `{field}` or `{field}_file`, not both", path.display())]
    Twice { path: PathBuf, field: &'static str },
    #[error("{}: give `{field}` or `{field}_file`", path.display())]
    Neither { path: PathBuf, field: &'static str },
    #[error("{}: `script.stored` names a script that has its source: give no other", path.display())]
    Stored { path: PathBuf },
    #[error("{}: `verify.secret`: {source}", path.display())]
    Secret { path: PathBuf, source: serde_json::Error },
    #[error("{}: `verify`: {message}", path.display())]
    Verify { path: PathBuf, message: String },
    #[error("{} and {} both define `{name}`: remove one of them, or rename it", first.display(), second.display())]
    SameName { first: PathBuf, second: PathBuf, name: String },
    #[error("{}: `values` reach only Lua: use a Lua template or script, or remove them", path.display())]
    Values { path: PathBuf },
}

/// A variable that a file refers to and the environment lacks.
#[derive(Debug, thiserror::Error)]
#[error("{}: `{field}` wants the environment variable {name}, which is not set", path.display())]
pub struct Unset {
    path: PathBuf,
    field: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SinkFile {
    name: String,
    #[serde(default)]
    description: String,
    events: String,
    #[serde(rename = "type")]
    kind: SinkKind,
    #[serde(default)]
    owner: OwnerSpec,
    filter: Option<String>,
    #[serde(default)]
    internal: bool,
    #[serde(default)]
    on_failure: OnFailure,
    active: Option<bool>,
    webhook: Option<WebhookFile>,
    script: Option<ScriptFile>,
    template: Option<BodyTemplate>,
    template_file: Option<PathBuf>,
    #[serde(default)]
    values: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookFile {
    url: FileValue,
    secret: Option<FileValue>,
    #[serde(default)]
    headers: BTreeMap<String, FileValue>,
    #[serde(default)]
    ed25519: bool,
    template: Option<BodyTemplate>,
    template_file: Option<PathBuf>,
    body: Option<WebhookBody>,
    #[serde(default)]
    gone: OnGone,
    batch: Option<BatchSpec>,
    #[serde(default)]
    skip_tls_verify: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    source: Option<String>,
    source_file: Option<PathBuf>,
    stored: Option<String>,
}

/// A sink as read from its file. The id of a stored script is not looked up yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    spec: SinkSpec,
    stored: Option<String>,
}

impl Draft {
    pub fn owner(&self) -> OwnerSpec {
        self.spec.owner
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The sink. `find` looks up the id of the stored script that it names, if it names one.
    ///
    /// # Errors
    ///
    /// Fails if `find` does.
    pub fn resolve<E>(mut self, find: impl FnOnce(OwnerSpec, &str) -> Result<ScriptId, E>) -> Result<SinkSpec, E> {
        if let Some(name) = &self.stored {
            let id = find(self.spec.owner, name)?;
            self.spec.script = Some(ScriptSinkSpec { source: None, script_id: Some(id) });
        }
        Ok(self.spec)
    }
}

/// A variable here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    env: String,
    /// Put in front of the value, such as `Bearer `.
    #[serde(default)]
    prefix: String,
}

/// A text, the variable here that holds it, or the place on the server where it is read at each delivery.
pub enum FileValue {
    Plain(String),
    Place(FilePlace),
}

impl<'de> Deserialize<'de> for FileValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a text, { env = \"NAME\" } for one from the environment, or { file = \"PATH\" }, \
                        { credential = \"NAME\" } or { env = \"NAME\", at = \"delivery\" } for one that the server reads";
        Ok(match text_or_object::read(deserializer, expected)? {
            TextOrObject::Text(text) => Self::Plain(text),
            TextOrObject::Object(place) => Self::Place(place),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePlace {
    env: Option<String>,
    file: Option<String>,
    credential: Option<String>,
    /// Put in front of the value, such as `Bearer `.
    #[serde(default)]
    prefix: String,
    /// The time at which a variable is read: now and here, unless this says otherwise.
    at: Option<ReadAt>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReadAt {
    Delivery,
}

/// Reads a sink's file and everything it refers to.
///
/// The environment comes in as a function, so that a test needs no process environment.
///
/// # Errors
///
/// Fails if a file cannot be read, has an unknown key (named with its line), or a variable is not set.
/// The rules for sinks themselves are checked by [`SinkSpec::check`].
pub fn read(path: &Path, environment: impl Fn(&str) -> Option<String>) -> Result<Draft, SinkFileError> {
    let text = read_text(path)?;
    let file: SinkFile =
        toml_input::parse(&text).map_err(|source| SinkFileError::Toml { path: path.to_owned(), source })?;
    let reader = FileReader { path, environment, values: &file.values, unset: RefCell::default() };
    let spec = reader.spec(&file)?;
    let unset = reader.unset.into_inner();
    let stored = file.script.and_then(|script| script.stored);
    if unset.is_empty() { Ok(Draft { spec, stored }) } else { Err(SinkFileError::Unset(unset)) }
}

/// The state of resolving a file's references.
pub struct FileReader<'a, E> {
    pub path: &'a Path,
    pub environment: E,
    pub values: &'a Map<String, Value>,
    /// The unset variables found so far.
    pub unset: RefCell<Vec<Unset>>,
}

impl<E: Fn(&str) -> Option<String>> FileReader<'_, E> {
    fn spec(&self, file: &SinkFile) -> Result<SinkSpec, SinkFileError> {
        let webhook = file.webhook.as_ref().map(|webhook| self.webhook(webhook)).transpose()?;
        let script = file.script.as_ref().map(|script| self.script(script)).transpose()?;
        let template = self.template("template", file.template.as_ref(), file.template_file.as_deref())?;
        let lua = script.as_ref().is_some_and(|script| script.source.is_some())
            || template.is_some()
            || webhook.as_ref().is_some_and(|webhook| webhook.template.is_some());
        if !lua && !self.values.is_empty() {
            return Err(SinkFileError::Values { path: self.path.to_owned() });
        }
        Ok(SinkSpec {
            name: file.name.clone(),
            description: file.description.clone(),
            events: file.events.clone(),
            kind: file.kind,
            owner: file.owner,
            filter: file.filter.clone(),
            internal: file.internal,
            on_failure: file.on_failure,
            active: file.active,
            webhook,
            script,
            template,
        })
    }

    fn webhook(&self, file: &WebhookFile) -> Result<WebhookSpec, SinkFileError> {
        let header = |(name, value): (&String, &FileValue)| {
            (name.clone(), self.value(&format!("webhook.headers.{name}"), value))
        };
        Ok(WebhookSpec {
            url: self.value("webhook.url", &file.url),
            secret: file.secret.as_ref().map(|secret| self.value("webhook.secret", secret)),
            ed25519: file.ed25519,
            headers: file.headers.iter().map(header).collect(),
            template: self.template("webhook.template", file.template.as_ref(), file.template_file.as_deref())?,
            body: file.body,
            batch: file.batch,
            gone: file.gone,
            skip_tls_verify: file.skip_tls_verify,
        })
    }

    fn script(&self, file: &ScriptFile) -> Result<ScriptSinkSpec, SinkFileError> {
        let path = || self.path.to_owned();
        let source = match (&file.source, &file.source_file) {
            (None, None) if file.stored.is_some() => return Ok(ScriptSinkSpec { source: None, script_id: None }),
            (Some(_), _) | (_, Some(_)) if file.stored.is_some() => return Err(SinkFileError::Stored { path: path() }),
            (Some(_), Some(_)) => return Err(SinkFileError::Twice { path: path(), field: "script.source" }),
            (None, None) => return Err(SinkFileError::Neither { path: path(), field: "script.source" }),
            (Some(source), None) => source.clone(),
            (None, Some(file)) => read_text(&self.beside(file))?,
        };
        Ok(ScriptSinkSpec { source: Some(self.with_values(source)), script_id: None })
    }

    fn template(
        &self,
        field: &'static str,
        inline: Option<&BodyTemplate>,
        file: Option<&Path>,
    ) -> Result<Option<BodyTemplate>, SinkFileError> {
        let template = match (inline, file) {
            (Some(_), Some(_)) => return Err(SinkFileError::Twice { path: self.path.to_owned(), field }),
            (None, None) => return Ok(None),
            (Some(template), None) => template.clone(),
            (None, Some(file)) => {
                let source = read_text(&self.beside(file))?;
                if file.extension().is_some_and(|extension| extension == "lua") {
                    BodyTemplate::Lua(source)
                } else {
                    BodyTemplate::Text(source)
                }
            }
        };
        match template {
            BodyTemplate::Lua(source) => Ok(Some(BodyTemplate::Lua(self.with_values(source)))),
            BodyTemplate::Text(_) if !self.values.is_empty() => {
                Err(SinkFileError::Values { path: self.path.to_owned() })
            }
            text @ BodyTemplate::Text(_) => Ok(Some(text)),
        }
    }

    /// The text itself, that of a variable here, or the place on the server where it is read at each delivery.
    pub fn value(&self, field: &str, value: &FileValue) -> ConfiguredValue {
        match value {
            FileValue::Plain(text) => ConfiguredValue::Text(text.clone()),
            FileValue::Place(FilePlace { env: Some(env), file: None, credential: None, prefix, at: None }) => {
                let variable = Variable { env: env.clone(), prefix: prefix.clone() };
                ConfiguredValue::Text(self.variable(field, &variable))
            }
            FileValue::Place(FilePlace { env, file, credential, prefix, at: _ }) => {
                let (env, file, credential, prefix) = (env.clone(), file.clone(), credential.clone(), prefix.clone());
                ConfiguredValue::Reference(ValueReference { env, file, credential, prefix })
            }
        }
    }

    /// The variable's value; nothing, and a note of it, if it is not set.
    fn variable(&self, field: &str, Variable { env, prefix }: &Variable) -> String {
        let value = (self.environment)(env).unwrap_or_else(|| {
            let unset = Unset { path: self.path.to_owned(), field: field.to_owned(), name: env.clone() };
            self.unset.borrow_mut().push(unset);
            String::new()
        });
        format!("{prefix}{value}")
    }

    /// Puts the values in front of the Lua, on its first line, so that every line keeps its number.
    pub fn with_values(&self, source: String) -> String {
        if self.values.is_empty() {
            return source;
        }
        let mut lua = "local values = ".to_owned();
        self.write_table(&mut lua, "values", self.values);
        lua + " " + &source
    }

    fn write_value(&self, lua: &mut String, field: &str, value: &Value) {
        match value {
            // TOML has none.
            Value::Null => lua.push_str("nil"),
            Value::String(text) => write_text(lua, text),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => lua.push_str(&float.to_string()),
                // Lua rounds a number past 2^53.
                None if number.as_i64().is_some_and(|integer| integer.unsigned_abs() > 1 << 53) => {
                    write!(lua, "integer.fromstring(\"{number}\")").expect("a String takes every write");
                }
                None => lua.push_str(&number.to_string()),
            },
            Value::Bool(flag) => lua.push_str(if *flag { "true" } else { "false" }),
            Value::Array(items) => {
                lua.push('{');
                for item in items {
                    self.write_value(lua, field, item);
                    lua.push(',');
                }
                lua.push('}');
            }
            Value::Object(table) => match Variable::deserialize(value) {
                Ok(variable) => write_text(lua, &self.variable(field, &variable)),
                Err(_) => self.write_table(lua, field, table),
            },
        }
    }

    fn write_table(&self, lua: &mut String, field: &str, table: &Map<String, Value>) {
        lua.push('{');
        for (key, value) in table {
            lua.push('[');
            write_text(lua, key);
            lua.push_str("]=");
            self.write_value(lua, &format!("{field}.{key}"), value);
            lua.push(',');
        }
        lua.push('}');
    }

    pub fn beside(&self, file: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }
}

/// A Lua string literal on one line.
fn write_text(lua: &mut String, text: &str) {
    lua.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => lua.extend(['\\', character]),
            control if control.is_ascii_control() => {
                write!(lua, "\\{:03}", control as u32).expect("a String takes every write");
            }
            plain => lua.push(plain),
        }
    }
    lua.push('"');
}

pub fn read_text(path: &Path) -> Result<String, SinkFileError> {
    std::fs::read_to_string(path).map_err(|source| SinkFileError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A directory with a sink file `a.toml` and its Lua.
    struct SinkDirectory(tempfile::TempDir);

    impl SinkDirectory {
        fn new(files: &[(&str, &str)]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(directory.path().join(name), text).unwrap();
            }
            Self(directory)
        }

        fn read(&self, environment: &[(&str, &str)]) -> Result<SinkSpec, String> {
            let look_up = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned());
            let draft = read(&self.0.path().join("a.toml"), look_up).map_err(|error| error.to_string())?;
            let there = ScriptId::from_slice(&[1; 16]);
            draft.resolve(|owner, name| there.filter(|_| name == "there").ok_or_else(|| format!("{owner:?} {name}")))
        }
    }

    const HEAD: &str = "name = \"a\"\nevents = \"*\"\n";

    fn webhook(rest: &str) -> String {
        format!("{HEAD}type = \"webhook\"\n[webhook]\nurl = \"http://a/\"\n{rest}")
    }

    #[test]
    fn texts_come_from_the_file_or_the_environment() {
        let toml = format!(
            "{HEAD}type = \"webhook\"\n[webhook]\nurl = {{ env = \"URL\" }}\n\
             headers = {{ Authorization = {{ env = \"KEY\", prefix = \"Bearer \" }}, X-A = \"1\" }}\n"
        );
        let directory = SinkDirectory::new(&[("a.toml", &toml)]);
        let spec = directory.read(&[("URL", "http://b/"), ("KEY", "k")]).unwrap().webhook.unwrap();
        assert_eq!(spec.url.text(), Some("http://b/"));
        assert_eq!(spec.headers["Authorization"].text(), Some("Bearer k"));
        assert_eq!((spec.headers["X-A"].text(), spec.secret), (Some("1"), None));
        let error = directory.read(&[("URL", "http://b/")]).unwrap_err();
        assert!(error.contains("`webhook.headers.Authorization`") && error.contains("KEY"), "{error}");
    }

    #[test]
    fn a_url_may_be_read_by_the_server() {
        let toml = |url: &str| format!("{HEAD}type = \"webhook\"\n[webhook]\nurl = {url}\n");
        for (url, expected) in [
            ("{ file = \"/run/url\" }", json!({"file": "/run/url"})),
            ("{ credential = \"hook\" }", json!({"credential": "hook"})),
            ("{ env = \"URL\", at = \"delivery\" }", json!({"env": "URL"})),
        ] {
            let spec = SinkDirectory::new(&[("a.toml", &toml(url))]).read(&[]).unwrap().webhook.unwrap();
            assert_eq!(json!(spec.url), expected, "{url}");
        }
    }

    #[test]
    fn lua_is_read_from_beside_the_file() {
        let toml = webhook("template_file = \"a.lua\"\n");
        let directory = SinkDirectory::new(&[("a.toml", &toml), ("a.lua", "return {}")]);
        let template = directory.read(&[]).unwrap().webhook.unwrap().template;
        assert_eq!(template, Some(BodyTemplate::Lua("return {}".to_owned())));
        let toml = format!("{HEAD}type = \"script\"\n[script]\nsource_file = \"b.lua\"\n");
        let error = SinkDirectory::new(&[("a.toml", &toml)]).read(&[]).unwrap_err();
        assert!(error.contains("b.lua"), "{error}");
    }

    #[test]
    fn a_template_file_that_is_not_lua_is_text() {
        let toml = webhook("template_file = \"a.txt\"\n");
        let directory = SinkDirectory::new(&[("a.toml", &toml), ("a.txt", "hi")]);
        assert_eq!(directory.read(&[]).unwrap().webhook.unwrap().template, Some(BodyTemplate::Text("hi".to_owned())));
    }

    #[test]
    fn values_reach_the_lua_on_its_first_line() {
        let toml = webhook(
            "template = \"-- first\\nreturn values\"\n[values]\nkey = { env = \"KEY\" }\n\
             list = [1, 2.5, true]\nquote = \"a\\\"b\\\\c\\nd\"\n",
        );
        let directory = SinkDirectory::new(&[("a.toml", &toml)]);
        let template = directory.read(&[("KEY", "k")]).unwrap().webhook.unwrap().template.unwrap();
        let expected = "local values = {[\"key\"]=\"k\",[\"list\"]={1,2.5,true,},[\"quote\"]=\"a\\\"b\\\\c\\010d\",} \
                        -- first\nreturn values";
        assert_eq!(template, BodyTemplate::Lua(expected.to_owned()));
        let error = directory.read(&[]).unwrap_err();
        assert!(error.contains("`values.key`") && error.contains("KEY"), "{error}");
    }

    #[test]
    fn an_integer_among_the_values_keeps_all_its_digits() {
        let toml = webhook(
            "template = \"return values\"\n[values]\na = 9007199254740992\nb = 9007199254740993\n\
             c = -9223372036854775808\n",
        );
        let template = SinkDirectory::new(&[("a.toml", &toml)]).read(&[]).unwrap().webhook.unwrap().template.unwrap();
        let expected = "local values = {[\"a\"]=9007199254740992,[\"b\"]=integer.fromstring(\"9007199254740993\"),\
                        [\"c\"]=integer.fromstring(\"-9223372036854775808\"),} return values";
        assert_eq!(template, BodyTemplate::Lua(expected.to_owned()));
    }

    #[test]
    fn values_that_reach_nothing_are_refused() {
        let error = SinkDirectory::new(&[("a.toml", &webhook("[values]\nx = 1\n"))]).read(&[]).unwrap_err();
        assert!(error.contains("`values`"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_name_and_line() {
        let error = SinkDirectory::new(&[("a.toml", &webhook("sekret = \"x\"\n"))]).read(&[]).unwrap_err();
        assert!(error.contains("sekret") && error.contains("line 6"), "{error}");
        let error = SinkDirectory::new(&[("a.toml", &webhook("secret = 5\n"))]).read(&[]).unwrap_err();
        assert!(error.contains("{ env = \"NAME\" }") && error.contains("line 6"), "{error}");
    }

    #[test]
    fn a_source_is_given_once() {
        let toml = webhook("template = \"return 1\"\ntemplate_file = \"a.lua\"\n");
        let error = SinkDirectory::new(&[("a.toml", &toml)]).read(&[]).unwrap_err();
        assert!(error.contains("either `webhook.template`"), "{error}");
        let error =
            SinkDirectory::new(&[("a.toml", &format!("{HEAD}type = \"script\"\n[script]\n"))]).read(&[]).unwrap_err();
        assert!(error.contains("`script.source_file`"), "{error}");
        let both = format!("{HEAD}type = \"script\"\n[script]\nstored = \"there\"\nsource = \"\"\n");
        let error = SinkDirectory::new(&[("a.toml", &both)]).read(&[]).unwrap_err();
        assert!(error.contains("`script.stored`"), "{error}");
    }

    #[test]
    fn a_stored_script_is_named_and_looked_up_for_the_owner_of_the_sink() {
        let toml = |name: &str| format!("{HEAD}type = \"script\"\nowner = \"global\"\n[script]\nstored = \"{name}\"\n");
        let spec = SinkDirectory::new(&[("a.toml", &toml("there"))]).read(&[]).unwrap();
        assert_eq!(spec.script, Some(ScriptSinkSpec { source: None, script_id: ScriptId::from_slice(&[1; 16]) }));
        assert_eq!(SinkDirectory::new(&[("a.toml", &toml("gone"))]).read(&[]).unwrap_err(), "Global gone");
        let error = SinkDirectory::new(&[("a.toml", &(toml("there") + "[values]\nx = 1\n"))]).read(&[]).unwrap_err();
        assert!(error.contains("`values`"), "{error}");
    }
}
