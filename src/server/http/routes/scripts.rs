//! Script scripts: one's own, and everybody's, which every user reads.

use super::sinks;
use crate::{
    identity::Caller,
    model::{
        api::{
            list::List,
            scripts::{ScriptFields, ScriptPatch, ScriptQuery, ScriptSummary, ScriptView},
        },
        id::ScriptId,
        json_input,
        owner::{Owner, OwnerSpec},
        permission::Permission,
        script_spec::{ScriptKind, ScriptSpec},
    },
    platform::{audit::Audit, store::Batch},
    scripting::scripts::{Script, ScriptsError},
    server::{
        audit_entries::script_entry,
        http::{ApiError, Call, Created, Json, NoContent, Query, pagination},
    },
};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a change is made anew because another came before it.
const TRIES: u32 = 20;

/// The most users of a script that a refusal names.
const NAMED: usize = 5;

pub async fn list(call: Call, Query(wanted): Query<ScriptQuery>) -> Result<Json<List<ScriptSummary>>, ApiError> {
    let caller = call.caller();
    let fits = |script: &Script| {
        sees(caller, script.owner)
            && wanted.name.as_ref().is_none_or(|name| *name == script.name)
            && wanted.kind.is_none_or(|kind| kind == script.kind)
            && wanted.owner.is_none_or(|owner| owner == OwnerSpec::from(script.owner))
    };
    let after = pagination::cursor(wanted.cursor.as_deref())?;
    // One more than the page holds tells whether there is another.
    let mut scripts = call.app.scripts.page(after, wanted.limit.get() + 1, fits);
    let more = scripts.len() > wanted.limit.get();
    scripts.truncate(wanted.limit.get());
    let next = scripts.last().filter(|_| more).map(|script| script.id.to_string());
    Ok(Json(List { items: scripts.iter().map(|script| ScriptSummary::from(&**script)).collect(), next }))
}

pub async fn create(call: Call, Json(spec): Json<ScriptSpec>) -> Result<Created<ScriptView>, ApiError> {
    let script = define(&call, spec, None).await?;
    let also = audited(call.caller(), "script.create", &script);
    let script = call.app.scripts.create(script, also).await?;
    Ok(Created(ScriptView::from(&*script)))
}

pub async fn show(call: Call) -> Result<Json<ScriptView>, ApiError> {
    Ok(Json(ScriptView::from(&*find(&call)?)))
}

pub async fn replace(call: Call, Json(ScriptFields(fields)): Json<ScriptFields>) -> Result<Json<ScriptView>, ApiError> {
    change(&call, |before| {
        // What cannot change need not be said, and whose it is stays as it was unless it is said.
        let owner = OwnerSpec::from(before.owner);
        let mut whole = json!({"owner": owner, "kind": before.kind, "language": before.language});
        for (field, value) in &fields {
            whole[field] = value.clone();
        }
        Ok(json_input::interpret(whole)?)
    })
    .await
}

pub async fn update(call: Call, Json(ScriptPatch(fields)): Json<ScriptPatch>) -> Result<Json<ScriptView>, ApiError> {
    if fields.get("owner").is_some_and(Value::is_null) {
        return Err(ApiError::BadRequest("`owner`: expected me or global".to_owned()));
    }
    change(&call, |before| Ok(json_input::patched(&before.spec(), fields.clone())?)).await
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    let script = find_managed(&call)?;
    refuse_if_named(&call, &script, |_| true, "deleted")?;
    let also = audited(call.caller(), "script.delete", &script);
    call.app.scripts.delete(script.id, also).await?;
    Ok(NoContent)
}

/// Whether the script of this id is there for `owner` and can be run by what names it in `field`.
pub(super) fn check_named(call: &Call, owner: Owner, id: ScriptId, field: &str) -> Result<(), ApiError> {
    let found = call.app.scripts.get(id).filter(|script| owner.can_use(script.owner));
    match found.as_deref() {
        Some(Script { kind: ScriptKind::Script, .. }) => Ok(()),
        Some(Script { kind, name, .. }) => {
            Err(ApiError::BadRequest(format!("`{field}`: `{name}` is a {kind}: name one of kind script")))
        }
        None => {
            let whose = match owner {
                Owner::Global => "global script: what is global can name no other",
                Owner::User(_) => "script of its owner's, nor a global one",
            };
            Err(ApiError::BadRequest(format!("`{field}`: {id} is the id of no {whose}")))
        }
    }
}

/// The script of the path, if the caller sees it; somebody else's is as good as none.
pub(super) fn find(call: &Call) -> Result<Arc<Script>, ApiError> {
    let script = call.app.scripts.get(call.id()?).filter(|script| sees(call.caller(), script.owner));
    script.ok_or_else(|| ApiError::missing("script"))
}

fn find_managed(call: &Call) -> Result<Arc<Script>, ApiError> {
    let script = find(call)?;
    check_manages(call.caller(), script.owner)?;
    Ok(script)
}

