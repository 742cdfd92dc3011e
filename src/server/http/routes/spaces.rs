//! Spaces: one's own, and everybody's for who manages them.

use super::scripts;
use crate::{
    identity::{Caller, Secret},
    model::{
        api::{
            list::List,
            spaces::{CheckView, IssuedSpace, ProcessView, SpaceBody, SpacePatch, SpaceQuery, SpaceView},
        },
        health_check::{CheckResult, HealthCheck, Probe},
        id::{ScriptId, UserId},
        json_input,
        owner::Owner,
        permission::Permission,
        space_settings::{Driver, SpaceSettings},
    },
    scripting::lua::Program,
    server::http::{ApiError, Call, Created, Json, NoContent, Query, pagination},
    spaces::{NewSpace, Space, SpaceError, process_driver::Running},
};
use std::{collections::BTreeMap, sync::Arc};

/// What a space is for good.
const FIXED: [&str; 5] = ["name", "owner", "template", "template_id", "driver"];

pub async fn list(call: Call, Query(wanted): Query<SpaceQuery>) -> Result<Json<List<SpaceView>>, ApiError> {
    let after = pagination::cursor(wanted.cursor.as_deref())?;
    let caller = call.caller();
    let owner = match wanted.owner.as_deref() {
        None => None,
        Some("me") => Some(caller.user.id),
        Some(reference) => match user(&call, reference) {
            Some(user) => Some(user),
            None => return Ok(Json(List { items: Vec::new(), next: None })),
        },
    };
    let fits = |space: &Space| {
        sees(caller, space)
            && wanted.name.as_deref().is_none_or(|name| space.name.as_str() == name)
            && wanted.state.is_none_or(|state| space.state == state)
            && owner.is_none_or(|owner| space.owner == owner)
    };
    let mut spaces = call.app.spaces.page(after, wanted.limit.get() + 1, fits);
    let more = spaces.len() > wanted.limit.get();
    spaces.truncate(wanted.limit.get());
    let next = spaces.last().filter(|_| more).map(|space| space.id.to_string());
    Ok(Json(List { items: spaces.iter().map(|space| view(&call, space)).collect(), next }))
}

pub async fn create(call: Call, Json(body): Json<SpaceBody>) -> Result<Created<IssuedSpace>, ApiError> {
    let caller = call.caller();
    // Its token would be one more credential.
    caller.check_may_manage_credentials()?;
    may_drive(caller, body.driver)?;
    let new = define(&call, body)?;
    check_startup(&call, Owner::User(new.owner), None, new.settings.startup_script_id)?;
    check_lua(&call, new.settings.health_check.as_ref()).await?;
    let (space, token) = call.app.spaces.create(caller.actor(), new).await?;
    Ok(Created(issued(&call, &space, token.as_ref())))
}

pub async fn show(call: Call) -> Result<Json<SpaceView>, ApiError> {
    Ok(Json(view(&call, &*find(&call)?)))
}

pub async fn update(call: Call, Json(SpacePatch(fields)): Json<SpacePatch>) -> Result<Json<SpaceView>, ApiError> {
    let before = find(&call)?;
    may_drive(call.caller(), before.driver)?;
    if let Some(field) = FIXED.into_iter().find(|field| fields.contains_key(*field)) {
        return Err(ApiError::BadRequest(format!("`{field}` of a space cannot change: make another space")));
    }
    let settings: SpaceSettings = json_input::patched(&before.settings, fields.clone())?;
    let owner = Owner::User(before.owner);
    check_startup(&call, owner, before.settings.startup_script_id, settings.startup_script_id)?;
    check_lua(&call, settings.health_check.as_ref()).await?;
    // Others may have changed it meanwhile; what they changed and this does not mention stays.
    let change = move |space: &Space| -> Result<_, ApiError> { Ok(json_input::patched(&space.settings, fields)?) };
    let space = call.app.spaces.update(call.caller().actor(), before.id, change).await?;
    Ok(Json(view(&call, &space)))
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    let space = find(&call)?;
    call.app.spaces.delete(call.caller().actor(), space.id).await?;
    Ok(NoContent)
}

pub async fn start(call: Call) -> Result<Json<SpaceView>, ApiError> {
    let space = find(&call)?;
    may_drive(call.caller(), space.driver)?;
    let space = call.app.spaces.start(call.caller().actor(), space.id).await?;
    Ok(Json(view(&call, &space)))
}

pub async fn stop(call: Call) -> Result<Json<SpaceView>, ApiError> {
    let space = find(&call)?;
    let space = call.app.spaces.stop(call.caller().actor(), space.id).await?;
    Ok(Json(view(&call, &space)))
}

pub async fn rotate_token(call: Call) -> Result<Json<IssuedSpace>, ApiError> {
    let space = find(&call)?;
    call.caller().check_may_manage_credentials()?;
    let (space, token) = call.app.spaces.rotate_token(call.caller().actor(), space.id).await?;
    Ok(Json(issued(&call, &space, Some(&token))))
}

/// The space of the path, if the caller sees it; somebody else's is as good as none.
fn find(call: &Call) -> Result<Arc<Space>, ApiError> {
    let space = call.app.spaces.get(call.id()?).filter(|space| sees(call.caller(), space));
    space.ok_or_else(|| ApiError::missing("space"))
}

pub(super) fn sees(caller: &Caller, space: &Space) -> bool {
    space.owner == caller.user.id || caller.may(Permission::ManageSpaces)
}

