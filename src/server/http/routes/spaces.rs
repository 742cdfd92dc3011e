//! Spaces: the caller's own, and all of them for callers who manage spaces.

use super::{compile::check_health_check, ownership::sees_space, script_references::check_startup_script};
use crate::{
    identity::{Caller, Identity, Secret},
    model::{
        api::{
            list::List,
            methods::RefusalView,
            spaces::{CheckView, IssuedSpace, ProcessView, SpaceBody, SpacePatch, SpaceQuery, SpaceView},
        },
        health_check::CheckResult,
        id::{ScriptId, UserId},
        owner::Owner,
        permission::Permission,
        space_settings::{Driver, SpaceSettings},
    },
    server::http::{ApiError, ApiRequest, Created, Json, NoContent, Query, pagination, services::SpaceServices},
    spaces::{AgentProcess, NewSpace, Space, SpaceError},
};
use std::{collections::BTreeMap, sync::Arc};

/// Fields that cannot change once a space is made.
const FIXED_FIELDS: [&str; 5] = ["name", "owner", "template", "template_id", "driver"];

pub async fn list(
    services: Arc<SpaceServices>,
    request: ApiRequest,
    Query(query): Query<SpaceQuery>,
) -> Result<Json<List<SpaceView>>, ApiError> {
    let after = pagination::cursor(query.cursor.as_deref())?;
    let caller = request.caller();
    let owner = match query.owner.as_deref() {
        None => None,
        Some("me") => Some(caller.user.id),
        Some(reference) => match find_user(&services.identity, reference) {
            Some(user) => Some(user),
            None => return Ok(Json(List { items: Vec::new(), next: None })),
        },
    };
    let filter = |space: &Space| {
        sees_space(caller, space)
            && query.name.as_deref().is_none_or(|name| space.name.as_str() == name)
            && query.state.is_none_or(|state| space.state == state)
            && owner.is_none_or(|owner| space.owner == owner)
    };
    let spaces = services.spaces.page(after, pagination::fetch_count(query.limit), filter);
    Ok(Json(List::of_fetched(spaces, query.limit, |space| space.id, |space| view(&services, &space))))
}

pub async fn create(
    services: Arc<SpaceServices>,
    request: ApiRequest,
    Json(body): Json<SpaceBody>,
) -> Result<Created<IssuedSpace>, ApiError> {
    let caller = request.caller();
    // The space's token is one more credential.
    caller.check_may_manage_credentials()?;
    check_driver(caller, body.driver)?;
    let new = define(&services, caller.user.id, body)?;
    check(&services, new.owner, None, &new.settings).await?;
    let (space, token) = services.spaces.create(caller.actor(), new).await?;
    Ok(Created(issued(&services, &space, token.as_ref())))
}

pub async fn show(services: Arc<SpaceServices>, request: ApiRequest) -> Result<Json<SpaceView>, ApiError> {
    let space = find(&services, &request)?;
    Ok(Json(view(&services, &space)))
}

pub async fn update(
    services: Arc<SpaceServices>,
    request: ApiRequest,
    Json(SpacePatch(fields)): Json<SpacePatch>,
) -> Result<Json<SpaceView>, ApiError> {
    let before = find(&services, &request)?;
    check_driver(request.caller(), before.driver)?;
    if let Some(field) = FIXED_FIELDS.into_iter().find(|field| fields.contains(field)) {
        return Err(ApiError::BadRequest(format!("`{field}` of a space cannot change: make another space")));
    }
    let settings: SpaceSettings = fields.patch(&before.settings)?;
    check(&services, before.owner, before.settings.startup_script_id, &settings).await?;
    // Applied to the settings as they are when the change is made, so that other changes since are kept.
    let change = move |space: &Space| -> Result<_, ApiError> { Ok(fields.patch(&space.settings)?) };
    let space = services.spaces.update(request.caller().actor(), before.id, change).await?;
    Ok(Json(view(&services, &space)))
}

pub async fn delete(services: Arc<SpaceServices>, request: ApiRequest) -> Result<NoContent, ApiError> {
    let space = find(&services, &request)?;
    services.records.delete_space(request.caller(), space.id).await?;
    Ok(NoContent)
}

pub async fn start(services: Arc<SpaceServices>, request: ApiRequest) -> Result<Json<SpaceView>, ApiError> {
    let space = find(&services, &request)?;
    check_driver(request.caller(), space.driver)?;
    let space = services.spaces.start(request.caller().actor(), space.id).await?;
    Ok(Json(view(&services, &space)))
}

pub async fn stop(services: Arc<SpaceServices>, request: ApiRequest) -> Result<Json<SpaceView>, ApiError> {
    let space = find(&services, &request)?;
    let space = services.spaces.stop(request.caller().actor(), space.id).await?;
    Ok(Json(view(&services, &space)))
}

