//! Templates of spaces. A [`TemplateSpec`] makes or replaces one.

use super::{list::Limit, schemas};
use crate::model::{id::TemplateId, json_input::JsonFields, template_spec::TemplateSpec, timestamp::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateQuery {
    pub name: Option<String>,
    #[serde(default)]
    pub limit: Limit,
    pub cursor: Option<String>,
}

/// The fields of a template that are to change; null removes one.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct TemplatePatch(pub JsonFields);

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Template")]
pub struct TemplateView {
    pub id: TemplateId,
    #[serde(flatten)]
    pub spec: TemplateSpec,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

schemas::patch_of!(TemplateSpec: TemplatePatch);
