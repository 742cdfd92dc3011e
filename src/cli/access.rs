//! The server and the token of a command: flag over environment over `client.toml` over the local server's own
//! `admin.token`.
//!
//! A token from a file goes only to the server it belongs to: the one in `client.toml` to the server named beside it,
//! the local administrator's to this machine. One on a flag or in the environment goes wherever the user says.

use super::failure::{Failure, TokenSource};
use crate::{
    model::{id::TokenId, toml_input},
    platform::config::default_data_dir,
};
use isahc::http::Uri;
use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

/// The address of a server with default settings.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7300";

/// The two flags that every client command takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFlags {
    pub server: Option<String>,
    pub token: Option<String>,
}

/// The server and token in effect.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    pub server: ServerAddress,
    pub token: Option<String>,
    pub source: TokenSource,
}

/// The base URL of a server, without a final slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress(String);

/// `client.toml`, which `svc login` writes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientFile {
    server: Option<String>,
    token: Option<String>,
    /// The id of the token if a login made it, so that the next login can delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_id: Option<TokenId>,
    #[serde(default, skip_serializing_if = "EventDefaults::is_unset")]
    event: EventDefaults,
}

/// A token to save for later commands.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginToken {
    pub text: String,
    /// Its id if the login made it; `None` if the user gave it.
    pub made: Option<TokenId>,
}

/// A login that was saved.
pub struct SavedLogin {
    pub path: PathBuf,
    /// The token that an earlier login to the same server made, and that is in no file any more.
    pub replaced: Option<(TokenId, String)>,
}

/// The table `event` of `client.toml`: defaults of `svc event`, which only the user writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventDefaults {
    /// Keep events that no server takes for now, as `--spool` does.
    #[serde(default)]
    pub spool: bool,
}

impl EventDefaults {
    /// The defaults that the user's `client.toml` sets.
    ///
    /// # Errors
    ///
    /// Fails if the file exists and cannot be read.
    pub fn find(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let saved = client_file(environment).map(|path| read_client_file(&path)).transpose()?.flatten();
        Ok(saved.map(|file| file.event).unwrap_or_default())
    }

    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

impl Access {
    /// Looks at the flags, the environment and the files, in this order; at the files only for what is still missing.
    ///
    /// # Errors
    ///
    /// Fails if an address is malformed, or an existing file cannot be read.
    pub fn find(flags: &AccessFlags, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let set = |name| environment(name).filter(|value| !value.is_empty());
        let named = flags.server.clone().or_else(|| set("SVC_SERVER"));
        let has_token = flags.token.is_some() || set("SVC_TOKEN").is_some();
        let saved = match client_file(environment) {
            Some(path) if named.is_none() || !has_token => read_client_file(&path)?.map(|found| (path, found)),
            _ => None,
        };
        let server = match named {
            Some(named) => named.parse()?,
            None => saved_server(saved.as_ref().map(|(_, found)| found))?,
        };
        let (token, source) = if let Some(token) = flags.token.clone() {
            (Some(token), TokenSource::Flag)
        } else if let Some(token) = set("SVC_TOKEN") {
            (Some(token), TokenSource::Environment)
        } else if let Some(found) = token_in_files(&server, saved, environment)? {
            found
        } else {
            (None, TokenSource::None)
        };
        Ok(Self { server, token: token.map(|token| token.trim().to_owned()), source })
    }

    /// The server to log in to: the one that is named, or that `client.toml` names, or the default. `note` gets a line
    /// about a file that cannot be read, which the login replaces.
    ///
    /// # Errors
    ///
    /// Fails if the address is malformed.
    pub fn find_server(
        flag: Option<&str>,
        environment: &dyn Fn(&str) -> Option<String>,
        note: &mut dyn FnMut(&str),
    ) -> Result<ServerAddress, Failure> {
        let path = client_file(environment);
        let saved = path.as_ref().map_or(Ok(None), |path| read_client_file(path));
        let named = flag.map(str::to_owned).or_else(|| environment("SVC_SERVER").filter(|value| !value.is_empty()));
        let server = match named {
            Some(named) => named.parse()?,
            None => saved_server(saved.as_ref().ok().and_then(Option::as_ref))?,
        };
        if let (Err(_), Some(path)) = (&saved, path) {
            let path = path.display();
            note(&format!("{path} cannot be read: this login, to {server}, replaces it and all its settings"));
        }
        Ok(server)
    }

