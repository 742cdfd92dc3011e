//! State of one request while rmcp and the handler work on it.

use super::{in_flight::InFlightRequest, raw_result::RawResult};
use crate::{identity::Caller, model::id::UserId, platform::keyed_limit::KeyedPermit};
use serde_json::value::RawValue;

/// One request: its caller, and the parts of its message that rmcp would not keep as they came.
pub struct RequestState {
    pub caller: Caller,
    /// Arguments of a tool call.
    pub arguments: Option<Box<RawValue>>,
    /// Cursor of a list. rmcp reads one that is no string as absent.
    pub cursor: Option<Box<RawValue>>,
    /// Present if the client can cancel the request by a notification.
    pub in_flight: Option<InFlightRequest>,
    /// Structured result of a tool call.
    pub result: RawResult,
    /// Present if the request is a stream.
    pub _stream_permit: Option<KeyedPermit<UserId>>,
}