pub async fn rotate_token(services: Arc<SpaceServices>, request: ApiRequest) -> Result<Json<IssuedSpace>, ApiError> {
    let space = find(&services, &request)?;
    request.caller().check_may_manage_credentials()?;
    check_owner(request.caller(), &space)?;
    let (space, token) = services.spaces.rotate_token(request.caller().actor(), space.id).await?;
    Ok(Json(issued(&services, &space, Some(&token))))
}

/// The space of the path. One that the caller may not see looks absent.
fn find(services: &SpaceServices, request: &ApiRequest) -> Result<Arc<Space>, ApiError> {
    let space = services.spaces.get(request.id()?).filter(|space| sees_space(request.caller(), space));
    space.ok_or_else(|| ApiError::missing("space"))
}

/// Limits the agent token to the owner of the space: the token acts as the owner, with all of the owner's permissions.
fn check_owner(caller: &Caller, space: &Space) -> Result<(), ApiError> {
    if space.owner == caller.user.id {
        return Ok(());
    }
    let message = "only the owner of a space makes its agent token, which acts as the owner: ask the owner to do it";
    Err(ApiError::Forbidden(message.to_owned()))
}

/// The user with this name or id. An id need not belong to an existing user.
fn find_user(identity: &Identity, reference: &str) -> Option<UserId> {
    let id: Option<UserId> = reference.parse().ok();
    let existing = id.filter(|id| identity.user(*id).is_some());
    existing.or_else(|| identity.user_named(reference).map(|user| user.id)).or(id)
}

/// Limits the driver `process` to callers who manage spaces, even for their own: the server runs the agent as its own
/// operating-system user.
fn check_driver(caller: &Caller, driver: Driver) -> Result<(), ApiError> {
    if driver == Driver::External || caller.may(Permission::ManageSpaces) {
        return Ok(());
    }
    Err(ApiError::Forbidden("the driver process needs the permission manage_spaces".to_owned()))
}

/// Checks the startup script and the health check of a space whose startup script was `before`.
async fn check(
    services: &SpaceServices,
    owner: UserId,
    before: Option<ScriptId>,
    settings: &SpaceSettings,
) -> Result<(), ApiError> {
    check_startup_script(&services.scripts, Owner::User(owner), before, settings.startup_script_id)?;
    check_health_check(&services.workers, Owner::User(owner), settings.health_check.as_ref()).await
}

/// The space that a user describes: the given fields over those of the template.
fn define(services: &SpaceServices, owner: UserId, body: SpaceBody) -> Result<NewSpace, ApiError> {
    let template = match body.template.as_deref() {
        Some(reference) => Some(services.templates.find(reference).ok_or_else(|| {
            ApiError::BadRequest(format!("`template`: there is no template named `{reference}`, nor one with that id"))
        })?),
        None => None,
    };
    let base = template.as_ref().map(|template| &template.spec);
    let mut custom = base.map_or_else(BTreeMap::new, |template| template.custom.clone());
    custom.extend(body.custom);
    let settings = SpaceSettings {
        description: body.description.or_else(|| base.map(|template| template.description.clone())).unwrap_or_default(),
        host: body.host.unwrap_or_default(),
        ports: body.ports.or_else(|| base.map(|template| template.ports.clone())).unwrap_or_default(),
        custom,
        startup_script_id: body.startup_script_id.or_else(|| base?.startup_script_id),
        health_check: body.health_check.or_else(|| base?.health_check.clone()),
        directory: body.directory,
        methods_file: body.methods_file,
    };
    let template_id = template.map(|template| template.id);
    Ok(NewSpace { name: body.name, owner, template_id, driver: body.driver, settings })
}

fn issued(services: &SpaceServices, space: &Space, token: Option<&Secret>) -> IssuedSpace {
    IssuedSpace { space: view(services, space), agent_token: token.map(|token| token.reveal().to_owned()) }
}

fn view(services: &SpaceServices, space: &Space) -> SpaceView {
    let status = services.spaces.status(space.id);
    let owner = services.identity.user(space.owner);
    SpaceView {
        id: space.id,
        name: space.name.clone(),
        owner: owner.map(|user| user.name.to_string()).unwrap_or_default(),
        owner_id: space.owner,
        template_id: space.template_id,
        driver: space.driver.into(),
        state: space.state.into(),
        linked: status.linked,
        refused_registration: services
            .registry
            .refusal(space.id)
            .map(|refused| RefusalView { reason: refused.reason, since: refused.since }),
        health: space.health.into(),
        consecutive_failures: status.consecutive_failures,
        last_check: status.last_check.map(CheckView::from),
        urls: space.urls(),
        settings: space.settings.clone(),
        launched: space.launched,
        process: status.running.map(ProcessView::from),
        node_id: space.node_id.clone(),
        created_at: space.created_at,
        updated_at: space.updated_at,
        started_at: space.started_at,
        stopped_at: space.stopped_at,
    }
}

impl From<AgentProcess> for ProcessView {
    fn from(running: AgentProcess) -> Self {
        let AgentProcess { pid, launches, trouble } = running;
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
            | SpaceError::Conflict
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