    /// Returns true if this is the default server and no token was found.
    pub fn is_default(&self, environment: &dyn Fn(&str) -> Option<String>) -> bool {
        let named = environment("SVC_SERVER").is_some_and(|server| !server.is_empty());
        self.source == TokenSource::None && !named && self.server.0 == DEFAULT_SERVER
    }
}

fn saved_server(saved: Option<&ClientFile>) -> Result<ServerAddress, Failure> {
    saved.and_then(|found| found.server.as_deref()).unwrap_or(DEFAULT_SERVER).parse()
}

/// The token kept for `server`, and the file it is kept in.
fn token_in_files(
    server: &ServerAddress,
    saved: Option<(PathBuf, ClientFile)>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<(Option<String>, TokenSource)>, Failure> {
    if let Some((path, ClientFile { server: Some(its), token: Some(token), .. })) = saved
        && its.parse::<ServerAddress>()? == *server
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
        // Another user's server, whose files are private.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(source) => Err(Failure::File { path, source }),
    }
}

/// Saves a server and its token for later commands, readable by this user alone.
///
/// # Errors
///
/// Fails without a home directory, or if the file cannot be written.
pub fn save_login(
    server: &ServerAddress,
    token: &LoginToken,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<SavedLogin, Failure> {
    let path = client_file(environment)
        .ok_or_else(|| Failure::Bad("no home directory to write client.toml in: set HOME".to_owned()))?;
    // An unreadable file is what a new login mends.
    let before = read_client_file(&path).ok().flatten();
    let event = before.as_ref().map(|file| file.event).unwrap_or_default();
    let former = before.and_then(|file| {
        let is_here = file.server?.parse::<ServerAddress>().is_ok_and(|its| its == *server);
        Some((file.token_id?, file.token?)).filter(|_| is_here)
    });
    let (kept, replaced) = match former {
        Some((id, text)) if text == token.text => (Some(id), None),
        former => (token.made, former),
    };
    let login = ClientFile { server: Some(server.to_string()), token: Some(token.text.clone()), token_id: kept, event };
    let text = toml::to_string(&login).expect("strings and a table are TOML");
    write_private(&path, &text).map_err(|source| Failure::File { path: path.clone(), source })?;
    Ok(SavedLogin { path, replaced })
}

/// `$XDG_CONFIG_HOME/svc/client.toml`, or `~/.config/svc/client.toml`.
fn client_file(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Some(set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?.join("svc/client.toml"))
}

fn read_client_file(path: &Path) -> Result<Option<ClientFile>, Failure> {
    let malformed = |why: String| Failure::Malformed {
        path: path.to_owned(),
        why: format!("{why}; write it anew with `svc login`"),
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(malformed("it is not UTF-8".to_owned()));
        }
        Err(source) => return Err(Failure::File { path: path.to_owned(), source }),
    };
    let file: ClientFile = toml_input::parse(&text).map_err(|error| malformed(error.to_string()))?;
    match &file {
        ClientFile { server: None, token: Some(_), .. } => {
            Err(malformed("`token` without `server`: it would go to any server".to_owned()))
        }
        ClientFile { server: Some(server), .. } => match server.parse::<ServerAddress>() {
            Ok(_) => Ok(Some(file)),
            Err(failure) => Err(malformed(format!("`server`: {failure}"))),
        },
        ClientFile { .. } => Ok(Some(file)),
    }
}

/// Writes through a new file: the secret is never readable by others, and a crash leaves the old file whole.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report; the draft may be gone already.
        let _ = std::fs::remove_file(&draft);
    }
    written
}

impl ServerAddress {
    /// The URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// The host and port to connect to.
    pub fn authority(&self) -> Option<(String, u16)> {
        let uri = self.0.parse::<Uri>().ok()?;
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        Some((uri.host()?.trim_matches(['[', ']']).to_owned(), port))
    }

