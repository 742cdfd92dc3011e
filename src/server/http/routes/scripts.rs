//! Stored scripts: the caller's own, and global ones, which every user reads.

use super::{
    compile::{check_schema, not_compiled},
    ownership::{check_manages_scripts_of, sees_scripts_of},
    script_references::{references_to, refuse_if_referenced},
};
use crate::{
    identity::Caller,
    model::{
        api::{
            list::List,
            scripts::{
                CheckScriptBody, CompileErrorView, ScriptCheckView, ScriptFields, ScriptPatch, ScriptQuery,
                ScriptReferencesView, ScriptSummary, ScriptView,
            },
        },
        owner::{Owner, OwnerSpec},
        script_spec::ScriptSpec,
    },
    platform::{audit::Audit, collection::Edit, store::Batch},
    scripting::{
        lua::ScriptError,
        scripts::{Script, ScriptsError},
        workers::ProgramText,
    },
    server::{
        audit_entries::script_entry,
        http::{ApiError, ApiRequest, Created, Json, NoContent, Query, pagination, services::ScriptServices},
    },
};
use serde_json::json;
use std::sync::Arc;

pub async fn list(
    services: Arc<ScriptServices>,
    request: ApiRequest,
    Query(query): Query<ScriptQuery>,
) -> Result<Json<List<ScriptSummary>>, ApiError> {
    let caller = request.caller();
    let filter = |script: &Script| {
        sees_scripts_of(caller, script.owner)
            && query.name.as_ref().is_none_or(|name| *name == script.name)
            && query.kind.is_none_or(|kind| kind == script.kind)
            && query.owner.is_none_or(|owner| owner == OwnerSpec::from(script.owner))
    };
    let after = pagination::cursor(query.cursor.as_deref())?;
    let scripts = services.scripts.page(after, pagination::fetch_count(query.limit), filter);
    Ok(Json(List::of_fetched(scripts, query.limit, |script| script.id, |script| ScriptSummary::from(&*script))))
}

pub async fn create(
    services: Arc<ScriptServices>,
    request: ApiRequest,
    Json(spec): Json<ScriptSpec>,
) -> Result<Created<ScriptView>, ApiError> {
    let script = define(&services, request.caller(), spec, None).await?;
    let audited = audited(request.caller(), "script.create", &script);
    let script = services.scripts.create(script, audited).await?;
    Ok(Created(ScriptView::from(&*script)))
}

pub async fn show(services: Arc<ScriptServices>, request: ApiRequest) -> Result<Json<ScriptView>, ApiError> {
    let script = services.scripts.get(request.id()?);
    let script = script.filter(|script| sees_scripts_of(request.caller(), script.owner));
    script.map(|script| Json(ScriptView::from(&*script))).ok_or_else(|| ApiError::missing("script"))
}

/// Replaces a script. Owner, kind and language stay unless they are given.
pub async fn replace(
    services: Arc<ScriptServices>,
    request: ApiRequest,
    Json(ScriptFields(fields)): Json<ScriptFields>,
) -> Result<Json<ScriptView>, ApiError> {
    change(&services, &request, |before| {
        let owner = OwnerSpec::from(before.owner);
        Ok(fields.over(&json!({"owner": owner, "kind": before.kind, "language": before.language}))?)
    })
    .await
}

pub async fn update(
    services: Arc<ScriptServices>,
    request: ApiRequest,
    Json(ScriptPatch(fields)): Json<ScriptPatch>,
) -> Result<Json<ScriptView>, ApiError> {
    if fields.is_null("owner") {
        return Err(ApiError::BadRequest("`owner`: expected me or global".to_owned()));
    }
    change(&services, &request, |before| Ok(fields.patch(&before.spec())?)).await
}

pub async fn delete(services: Arc<ScriptServices>, request: ApiRequest) -> Result<NoContent, ApiError> {
    let script = find_managed(&services, &request)?;
    refuse_if_referenced(&services, request.caller(), &script, |_| true, "deleted")?;
    let audited = audited(request.caller(), "script.delete", &script);
    services.scripts.delete(script.id, audited).await?;
    Ok(NoContent)
}

/// The records that name a script of the caller's, or a global one.
pub async fn references(
    services: Arc<ScriptServices>,
    request: ApiRequest,
) -> Result<Json<ScriptReferencesView>, ApiError> {
    let caller = request.caller();
    let script = services.scripts.get(request.id()?).filter(|script| sees_scripts_of(caller, script.owner));
    let script = script.ok_or_else(|| ApiError::missing("script"))?;
    let mut found = references_to(&services, caller, &script, |_| true);
    // Everybody sees a global script. The number of others who use it is for those who could take it away from them.
    if check_manages_scripts_of(caller, script.owner).is_err() {
        found.hidden = 0;
    }
    Ok(Json(found))
}

