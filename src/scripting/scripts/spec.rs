//! A script as its user writes it, and the checks that make it a [`Script`].
//!
//! Every refusal names the field and what to do about it. Lua is compiled here, so that what was accepted runs.

use super::{Made, Script, ScriptKind, compile};
use crate::{
    model::{
        id::{ScriptId, UserId},
        library::{Language, LibraryName, LibraryNameError},
        lua_source::MAX_SOURCE,
        owner::OwnerSpec,
        schema::{self, SchemaError},
        timestamp::Timestamp,
    },
    scripting::lua::CompileError,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 100;

/// The longest description, in characters.
pub const MAX_DESCRIPTION: usize = 1024;

/// A script as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptSpec {
    /// Unique among its owner's scripts. That of a library is what others load it by, such as `acme.text`.
    pub name: String,
    /// What it is for, which cannot change.
    #[serde(default)]
    pub kind: ScriptKind,
    /// `python` is for libraries that Python in spaces imports. It cannot change either.
    #[serde(default)]
    pub language: Language,
    #[serde(default)]
    pub owner: OwnerSpec,
    #[serde(default)]
    pub description: String,
    /// The source.
    pub content: String,
    /// Absent: true for a new script, as it was for one that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// For a tool: the JSON Schema of its arguments, which are an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_schema: Option<Value>,
}

