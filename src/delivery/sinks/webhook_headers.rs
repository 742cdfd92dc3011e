//! The headers that the service gives a webhook request.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt::{Display, Write as _};

pub const ATTEMPT: HeaderName = HeaderName::from_static("x-service-attempt");
pub const BATCH: HeaderName = HeaderName::from_static("x-service-batch");
pub const EVENT_ID: HeaderName = HeaderName::from_static("x-service-event-id");
pub const EVENT_TS: HeaderName = HeaderName::from_static("x-service-event-ts");
pub const EVENT_TYPE: HeaderName = HeaderName::from_static("x-service-event-type");
pub const MISSED: HeaderName = HeaderName::from_static("x-service-missed");
pub const REPLAY: HeaderName = HeaderName::from_static("x-service-replay");
pub const SEQUENCE: HeaderName = HeaderName::from_static("x-service-sequence");
pub const SIGNATURE: HeaderName = HeaderName::from_static("x-service-signature");
pub const SIGNATURE_PREVIOUS: HeaderName = HeaderName::from_static("x-service-signature-previous");
pub const STANDARD_ID: HeaderName = HeaderName::from_static("webhook-id");
pub const STANDARD_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
pub const STANDARD_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");

/// Bytes and headers that most requests need.
const TEXT: usize = 512;
const HEADERS: usize = 16;

/// Headers of one request. Their values share one allocation, and so do the copies of them that the client makes.
pub struct ServiceHeaders {
    text: String,
    /// The names, each with the end of its value in the text.
    ends: Vec<(HeaderName, usize)>,
}

impl ServiceHeaders {
    pub fn new() -> Self {
        Self { text: String::with_capacity(TEXT), ends: Vec::with_capacity(HEADERS) }
    }

    /// Adds a header whose value is visible ASCII.
    pub fn add(&mut self, name: HeaderName, value: impl Display) {
        write!(self.text, "{value}").expect("writing to a string does not fail");
        self.ends.push((name, self.text.len()));
    }

    pub fn into_map(self) -> HeaderMap {
        let (text, mut start) = (Bytes::from(self.text), 0);
        let mut headers = HeaderMap::with_capacity(HEADERS);
        for (name, end) in self.ends {
            let value = HeaderValue::from_maybe_shared(text.slice(start..end));
            headers.insert(name, value.expect("types, times, numbers and signatures are plain ASCII"));
            start = end;
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_has_its_own_part_of_the_text() {
        let mut headers = ServiceHeaders::new();
        headers.add(ATTEMPT, 1);
        headers.add(MISSED, "");
        headers.add(STANDARD_ID, "id");
        let headers = headers.into_map();
        assert_eq!(headers.len(), 3);
        assert_eq!([&headers[ATTEMPT], &headers[MISSED], &headers[STANDARD_ID]], ["1", "", "id"]);
    }
}
