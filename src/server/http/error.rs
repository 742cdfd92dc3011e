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

/// The longest message of an error, in bytes.
const MAX_MESSAGE: usize = 4 << 10;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Unauthorized(&'static str),
    /// A request at a source that is not of its provider, as far as can be told.
    #[error("{0}")]
    Unverified(String),
    #[error("{0}")]
    Forbidden(String),
    /// The token's scopes do not reach the route. The code is that of RFC 6750.
    #[error("{0}")]
    InsufficientScope(String),
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
    #[error("{0}")]
    UnsupportedEncoding(String),
    #[error("{message}")]
    TooManyRequests { message: String, wait: Duration },
    /// A fault of the service. The reason is logged, not shown to the caller.
    #[error("something went wrong in the service; its log says what")]
    Internal(String),
    /// An error of the store, each with its own code. A damaged record is named; the rest of the service goes on.
    #[error("{}", store_message(.0))]
    Store(#[from] StoreError),
    /// Something other than the store cannot serve the request now.
    #[error("{0}")]
    Unavailable(String),
    /// Too much is under way; the same request may succeed after the wait.
    #[error("{message}")]
    Overload { message: String, wait: Duration },
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
            Self::Unverified(_) => (StatusCode::UNAUTHORIZED, "unverified"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::InsufficientScope(_) => (StatusCode::FORBIDDEN, "insufficient_scope"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, "not_acceptable"),
            Self::Timeout => (StatusCode::REQUEST_TIMEOUT, "timeout"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::TooLarge { .. } | Self::PayloadTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::UnsupportedMediaType | Self::UnsupportedEncoding(_) => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type")
            }
            Self::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Self::Store(error) => (store_status(error), error.code()),
            Self::Unavailable(_) | Self::Overload { .. } => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        }
    }

    /// The credential was valid when the request arrived, and no longer is.
    pub const fn revoked() -> Self {
        Self::Unauthorized(
            "the credential of this request has expired or was revoked meanwhile: log in again, or use another token",
        )
    }

    /// The header that some errors carry.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Unauthorized(_) => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::MethodNotAllowed { allow } => Some((ALLOW, HeaderValue::from_str(allow).ok()?)),
            Self::TooManyRequests { wait, .. } | Self::Overload { wait, .. } => {
                Some((RETRY_AFTER, whole_seconds(*wait)))
            }
            Self::Store(error) => Some((RETRY_AFTER, whole_seconds(error.retry_after()?))),
            _ => None,
        }
    }

    pub fn into_response(self) -> Response {
        if let Self::Internal(reason) = &self {
            log::error!("a request failed: {reason}");
        }
        if let Self::Store(error @ StoreError::Damaged { .. }) = &self {
            log::error!("a request failed: {error}");
        }
        let (status, code) = self.kind();
        let body = ErrorBody { error: ErrorText { code: code.into(), message: bounded_message(self.to_string()) } };
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

/// A message within [`MAX_MESSAGE`]. It may repeat a value of the request, which can be as long as a body.
fn bounded_message(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}

impl From<InvalidJson> for ApiError {
    fn from(error: InvalidJson) -> Self {
        Self::BadRequest(error.to_string())
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
            IdentityError::BeyondUser(_)
            | IdentityError::BeyondRole { .. }
            | IdentityError::AgentCredentials
            | IdentityError::PermissionsTaken => Self::Forbidden(message),
            IdentityError::Revoked => Self::revoked(),
            IdentityError::WrongPassword => Self::Unauthorized("name or password is wrong"),
            IdentityError::Overload => Self::Overload { message, wait: Duration::from_secs(1) },
            IdentityError::Throttled(wait) => Self::TooManyRequests { message, wait },
        }
    }
}

