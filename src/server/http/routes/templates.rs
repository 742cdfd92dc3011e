//! Templates. Whoever uses spaces reads them; changing one takes manage_spaces.

use super::spaces::{check_lua, check_startup};
use crate::{
    model::{
        api::{
            list::{List, PageQuery},
            templates::{TemplatePatch, TemplateQuery, TemplateView},
        },
        json_input,
        owner::Owner,
        template_spec::TemplateSpec,
    },
    server::http::{ApiError, Call, Created, Json, NoContent, Query},
    spaces::{Template, TemplateError},
};
pub async fn list(call: Call, Query(wanted): Query<TemplateQuery>) -> Result<Json<List<TemplateView>>, ApiError> {
    let mut all = call.app.templates.all();
    all.retain(|template| wanted.name.as_deref().is_none_or(|name| template.spec.name.as_str() == name));
    let page = PageQuery { limit: wanted.limit, cursor: wanted.cursor };
    List::page(all, &page, |template| template.id, |template| TemplateView::from(&*template)).map(Json)
}

pub async fn create(call: Call, Json(spec): Json<TemplateSpec>) -> Result<Created<TemplateView>, ApiError> {
    check_startup(&call, Owner::Global, None, spec.startup_script_id)?;
    check_lua(&call, spec.health_check.as_ref()).await?;
    let template = call.app.templates.create(call.caller().actor(), spec).await?;
    Ok(Created(TemplateView::from(&*template)))
}

pub async fn show(call: Call) -> Result<Json<TemplateView>, ApiError> {
    let template = call.app.templates.get(call.id()?).ok_or_else(|| ApiError::missing("template"))?;
    Ok(Json(TemplateView::from(&*template)))
}

pub async fn replace(call: Call, Json(spec): Json<TemplateSpec>) -> Result<Json<TemplateView>, ApiError> {
    let before = call.app.templates.get(call.id()?).ok_or_else(|| ApiError::missing("template"))?;
    check_startup(&call, Owner::Global, before.spec.startup_script_id, spec.startup_script_id)?;
    check_lua(&call, spec.health_check.as_ref()).await?;
    let change = move |_: &Template| Ok::<_, ApiError>(spec);
    let template = call.app.templates.update(call.caller().actor(), before.id, change).await?;
    Ok(Json(TemplateView::from(&*template)))
}

pub async fn update(
    call: Call,
    Json(TemplatePatch(fields)): Json<TemplatePatch>,
) -> Result<Json<TemplateView>, ApiError> {
    let before = call.app.templates.get(call.id()?).ok_or_else(|| ApiError::missing("template"))?;
    let spec: TemplateSpec = json_input::patched(&before.spec, fields.clone())?;
    check_startup(&call, Owner::Global, before.spec.startup_script_id, spec.startup_script_id)?;
    check_lua(&call, spec.health_check.as_ref()).await?;
    let change = move |template: &Template| -> Result<_, ApiError> { Ok(json_input::patched(&template.spec, fields)?) };
    let template = call.app.templates.update(call.caller().actor(), before.id, change).await?;
    Ok(Json(TemplateView::from(&*template)))
}

pub async fn delete(call: Call) -> Result<NoContent, ApiError> {
    call.app.templates.delete(call.caller().actor(), call.id()?).await?;
    Ok(NoContent)
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
            TemplateError::NameTaken(_) | TemplateError::TooMany => Self::Conflict(message),
            TemplateError::Invalid(_) => Self::BadRequest(message),
            TemplateError::Store(error) => error.into(),
        }
    }
}
