//! Liveness and readiness of the service.

use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub struct HealthView {
    pub status: &'static str,
    /// The reason why the service is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