/// Compiles Lua and runs nothing. It counts as a test.
pub async fn check(
    services: Arc<ScriptServices>,
    request: ApiRequest,
    Json(body): Json<CheckScriptBody>,
) -> Result<Json<ScriptCheckView>, ApiError> {
    let user = request.caller().user.id;
    let _permit = services.user_limits.test_run(user)?;
    let program = ProgramText::script("script", &body.content);
    let error = match services.workers.compile(&program, Owner::User(user)).await {
        Ok(()) => None,
        Err(ScriptError::Compile(error)) => Some(CompileErrorView { line: Some(error.line), message: error.message }),
        Err(error @ (ScriptError::Busy | ScriptError::Stopped | ScriptError::Host)) => {
            return Err(ApiError::Unavailable(error.to_string()));
        }
        Err(other) => Some(CompileErrorView { line: None, message: other.to_string() }),
    };
    Ok(Json(ScriptCheckView { error }))
}

/// The script of the path, if the caller manages it. One that the caller does not even see looks absent.
fn find_managed(services: &ScriptServices, request: &ApiRequest) -> Result<Arc<Script>, ApiError> {
    let script = services.scripts.get(request.id()?).ok_or_else(|| ApiError::missing("script"))?;
    check_managed(request.caller(), &script)?;
    Ok(script)
}

fn check_managed(caller: &Caller, script: &Script) -> Result<(), ApiError> {
    if !sees_scripts_of(caller, script.owner) {
        return Err(ApiError::missing("script"));
    }
    check_manages_scripts_of(caller, script.owner)
}

/// Checks and compiles the script that a caller describes.
async fn define(
    services: &ScriptServices,
    caller: &Caller,
    spec: ScriptSpec,
    previous: Option<Arc<Script>>,
) -> Result<Script, ApiError> {
    let user = caller.user.id;
    check_manages_scripts_of(caller, spec.owner.of(user))?;
    let has_schema = spec.params_schema.is_some();
    let before = previous.clone();
    let define = move || Script::define(spec, user, before.as_deref());
    let defined = if has_schema { check_schema(&services.user_limits, user, define).await? } else { define() };
    let script = defined.map_err(|error| ApiError::BadRequest(error.to_string()))?;
    let compiled = script.check_lua(&services.workers, user, previous.as_deref()).await;
    compiled.map_err(|error| not_compiled("content", error))?;
    Ok(script)
}

/// Saves the spec that `new_spec` makes of the script of the path, one change after the other.
///
/// A change whose caller has hung up is still completed and may come in between. Then this one is made again from the
/// script as it has become, so that neither is lost.
async fn change(
    services: &ScriptServices,
    request: &ApiRequest,
    new_spec: impl Fn(&Script) -> Result<ScriptSpec, ApiError> + Sync,
) -> Result<Json<ScriptView>, ApiError> {
    // Found before the wait, so that a caller who may not change the script is refused at once.
    let id = find_managed(services, request)?.id;
    let (caller, new_spec) = (request.caller(), &new_spec);
    let decide = |before: Arc<Script>| async move {
        check_managed(caller, &before)?;
        let script = define(services, caller, new_spec(&before)?, Some(before.clone())).await?;
        if script.owner != before.owner {
            // Records of others that name the script could not use it any more.
            let owners = |owner: Owner| !owner.can_use(script.owner);
            refuse_if_referenced(services, caller, &before, owners, "taken from them")?;
        }
        if script.is_same_as(&before) {
            return Ok(Edit::put(before));
        }
        let audited = audited(caller, "script.update", &script);
        Ok::<_, ApiError>(Edit::put(script).with(audited))
    };
    let script = services.scripts.edit(id, decide).await?;
    Ok(Json(ScriptView::from(&*script)))
}

/// Adds the audit entry to the batch of the change.
fn audited(caller: &Caller, action: &str, script: &Script) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = script_entry(caller.actor(), action, script).in_room(caller.audit_room());
    move |batch| Audit::record(batch, &entry)
}

impl From<&Script> for ScriptSummary {
    fn from(script: &Script) -> Self {
        Self {
            id: script.id,
            name: script.name.clone(),
            kind: script.kind,
            language: script.language,
            owner: script.owner.into(),
            description: script.description.clone(),
            active: script.active,
            size: script.content.len(),
            created_at: script.created_at,
            updated_at: script.updated_at,
        }
    }
}

impl From<&Script> for ScriptView {
    fn from(script: &Script) -> Self {
        let (content, params_schema) = (script.content.clone(), script.params_schema.clone());
        Self { summary: ScriptSummary::from(script), content, params_schema }
    }
}

impl From<ScriptsError> for ApiError {
    fn from(error: ScriptsError) -> Self {
        let message = error.to_string();
        match error {
            ScriptsError::NameTaken { .. }
            | ScriptsError::TooMany(_)
            | ScriptsError::Refused(_)
            | ScriptsError::Conflict => Self::Conflict(message),
            ScriptsError::NotFound => Self::missing("script"),
            ScriptsError::Store(error) => error.into(),
        }
    }
}
