//! Makes a [`Script`] of a [`ScriptSpec`]. [`Script::check_lua`] then compiles its Lua, so that a stored script runs.
//!
//! Every other rule is checked in [`crate::model::script_spec`]. Each error names the field and the way out.

use super::script::{DerivedParts, Script};
use crate::{
    model::{
        id::{ScriptId, UserId},
        owner::Owner,
        script_spec::{ScriptKind, ScriptSpec, ScriptSpecError},
        timestamp::Timestamp,
    },
    scripting::{lua::ScriptError, workers::LuaWorkers},
};

/// The reason a spec makes no script.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScriptDefinitionError {
    #[error(transparent)]
    Spec(#[from] ScriptSpecError),
    #[error("`kind` cannot change from \"{0}\": delete the script and make another")]
    KindChanged(ScriptKind),
    #[error("`language` cannot change from \"{0}\": delete the script and make another")]
    LanguageChanged(&'static str),
}

impl Script {
    /// Makes the script that `spec` describes: a new one, or the next version of `previous` with the same id and
    /// creation time. `user` is the owner that `"owner": "me"` stands for.
    pub fn define(spec: ScriptSpec, user: UserId, previous: Option<&Self>) -> Result<Self, ScriptDefinitionError> {
        if let Some(previous) = previous {
            if previous.kind != spec.kind {
                return Err(ScriptDefinitionError::KindChanged(previous.kind));
            }
            if previous.language != spec.language {
                return Err(ScriptDefinitionError::LanguageChanged(previous.language.as_str()));
            }
        }
        spec.check()?;
        let now = Timestamp::now();
        Ok(Self {
            id: previous.map_or_else(ScriptId::new, |script| script.id),
            owner: spec.owner.of(user),
            name: spec.name,
            kind: spec.kind,
            language: spec.language,
            description: spec.description,
            content: spec.content,
            active: spec.active.unwrap_or_else(|| previous.is_none_or(|script| script.active)),
            params_schema: spec.params_schema,
            created_at: previous.map_or(now, |script| script.created_at),
            updated_at: now,
            derived: DerivedParts::default(),
        })
    }

    /// Checks that the Lua compiles, in a worker of this user. The Lua of the version before is not compiled again, so
    /// that a tool that keeps all workers busy can be made inactive.
    ///
    /// # Errors
    ///
    /// [`ScriptError::Compile`] with the line, or the reason that nothing was compiled.
    pub async fn check_lua(
        &self,
        workers: &LuaWorkers,
        user: UserId,
        previous: Option<&Self>,
    ) -> Result<(), ScriptError> {
        match self.program() {
            Some(program) if previous.is_none_or(|previous| previous.content != self.content) => {
                workers.compile(program, Owner::User(user)).await
            }
            _ => Ok(()),
        }
    }

    /// The script in the form in which users write it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{library::Language, lua_source::MAX_SOURCE};
    use serde_json::{Value, json};

    fn define(value: Value) -> Result<Script, String> {
        let spec: ScriptSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
        Script::define(spec, UserId::new(), None).map_err(|error| error.to_string())
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
        assert!(matches!(script.owner, Owner::User(_)) && script.program().is_some());
    }

    #[test]
    fn each_error_names_its_field() {
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
    fn the_kind_and_language_of_a_script_never_change() {
        let before = define(json!({"name": "x", "kind": "library", "content": "return {}"})).unwrap();
        let mut spec = before.spec();
        spec.kind = ScriptKind::Script;
        assert_eq!(
            Script::define(spec, UserId::new(), Some(&before)).unwrap_err(),
            ScriptDefinitionError::KindChanged(ScriptKind::Library)
        );
        let mut spec = before.spec();
        spec.language = Language::Python;
        assert!(matches!(
            Script::define(spec, UserId::new(), Some(&before)),
            Err(ScriptDefinitionError::LanguageChanged("lua"))
        ));
        let after = Script::define(ScriptSpec { active: None, ..before.spec() }, UserId::new(), Some(&before)).unwrap();
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
        assert!(read.program().is_some());
    }
}
