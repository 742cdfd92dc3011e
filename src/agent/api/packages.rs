//! The packages of libraries, for whoever has the one before: only what has changed travels.

use super::Answer;
use crate::agent::packages::Package;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use http_body_util::Full;

/// The archive, or nothing if whoever asks has it.
pub fn answer(package: &Package, headers: &HeaderMap) -> Answer {
    let tag = format!("\"{}\"", package.tag);
    let mut answer = match has(headers, &tag) {
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

/// Whether one of the tags that the caller has is this one. A weak one is as good: it is the same bytes.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = tags.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_it_gets_nothing() {
        let package = Package::new(b"zip".to_vec());
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
