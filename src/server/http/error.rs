//! Errors of the HTTP API: their statuses and codes, and the one JSON body they have.

use super::Response;
use crate::{
    identity::IdentityError,
    model::{
        api::error::{ErrorBody, ErrorText},
        json_input::InvalidJson,
    },
    platform::store::StoreError,
};
use hyper::{
    StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use std::time::Duration;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Unauthorized(&'static str),
    #[error("{0}")]
    Forbidden(String),
    /// Also for records of other users: a hidden record and an absent one look alike.
    #[error("{0}")]
    NotFound(String),
    #[error("this path does not take that method, only {allow}")]
    MethodNotAllowed { allow: String },
    #[error("{0}")]
    NotAcceptable(String),
    #[error("the request body did not arrive in time")]
    Timeout,
    #[error("{0}")]
    Conflict(String),
    #[error("the request body is over the limit of {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{0}")]
    PayloadTooLarge(String),
    #[error("send the body as `Content-Type: application/json`")]
    UnsupportedMediaType,
    #[error("{message}")]
    TooManyRequests { message: String, wait: Duration },
    /// A fault of the service. The reason is logged, not shown to the caller.
    #[error("something went wrong in the service; its log says what")]
    Internal(String),
    /// A damaged record. The message names it; the rest of the service goes on.
    #[error("{0}: have the operator look at the log")]
    Damaged(StoreError),
    #[error("{0}")]
    Unavailable(String),
}

impl ApiError {
    /// A record that does not exist, or that the caller may not see.
    pub fn missing(kind: &str) -> Self {
        Self::NotFound(format!("there is no such {kind}"))
    }

    pub const fn status(&self) -> StatusCode {
        self.kind().0
    }

    const fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, "not_acceptable"),
            Self::Timeout => (StatusCode::REQUEST_TIMEOUT, "timeout"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::TooLarge { .. } | Self::PayloadTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::UnsupportedMediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
            Self::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::Internal(_) | Self::Damaged(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        }
    }

    /// The header that some errors carry.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Unauthorized(_) => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::MethodNotAllowed { allow } => Some((ALLOW, HeaderValue::from_str(allow).ok()?)),
            Self::TooManyRequests { wait, .. } => {
                Some((RETRY_AFTER, HeaderValue::from(wait.as_millis().div_ceil(1000).max(1) as u64)))
            }
            _ => None,
        }
    }

    pub fn into_response(self) -> Response {
        if let Self::Internal(reason) = &self {
            log::error!("a request failed: {reason}");
        }
        if let Self::Damaged(error) = &self {
            log::error!("a request failed: {error}");
        }
        let (status, code) = self.kind();
        let body = ErrorBody { error: ErrorText { code: code.into(), message: self.to_string() } };
        let body = serde_json::to_vec(&body).expect("two strings are JSON");
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<InvalidJson> for ApiError {
    fn from(error: InvalidJson) -> Self {
        Self::BadRequest(error.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Damaged { .. } => Self::Damaged(error),
            StoreError::DiskFull | StoreError::Stopped(_) | StoreError::Unreadable(_) | StoreError::Closing => {
                Self::Unavailable(error.to_string())
            }
        }
    }
}

impl From<IdentityError> for ApiError {
    fn from(error: IdentityError) -> Self {
        let message = error.to_string();
        match error {
            IdentityError::Store(error) => error.into(),
            IdentityError::Missing(_) => Self::NotFound(message),
            IdentityError::NameTaken { .. } | IdentityError::LastAdministrator | IdentityError::TooManyTokens(_) => {
                Self::Conflict(message)
            }
            IdentityError::UnknownReference { .. } | IdentityError::Invalid { .. } => Self::BadRequest(message),
            IdentityError::BeyondUser(_) | IdentityError::BeyondRole { .. } | IdentityError::AgentCredentials => {
                Self::Forbidden(message)
            }
            IdentityError::WrongPassword => Self::Unauthorized("name or password is wrong"),
            IdentityError::Throttled(wait) => Self::TooManyRequests { message, wait },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_in_whole_seconds_and_never_zero() {
        for (millis, seconds) in [(1, "1"), (1000, "1"), (1001, "2")] {
            let error = ApiError::TooManyRequests { message: String::new(), wait: Duration::from_millis(millis) };
            let response = error.into_response();
            assert_eq!(response.headers()[RETRY_AFTER], seconds);
        }
    }

    #[test]
    fn a_failed_store_is_unavailable() {
        assert_eq!(ApiError::from(StoreError::DiskFull).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn each_error_of_the_store_has_its_own_answer_and_only_a_stopped_one_asks_for_a_restart() {
        let damaged = StoreError::damaged(b"s0123456789abcdef", "expected value at line 1");
        let unreadable = StoreError::Unreadable(std::sync::Arc::new(std::io::Error::other("a bad sector")));
        for (error, code, says) in [
            (StoreError::DiskFull, "unavailable", "free some space"),
            (StoreError::Stopped("the disk is gone".to_owned()), "unavailable", "the disk is gone"),
            (unreadable, "unavailable", "a bad sector"),
            (StoreError::Closing, "unavailable", "stopping"),
            (damaged, "internal", "the stored sink 30313233-3435-3637-3839-616263646566 is damaged"),
        ] {
            let restart = matches!(error, StoreError::Stopped(_));
            let error = ApiError::from(error);
            assert_eq!(error.kind().1, code);
            assert_eq!(error.status().as_u16(), if code == "internal" { 500 } else { 503 });
            let message = error.to_string();
            assert!(message.contains(says) && message.contains("restart") == restart, "{message}");
        }
    }
}
