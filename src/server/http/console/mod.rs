//! The web console: a page at `/` and its files under `/console/VERSION/`, all embedded.
//!
//! The page is static and open to anybody; everything it shows comes from the routes of the API, with the session's cookie. The
//! version in the path is a hash of all files, so that browsers keep them for good and a new release is loaded at once.
//! [`files`] lists the files; `contrib/console` makes those under `web/vendor`.

mod files;

use super::{Response, response::with_content_type};
use bytes::Bytes;
use data_encoding::HEXLOWER;
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
use std::io::Write as _;
use tokio::{sync::OnceCell, task};

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

static CONSOLE: OnceCell<Console> = OnceCell::const_new();

/// The files of the console, compressed once, off the threads that answer requests.
struct Console {
    version: String,
    files: Vec<ServedFile>,
}

struct ServedFile {
    path: &'static str,
    bytes: Bytes,
    gzip: Bytes,
}

/// Loads the files ahead of the first request. A request that comes earlier waits for the same load.
pub async fn preload() {
    let _ = loaded().await;
}

/// Answers a request for the page or one of its files; `None` for everything else.
pub async fn answer<B>(request: &Request<B>) -> Option<Response> {
    let path = request.uri().path().to_owned();
    if !matches!(*request.method(), Method::GET | Method::HEAD) || !is_console_path(&path) {
        return None;
    }
    let gzip = accepts_gzip(request.headers());
    if let Some(changed) = changed_file(&path).await {
        return Some(with_caching(changed, "no-store"));
    }
    let console = loaded().await?;
    if path == "/" {
        return Some(with_caching(console.file(PAGE)?.response(gzip), "no-cache"));
    }
    let (version, name) = path.strip_prefix(PREFIX)?.split_once('/')?;
    let file = console.file(name).filter(|_| version == console.version && name != PAGE)?;
    Some(with_caching(file.response(gzip), "public, max-age=31536000, immutable"))
}

/// Tells if a path is the console's, whether there is a file or not.
pub fn is_console_path(path: &str) -> bool {
    path == "/" || path.starts_with(PREFIX)
}

/// Adds the headers that every response under a path of the console has, errors among them.
pub fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
}

/// The loaded files; `None` only if the runtime stops meanwhile.
async fn loaded() -> Option<&'static Console> {
    CONSOLE.get_or_try_init(|| task::spawn_blocking(Console::load)).await.ok()
}

/// The file of a path as it is on disk now, whatever the version in the path.
async fn changed_file(path: &str) -> Option<Response> {
    let name = path.strip_prefix(PREFIX).map_or(PAGE, |rest| rest.split_once('/').map_or("", |(_, name)| name));
    let bytes = files::from_disk(name).await?;
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
        let version = HEXLOWER.encode(&hash.finalize()[..8]);
        let files = FILES.iter().map(|file| ServedFile::new(file, &version)).collect();
        Self { version, files }
    }

    fn file(&self, path: &str) -> Option<&ServedFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl ServedFile {
    fn new(file: &ConsoleFile, version: &str) -> Self {
        let bytes = match file.path {
            PAGE => Bytes::from(page(file.bytes, version)),
            _ => Bytes::from_static(file.bytes),
        };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let written = encoder.write_all(&bytes).and_then(|()| encoder.finish());
        let gzip = written.expect("writing to memory does not fail").into();
        Self { path: file.path, bytes, gzip }
    }

    fn response(&self, gzip: bool) -> Response {
        let body = if gzip { &self.gzip } else { &self.bytes };
        let mut response = with_content_type(StatusCode::OK, files::content_type(self.path), body.clone());
        if gzip {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
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

fn with_caching(mut response: Response, caching: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

#[cfg(test)]
mod tests;
