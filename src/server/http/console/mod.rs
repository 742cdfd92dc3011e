//! The web console: a page at `/` and its files under `/console/VERSION/`, all embedded.
//!
//! The page is static and open to anybody; everything it shows comes from the routes of the API, with the session's cookie. The
//! version in the path is a hash of all files, so that browsers keep them for good and a new release is loaded at once.
//! [`files`] lists the files; `contrib/console` makes those under `web/vendor`.

mod files;

use super::{Response, response::with_content_type};
use files::{ConsoleFile, FILES};
use flate2::{Compression, write::GzEncoder};
use hyper::{
    Method, Request, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue,
        REFERRER_POLICY, VARY, X_FRAME_OPTIONS,
    },
};
use sha2::{Digest, Sha256};
use std::{
    borrow::Cow,
    fmt::Write as _,
    io::Write as _,
    sync::{LazyLock, OnceLock},
};

/// Scripts and styles from this server only, none inline; no frame around the page, and nothing from elsewhere.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// The page of the console, and the word in it that stands for the path of its files.
const PAGE: &str = "index.html";
const FILES_PATH: &str = "{{files}}";

/// The path of all files of the console, up to the version.
const PREFIX: &str = "/console/";

static CONSOLE: LazyLock<Console> = LazyLock::new(Console::load);

/// The files of the console, compressed when they are first asked for.
struct Console {
    version: String,
    files: Vec<ServedFile>,
}

struct ServedFile {
    path: &'static str,
    bytes: Cow<'static, [u8]>,
    gzip: OnceLock<Vec<u8>>,
}

/// Answers a request for the page or one of its files; `None` for everything else.
pub fn answer<B>(request: &Request<B>) -> Option<Response> {
    let path = request.uri().path();
    if !matches!(*request.method(), Method::GET | Method::HEAD) || path != "/" && !path.starts_with(PREFIX) {
        return None;
    }
    let headers = request.headers();
    if let Some(changed) = changed_file(path) {
        return Some(with_headers(changed, "no-store"));
    }
    if path == "/" {
        return Some(with_headers(CONSOLE.file(PAGE)?.response(headers), "no-cache"));
    }
    let (version, name) = path.strip_prefix(PREFIX)?.split_once('/')?;
    let file = CONSOLE.file(name).filter(|_| version == CONSOLE.version && name != PAGE)?;
    Some(with_headers(file.response(headers), "public, max-age=31536000, immutable"))
}

/// The file of a path as it is on disk now, whatever the version in the path.
fn changed_file(path: &str) -> Option<Response> {
    let name = path.strip_prefix(PREFIX).map_or(PAGE, |rest| rest.split_once('/').map_or("", |(_, name)| name));
    let bytes = files::from_disk(name)?;
    let bytes = if name == PAGE { page(&bytes, "disk") } else { bytes };
    Some(with_content_type(StatusCode::OK, files::content_type(name), bytes))
}

impl Console {
    fn load() -> Self {
        let mut hash = Sha256::new();
        for ConsoleFile { path, bytes } in FILES {
            hash.update(path.as_bytes());
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        let version = hash.finalize()[..8].iter().fold(String::new(), |mut version, byte| {
            let _ = write!(version, "{byte:02x}");
            version
        });
        let files = FILES.iter().map(|file| ServedFile::new(file, &version)).collect();
        Self { version, files }
    }

    fn file(&self, path: &str) -> Option<&ServedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl ServedFile {
    fn new(file: &ConsoleFile, version: &str) -> Self {
        let bytes = if file.path == PAGE { Cow::Owned(page(file.bytes, version)) } else { Cow::Borrowed(file.bytes) };
        Self { path: file.path, bytes, gzip: OnceLock::new() }
    }

    fn response(&self, headers: &HeaderMap) -> Response {
        let content_type = files::content_type(self.path);
        if !accepts_gzip(headers) {
            return with_content_type(StatusCode::OK, content_type, self.bytes.to_vec());
        }
        let mut response = with_content_type(StatusCode::OK, content_type, self.gzip().clone());
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    }

    fn gzip(&self) -> &Vec<u8> {
        self.gzip.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            let written = encoder.write_all(&self.bytes).and_then(|()| encoder.finish());
            written.expect("writing to memory does not fail")
        })
    }
}

/// The page with the path of its files.
fn page(source: &[u8], version: &str) -> Vec<u8> {
    String::from_utf8_lossy(source).replace(FILES_PATH, &format!("{PREFIX}{version}")).into_bytes()
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip")) && !parts.any(|weight| weight == "q=0")
    })
}

fn with_headers(mut response: Response, caching: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests;
