//! Which server a command talks to and as whom: flag over environment over `client.toml` over the
//! local server's own `admin.token`.
//!
//! A token from a file goes only to the server it belongs to: the one in `client.toml` to the server
//! named beside it, the local administrator's to this machine. One on a flag or in the environment
//! goes wherever the user says.

use super::failure::Failure;
use crate::platform::config::default_data_dir;
use isahc::http::Uri;
use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

/// Where a server listens that was told nothing else.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7300";

/// What was typed: the two flags that every client command takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub server: Option<String>,
    pub token: Option<String>,
}

/// What it means, once the environment and the files have had their say.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    pub server: Server,
    pub token: Option<String>,
    pub source: TokenSource,
}

/// The address of a server: scheme, host and port, and a path if it lives behind one. No final slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server(String);

/// Where a token was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    Flag,
    Environment,
    File(PathBuf),
    /// There is none: a password was shown instead.
    Password,
    None,
}

/// `client.toml`: what `svc login` remembers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    server: String,
    token: Option<String>,
}

impl Access {
    /// Looks in the four places, in order.
    ///
    /// # Errors
    ///
    /// Fails if an address is none, or a file that is there cannot be read.
    pub fn find(flags: &Flags, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let set = |name| environment(name).filter(|value| !value.is_empty());
        let remembered = match client_file(environment) {
            Some(path) => read_client_file(&path)?.map(|found| (path, found)),
            None => None,
        };
        let server = match flags.server.clone().or_else(|| set("SVC_SERVER")) {
            Some(named) => named.parse()?,
            None => match &remembered {
                Some((_, found)) => found.server.parse()?,
                None => DEFAULT_SERVER.parse()?,
            },
        };
        let (token, source) = if let Some(token) = flags.token.clone() {
            (Some(token), TokenSource::Flag)
        } else if let Some(token) = set("SVC_TOKEN") {
            (Some(token), TokenSource::Environment)
        } else if let Some(found) = token_in_files(&server, remembered, environment)? {
            found
        } else {
            (None, TokenSource::None)
        };
        Ok(Self { server, token: token.map(|token| token.trim().to_owned()), source })
    }

    /// Whether nobody has named this server, and there is nothing to show to it.
    pub fn is_a_guess(&self, environment: &dyn Fn(&str) -> Option<String>) -> bool {
        let named = environment("SVC_SERVER").is_some_and(|server| !server.is_empty());
        self.source == TokenSource::None && !named && self.server.0 == DEFAULT_SERVER
    }
}

/// The token kept for `server`, and the file it is kept in.
fn token_in_files(
    server: &Server,
    remembered: Option<(PathBuf, Remembered)>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<(Option<String>, TokenSource)>, Failure> {
    if let Some((path, Remembered { server: its, token: Some(token) })) = remembered
        && its.parse::<Server>()? == *server
    {
        return Ok(Some((Some(token), TokenSource::File(path))));
    }
    if !server.is_local() {
        return Ok(None);
    }
    let data = environment("SVC_DATA").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let Some(path) = data.or_else(|| default_data_dir(environment)).map(|dir| dir.join("admin.token")) else {
        return Ok(None);
    };
    match std::fs::read_to_string(&path) {
        Ok(token) => Ok(Some((Some(token), TokenSource::File(path)))),
        // Another user's server: what is there is not for us.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(source) => Err(Failure::File { path, source }),
    }
}

/// Keeps a server and its token for later commands, readable by this user alone. Returns where.
///
/// # Errors
///
/// Fails without a home directory, or if the file cannot be written.
pub fn remember(
    server: &Server,
    token: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<PathBuf, Failure> {
    let path = client_file(environment)
        .ok_or_else(|| Failure::Bad("no home directory to write client.toml in: set HOME".to_owned()))?;
    let kept = Remembered { server: server.to_string(), token: Some(token.to_owned()) };
    let text = toml::to_string(&kept).expect("two strings are TOML");
    write_private(&path, &text).map_err(|source| Failure::File { path: path.clone(), source })?;
    Ok(path)
}

/// `$XDG_CONFIG_HOME/svc/client.toml`, or `~/.config/svc/client.toml`.
fn client_file(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Some(set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?.join("svc/client.toml"))
}

fn read_client_file(path: &Path) -> Result<Option<Remembered>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Failure::File { path: path.to_owned(), source }),
    };
    toml::from_str(&text).map(Some).map_err(|error| Failure::Malformed {
        path: path.to_owned(),
        why: format!("{}; write it anew with `svc login`", error.message()),
    })
}

/// Writes through a new file, so that the secret is never in one that others can read and a crash
/// leaves the old one whole.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        // The error that matters is the first one; the draft may be gone already.
        let _ = std::fs::remove_file(&draft);
    }
    written
}

