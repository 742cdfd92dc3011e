//! The packages of libraries, with entity tags so that an unchanged one is not sent again.

use super::request::ApiResponse;
use crate::agent::packages::PackageArchive;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use http_body_util::Full;

/// Answers with the archive, or 304 if the client has it.
pub fn answer(package: &PackageArchive, headers: &HeaderMap) -> ApiResponse {
    let tag = format!("\"{}\"", package.tag);
    let mut answer = match client_has(headers, &tag) {
        true => {
            let mut answer = Response::new(Full::default());
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            answer
        }
        false => {
            let mut answer = Response::new(Full::new(package.bytes.clone()));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/zip"));
            answer
        }
    };
    let headers = answer.headers_mut();
    headers.insert(ETAG, HeaderValue::from_str(&tag).expect("a tag is hexadecimal"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

/// Returns whether `If-None-Match` has this tag. A weak tag counts too: it means the same bytes.
fn client_has(headers: &HeaderMap, tag: &str) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = tags.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_the_archive_gets_no_body() {
        let package = PackageArchive::new(b"zip".to_vec());
        let asked = |known: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(known) = known {
                headers.insert(IF_NONE_MATCH, known.parse().unwrap());
            }
            let answer = answer(&package, &headers);
            assert_eq!(answer.headers()[ETAG], format!("\"{}\"", package.tag));
            answer.status().as_u16()
        };
        let tag = &package.tag;
        assert_eq!(asked(None), 200);
        assert_eq!(asked(Some("\"other\"")), 200);
        assert_eq!(asked(Some(tag)), 200, "a tag has quotes");
        for known in [format!("\"{tag}\""), format!("W/\"{tag}\""), format!("\"a\", \"{tag}\""), "*".to_owned()] {
            assert_eq!(asked(Some(&known)), 304, "{known}");
        }
    }
}
