//! Rules for HTTP requests that the daemon sends on a user's behalf: the URLs and headers that a user may choose.
//!
//! These rules need no network. The addresses a host name resolves to are checked at connection time, in
//! [`crate::platform::egress`].

use http::{HeaderName, HeaderValue, Uri, uri::PathAndQuery};
use std::{ops::Deref, sync::Arc};
use url::{Position, Url};

/// Headers that belong to the connection rather than to the message.
const FRAMING: [&str; 9] =
    ["connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// The reason a text is not a URL that the daemon sends to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("`{url}` is no URL: {reason}")]
    Malformed { url: String, reason: String },
    #[error("`{0}:` URLs are not supported: use http: or https:")]
    Scheme(String),
    #[error("a URL must not carry a user name or password: put them into an Authorization header")]
    Credentials,
}

/// A URL that the daemon sends to, as far as that can be said without name resolution. Cloning it is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedUrl(Arc<UrlParts>);

/// A URL, and the parts of it that each request repeats.
#[derive(Debug, PartialEq, Eq)]
struct UrlParts {
    url: Url,
    path: PathAndQuery,
    host: HeaderValue,
}

impl CheckedUrl {
    /// The URL in the first line of a request, without the host.
    pub fn target(&self) -> Uri {
        self.0.path.clone().into()
    }

    /// The value of the `Host` header.
    pub fn host_header(&self) -> HeaderValue {
        self.0.host.clone()
    }
}

impl Deref for CheckedUrl {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.0.url
    }
}

impl From<CheckedUrl> for String {
    fn from(url: CheckedUrl) -> Self {
        url.as_str().to_owned()
    }
}

/// Parses a URL and checks everything that needs no name resolution. The fragment is removed.
pub fn check_url(text: &str) -> Result<CheckedUrl, UrlError> {
    let malformed = |reason: String| UrlError::Malformed { url: text.to_owned(), reason };
    let mut url = Url::parse(text).map_err(|error| malformed(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme(url.scheme().to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::Credentials);
    }
    url.set_fragment(None);
    // The HTTP client parses the URL again and accepts fewer characters.
    url.as_str().parse::<Uri>().map_err(|error| malformed(error.to_string()))?;
    let path = url[Position::BeforePath..Position::AfterQuery].parse();
    let path = path.map_err(|error: http::uri::InvalidUri| malformed(error.to_string()))?;
    let host = HeaderValue::try_from(&url[Position::BeforeHost..Position::AfterPort]);
    let host = host.map_err(|error| malformed(error.to_string()))?;
    Ok(CheckedUrl(Arc::new(UrlParts { url, path, host })))
}

/// Returns true for a header that only the HTTP client may set. A wrong `Content-Length`, for example, would let the
/// rest of a body pass as another request.
pub fn is_framing(name: &HeaderName) -> bool {
    FRAMING.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn only_plain_http_and_https_urls_are_sent_to() {
        assert_eq!(check_url("file:///etc/passwd"), Err(UrlError::Scheme("file".to_owned())));
        assert_eq!(check_url("gopher://a/"), Err(UrlError::Scheme("gopher".to_owned())));
        assert_eq!(check_url("http://ada:secret@a/"), Err(UrlError::Credentials));
        for text in ["", "a", "http://", "http://a:99999/", "http://a b/", "/path"] {
            assert!(matches!(check_url(text), Err(UrlError::Malformed { .. })), "{text}");
        }
        assert_eq!(check_url("https://a.example/x?y=1#z").unwrap().as_str(), "https://a.example/x?y=1");
    }

    #[test]
    fn a_request_names_the_path_with_the_query_and_the_host_with_a_port_that_is_not_the_usual_one() {
        for (url, target, host) in [
            ("http://a.example", "/", "a.example"),
            ("https://A.example:443/x/y?z=1&u=%20#f", "/x/y?z=1&u=%20", "a.example"),
            ("http://a.example:8080?z", "/?z", "a.example:8080"),
            ("http://[::1]:80/", "/", "[::1]"),
        ] {
            let url = check_url(url).unwrap();
            assert_eq!((url.target().to_string().as_str(), url.host_header().to_str().unwrap()), (target, host));
        }
    }
}
