//! The error responses of the agent's API, in the same shape as those of the server.

use crate::{
    agent::{proxy::ProxyError, registrar::RegisterError, setup::SetupError, spool::SpoolError, state::EmitFault},
    platform::{kv::KvError, percent::PercentError, store::StoreError},
    routing::emit::EmitError,
};
use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::Full;
use serde::Serialize;
use std::time::Duration;

/// An error response.
#[derive(Debug)]
pub struct ApiRefusal {
    pub status: StatusCode,
    /// Stable, for programs.
    pub code: &'static str,
    /// The fault and the way out, for people.
    pub message: String,
    /// The time after which a client may try again, if the fault passes by itself.
    pub retry_after: Option<Duration>,
}

/// The code of an agent that is not connected to a server, for which the command line has an exit status.
pub const NOT_CONNECTED: &str = "not_connected";

impl ApiRefusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }
}

/// A JSON response.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("answers have string keys and no failing serializers");
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl From<ApiRefusal> for Response<Full<Bytes>> {
    fn from(refusal: ApiRefusal) -> Self {
        let ApiRefusal { status, code, message, retry_after } = refusal;
        let mut response = json(status, &serde_json::json!({ "error": { "code": code, "message": message } }));
        if let Some(wait) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        response
    }
}

impl From<EmitFault> for ApiRefusal {
    fn from(error: EmitFault) -> Self {
        let (status, code) = match &error {
            EmitFault::Spool(SpoolError::Store(error)) => return error.into(),
            EmitFault::Payload(EmitError::PayloadTooLarge { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            EmitFault::Type(_) | EmitFault::Payload(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            EmitFault::Spool(SpoolError::Full(_)) => (StatusCode::SERVICE_UNAVAILABLE, "spool_full"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<KvError> for ApiRefusal {
    fn from(error: KvError) -> Self {
        let (status, code) = match &error {
            KvError::KeyTooLong(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            KvError::ValueTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            KvError::TooManyKeys | KvError::TooManyBytes(_) => (StatusCode::CONFLICT, "kv_full"),
            KvError::NotAnInteger(_) => (StatusCode::CONFLICT, "not_an_integer"),
            KvError::Store(error) => return error.into(),
        };
        Self::new(status, code, error.to_string())
    }
}

/// The agent's own store, with the codes of the server's.
impl From<&StoreError> for ApiRefusal {
    fn from(error: &StoreError) -> Self {
        let status = match error {
            StoreError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            StoreError::DiskFull | StoreError::Stopped(_) | StoreError::Unreadable(_) | StoreError::Closing => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self { retry_after: error.retry_after(), ..Self::new(status, error.code(), error.to_string()) }
    }
}

impl From<PercentError> for ApiRefusal {
    fn from(error: PercentError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<ProxyError> for ApiRefusal {
    fn from(error: ProxyError) -> Self {
        let (status, code) = match error {
            ProxyError::NotConnected => (StatusCode::SERVICE_UNAVAILABLE, NOT_CONNECTED),
            ProxyError::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "unreachable"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<SetupError> for ApiRefusal {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Register(error) => error.into(),
            error @ (SetupError::Refused(_)
            | SetupError::Failed { .. }
            | SetupError::NoPython(_)
            | SetupError::Timeout { .. }
            | SetupError::NothingRegistered { .. }) => Self::bad_request(error.to_string()),
        }
    }
}

impl From<RegisterError> for ApiRefusal {
    fn from(error: RegisterError) -> Self {
        let (status, code) = match error {
            RegisterError::File(_)
            | RegisterError::Spawn(_)
            | RegisterError::EndedAtOnce(_)
            | RegisterError::ScriptEnded => (StatusCode::BAD_REQUEST, "bad_request"),
            RegisterError::NotConnected | RegisterError::LinkLost { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, NOT_CONNECTED)
            }
            RegisterError::Refused { .. } => (StatusCode::CONFLICT, "refused"),
            RegisterError::NoSuchMethod(_) => (StatusCode::NOT_FOUND, "not_found"),
        };
        Self::new(status, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_has_its_own_code_wherever_it_comes_from() {
        for (error, status, code, retry_after) in [
            (StoreError::DiskFull, 503, "disk_full", Some("60")),
            (StoreError::Stopped("the disk is gone".to_owned()), 503, "store_stopped", None),
            (StoreError::Unreadable(std::io::Error::other("a bad sector").into()), 503, "store_unreadable", None),
            (StoreError::Closing, 503, "stopping", Some("5")),
            (StoreError::damaged(b"s0123456789abcdef", "no JSON"), 500, "damaged_record", None),
        ] {
            let message = error.to_string();
            let refusals: [ApiRefusal; 2] =
                [KvError::Store(error.clone()).into(), EmitFault::Spool(SpoolError::Store(error)).into()];
            for refusal in refusals {
                assert_eq!((refusal.status.as_u16(), refusal.code, &refusal.message), (status, code, &message));
                let response = Response::from(refusal);
                let header = response.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap());
                assert_eq!(header, retry_after, "{code}");
            }
        }
    }
}
