//! `svc mcp config`: settings for MCP clients, ready to paste.

use super::clients::{Entry, Target};
use crate::cli::{
    api,
    client::Client,
    failure::Failure,
    shell::{Form, Shell},
};
use serde_json::json;

client_command! {
    /// Print what to put into the settings of an MCP client: the server's address and a token.
    #[argh(
        example = "{command_name}\n{command_name} cursor --new-token cursor\n{command_name} vscode > .vscode/mcp.json",
        note = "The token is the one this command runs with; with --new-token it is one that reaches nothing but /mcp."
    )]
    Config = "config" {
        /// claude-code, claude-desktop, cursor, vscode, zed, windsurf, gemini or codex; all of them, if left out
        #[argh(positional, arg_name = "client")]
        target: Option<Target>,

        /// what the client calls the server (default: svc)
        #[argh(option, default = "String::from(\"svc\")")]
        name: String,

        /// make a token of this name, limited to MCP, and use that
        #[argh(option, arg_name = "name")]
        new_token: Option<String>,
    }
}

impl Config {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let own = client.token().ok_or_else(|| {
            Failure::Usage("there is no token to give to a client: `svc login` first, or pass --token".to_owned())
        })?;
        // Settings that cannot work are none; and a token for somebody who may not use it is better not made.
        client.ask_mcp("tools/list", json!({}))?;
        let token = match &self.new_token {
            Some(name) => self.make_token(shell, &client, name)?,
            None => self.warn_of(shell, &client, own),
        };
        let url = client.server().route("/mcp");
        let entry = Entry { name: &self.name, url: &url, token: &token };
        if self.form() == Form::Json {
            let targets = self.target.map_or_else(|| Target::ALL.to_vec(), |target| vec![target]);
            let clients = targets.into_iter().map(|target| {
                json!({"client": target.as_str(), "place": target.place(), "settings": target.settings(&entry)})
            });
            let all = json!({
                "url": url, "headers": {"Authorization": format!("Bearer {token}")},
                "clients": clients.collect::<Vec<_>>(),
            });
            return shell.out.json(&all.to_string());
        }
        if let Some(target) = self.target {
            // Alone on stdout, so that it can go into a file.
            shell.out.line(&target.settings(&entry))?;
            shell.note(&format!("this goes into {}", target.place()));
            return Ok(());
        }
        for (index, target) in Target::ALL.into_iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            shell.out.line(&format!("{gap}# {target}: {}\n{}", target.place(), target.settings(&entry)))?;
        }
        Ok(())
    }

    fn make_token(&self, shell: &mut Shell<'_>, client: &Client, name: &str) -> Result<String, Failure> {
        let answer = client.post("/api/tokens", &json!({"name": name, "scopes": ["mcp"]}))?;
        let made: api::Token = client.read(&answer)?;
        self.note(shell, &format!("created token `{}`, which reaches /mcp and nothing else", made.name));
        Ok(made.token.unwrap_or_default())
    }

    /// Gives the token that the user has, with a warning if it may do more than it should. One that is limited to MCP
    /// cannot even ask for that.
    fn warn_of(&self, shell: &mut Shell<'_>, client: &Client, own: &str) -> String {
        let unlimited = client.get("/api/whoami").and_then(|answer| client.read::<api::WhoAmI>(&answer));
        if unlimited.is_ok_and(|me| me.scopes.is_empty()) {
            self.note(shell, "this token may do all that you may: --new-token NAME makes one that reaches /mcp only");
        }
        own.to_owned()
    }

    /// For people: programs asked for JSON and nothing else.
    fn note(&self, shell: &mut Shell<'_>, line: &str) {
        if self.form() == Form::Text {
            shell.note(line);
        }
    }
}