impl Server {
    /// The address of one of its routes.
    pub fn route(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Whether it runs on this machine: then no proxy stands between, and its files are ours to read.
    pub fn is_local(&self) -> bool {
        let host = self.0.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl std::str::FromStr for Server {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let text = text.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let good = whole.parse::<Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.query().is_none()
        });
        match good {
            true => Ok(Self(whole.trim_end_matches('/').to_owned())),
            false => Err(Failure::Usage(format!("`{text}` is no server address: write one such as {DEFAULT_SERVER}"))),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--token"),
            Self::Environment => f.write_str("SVC_TOKEN"),
            Self::File(path) => path.display().fmt(f),
            Self::Password => f.write_str("a password"),
            Self::None => f.write_str("nowhere"),
        }
    }
}

impl fmt::Debug for Access {
    /// Leaves the token out: it is a secret, and this ends up in test output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("server", &self.server).field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A home directory of a test's own, gone with it.
    struct Home(PathBuf);

    impl Home {
        fn new() -> Self {
            let dir = std::env::temp_dir().join(format!("svc-access-{}", uuid::Uuid::now_v7()));
            std::fs::create_dir_all(dir.join(".local/share/svc")).unwrap();
            std::fs::create_dir_all(dir.join(".config/svc")).unwrap();
            Self(dir)
        }

        fn environment(&self, more: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
            let home = self.0.to_str().unwrap().to_owned();
            move |name| match name {
                "HOME" => Some(home.clone()),
                _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
            }
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::write(self.0.join(path), text).unwrap();
        }
    }

    impl Drop for Home {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn flags(server: Option<&str>, token: Option<&str>) -> Flags {
        Flags { server: server.map(str::to_owned), token: token.map(str::to_owned) }
    }

    fn found(home: &Home, flags: &Flags, more: &'static [(&str, &str)]) -> (String, Option<String>) {
        let access = Access::find(flags, &home.environment(more)).unwrap();
        (access.server.to_string(), access.token)
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_files() {
        let home = Home::new();
        let pair = |server: &str, token: &str| (server.to_owned(), Some(token.to_owned()));
        assert_eq!(found(&home, &Flags::default(), &[]), (DEFAULT_SERVER.to_owned(), None));
        home.write(".local/share/svc/admin.token", "svc_local\n");
        assert_eq!(found(&home, &Flags::default(), &[]), pair(DEFAULT_SERVER, "svc_local"));
        home.write(".config/svc/client.toml", "server = \"https://svc.example\"\ntoken = \"svc_file\"\n");
        assert_eq!(found(&home, &Flags::default(), &[]), pair("https://svc.example", "svc_file"));
        let environment = &[("SVC_SERVER", "https://env.example/"), ("SVC_TOKEN", "svc_env")];
        assert_eq!(found(&home, &Flags::default(), environment), pair("https://env.example", "svc_env"));
        let typed = flags(Some("127.0.0.1:9"), Some("svc_flag"));
        assert_eq!(found(&home, &typed, environment), pair("http://127.0.0.1:9", "svc_flag"));
    }

    #[test]
    fn a_token_from_a_file_goes_only_to_its_own_server() {
        let home = Home::new();
        home.write(".local/share/svc/admin.token", "svc_local");
        home.write(".config/svc/client.toml", "server = \"https://svc.example\"\ntoken = \"svc_file\"\n");
        let token = |server| found(&home, &flags(Some(server), None), &[]).1;
        assert_eq!(token("https://svc.example/").as_deref(), Some("svc_file"));
        assert_eq!(token("https://elsewhere.example"), None);
        assert_eq!(token("http://localhost:7999").as_deref(), Some("svc_local"));
        assert_eq!(token("http://[::1]:7999").as_deref(), Some("svc_local"));
    }

    #[test]
    fn the_local_token_is_found_where_svc_data_points() {
        let home = Home::new();
        home.write("admin.token", "svc_moved\n");
        let dir = home.0.to_str().unwrap().to_owned();
        let environment = move |name: &str| (name == "SVC_DATA").then(|| dir.clone());
        let access = Access::find(&Flags::default(), &environment).unwrap();
        assert_eq!(access.token.as_deref(), Some("svc_moved"));
    }

    #[test]
    fn what_login_remembers_is_found_again_and_is_private() {
        let home = Home::new();
        let server: Server = "https://svc.example".parse().unwrap();
        for token in ["svc_first", "svc_second"] {
            let path = remember(&server, token, &home.environment(&[])).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            let expected = ("https://svc.example".to_owned(), Some(token.to_owned()));
            assert_eq!(found(&home, &Flags::default(), &[]), expected);
        }
    }

    #[test]
    fn a_client_file_with_an_unknown_key_is_an_error_that_names_the_file() {
        let home = Home::new();
        home.write(".config/svc/client.toml", "sever = \"https://svc.example\"\n");
        let error = Access::find(&Flags::default(), &home.environment(&[])).unwrap_err();
        assert!(error.to_string().contains("client.toml") && error.to_string().contains("sever"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn an_address_that_is_none_is_bad_usage() {
        for bad in ["", "ftp://a", "http://", "a b", "http://a?x=1"] {
            assert_eq!(bad.parse::<Server>().unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