    /// Returns true if it runs on this machine: then no proxy is used, and its token file is readable.
    pub fn is_local(&self) -> bool {
        let host = self.0.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl std::str::FromStr for ServerAddress {
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

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Access {
    /// Omits the token: it is a secret, and this is printed by tests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("server", &self.server).field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A home directory with the client's and the server's folders.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(home.path().join(".local/share/svc")).unwrap();
            std::fs::create_dir_all(home.path().join(".config/svc")).unwrap();
            Self(home)
        }

        fn environment(&self, more: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
            let home = self.0.path().to_str().unwrap().to_owned();
            move |name| match name {
                "HOME" => Some(home.clone()),
                _ => more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
            }
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::write(self.0.path().join(path), text).unwrap();
        }
    }

    fn flags(server: Option<&str>, token: Option<&str>) -> AccessFlags {
        AccessFlags { server: server.map(str::to_owned), token: token.map(str::to_owned) }
    }

    fn found(home: &Home, flags: &AccessFlags, more: &'static [(&str, &str)]) -> (String, Option<String>) {
        let access = Access::find(flags, &home.environment(more)).unwrap();
        (access.server.to_string(), access.token)
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_files() {
        let home = Home::new();
        let pair = |server: &str, token: &str| (server.to_owned(), Some(token.to_owned()));
        assert_eq!(found(&home, &AccessFlags::default(), &[]), (DEFAULT_SERVER.to_owned(), None));
        home.write(".local/share/svc/admin.token", "svc_local\n");
        assert_eq!(found(&home, &AccessFlags::default(), &[]), pair(DEFAULT_SERVER, "svc_local"));
        home.write(".config/svc/client.toml", "server = \"https://svc.example\"\ntoken = \"svc_file\"\n");
        assert_eq!(found(&home, &AccessFlags::default(), &[]), pair("https://svc.example", "svc_file"));
        let environment = &[("SVC_SERVER", "https://env.example/"), ("SVC_TOKEN", "svc_env")];
        assert_eq!(found(&home, &AccessFlags::default(), environment), pair("https://env.example", "svc_env"));
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
        let dir = home.0.path().to_str().unwrap().to_owned();
        let environment = move |name: &str| (name == "SVC_DATA").then(|| dir.clone());
        let access = Access::find(&AccessFlags::default(), &environment).unwrap();
        assert_eq!(access.token.as_deref(), Some("svc_moved"));
    }

    #[test]
    fn a_saved_login_is_found_again_and_is_private() {
        let home = Home::new();
        let server: ServerAddress = "https://svc.example".parse().unwrap();
        for token in ["svc_first", "svc_second"] {
            let path = save_login(&server, &given(token), &home.environment(&[])).unwrap().path;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            let expected = ("https://svc.example".to_owned(), Some(token.to_owned()));
            assert_eq!(found(&home, &AccessFlags::default(), &[]), expected);
        }
    }

    fn given(token: &str) -> LoginToken {
        LoginToken { text: token.to_owned(), made: None }
    }

    #[test]
    fn a_saved_login_tells_which_token_of_a_login_it_replaces() {
        let home = Home::new();
        let (here, there) = ("https://svc.example".parse().unwrap(), "https://other.example".parse().unwrap());
        let save = |server, token: &LoginToken| save_login(server, token, &home.environment(&[])).unwrap().replaced;
        let made = |text: &str| LoginToken { text: text.to_owned(), made: Some(TokenId::new()) };
        let (first, second, third) = (made("svc_1"), made("svc_2"), made("svc_3"));
        assert_eq!(save(&here, &first), None);
        assert_eq!(save(&here, &second), Some((first.made.unwrap(), first.text)));
        assert_eq!(save(&here, &given("svc_2")), None, "it is the same token");
        assert_eq!(save(&here, &given("svc_own")), Some((second.made.unwrap(), second.text)));
        assert_eq!(save(&here, &third), None, "the user gave the one before");
        assert_eq!(save(&there, &given("svc_other")), None, "it belongs to another server");
    }

    #[test]
    fn a_login_keeps_the_settings_of_events_which_need_no_login() {
        let home = Home::new();
        assert_eq!(EventDefaults::find(&home.environment(&[])).unwrap(), EventDefaults { spool: false });
        home.write(".config/svc/client.toml", "[event]\nspool = true\n");
        assert_eq!(EventDefaults::find(&home.environment(&[])).unwrap(), EventDefaults { spool: true });
        assert_eq!(found(&home, &AccessFlags::default(), &[]).0, DEFAULT_SERVER);
        save_login(&"https://svc.example".parse().unwrap(), &given("svc_new"), &home.environment(&[])).unwrap();
        assert_eq!(EventDefaults::find(&home.environment(&[])).unwrap(), EventDefaults { spool: true });
        assert_eq!(found(&home, &AccessFlags::default(), &[]).1.as_deref(), Some("svc_new"));
    }

    #[test]
    fn a_token_in_the_client_file_needs_its_server() {
        let home = Home::new();
        home.write(".config/svc/client.toml", "token = \"svc_lost\"\n");
        let error = Access::find(&AccessFlags::default(), &home.environment(&[])).unwrap_err();
        assert!(error.to_string().contains("`token` without `server`"), "{error}");
    }

    #[test]
    fn a_client_file_with_an_unknown_key_is_an_error_that_names_the_file() {
        let home = Home::new();
        home.write(".config/svc/client.toml", "sever = \"https://svc.example\"\n");
        let error = Access::find(&AccessFlags::default(), &home.environment(&[])).unwrap_err();
        assert!(error.to_string().contains("client.toml") && error.to_string().contains("sever"), "{error}");
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn a_login_goes_to_the_server_that_is_named_or_else_to_the_default_if_the_client_file_is_broken() {
        let home = Home::new();
        let find = |flag: Option<&str>, more: &'static [(&str, &str)]| {
            let mut notes = Vec::new();
            let server = Access::find_server(flag, &home.environment(more), &mut |note| notes.push(note.to_owned()));
            (server.unwrap().to_string(), notes.len())
        };
        home.write(".config/svc/client.toml", "server = \"https://svc.example\"\n");
        assert_eq!(find(None, &[]), ("https://svc.example".to_owned(), 0));
        for broken in ["server = ", "server = \"ftp://a\"\n"] {
            home.write(".config/svc/client.toml", broken);
            assert_eq!(find(None, &[]), (DEFAULT_SERVER.to_owned(), 1));
            assert_eq!(find(None, &[("SVC_SERVER", "https://env.example")]), ("https://env.example".to_owned(), 1));
            assert_eq!(find(Some("https://a.example"), &[]), ("https://a.example".to_owned(), 1));
        }
    }

    #[test]
    fn a_malformed_address_is_bad_usage() {
        for bad in ["", "ftp://a", "http://", "a b", "http://a?x=1"] {
            assert_eq!(bad.parse::<ServerAddress>().unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
