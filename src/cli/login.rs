//! `svc login`: gets a token of its own from the server, and keeps it for the commands to come.
//!
//! The password is used once, for a session that makes the token, and then forgotten.

use super::{
    access::{self, Access, Flags, Server, TokenSource},
    api::{self, WhoAmI},
    client::Client,
    failure::Failure,
    named::Kind,
    payload::Source,
    shell::Shell,
    user::Password,
};
use serde_json::json;

/// Log in to a server, and keep a token for it in ~/.config/svc/client.toml.
#[derive(argh::FromArgs, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "login",
    help_triggers("-h", "--help"),
    example = "{command_name} --server https://svc.example.com --name ada\n\
               {command_name} --server https://svc.example.com --token - < token.txt"
)]
pub struct Login {
    /// the server, such as https://svc.example.com (otherwise SVC_SERVER, or the one kept before)
    #[argh(option, arg_name = "url")]
    server: Option<String>,

    /// your user name; asked for if left out
    #[argh(option)]
    name: Option<String>,

    /// read the password from the first line of stdin
    #[argh(switch)]
    password_stdin: bool,

    /// keep this token instead of getting a new one with a password; - reads it from stdin
    #[argh(option)]
    token: Option<String>,
}

impl Login {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let flags = Flags { server: self.server.clone(), token: None };
        let server = Access::find(&flags, shell.environment)?.server;
        let token = match &self.token {
            Some(_) if self.name.is_some() || self.password_stdin => {
                return Err(Failure::Usage("--token needs no name and no password: use one or the other".to_owned()));
            }
            Some(token) => match Source::of_argument(Some(token)) {
                Source::Stdin => shell.read_input()?.trim().to_owned(),
                _ => token.clone(),
            },
            None => self.exchange_password(shell, &server)?,
        };
        // Shown to the server before it is kept: a token that does not work is not worth keeping.
        let access = Access { server, token: Some(token.clone()), source: TokenSource::Flag };
        let client = Client::new(access)?;
        let me: WhoAmI = client.read(&client.get("/api/whoami")?)?;
        let path = access::remember(client.server(), &token, shell.environment)?;
        shell.out.line(&format!("logged in to {} as {}; kept in {}", client.server(), me.name, path.display()))
    }

    /// Trades the user's password for a token.
    fn exchange_password(&self, shell: &mut Shell<'_>, server: &Server) -> Result<String, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => shell.ask("Name", "no terminal to ask for a name at: use --name and --password-stdin")?,
        };
        let source = if self.password_stdin { Password::Stdin } else { Password::Asked };
        let password = source.read(shell, "Password")?.unwrap_or_default();
        let mut client = Client::new(Access { server: server.clone(), token: None, source: TokenSource::None })?;
        client.log_in(&name, &password)?;
        let answer = client.post(Kind::Token.path(), &json!({ "name": token_name() }))?;
        let token: api::Token = client.read(&answer)?;
        // The token is made; a session that cannot be ended runs out by itself.
        if client.post("/api/auth/logout", &json!({})).is_err() {
            shell.note("the login session could not be ended; it will expire");
        }
        token.token.ok_or_else(|| Failure::Foreign { server: server.to_string(), why: "no token in it".to_owned() })
    }
}

/// Names the token after this machine and moment, so that its owner can tell it from others and logging in
/// twice makes two.
fn token_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "unknown host" } else { host.trim() };
    format!("svc login on {host} at {}", super::time::brief(crate::model::timestamp::Timestamp::now()))
}
