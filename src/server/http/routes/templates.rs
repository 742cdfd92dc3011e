//! Templates of spaces. Users of spaces read them; a change needs the permission manage_spaces.

use super::{compile::check_health_check, script_references::check_startup_script};
use crate::{
    model::{
        api::{
            list::{List, PageQuery},
            templates::{TemplatePatch, TemplateQuery, TemplateView},
        },
        id::ScriptId,
        owner::Owner,
        template_spec::TemplateSpec,
    },
    server::http::{ApiError, ApiRequest, Created, Json, NoContent, Query, services::SpaceServices},
    spaces::{Template, TemplateError},
};
use std::sync::Arc;

pub async fn list(
    services: Arc<SpaceServices>,
    _: ApiRequest,
    Query(query): Query<TemplateQuery>,
) -> Result<Json<List<TemplateView>>, ApiError> {
    let mut all = services.templates.all();
    all.retain(|template| query.name.as_deref().is_none_or(|name| template.spec.name.as_str() == name));
    let page = PageQuery { limit: query.limit, cursor: query.cursor };
    List::page(all, &page, |template| template.id, |template| TemplateView::from(&*template)).map(Json)
}

pub async fn create(
    services: Arc<SpaceServices>,
    request: ApiRequest,
    Json(spec): Json<TemplateSpec>,
) -> Result<Created<TemplateView>, ApiError> {
    check(&services, None, &spec).await?;
    let template = services.templates.create(request.caller().actor(), spec).await?;
    Ok(Created(TemplateView::from(&*template)))
}

pub async fn show(services: Arc<SpaceServices>, request: ApiRequest) -> Result<Json<TemplateView>, ApiError> {
    Ok(Json(TemplateView::from(&*find(&services, &request)?)))
}

pub async fn replace(
    services: Arc<SpaceServices>,
    request: ApiRequest,
    Json(spec): Json<TemplateSpec>,
) -> Result<Json<TemplateView>, ApiError> {
    let before = find(&services, &request)?;
    check(&services, before.spec.startup_script_id, &spec).await?;
    let change = move |_: &Template| Ok::<_, ApiError>(spec.clone());
    let template = services.templates.update(request.caller().actor(), before.id, change).await?;
    Ok(Json(TemplateView::from(&*template)))
}

pub async fn update(
    services: Arc<SpaceServices>,
    request: ApiRequest,
    Json(TemplatePatch(fields)): Json<TemplatePatch>,
) -> Result<Json<TemplateView>, ApiError> {
    let before = find(&services, &request)?;
    let spec: TemplateSpec = fields.patch(&before.spec)?;
    check(&services, before.spec.startup_script_id, &spec).await?;
    let change = move |template: &Template| -> Result<_, ApiError> { Ok(fields.patch(&template.spec)?) };
    let template = services.templates.update(request.caller().actor(), before.id, change).await?;
    Ok(Json(TemplateView::from(&*template)))
}

pub async fn delete(services: Arc<SpaceServices>, request: ApiRequest) -> Result<NoContent, ApiError> {
    services.templates.delete(request.caller().actor(), request.id()?).await?;
    Ok(NoContent)
}

/// The template of the path.
fn find(services: &SpaceServices, request: &ApiRequest) -> Result<Arc<Template>, ApiError> {
    services.templates.get(request.id()?).ok_or_else(|| ApiError::missing("template"))
}

/// Checks the startup script and the health check of a template whose startup script was `before`.
async fn check(services: &SpaceServices, before: Option<ScriptId>, spec: &TemplateSpec) -> Result<(), ApiError> {
    check_startup_script(&services.scripts, Owner::Global, before, spec.startup_script_id)?;
    check_health_check(&services.workers, Owner::Global, spec.health_check.as_ref()).await
}

impl From<&Template> for TemplateView {
    fn from(template: &Template) -> Self {
        let Template { id, spec, created_at, updated_at } = template.clone();
        Self { id, spec, created_at, updated_at }
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> Self {
        let message = error.to_string();
        match error {
            TemplateError::NotFound => Self::missing("template"),
            TemplateError::NameTaken(_) | TemplateError::TooMany | TemplateError::Conflict => Self::Conflict(message),
            TemplateError::Invalid(_) => Self::BadRequest(message),
            TemplateError::Store(error) => error.into(),
        }
    }
}
