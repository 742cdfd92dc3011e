//! `svc login` gets a token from the server and saves it for later commands; `svc whoami` shows the caller.
//!
//! The password is used once, for a session that makes the token, and is not kept. A token that a login made is deleted
//! by the next login to the same server that replaces it; one that the user gave is left alone.

use super::{
    access::{self, Access, LoginToken, ServerAddress},
    arguments::{PasswordSource, PayloadSource, brief},
    client::Client,
    failure::{Failure, TokenSource},
    resource::{ResourceKind, joined},
    shell::{OutputFormat, Shell},
    table::TextTable,
};
use crate::model::{
    api::identity::{IssuedToken, NewToken, WhoamiView},
    timestamp::Timestamp,
};
use serde_json::json;

/// Log in to a server, and save a token for it in ~/.config/svc/client.toml.
#[derive(argh::FromArgs, argh::ArgsInfo, Clone, Debug, PartialEq)]
#[argh(
    subcommand,
    name = "login",
    help_triggers("-h", "--help"),
    example = "{command_name} --server https://svc.example.com --name ada\n\
               {command_name} --server https://svc.example.com --token - < token.txt",
    note = "The token of an earlier login to the same server is deleted. One that was given with --token is not."
)]
pub struct LoginCommand {
    /// the server, such as https://svc.example.com (otherwise SVC_SERVER, or the one saved before)
    #[argh(option, arg_name = "url")]
    server: Option<String>,

    /// your user name; asked for if left out
    #[argh(option)]
    name: Option<String>,

    /// read the password from the first line of stdin
    #[argh(switch)]
    password_stdin: bool,

    /// save this token instead of getting a new one with a password; - reads it from stdin
    #[argh(option)]
    token: Option<String>,
}

client_command! {
    /// Show your user on the server and its permissions.
    #[argh(example = "{command_name}")]
    WhoamiCommand = "whoami" {}
}

impl LoginCommand {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let environment = shell.environment;
        let server = Access::find_server(self.server.as_deref(), environment, &mut |line| shell.note(line))?;
        let token = match &self.token {
            Some(_) if self.name.is_some() || self.password_stdin => {
                return Err(Failure::Usage("--token needs no name and no password: use one or the other".to_owned()));
            }
            Some(token) => {
                let text = match PayloadSource::of_argument(Some(token)) {
                    PayloadSource::Stdin => shell.read_input()?.trim().to_owned(),
                    _ => token.clone(),
                };
                LoginToken { text, made: None }
            }
            None => self.exchange_password(shell, &server)?,
        };
        // The token is tried before it is saved: one that does not work is useless.
        let client = client_with(&server, &token.text)?;
        let me: WhoamiView = client.read(&client.get("/api/whoami")?)?;
        let saved = access::save_login(client.server(), &token, environment)?;
        if let Some((id, former)) = saved.replaced {
            // Best effort: the token may have expired, or have been deleted by its user.
            let _ = client_with(&server, &former).and_then(|client| client.delete(&ResourceKind::TOKEN.path_of_id(id)));
        }
        shell.out.line(&format!("logged in to {server} as {}; kept in {}", me.name, saved.path.display()))
    }

    /// Makes a token with the user's password.
    fn exchange_password(&self, shell: &mut Shell<'_>, server: &ServerAddress) -> Result<LoginToken, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => shell.ask("Name", "no terminal to ask for a name at: use --name and --password-stdin")?,
        };
        let source = if self.password_stdin { PasswordSource::Stdin } else { PasswordSource::Asked };
        let password = source.read(shell, "Password")?.unwrap_or_default();
        let mut client = Client::new(Access { server: server.clone(), token: None, source: TokenSource::None })?;
        client.log_in(&name, &password)?;
        let new = NewToken { name: token_name(), scopes: Vec::new(), expires_at: None };
        let issued: IssuedToken = client.read(&client.post(ResourceKind::TOKEN.path, &new)?)?;
        // A session that cannot be ended expires.
        if client.post("/api/auth/logout", &json!({})).is_err() {
            shell.note("the login session could not be ended; it will expire");
        }
        Ok(LoginToken { text: issued.token, made: Some(issued.record.id) })
    }
}

impl WhoamiCommand {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get("/api/whoami")?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let me: WhoamiView = client.read(&answer)?;
        let mut table = TextTable::of_fields();
        table.field("server", client.server().to_string());
        table.field("name", me.name.to_string());
        table.field("id", me.id.to_string());
        table.field("via", me.via);
        table.field("scopes", joined(me.scopes));
        table.field("roles", joined(me.roles.iter().map(|role| &role.name)));
        table.field("groups", joined(me.groups.iter().map(|group| &group.name)));
        table.field("permissions", joined(me.permissions));
        shell.out.table(&table)
    }
}

fn client_with(server: &ServerAddress, token: &str) -> Result<Client, Failure> {
    Client::new(Access { server: server.clone(), token: Some(token.to_owned()), source: TokenSource::Flag })
}

/// A name with this machine and moment, so that the owner can tell tokens apart and two logins make two tokens.
fn token_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "unknown host" } else { host.trim() };
    format!("svc login on {host} at {}", brief(Timestamp::now()))
}
