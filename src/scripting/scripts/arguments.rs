//! Checks the arguments of tools against their schemas, within bounds: a user has few checks running at once, a check
//! ends when its caller is gone, and few compiled schemas are kept.

use super::script::Script;
use crate::{
    model::{
        id::{ScriptId, UserId},
        schema::{SchemaError, SchemaValidator, ValidationError},
    },
    platform::keyed_semaphore::KeyedSemaphore,
    scripting::lua::{self, JsonError},
};
use parking_lot::Mutex;
use serde_json::{Value, value::RawValue};
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

/// Checks that one user has running at once, and waiting.
const RUNNING: usize = 2;
const WAITING: usize = 64;

/// The most schemas, in bytes of their JSON, of which the compiled form is kept. It takes several times as much memory.
const MAX_KEPT: usize = 1 << 20;

/// Checks arguments. Cloning it is cheap.
#[derive(Clone)]
pub struct ArgumentChecker(Arc<CheckerState>);

struct CheckerState {
    turns: KeyedSemaphore<UserId>,
    kept: Mutex<KeptValidators>,
}

/// The reason arguments were not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    #[error("must be an object")]
    NotAnObject,
    #[error("{0}")]
    Unreadable(#[from] serde_json::Error),
    /// Over the budgets of every tool.
    #[error("{0}")]
    TooLarge(#[from] JsonError),
    #[error("{0}")]
    SchemaMismatch(#[from] ValidationError),
    #[error("{WAITING} calls of yours wait for their arguments to be checked: wait for one of them")]
    Busy,
    #[error("the server shuts down")]
    Stopped,
}

/// Compiled schemas; the one used least recently goes first.
#[derive(Default)]
struct KeptValidators {
    by_tool: HashMap<ScriptId, KeptValidator>,
    bytes: usize,
    uses: u64,
}

struct KeptValidator {
    /// The version of the tool that it belongs to.
    tool: Weak<Script>,
    validator: Result<Arc<SchemaValidator>, SchemaError>,
    bytes: usize,
    last_use: u64,
}

/// Sets its flag when it is dropped, with the caller of a check.
struct CallerGone(Arc<AtomicBool>);

impl Drop for CallerGone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl ArgumentChecker {
    pub fn new() -> Self {
        Self(Arc::new(CheckerState { turns: KeyedSemaphore::new(RUNNING, WAITING), kept: Mutex::default() }))
    }

    /// Checks arguments against the tool's schema, on a blocking thread because both can be large. Dropping the future
    /// ends the check.
    pub async fn check(&self, tool: &Arc<Script>, user: UserId, arguments: &RawValue) -> Result<(), ArgumentsError> {
        if !arguments.get().trim_start().starts_with('{') {
            return Err(ArgumentsError::NotAnObject);
        }
        if tool.params_schema.is_none() {
            return Ok(());
        }
        lua::check_size(arguments)?;
        let turn = self.0.turns.acquire(user).await.ok_or(ArgumentsError::Busy)?;
        let cancel = CallerGone(Arc::default());
        let (state, tool, arguments, cancelled) =
            (self.0.clone(), tool.clone(), arguments.to_owned(), cancel.0.clone());
        let checked = tokio::task::spawn_blocking(move || -> Result<(), ArgumentsError> {
            let _turn = turn;
            if cancelled.load(Ordering::Relaxed) {
                return Err(ArgumentsError::Stopped);
            }
            let value: Value = serde_json::from_str(arguments.get())?;
            match state.validator(&tool) {
                Ok(validator) => Ok(validator.check_unless(&value, &cancelled)?),
                // A schema saved by an older version may no longer be accepted.
                Err(error) => {
                    let reason = format!("nothing fits the tool's `params_schema`: {error}");
                    Err(ValidationError { at: String::new(), reason }.into())
                }
            }
        });
        match checked.await {
            Ok(fits) => fits,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ArgumentsError::Stopped),
            },
        }
    }
}

impl Default for ArgumentChecker {
    fn default() -> Self {
        Self::new()
    }
}

impl CheckerState {
    fn validator(&self, tool: &Arc<Script>) -> Result<Arc<SchemaValidator>, SchemaError> {
        if let Some(found) = self.kept.lock().find(tool) {
            return found;
        }
        let schema = tool.params_schema.as_ref().unwrap_or(&Value::Bool(true));
        let validator = SchemaValidator::new(schema).map(Arc::new);
        self.kept.lock().keep(tool, validator.clone(), schema.to_string().len());
        validator
    }
}