fn sees(caller: &Caller, owner: Owner) -> bool {
    Owner::User(caller.user.id).can_use(owner)
}

/// Whether the caller may change what belongs to `owner`, which is its own or everybody's. The permission for global
/// scripts includes one's own.
pub(super) fn check_manages(caller: &Caller, owner: Owner) -> Result<(), ApiError> {
    let may = match owner {
        Owner::Global => caller.may(Permission::ManageGlobalScripts),
        Owner::User(_) => caller.may(Permission::ManageOwnScripts) || caller.may(Permission::ManageGlobalScripts),
    };
    if may {
        return Ok(());
    }
    Err(ApiError::Forbidden("a global script needs the permission manage_global_scripts".to_owned()))
}

/// The script a caller describes, compiled. That can take long, so it is done where no other request waits behind it.
async fn define(call: &Call, spec: ScriptSpec, previous: Option<Arc<Script>>) -> Result<Script, ApiError> {
    let caller = call.caller();
    check_manages(caller, spec.owner.of(caller.user.id))?;
    let (user, turn) = (caller.user.id, call.app.rations.compilation().await);
    let defined = tokio::task::spawn_blocking(move || {
        // Until it is done, even if the caller hangs up.
        let _turn = turn;
        Script::define(spec, user, previous.as_deref())
    });
    let defined = defined.await.map_err(|error| ApiError::Internal(error.to_string()))?;
    defined.map_err(|error| ApiError::BadRequest(error.to_string()))
}

/// Saves what the script of the path is to become, one change after the other. One whose caller has gone away is still
/// carried through, and may come in between; then this one is made of what the script has become, so that neither is lost.
async fn change(
    call: &Call,
    become_what: impl Fn(&Script) -> Result<ScriptSpec, ApiError>,
) -> Result<Json<ScriptView>, ApiError> {
    // Those who may not change it need not wait for that.
    let _turn = call.app.scripts.turn(find_managed(call)?.id).await;
    let mut tries = TRIES;
    loop {
        let before = find_managed(call)?;
        let script = define(call, become_what(&before)?, Some(before.clone())).await?;
        if script.owner != before.owner {
            // Those of others would lose it.
            refuse_if_named(call, &before, |by| !by.can_use(script.owner), "taken from them")?;
        }
        let also = audited(call.caller(), "script.update", &script);
        tries -= 1;
        match call.app.scripts.update(before, script, also).await {
            Err(ScriptsError::Overtaken) if tries > 0 => {}
            changed => return Ok(Json(ScriptView::from(&*changed?))),
        }
    }
}

/// Refuses what would take a script away from what names it and belongs to one of the `owners`. The caller is told of
/// what it may see.
fn refuse_if_named(call: &Call, script: &Script, owners: impl Fn(Owner) -> bool, done: &str) -> Result<(), ApiError> {
    let (app, caller) = (&call.app, call.caller());
    let id = Some(script.id);
    let (mut seen, mut hidden) = (Vec::new(), 0);
    let mut note = |visible: bool, name: String| match visible {
        true => seen.push(name),
        false => hidden += 1,
    };
    for sink in app.book.all().into_iter().filter(|sink| sink.script_id() == id && owners(sink.owner)) {
        note(sinks::manages(caller, sink.owner), format!("the sink `{}`", sink.name));
    }
    let names = |space: &crate::spaces::Space| space.settings.startup_script_id == id;
    for space in app.spaces.page(None, usize::MAX, names).into_iter().filter(|space| owners(Owner::User(space.owner))) {
        note(super::spaces::sees(caller, &space), format!("the space `{}`", space.name));
    }
    let templates = app.templates.all().into_iter().filter(|_| owners(Owner::Global));
    for template in templates.filter(|template| template.spec.startup_script_id == id) {
        let visible = caller.may(Permission::UseSpaces) || caller.may(Permission::ManageSpaces);
        note(visible, format!("the template `{}`", template.spec.name));
    }
    if seen.is_empty() && hidden == 0 {
        return Ok(());
    }
    let more = hidden + seen.len().saturating_sub(NAMED);
    seen.truncate(NAMED);
    if more > 0 {
        seen.push(format!("{more} {}", if seen.is_empty() { "things of others" } else { "more" }));
    }
    let named_by = seen.join(", ");
    Err(ApiError::Conflict(format!(
        "`{}` is named by {named_by} and cannot be {done}: have those name another script first",
        script.name
    )))
}

fn audited(caller: &Caller, action: &str, script: &Script) -> impl FnOnce(&mut Batch<'_>) + Send + 'static {
    let entry = script_entry(caller.actor(), action, script);
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
            | ScriptsError::ToolNameTaken(_)
            | ScriptsError::TooMany(_)
            | ScriptsError::TooMuch(_)
            | ScriptsError::Overtaken => Self::Conflict(message),
            ScriptsError::NotFound => Self::missing("script"),
            ScriptsError::Store(error) => error.into(),
        }
    }
}