/// What the server runs, it runs as its own user: that is not for everybody, of their own spaces neither.
fn may_drive(caller: &Caller, driver: Driver) -> Result<(), ApiError> {
    if driver == Driver::External || caller.may(Permission::ManageSpaces) {
        return Ok(());
    }
    Err(ApiError::Forbidden("the driver process needs the permission manage_spaces".to_owned()))
}

fn user(call: &Call, reference: &str) -> Option<UserId> {
    let users = call.app.identity.users();
    let named = users.iter().find(|user| user.name.as_str() == reference).map(|user| user.id);
    named.or_else(|| reference.parse().ok())
}

/// The space that the caller describes: what is given over what its template says.
fn define(call: &Call, body: SpaceBody) -> Result<NewSpace, ApiError> {
    let template = match body.template.as_deref() {
        Some(reference) => Some(call.app.templates.find(reference).ok_or_else(|| {
            ApiError::BadRequest(format!("`template`: there is no template named `{reference}`, nor one with that id"))
        })?),
        None => None,
    };
    let made_of = template.as_ref().map(|template| &template.spec);
    let mut custom = made_of.map_or_else(BTreeMap::new, |template| template.custom.clone());
    custom.extend(body.custom);
    let settings = SpaceSettings {
        description: body
            .description
            .or_else(|| made_of.map(|template| template.description.clone()))
            .unwrap_or_default(),
        host: body.host.unwrap_or_default(),
        ports: body.ports.or_else(|| made_of.map(|template| template.ports.clone())).unwrap_or_default(),
        custom,
        startup_script_id: body.startup_script_id.or_else(|| made_of?.startup_script_id),
        health_check: body.health_check.or_else(|| made_of?.health_check.clone()),
        directory: body.directory,
        methods_file: body.methods_file,
    };
    let (owner, template_id) = (call.caller().user.id, template.map(|template| template.id));
    Ok(NewSpace { name: body.name, owner, template_id, driver: body.driver, settings })
}

/// Whether a Lua check compiles. That can take long, so it is done where no other request waits behind it.
pub(super) async fn check_lua(call: &Call, check: Option<&HealthCheck>) -> Result<(), ApiError> {
    let Some(HealthCheck { probe: Probe::Lua { source }, .. }) = check else { return Ok(()) };
    let (source, turn) = (source.clone(), call.app.rations.compilation().await);
    let compiled = tokio::task::spawn_blocking(move || {
        // Until it is done, even if the caller hangs up.
        let _turn = turn;
        Program::script("script", &source).map(drop)
    });
    let compiled = compiled.await.map_err(|error| ApiError::Internal(error.to_string()))?;
    compiled.map_err(|error| ApiError::BadRequest(format!("`health_check.source` does not compile: {error}")))
}

/// Whether a startup script is there for `owner`, unless it is the one that was there `before`.
pub(super) fn check_startup(
    call: &Call,
    owner: Owner,
    before: Option<ScriptId>,
    after: Option<ScriptId>,
) -> Result<(), ApiError> {
    match after.filter(|_| after != before) {
        Some(id) => scripts::check_named(call, owner, id, "startup_script_id"),
        None => Ok(()),
    }
}

fn issued(call: &Call, space: &Space, token: Option<&Secret>) -> IssuedSpace {
    IssuedSpace { space: view(call, space), agent_token: token.map(|token| token.reveal().to_owned()) }
}

fn view(call: &Call, space: &Space) -> SpaceView {
    let vitals = call.app.spaces.vitals(space.id);
    let owner = call.app.identity.user(space.owner);
    SpaceView {
        id: space.id,
        name: space.name.clone(),
        owner: owner.map(|user| user.name.to_string()).unwrap_or_default(),
        owner_id: space.owner,
        template_id: space.template_id,
        driver: space.driver.into(),
        state: space.state.into(),
        linked: vitals.linked,
        health: space.health.into(),
        consecutive_failures: vitals.consecutive_failures,
        last_check: vitals.last_check.map(CheckView::from),
        urls: space.urls(),
        settings: space.settings.clone(),
        launched: space.launched,
        process: vitals.running.map(ProcessView::from),
        node_id: space.node_id.clone(),
        created_at: space.created_at,
        updated_at: space.updated_at,
        started_at: space.started_at,
        stopped_at: space.stopped_at,
    }
}

impl From<Running> for ProcessView {
    fn from(running: Running) -> Self {
        let Running { pid, launches, trouble } = running;
        Self { pid, launches, trouble }
    }
}

impl From<CheckResult> for CheckView {
    fn from(result: CheckResult) -> Self {
        let CheckResult { ok, detail, checked_at } = result;
        Self { ok, detail, checked_at }
    }
}

impl From<SpaceError> for ApiError {
    fn from(error: SpaceError) -> Self {
        let message = error.to_string();
        match error {
            SpaceError::NotFound => Self::missing("space"),
            SpaceError::NameTaken(_)
            | SpaceError::TooMany(_)
            | SpaceError::StartExternal(_)
            | SpaceError::AlreadyStarted(_)
            | SpaceError::NotRunning(_)
            | SpaceError::NoToken(_)
            | SpaceError::NotLaunched(_)
            | SpaceError::WasStopped(_) => Self::Conflict(message),
            SpaceError::Invalid(_) => Self::BadRequest(message),
            SpaceError::Store(error) => error.into(),
        }
    }
}