/// A damaged record is a fault of its own; any other error of the store concerns all requests, until it is over.
const fn store_status(error: &StoreError) -> StatusCode {
    match error {
        StoreError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        StoreError::DiskFull | StoreError::Stopped(_) | StoreError::Unreadable(_) | StoreError::Closing => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

fn store_message(error: &StoreError) -> String {
    match error {
        StoreError::Damaged { .. } => format!("{error}: have the operator look at the log"),
        StoreError::DiskFull | StoreError::Stopped(_) | StoreError::Unreadable(_) | StoreError::Closing => {
            error.to_string()
        }
    }
}

/// The value of a `Retry-After` header. At least one second: zero would ask for another try at once.
fn whole_seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_millis().div_ceil(1000).max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[test]
    fn retry_after_is_in_whole_seconds_and_never_zero() {
        for (millis, seconds) in [(1, "1"), (1000, "1"), (1001, "2")] {
            let error = ApiError::TooManyRequests { message: String::new(), wait: Duration::from_millis(millis) };
            let response = error.into_response();
            assert_eq!(response.headers()[RETRY_AFTER], seconds);
        }
    }

    /// The status, code, `Retry-After` and message of the response to an error of the store.
    async fn answer(error: StoreError) -> (u16, String, Option<String>, String) {
        let response = ApiError::from(error).into_response();
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let ErrorBody { error: ErrorText { code, message } } = serde_json::from_slice(&body).unwrap();
        (status, code.into_owned(), retry_after, message)
    }

    #[tokio::test]
    async fn a_full_disk_is_503_disk_full_and_passes_within_a_minute() {
        let (status, code, retry_after, message) = answer(StoreError::DiskFull).await;
        assert_eq!((status, code.as_str(), retry_after.as_deref()), (503, "disk_full", Some("60")));
        assert!(message.contains("free some space") && !message.contains("restart"), "{message}");
    }

    #[tokio::test]
    async fn a_stopped_store_is_503_store_stopped_and_asks_for_a_restart() {
        let (status, code, retry_after, message) = answer(StoreError::Stopped("the disk is gone".to_owned())).await;
        assert_eq!((status, code.as_str(), retry_after), (503, "store_stopped", None));
        assert!(message.contains("the disk is gone") && message.contains("restart"), "{message}");
    }

    #[tokio::test]
    async fn a_failed_read_is_503_store_unreadable() {
        let unreadable = StoreError::Unreadable(std::sync::Arc::new(std::io::Error::other("a bad sector")));
        let (status, code, retry_after, message) = answer(unreadable).await;
        assert_eq!((status, code.as_str(), retry_after), (503, "store_unreadable", None));
        assert!(message.contains("a bad sector") && !message.contains("restart"), "{message}");
    }

    #[tokio::test]
    async fn a_closing_store_is_503_stopping_and_is_back_within_seconds() {
        let (status, code, retry_after, message) = answer(StoreError::Closing).await;
        assert_eq!((status, code.as_str(), retry_after.as_deref()), (503, "stopping", Some("5")));
        assert!(message.contains("stopping") && !message.contains("restart"), "{message}");
    }

    #[tokio::test]
    async fn a_damaged_record_is_500_damaged_record_with_its_kind_and_key() {
        let damaged = StoreError::damaged(b"s0123456789abcdef", "expected value at line 1");
        let (status, code, retry_after, message) = answer(damaged).await;
        assert_eq!((status, code.as_str(), retry_after), (500, "damaged_record", None));
        assert!(message.contains("the stored sink 30313233-3435-3637-3839-616263646566 is damaged"), "{message}");
        assert!(!message.contains("restart"), "{message}");
    }

    #[test]
    fn every_code_is_in_the_manual_with_its_status() {
        let text = String::new;
        let manual = include_str!("../../../docs/operations.md");
        for error in [
            ApiError::BadRequest(text()),
            ApiError::Unauthorized(""),
            ApiError::Forbidden(text()),
            ApiError::InsufficientScope(text()),
            ApiError::NotFound(text()),
            ApiError::MethodNotAllowed { allow: text() },
            ApiError::NotAcceptable(text()),
            ApiError::Timeout,
            ApiError::Conflict(text()),
            ApiError::TooLarge { limit: 0 },
            ApiError::UnsupportedMediaType,
            ApiError::TooManyRequests { message: text(), wait: Duration::ZERO },
            ApiError::Internal(text()),
            ApiError::Store(StoreError::damaged(b"s0123456789abcdef", "")),
            ApiError::Store(StoreError::DiskFull),
            ApiError::Store(StoreError::Stopped(text())),
            ApiError::Store(StoreError::Unreadable(std::io::Error::other("").into())),
            ApiError::Store(StoreError::Closing),
            ApiError::Unavailable(text()),
        ] {
            let (status, code) = error.kind();
            let row = format!("| `{code}` | {} |", status.as_u16());
            assert_eq!(manual.matches(&row).count(), 1, "{row}");
        }
    }

    #[tokio::test]
    async fn a_fault_outside_of_the_store_is_503_unavailable() {
        let response = ApiError::Unavailable("all places for scripts are taken".to_owned()).into_response();
        assert_eq!((response.status().as_u16(), response.headers().get(RETRY_AFTER)), (503, None));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: ErrorBody = serde_json::from_slice(&body).unwrap();
        assert_eq!(body.error.code, "unavailable");
    }
}
