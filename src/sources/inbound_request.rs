//! A request at the address of a source, as it arrived: raw bytes, nothing decoded that a signature could cover.

use bytes::Bytes;
use http::HeaderMap;

pub struct InboundRequest {
    pub headers: HeaderMap,
    /// The query string without the question mark.
    pub query: String,
    pub body: Bytes,
}

/// The reason that a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    Missing,
    /// It stands in the request more than once, so that a proxy could have judged by another one.
    Repeated,
    NotText,
}

impl InboundRequest {
    /// The value of a header that must stand in the request exactly once.
    pub fn header(&self, name: &str) -> Result<&str, HeaderFault> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().ok_or(HeaderFault::Missing)?;
        if values.next().is_some() {
            return Err(HeaderFault::Repeated);
        }
        value.to_str().map_err(|_| HeaderFault::NotText)
    }

    /// All pairs of the query, decoded.
    pub fn query_pairs(&self) -> impl Iterator<Item = (String, String)> {
        form_urlencoded::parse(self.query.as_bytes()).into_owned()
    }
}