/// Why a spec makes no script.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScriptSpecError {
    #[error("`name` must be 1 to {MAX_NAME} characters: a letter, digit or `_`, then any of those, `.` and `-`")]
    Name,
    #[error("`name`: {0}")]
    LibraryName(#[from] LibraryNameError),
    #[error("`description` has more than {MAX_DESCRIPTION} characters: shorten it")]
    Description,
    #[error("`kind` cannot change from \"{0}\": delete the script and make another")]
    KindChanged(ScriptKind),
    #[error("`language` cannot change from \"{0}\": delete the script and make another")]
    LanguageChanged(&'static str),
    #[error("`language`: only a library can be in Python; write a {0} in Lua")]
    NotPython(ScriptKind),
    #[error("`params_schema` belongs to tools: remove it, or change `kind`")]
    MisplacedSchema,
    #[error("`params_schema`: {0}")]
    Schema(#[from] SchemaError),
    #[error("`params_schema`: a tool's arguments are an object, and this schema takes none: set its `type` to object")]
    NoObject,
    #[error("`content` does not compile: {0}")]
    Lua(#[from] CompileError),
    #[error("`content` has {0} bytes; at most {MAX_SOURCE} are allowed")]
    TooLong(usize),
}

impl ScriptSpec {
    /// The script this describes, with a new id; or, over `previous`, with its id and age. `user` is who
    /// `"owner": "me"` means.
    ///
    /// # Errors
    ///
    /// Fails on the first field that breaks a rule.
    pub fn define(self, user: UserId, previous: Option<&Script>) -> Result<Script, ScriptSpecError> {
        check_name(self.kind, self.language, &self.name)?;
        if self.description.chars().count() > MAX_DESCRIPTION {
            return Err(ScriptSpecError::Description);
        }
        if let Some(previous) = previous {
            if previous.kind != self.kind {
                return Err(ScriptSpecError::KindChanged(previous.kind));
            }
            if previous.language != self.language {
                return Err(ScriptSpecError::LanguageChanged(previous.language.word()));
            }
        }
        self.check_schema()?;
        if self.content.len() > MAX_SOURCE {
            return Err(ScriptSpecError::TooLong(self.content.len()));
        }
        let made = Made::default();
        match (self.language, self.kind) {
            (Language::Lua, kind) => {
                let program = compile(kind, &self.name, &self.content)?;
                let _ = made.program.set(Ok(program));
            }
            (Language::Python, ScriptKind::Library) => {}
            (Language::Python, kind) => return Err(ScriptSpecError::NotPython(kind)),
        }
        let now = Timestamp::now();
        Ok(Script {
            id: previous.map_or_else(ScriptId::new, |script| script.id),
            owner: self.owner.of(user),
            name: self.name,
            kind: self.kind,
            language: self.language,
            description: self.description,
            content: self.content,
            active: self.active.unwrap_or_else(|| previous.is_none_or(|script| script.active)),
            params_schema: self.params_schema,
            created_at: previous.map_or(now, |script| script.created_at),
            updated_at: now,
            made,
        })
    }

    fn check_schema(&self) -> Result<(), ScriptSpecError> {
        let Some(schema) = &self.params_schema else { return Ok(()) };
        if self.kind != ScriptKind::Tool {
            return Err(ScriptSpecError::MisplacedSchema);
        }
        schema::Checker::new(schema)?;
        let takes_objects = match schema.get("type") {
            None => true,
            Some(Value::Array(types)) => types.iter().any(|kind| kind == "object"),
            Some(kind) => kind == "object",
        };
        if takes_objects { Ok(()) } else { Err(ScriptSpecError::NoObject) }
    }
}

impl Script {
    /// The script as its user would write it.
    pub fn spec(&self) -> ScriptSpec {
        ScriptSpec {
            name: self.name.clone(),
            kind: self.kind,
            language: self.language,
            owner: self.owner.into(),
            description: self.description.clone(),
            content: self.content.clone(),
            active: Some(self.active),
            params_schema: self.params_schema.clone(),
        }
    }
}

fn check_name(kind: ScriptKind, language: Language, name: &str) -> Result<(), ScriptSpecError> {
    if kind == ScriptKind::Library {
        LibraryName::parse(name)?.check_for(language)?;
        return Ok(());
    }
    let begins = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let good = name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(begins)
        && name.bytes().all(|byte| begins(byte) || b".-".contains(&byte));
    if good { Ok(()) } else { Err(ScriptSpecError::Name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::owner::Owner;
    use serde_json::json;

    fn define(value: Value) -> Result<Script, String> {
        let spec: ScriptSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
        spec.define(UserId::new(), None).map_err(|error| error.to_string())
    }

    fn with(field: &str, value: Value) -> Value {
        let mut base = json!({"name": "x", "content": "return 1"});
        base[field] = value;
        base
    }

    #[test]
    fn a_script_needs_only_a_name_and_its_content() {
        let script = define(json!({"name": "on-deploy.v2", "content": "print(event.id)"})).unwrap();
        assert_eq!((script.kind, script.language, script.active), (ScriptKind::Script, Language::Lua, true));
        assert!(matches!(script.owner, Owner::User(_)) && script.program().unwrap().is_ok());
    }

    #[test]
    fn each_refusal_names_its_field() {
        let tool = |schema: Value| json!({"name": "x", "kind": "tool", "content": "return 1", "params_schema": schema});
        let library = |name: &str| json!({"name": name, "kind": "library", "content": "return {}"});
        for (value, field) in [
            (with("name", json!("")), "`name`"),
            (with("name", json!("-x")), "`name`"),
            (with("name", json!("a b")), "`name`"),
            (with("name", json!("é")), "`name`"),
            (with("name", json!("x".repeat(101))), "`name`"),
            (library("a-b"), "`name`"),
            (library("svc.mine"), "`name`"),
            (with("description", json!("x".repeat(1025))), "`description`"),
            (with("kind", json!("macro")), "`script`, `library`, `tool`"),
            (with("language", json!("perl")), "`lua` or `python`"),
            (with("language", json!("python")), "`language`"),
            (with("owner", json!("you")), "`me` or `global`"),
            (with("colour", json!(1)), "`colour`"),
            (with("params_schema", json!({})), "`params_schema` belongs to tools"),
            (tool(json!({"type": "objekt"})), "`params_schema`: at `/type`"),
            (tool(json!([])), "`params_schema`"),
            (tool(json!({"type": "string"})), "`params_schema`"),
            (tool(json!({"$ref": "#"})), "`params_schema`: a schema must not refer to itself"),
            (with("content", json!("local a = 1\nlocal b = = 2")), "`content` does not compile: line 2"),
            (
                with("content", json!(" ".repeat(MAX_SOURCE + 1))),
                "`content` has 65537 bytes; at most 65536 are allowed",
            ),
            (json!({"name": "x"}), "`content`"),
            (json!({"content": "x"}), "`name`"),
        ] {
            let error = define(value.clone()).expect_err(&value.to_string());
            assert!(error.contains(field), "{value}: {error}");
        }
    }

    #[test]
    fn a_library_may_be_python_which_is_not_compiled_here_but_bounded() {
        let python = |content: String| {
            define(json!({"name": "acme.text", "kind": "library", "language": "python", "content": content}))
        };
        let library = python("def f(:".to_owned()).unwrap();
        assert!(library.program().is_none());
        assert_eq!(library.library().unwrap().path(), "acme/text.py");
        assert!(python(" ".repeat(MAX_SOURCE + 1)).unwrap_err().contains("65536"));
    }

    #[test]
    fn a_python_library_cannot_stand_in_for_a_module_of_python() {
        let library =
            |language: &str| json!({"name": "urllib", "kind": "library", "language": language, "content": "return {}"});
        let error = define(library("python")).unwrap_err();
        assert!(error.starts_with("`name`: `urllib`") && error.contains("a module of Python itself"), "{error}");
        assert!(define(library("lua")).is_ok());
    }

    #[test]
    fn what_a_script_is_for_and_written_in_stays() {
        let before = define(json!({"name": "x", "kind": "library", "content": "return {}"})).unwrap();
        let mut spec = before.spec();
        spec.kind = ScriptKind::Script;
        assert_eq!(
            spec.define(UserId::new(), Some(&before)).unwrap_err(),
            ScriptSpecError::KindChanged(ScriptKind::Library)
        );
        let mut spec = before.spec();
        spec.language = Language::Python;
        assert!(matches!(spec.define(UserId::new(), Some(&before)), Err(ScriptSpecError::LanguageChanged("lua"))));
        let after = ScriptSpec { active: None, ..before.spec() }.define(UserId::new(), Some(&before)).unwrap();
        assert_eq!((after.id, after.created_at, after.active), (before.id, before.created_at, true));
    }

    #[test]
    fn a_stored_script_reads_back_as_it_was() {
        let tool = json!({"name": "add", "kind": "tool", "owner": "global", "active": false, "description": "Adds",
            "content": "return params.a", "params_schema": {"type": "object", "required": ["a"]}});
        let script = define(tool).unwrap();
        let read: Script = serde_json::from_slice(&serde_json::to_vec(&script).unwrap()).unwrap();
        assert_eq!(read.spec(), script.spec());
        assert_eq!((read.id, read.owner, read.updated_at), (script.id, script.owner, script.updated_at));
        assert!(read.program().unwrap().is_ok());
    }

    #[test]
    fn arguments_are_checked_against_the_schema_if_there_is_one() {
        let tool = |schema: Value| {
            define(json!({"name": "x", "kind": "tool", "content": "return 1", "params_schema": schema})).unwrap()
        };
        let strict = tool(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}));
        assert_eq!(strict.check_arguments(&json!({"n": 1})), Ok(()));
        let error = strict.check_arguments(&json!({"n": "one"})).unwrap_err().to_string();
        assert!(error.contains("`/n`"), "{error}");
        assert!(strict.check_arguments(&json!({})).unwrap_err().to_string().contains("\"n\""));
        let lax = define(json!({"name": "x", "kind": "tool", "content": "return 1"})).unwrap();
        assert_eq!(lax.check_arguments(&json!({"anything": []})), Ok(()));
    }
}
