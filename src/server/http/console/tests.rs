//! The console's files and their headers.

use super::*;
use http_body_util::BodyExt;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

async fn get(path: &str, encoding: &str) -> Option<Response> {
    let request = Request::builder().uri(path).header(ACCEPT_ENCODING, encoding).body(()).unwrap();
    answer(&request).await
}

async fn console() -> &'static Console {
    loaded().await.unwrap()
}

async fn body(response: Response) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/http/console/web")
}

/// The paths of all files under `directory`, relative to [`web`].
fn paths_under(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            paths_under(&path, found);
        } else {
            found.insert(path.strip_prefix(web()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn every_file_of_the_directory_is_embedded() {
    let mut found = BTreeSet::new();
    paths_under(&web(), &mut found);
    let embedded: BTreeSet<_> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(embedded, found, "list the files in files.rs");
    for file in FILES {
        assert!(
            fs::read(web().join(file.path)).unwrap() == file.bytes,
            "{} was built before it was changed",
            file.path
        );
    }
}

/// The path of a file that `path` imports by this name.
fn resolved(path: &str, name: &str) -> String {
    let mut target = Path::new(path).parent().unwrap().to_owned();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => assert!(target.pop(), "{name} in {path}"),
            part => target.push(part),
        }
    }
    target.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_file_that_is_linked_or_imported_exists() {
    let console = console().await;
    for file in FILES.iter().filter(|file| !file.path.starts_with("vendor/")) {
        let text = String::from_utf8_lossy(file.bytes);
        let linked = text.split("{{files}}/").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned);
        let quoted = text.split('"').filter(|name| name.starts_with("./") || name.starts_with("../"));
        let imported = quoted.filter(|name| name.ends_with(".js")).map(|name| resolved(file.path, name));
        for name in linked.chain(imported) {
            assert!(console.file(&name).is_some(), "{} names {name}", file.path);
        }
    }
}

#[tokio::test]
async fn the_page_names_files_that_are_kept_for_good() {
    let page = get("/", "identity").await.unwrap();
    assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");
    let text = String::from_utf8(body(page).await.to_vec()).unwrap();
    let main = format!("/console/{}/main.js", console().await.version);
    assert!(text.contains(&main), "{text}");
    let file = get(&main, "br, gzip").await.unwrap();
    assert_eq!(file.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
    assert_eq!(file.headers()[CONTENT_ENCODING], "gzip");
    assert!(get(&main, "gzip;q=0").await.unwrap().headers().get(CONTENT_ENCODING).is_none());
}

#[test]
fn the_policy_allows_the_files_of_this_server_and_nothing_inline() {
    let mut headers = HeaderMap::new();
    protect(&mut headers);
    let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn files_are_compressed_once_and_served_without_copies() {
    let console = console().await;
    let file = console.file("main.js").unwrap();
    let path = format!("/console/{}/main.js", console.version);
    for (encoding, kept) in [("gzip", &file.gzip), ("identity", &file.bytes)] {
        for _ in 0..2 {
            let sent = body(get(&path, encoding).await.unwrap()).await;
            assert_eq!((sent.as_ptr(), sent.len()), (kept.as_ptr(), kept.len()), "{encoding}");
        }
    }
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*file.gzip), &mut text).unwrap();
    assert!(text == file.bytes, "the compressed file is another");
}

#[tokio::test]
async fn other_versions_and_names_are_not_found() {
    let version = &console().await.version;
    for path in
        ["/console/", "/console/0/main.js", &format!("/console/{version}/"), &format!("/console/{version}/../x")]
    {
        assert!(get(path, "gzip").await.is_none(), "{path}");
    }
    assert!(get(&format!("/console/{version}/index.html"), "gzip").await.is_none(), "the page has one address");
    let post = Request::builder().method(Method::POST).uri("/").body(()).unwrap();
    assert!(answer(&post).await.is_none());
}

#[test]
fn a_path_that_leaves_the_directory_is_not_read() {
    assert!(files::is_plain("views/sink.js"));
    for path in ["", "../main.js", "views/../../x", "/etc/passwd", "./main.js"] {
        assert!(!files::is_plain(path), "{path}");
    }
}

/// The names of files that `path` imports statically, itself included.
fn closure(console: &Console, path: &str, found: &mut BTreeSet<String>) {
    if !found.insert(path.to_owned()) || path.starts_with("vendor/") {
        return;
    }
    let text = String::from_utf8_lossy(&console.file(path).unwrap().bytes).into_owned();
    for name in text.split("from \"").skip(1).filter_map(|rest| rest.split('"').next()) {
        closure(console, &resolved(path, name), found);
    }
}

#[tokio::test]
async fn the_first_page_is_small() {
    let console = console().await;
    let mut first = BTreeSet::new();
    for module in ["main.js", "views/login.js", "views/overview.js", "vendor/uplot.js"] {
        closure(console, module, &mut first);
    }
    let styles = FILES.iter().filter(|file| file.path.ends_with(".css")).map(|file| file.path.to_owned());
    first.extend(styles.chain(["index.html".to_owned()]));
    assert!(!first.contains("vendor/editor.js"), "the editor is loaded when it is needed");
    let size = |path: &str| console.file(path).unwrap().gzip.len();
    let without_editor: usize = first.iter().map(|path| size(path)).sum();
    assert!(without_editor <= 100 << 10, "{without_editor} bytes: {first:?}");
    closure(console, "views/sink.js", &mut first);
    closure(console, "vendor/editor.js", &mut first);
    let with_editor: usize = first.iter().map(|path| size(path)).sum();
    assert!(with_editor <= 300 << 10, "{with_editor} bytes");
}

#[test]
fn no_file_of_the_console_is_too_long_to_read() {
    for file in FILES.iter().filter(|file| !file.path.starts_with("vendor/")) {
        let lines = String::from_utf8_lossy(file.bytes).lines().count();
        assert!(lines <= 600, "{} has {lines} lines", file.path);
    }
}

/// Compares the bundles with the manifest that was written with them, and the manifest with the sources that are here now.
#[test]
fn the_vendored_bundles_are_those_of_their_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/console");
    let manifest = fs::read(web().join("vendor/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    for (part, directory) in [("inputs", &root), ("files", &web().join("vendor"))] {
        for (name, hash) in manifest[part].as_object().unwrap() {
            let bytes = fs::read(directory.join(name)).unwrap();
            let now = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            assert_eq!(now, hash.as_str().unwrap(), "{name} changed: run `npm ci && npm run build` in contrib/console");
        }
    }
    let listed = manifest["inputs"].as_object().unwrap().keys().filter(|name| name.starts_with("entries/")).count();
    assert_eq!(listed, fs::read_dir(root.join("entries")).unwrap().count(), "an entry that was never built");
}
