//! A published method with its providers, and the choice between several.

use super::provider::{CallPlace, Provider};
use crate::model::{
    id::UserId,
    method::{Method, MethodInterface},
};
use serde_json::{Value, value::RawValue};
use std::sync::Arc;

/// A method as its callers see it, with all spaces that serve it.
///
/// A change makes a new one, so that a call in flight keeps what it resolved.
pub struct PublishedMethod {
    pub owner: UserId,
    /// The method of the space that registered it last; the others agree in every visible field.
    pub method: Arc<Method>,
    /// The providers, in the order in which they registered.
    pub providers: Vec<Arc<Provider>>,
    pub schemas: MethodSchemas,
}

/// A method's schemas as listings show them, serialized once.
#[derive(Clone)]
pub struct MethodSchemas {
    pub params: Option<Arc<RawValue>>,
    pub result: Option<Arc<RawValue>>,
}

impl PublishedMethod {
    /// Takes a place at the running provider with the fewest calls in flight, and at the one that registered first if
    /// several have as few; `None` if none is running.
    pub fn take_place(&self) -> Option<CallPlace> {
        loop {
            let running = self.providers.iter().filter(|provider| provider.is_running());
            let (provider, count) =
                running.map(|provider| (provider, provider.in_flight())).min_by_key(|(_, count)| *count)?;
            // Another call may have chosen the same provider meanwhile; then the choice is made again.
            if let Some(place) = provider.take_place_if(count) {
                return Some(place);
            }
        }
    }
}

impl MethodSchemas {
    pub(super) fn of(definition: &MethodInterface) -> Self {
        let serialized = |schema: &Option<Value>| {
            let json = schema.as_ref().map(ToString::to_string);
            json.map(|json| RawValue::from_string(json).expect("a value is JSON").into())
        };
        Self { params: serialized(&definition.params_schema), result: serialized(&definition.result_schema) }
    }
}
