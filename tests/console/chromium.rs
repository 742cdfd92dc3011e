//! A real Chromium for the scenarios of `tests/console`, with the Node packages that drive it, installed once for all
//! test runs.
//!
//! Without Chromium, Node or npm the scenarios are not run, which is said on standard error. With
//! `CONSOLE_TESTS=required` in the environment, as in CI, that is a failure.

use super::support::{Answer, Daemon, Receiver};
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};
use tempfile::TempDir;

const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/console");
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/console");

/// Seconds after which a scenario has failed.
const TIME: &str = "300";

/// Names of Chromium on the systems that have it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Runs a scenario against a daemon. Does nothing, and says so, if there is no Chromium.
#[track_caller]
pub fn scenario(name: &str, daemon: &Daemon) {
    static ONE: Mutex<()> = Mutex::new(());
    let Some(chromium) = chromium() else { return };
    // A scenario that failed is no reason for the next one to fail.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let receiver = Receiver::answering(|request| match request.path.as_str() {
        "/fail" => response("500 Internal Server Error", "no luck today"),
        "/hostile" => {
            response("500 Internal Server Error", "<script>window.hit(1)</script><img src=x onerror=window.hit(2)>")
        }
        _ => response("200 OK", &String::from_utf8_lossy(&request.body)),
    });
    let scratch = TempDir::new().expect("there is room for a directory");
    let password = fs::read_to_string(daemon.directory().join("admin.password")).expect("the first start writes it");
    let mut node = Command::new("timeout");
    node.args([TIME, "node"])
        .arg(Path::new(SCENARIOS).join("main.mjs"))
        .arg(name)
        .env("CONSOLE_MODULES", packages())
        .env("CONSOLE_CHROMIUM", chromium)
        .env("CONSOLE_URL", &daemon.url)
        .env("CONSOLE_PASSWORD", password.trim())
        .env("CONSOLE_TOKEN", daemon.admin_token())
        .env("CONSOLE_RECEIVER", receiver.url(""))
        .env("CONSOLE_BIN", env!("CARGO_BIN_EXE_svc"))
        .env("CONSOLE_SCRATCH", scratch.path())
        .env("CONSOLE_PID", daemon.pid().to_string())
        .stdin(Stdio::null());
    let output = node.output().expect("node starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "the scenario {name} failed:\n{}{}", text(&output.stdout), text(&output.stderr));
    print!("{}", text(&output.stdout));
}

/// Fails unless the bundles that are committed are those that their sources make.
#[track_caller]
pub fn check_bundles() {
    if chromium().is_none() {
        return;
    }
    let vendor = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/http/console/web/vendor");
    run(Command::new("node").args(["build.mjs", "--check"]).env("CONSOLE_VENDOR", vendor).current_dir(packages()));
}

fn response(status: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Raw(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"))
}

/// The path of Chromium, if there are it, Node and npm.
fn chromium() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
        let chromium = named.or_else(|| NAMES.into_iter().find_map(in_path));
        let missing: Vec<_> = [("chromium", chromium.is_some()), ("nodejs", in_path("node").is_some()), ("npm", in_path("npm").is_some())]
            .into_iter()
            .filter_map(|(package, is_there)| (!is_there).then_some(package))
            .collect();
        if missing.is_empty() {
            return chromium;
        }
        let message = format!(
            "the tests of the console were NOT RUN, because {} is missing: `apt-get install {}`, or name the program in CHROMIUM",
            missing.join(" and "),
            missing.join(" ")
        );
        assert!(std::env::var("CONSOLE_TESTS").as_deref() != Ok("required"), "{message}");
        // Written past the capture of the test's output, so that it is seen.
        let _ = writeln!(std::io::stderr(), "{message}");
        None
    });
    found.as_deref()
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The directory of the Node packages, with the script that makes the bundles beside them.
fn packages() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console-packages");
        fs::create_dir_all(directory.join("entries")).expect("the target directory is writable");
        // Another test run may be installing; the lock is released when the file is closed.
        let lock = File::create(directory.join("lock")).expect("the target directory is writable");
        lock.lock().expect("the lock can be waited for");
        let entries = fs::read_dir(Path::new(PACKAGES).join("entries")).expect("the entries are there");
        let entries = entries.map(|entry| format!("entries/{}", entry.expect("it is readable").file_name().display()));
        for file in ["package.json", "package-lock.json", "build.mjs"].map(str::to_owned).into_iter().chain(entries) {
            fs::copy(Path::new(PACKAGES).join(&file), directory.join(&file)).expect("the target directory is writable");
        }
        let wanted = fs::read_to_string(directory.join("package-lock.json")).expect("it was copied");
        let stamp = directory.join("installed");
        if fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
            // None of the packages needs an install script.
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
            run(npm.current_dir(&directory));
            fs::write(stamp, wanted).expect("the target directory is writable");
        }
        directory
    })
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
}
