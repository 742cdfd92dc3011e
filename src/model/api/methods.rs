//! Methods that the caller can call.

use super::{identity::GroupName, lenient::Lenient, schemas};
use crate::model::{
    id::SpaceId,
    method::{MethodScope, MethodServerState},
    timestamp::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;
use std::sync::Arc;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MethodQuery {
    /// Words that must all be in the name, the description or the keywords, in any case.
    pub q: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Methods")]
pub struct MethodsView {
    pub methods: Vec<MethodView>,
    /// The caller's spaces whose registration is refused, unless words are searched for; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSpaceView>,
}

/// A space whose registration is refused.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RefusedSpace")]
pub struct RefusedSpaceView {
    pub space_id: SpaceId,
    pub space: String,
    #[serde(flatten)]
    pub refusal: RefusalView,
}

/// The refusal of a registration. The agent tries again by itself.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Refusal")]
pub struct RefusalView {
    pub reason: String,
    /// The time of the first refusal for this reason.
    pub since: Timestamp,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Method")]
pub struct MethodView {
    /// The name by which the caller calls it.
    pub name: String,
    pub description: String,
    pub keywords: Vec<String>,
    pub scope: Lenient<MethodScope>,
    /// The groups that a shared method is limited to. A deleted one has its id for a name.
    pub groups: Vec<GroupName>,
    /// The owner's name.
    pub owner: String,
    pub mcp_tool: bool,
    #[schemars(with = "Option<schemas::AnyObject>")]
    pub params_schema: Option<Arc<RawValue>>,
    #[schemars(with = "Option<schemas::AnyObject>")]
    pub result_schema: Option<Arc<RawValue>>,
    pub events: Vec<String>,
    /// The number of spaces that serve it.
    pub provider_count: usize,
    /// The number of those spaces that take calls now.
    pub available_count: usize,
}

#[derive(Serialize, JsonSchema)]
pub struct MethodDetail {
    #[serde(flatten)]
    pub method: MethodView,
    /// The spaces that serve it, for its owner to see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub providers: Option<Vec<ProviderView>>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Provider")]
pub struct ProviderView {
    pub space_id: SpaceId,
    pub space: String,
    /// `running`, `restarting` (its method server died) or `unlinked` (its agent is away).
    pub health: Lenient<MethodServerState>,
    /// The reason it is not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Calls it has not answered yet.
    pub in_flight: usize,
}

/// Read in two passes: serde's `flatten` buffers the fields, and raw JSON cannot be read from its buffer.
impl<'de> Deserialize<'de> for MethodDetail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Providers {
            providers: Option<Vec<ProviderView>>,
        }
        let whole = Box::<RawValue>::deserialize(deserializer)?;
        let method = serde_json::from_str(whole.get()).map_err(de::Error::custom)?;
        let Providers { providers } = serde_json::from_str(whole.get()).map_err(de::Error::custom)?;
        Ok(Self { method, providers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_of_a_newer_server_is_read_with_its_schemas_as_they_came() {
        let json = r#"{"name": "m", "description": "", "keywords": [], "scope": "federated", "groups": [], "owner": "ada",
            "mcp_tool": true, "params_schema": {"maximum": 1.50}, "result_schema": null, "events": [], "colour": "red",
            "provider_count": 1, "available_count": 0, "providers": []}"#;
        let detail: MethodDetail = serde_json::from_str(json).unwrap();
        assert_eq!(detail.method.params_schema.unwrap().get(), r#"{"maximum": 1.50}"#);
        assert_eq!((detail.method.scope.to_string().as_str(), detail.providers.unwrap().len()), ("federated", 0));
    }
}
