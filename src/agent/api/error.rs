//! Why the agent's API did not do as it was asked, in the shape that all our APIs tell it.

use crate::{
    agent::{RaiseError, proxy::PassError, registrar::RegisterError, setup::SetupError, spool::SpoolError},
    platform::{kv::KvError, percent::PercentError},
    routing::emit::EmitError,
};
use bytes::Bytes;
use http::{Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use serde::Serialize;

/// An answer that is none.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    /// For programs: does not change.
    pub code: &'static str,
    /// For people: what is wrong and what to do.
    pub message: String,
}

/// The code that says that no server could be asked. The command line tells it apart from others.
pub const NOT_CONNECTED: &str = "not_connected";

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }
}

/// A JSON answer.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("answers have string keys and no failing serializers");
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

impl From<Refusal> for Response<Full<Bytes>> {
    fn from(refusal: Refusal) -> Self {
        let Refusal { status, code, message } = refusal;
        json(status, &serde_json::json!({ "error": { "code": code, "message": message } }))
    }
}

impl From<RaiseError> for Refusal {
    fn from(error: RaiseError) -> Self {
        let (status, code) = match &error {
            RaiseError::Payload(EmitError::PayloadTooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            RaiseError::Type(_) | RaiseError::Payload(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            RaiseError::Spool(SpoolError::Full(_)) => (StatusCode::SERVICE_UNAVAILABLE, "spool_full"),
            RaiseError::Spool(SpoolError::Store(_)) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Self {
        let (status, code) = match &error {
            KvError::KeyTooLong(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            KvError::ValueTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            KvError::TooManyKeys => (StatusCode::CONFLICT, "kv_full"),
            KvError::NotAnInteger(_) => (StatusCode::CONFLICT, "not_an_integer"),
            KvError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<PercentError> for Refusal {
    fn from(error: PercentError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<PassError> for Refusal {
    fn from(error: PassError) -> Self {
        let (status, code) = match error {
            PassError::NotConnected => (StatusCode::SERVICE_UNAVAILABLE, NOT_CONNECTED),
            PassError::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "unreachable"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<SetupError> for Refusal {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Register(error) => error.into(),
            error @ (SetupError::Failed { .. }
            | SetupError::NoPython(_)
            | SetupError::TooLong { .. }
            | SetupError::Nothing { .. }) => Self::bad_request(error.to_string()),
        }
    }
}

impl From<RegisterError> for Refusal {
    fn from(error: RegisterError) -> Self {
        let (status, code) = match error {
            RegisterError::File(_) | RegisterError::Start(_) | RegisterError::Ended(_) | RegisterError::TooLate => {
                (StatusCode::BAD_REQUEST, "bad_request")
            }
            RegisterError::NotConnected | RegisterError::Lost { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, NOT_CONNECTED)
            }
            RegisterError::Refused { .. } => (StatusCode::CONFLICT, "refused"),
            RegisterError::NoSuchMethod(_) => (StatusCode::NOT_FOUND, "not_found"),
        };
        Self::new(status, code, error.to_string())
    }
}
