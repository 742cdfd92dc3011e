//! The definition of a space template, as users write it. [`crate::spaces`] keeps templates and creates spaces from
//! them.

use super::{
    health_check::HealthCheck,
    id::ScriptId,
    space_settings::{Port, SpaceName, SpaceSettingsError, check_custom, check_description, check_ports},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A template as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateSpec {
    /// Unique among templates.
    pub name: SpaceName,
    #[serde(default)]
    pub description: String,
    /// Listening ports of such a space; its URLs are built from them.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// Fields that sink templates and scripts read as `custom`.
    #[serde(default)]
    pub custom: BTreeMap<String, String>,
    /// A global stored script of kind `script` that the agent of such a space runs when it starts.
    #[serde(default)]
    pub startup_script_id: Option<ScriptId>,
    #[serde(default)]
    pub health_check: Option<HealthCheck>,
}

impl TemplateSpec {
    /// Checks that a new name is no id: spaces refer to a template by its name or its id.
    pub fn check_new_name(&self) -> Result<(), SpaceSettingsError> {
        match uuid::Uuid::parse_str(self.name.as_str()) {
            Ok(_) => Err(SpaceSettingsError::NameIsId),
            Err(_) => Ok(()),
        }
    }

    /// Checks every field and reports the first that breaks a rule.
    pub fn check(&self) -> Result<(), SpaceSettingsError> {
        check_description(&self.description)?;
        check_ports(&self.ports)?;
        check_custom(&self.custom)
    }
}
