//! The URL of a webhook: in its definition, or read for every delivery.
//!
//! A URL that is kept elsewhere is a secret, often with a token in its path: what is told of an attempt shows no part
//! of it.

use crate::{
    model::{
        configured_value::{ConfiguredValue, ValueReference},
        outbound_http::{CheckedUrl, check_url},
    },
    platform::{egress::EgressError, value_reader::read_value},
};
use serde::{Deserialize, Serialize};

/// A checked URL, or the place of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WebhookUrl {
    Own(Box<str>),
    Reference(Box<ValueReference>),
}

/// The URL of one attempt.
pub(super) enum AttemptUrl {
    Shown(CheckedUrl),
    Hidden(CheckedUrl),
}

impl WebhookUrl {
    /// The URL of every attempt, if it is known.
    pub(super) fn parse(&self) -> Option<CheckedUrl> {
        match self {
            Self::Own(url) => check_url(url).ok(),
            Self::Reference(_) => None,
        }
    }

    /// The URL of the next attempt.
    ///
    /// # Errors
    ///
    /// Fails with the reason, which shows no value that is read.
    pub(super) async fn read(&self) -> Result<AttemptUrl, String> {
        let reference = match self {
            Self::Own(url) => {
                return check_url(url).map(AttemptUrl::Shown).map_err(|error| error.to_string());
            }
            Self::Reference(reference) => reference,
        };
        let text = Box::pin(read_value(reference)).await.map_err(|error| format!("`webhook.url`: {error}"))?;
        // The errors of a URL show it.
        let url = check_url(&text).map_err(|_| {
            "`webhook.url`: the value read is no http: or https: URL without a user name and password".to_owned()
        })?;
        Ok(AttemptUrl::Hidden(url))
    }
}

impl AttemptUrl {
    pub fn checked(&self) -> &CheckedUrl {
        match self {
            Self::Shown(url) | Self::Hidden(url) => url,
        }
    }

    /// The text for an error of the attempt.
    pub fn told(&self, error: &EgressError) -> String {
        if let Self::Shown(_) = self {
            return error.to_string();
        }
        match error {
            EgressError::Url(_) => "the URL read for `webhook.url` cannot be used".to_owned(),
            EgressError::Resolve { .. } => "cannot resolve the host of the URL read for `webhook.url`".to_owned(),
            EgressError::NoAddress { .. } => "the host of the URL read for `webhook.url` has no address".to_owned(),
            EgressError::Denied { denial, .. } => {
                format!("the host of the URL read for `webhook.url` is at an address that is not allowed: {denial}")
            }
            EgressError::Connect { .. } => "cannot connect to the host of the URL read for `webhook.url`".to_owned(),
            EgressError::Certificate { .. } => {
                "the certificate of the host of the URL read for `webhook.url` is not trusted".to_owned()
            }
            EgressError::Timeout(_) => error.to_string(),
            EgressError::Broken(_) => "the connection broke before the answer was complete".to_owned(),
            EgressError::Client(_) => "the HTTP client failed".to_owned(),
        }
    }

    /// The text for the place to which the receiver redirects. It often has the same path.
    pub fn redirect<'a>(&self, target: &'a str) -> &'a str {
        match self {
            Self::Shown(_) => target,
            Self::Hidden(_) => "elsewhere",
        }
    }

    /// Returns true if the receiver's response may be shown. One to a hidden URL may repeat a part of it, in any form.
    pub fn shows_response(&self) -> bool {
        matches!(self, Self::Shown(_))
    }
}

impl From<ConfiguredValue> for WebhookUrl {
    fn from(value: ConfiguredValue) -> Self {
        match value {
            ConfiguredValue::Text(url) => Self::Own(url.into()),
            ConfiguredValue::Reference(reference) => Self::Reference(Box::new(reference)),
        }
    }
}

impl From<&WebhookUrl> for ConfiguredValue {
    fn from(url: &WebhookUrl) -> Self {
        match url {
            WebhookUrl::Own(url) => Self::Text(url.as_ref().to_owned()),
            WebhookUrl::Reference(reference) => Self::Reference((**reference).clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        delivery::{
            FailureKind,
            sinks::test_support::{SinkFixture, sink},
        },
        platform::egress::receiver::{Behaviour, Receiver},
        routing::queue::AttemptOutcome,
    };
    use serde_json::json;

    #[tokio::test]
    async fn a_url_is_read_for_every_attempt_and_nothing_told_shows_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("url");
        let webhook =
            sink(json!({"type": "webhook", "owner": "global", "webhook": {"url": {"file": path.to_str().unwrap()}}}));
        let fixture = SinkFixture::new();
        let attempt = async |text: &str| {
            std::fs::write(&path, text).unwrap();
            fixture.attempt(&webhook).await
        };
        let fine = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
        let delivered = attempt(&format!("{}T0K3N?k=SECRET\n", fine.url())).await;
        assert_eq!((delivered.outcome, delivered.error), (AttemptOutcome::Delivered, None));
        assert!(fine.request(0).starts_with("POST /T0K3N?k=SECRET "), "{}", fine.request(0));

        let echo = "HTTP/1.1 404 No\r\nContent-Length: 31\r\n\r\ncannot POST /T0K3N?k=SECRET, no";
        let elsewhere = "HTTP/1.1 302 No\r\nLocation: https://a/T0K3N\r\nContent-Length: 0\r\n\r\n";
        for (head, error) in [
            (echo, "HTTP 404"),
            (elsewhere, "HTTP 302 to elsewhere: redirects are not followed, set the sink's url to it"),
        ] {
            let receiver = Receiver::start(Behaviour::Answer(head)).await;
            let failed = attempt(&format!("{}T0K3N?k=SECRET", receiver.url())).await;
            assert_eq!((failed.error.as_deref(), failed.response.as_deref()), (Some(error), None));
        }
        let denied = attempt("http://169.254.169.254/T0K3N").await;
        assert_eq!(denied.failure_kind, FailureKind::Lasting, "egress applies to the value read");
        let refused = attempt("http://127.0.0.1:1/T0K3N").await;
        let wrong = attempt("T0K3N").await;
        std::fs::remove_file(&path).unwrap();
        let absent = fixture.attempt(&webhook).await;
        for (failed, part) in [
            (denied, "is at an address that is not allowed: "),
            (refused, "cannot connect to the host of the URL read for `webhook.url`"),
            (wrong, "`webhook.url`: the value read is no http: or https: URL"),
            (absent, "`webhook.url`: the file "),
        ] {
            let error = failed.error.unwrap();
            assert_eq!(failed.outcome, AttemptOutcome::Failed);
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("T0K3N") && !error.contains("127.0.0.1") && !error.contains("169.254"), "{error}");
        }
    }
}
