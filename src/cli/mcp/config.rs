//! `svc mcp config`: settings for MCP clients, ready to paste.

use super::clients::{McpClientApp, McpServerEntry};
use crate::{
    cli::{
        client::Client,
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
    },
    model::{
        api::identity::{IssuedToken, NewToken, WhoamiView},
        permission::TokenScope,
    },
};
use serde_json::json;

client_command! {
    /// Print settings for an MCP client: the server's address and a token.
    #[argh(
        example = "{command_name}\n{command_name} cursor --new-token cursor\n{command_name} vscode > .vscode/mcp.json",
        note = "The token is the one this command runs with; with --new-token it is one that reaches nothing but /mcp."
    )]
    PrintMcpConfig = "config" {
        /// claude-code, claude-desktop, cursor, vscode, zed, windsurf, gemini or codex; all of them, if left out
        #[argh(positional, arg_name = "client")]
        app: Option<McpClientApp>,

        /// the client's name for the server (default: svc)
        #[argh(option, default = "String::from(\"svc\")")]
        name: String,

        /// make a token of this name, limited to MCP, and use that
        #[argh(option, arg_name = "name")]
        new_token: Option<String>,
    }
}

impl PrintMcpConfig {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let own = client.token().ok_or_else(|| {
            Failure::Usage("there is no token to give to a client: `svc login` first, or pass --token".to_owned())
        })?;
        // Fails early for a caller who may not use MCP: no settings that cannot work, and no useless token.
        client.call_mcp("tools/list", json!({}))?;
        let token = match &self.new_token {
            Some(name) => self.make_token(shell, &client, name)?,
            None => self.warn_about(shell, &client, own),
        };
        let url = client.server().url("/mcp");
        let entry = McpServerEntry { name: &self.name, url: &url, token: &token };
        if self.format() == OutputFormat::Json {
            let targets = self.app.map_or_else(|| McpClientApp::ALL.to_vec(), |app| vec![app]);
            let clients = targets
                .into_iter()
                .map(|app| json!({"client": app.as_str(), "place": app.place(), "settings": app.settings(&entry)}));
            let all = json!({
                "url": url, "headers": {"Authorization": format!("Bearer {token}")},
                "clients": clients.collect::<Vec<_>>(),
            });
            return shell.out.json(&all.to_string());
        }
        if let Some(app) = self.app {
            // Alone on stdout, so that it can go into a file.
            shell.out.line(&app.settings(&entry))?;
            shell.note(&format!("this goes into {}", app.place()));
            return Ok(());
        }
        for (index, app) in McpClientApp::ALL.into_iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            shell.out.line(&format!("{gap}# {app}: {}\n{}", app.place(), app.settings(&entry)))?;
        }
        Ok(())
    }

    fn make_token(&self, shell: &mut Shell<'_>, client: &Client, name: &str) -> Result<String, Failure> {
        let new = NewToken { name: name.to_owned(), scopes: vec![TokenScope::Mcp], expires_at: None };
        let issued: IssuedToken = client.read(&client.post(ResourceKind::TOKEN.path, &new)?)?;
        self.note(shell, &format!("created token `{}`, which reaches /mcp and nothing else", issued.record.name));
        Ok(issued.token)
    }

    /// The caller's own token, with a warning if it is not limited to MCP. A limited token may not ask who it belongs to.
    fn warn_about(&self, shell: &mut Shell<'_>, client: &Client, own: &str) -> String {
        let unlimited = client.get("/api/whoami").and_then(|answer| client.read::<WhoamiView>(&answer));
        if unlimited.is_ok_and(|me| me.scopes.is_empty()) {
            self.note(shell, "this token may do all that you may: --new-token NAME makes one that reaches /mcp only");
        }
        own.to_owned()
    }

    /// Prints a message, unless the output is JSON for a program.
    fn note(&self, shell: &mut Shell<'_>, line: &str) {
        if self.format() == OutputFormat::Text {
            shell.note(line);
        }
    }
}