impl KeptValidators {
    fn find(&mut self, tool: &Arc<Script>) -> Option<Result<Arc<SchemaValidator>, SchemaError>> {
        self.uses += 1;
        let kept = self.by_tool.get_mut(&tool.id)?;
        if !std::ptr::eq(kept.tool.as_ptr(), Arc::as_ptr(tool)) {
            return None;
        }
        kept.last_use = self.uses;
        Some(kept.validator.clone())
    }

    fn keep(&mut self, tool: &Arc<Script>, validator: Result<Arc<SchemaValidator>, SchemaError>, bytes: usize) {
        self.remove(tool.id);
        while self.bytes + bytes > MAX_KEPT {
            let oldest = self.by_tool.iter().min_by_key(|(_, kept)| kept.last_use).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return };
            self.remove(oldest);
        }
        self.bytes += bytes;
        let last_use = self.uses;
        self.by_tool.insert(tool.id, KeptValidator { tool: Arc::downgrade(tool), validator, bytes, last_use });
    }

    fn remove(&mut self, tool: ScriptId) {
        if let Some(kept) = self.by_tool.remove(&tool) {
            self.bytes -= kept.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::script_spec::ScriptSpec, scripting::scripts::Script};
    use serde_json::json;

    fn tool(name: &str, schema: Value) -> Arc<Script> {
        let spec = json!({"name": name, "kind": "tool", "content": "return 1", "params_schema": schema});
        let spec: ScriptSpec = serde_json::from_value(spec).unwrap();
        Arc::new(Script::define(spec, UserId::new(), None).unwrap())
    }

    async fn check(tool: &Arc<Script>, arguments: Value) -> Result<(), String> {
        let arguments = serde_json::value::to_raw_value(&arguments).unwrap();
        ArgumentChecker::new().check(tool, UserId::new(), &arguments).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn arguments_are_checked_against_the_schema_if_there_is_one() {
        let strict = tool("x", json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}));
        assert_eq!(check(&strict, json!({"n": 1})).await, Ok(()));
        let error = check(&strict, json!({"n": "one"})).await.unwrap_err();
        assert!(error.contains("`/n`"), "{error}");
        assert!(check(&strict, json!({})).await.unwrap_err().contains("\"n\""));
        assert_eq!(check(&tool("x", json!({})), json!({"anything": []})).await, Ok(()));
    }

    #[tokio::test]
    async fn a_stored_schema_beyond_the_limits_fits_nothing_and_says_why() {
        let mut old = Arc::into_inner(tool("x", json!({}))).unwrap();
        old.params_schema = Some(json!({"properties": {"n": {"pattern": "(?=a)b"}}}));
        let error = check(&Arc::new(old), json!({})).await.unwrap_err();
        assert_eq!(
            error,
            "nothing fits the tool's `params_schema`: at `/properties/n/pattern`: the pattern `(?=a)b` has a look-around or a \
             back-reference; neither is supported, because patterns are matched in time linear in the text"
        );
    }

    #[tokio::test]
    async fn a_check_whose_caller_is_gone_before_it_starts_does_nothing() {
        let checker = ArgumentChecker::new();
        let (user, tool) = (UserId::new(), tool("x", json!({})));
        let turns = [checker.0.turns.acquire(user).await, checker.0.turns.acquire(user).await];
        let arguments = serde_json::value::to_raw_value(&json!({})).unwrap();
        let waiting = checker.check(&tool, user, &arguments);
        let ended = tokio::time::timeout(std::time::Duration::from_millis(20), waiting).await;
        assert!(ended.is_err(), "two checks of this user are running");
        drop(turns);
        assert!(checker.0.kept.lock().by_tool.is_empty(), "nothing was compiled");
        assert!(checker.check(&tool, user, &arguments).await.is_ok());
    }

    #[test]
    fn few_compiled_schemas_are_kept_and_only_of_the_present_version() {
        let mut kept = KeptValidators::default();
        let validator = || SchemaValidator::new(&json!({})).map(Arc::new);
        let tools: Vec<_> = (0..40).map(|n| tool(&format!("t{n}"), json!({}))).collect();
        for tool in &tools {
            kept.keep(tool, validator(), 64 << 10);
            assert!(kept.find(&tools[0]).is_some(), "it is used all the time");
        }
        assert_eq!((kept.by_tool.len(), kept.bytes), (16, MAX_KEPT));
        assert!(kept.find(&tools[1]).is_none() && kept.find(&tools[39]).is_some());
        let mut newer = Arc::into_inner(tool("t0", json!({}))).unwrap();
        newer.id = tools[0].id;
        assert!(kept.find(&Arc::new(newer)).is_none());
    }
}
