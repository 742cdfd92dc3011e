//! `svc mcp config`: settings for MCP clients, ready to paste: the file each client reads, and the form of a server in
//! it.

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
use serde_json::{Value, json};
use std::{fmt, str::FromStr};

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

/// An MCP client program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpClientApp {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    VsCode,
    Zed,
    Windsurf,
    Gemini,
    Codex,
}

/// A server in a client's settings.
pub struct McpServerEntry<'a> {
    /// The client's name for the server.
    pub name: &'a str,
    pub url: &'a str,
    pub token: &'a str,
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

    /// The caller's own token, with a warning if it is not limited to MCP. A limited token may not ask who it belongs
    /// to.
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

impl McpClientApp {
    pub const ALL: [Self; 8] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Cursor,
        Self::VsCode,
        Self::Zed,
        Self::Windsurf,
        Self::Gemini,
        Self::Codex,
    ];

    /// The name used on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Zed => "zed",
            Self::Windsurf => "windsurf",
            Self::Gemini => "gemini",
            Self::Codex => "codex",
        }
    }

    /// The file of its settings.
    pub const fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".mcp.json of a project",
            Self::ClaudeDesktop => "claude_desktop_config.json (Settings, Developer, Edit Config)",
            Self::Cursor => "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
            Self::VsCode => ".vscode/mcp.json of a workspace",
            Self::Zed => "~/.config/zed/settings.json",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Self::Gemini => "~/.gemini/settings.json",
            Self::Codex => "~/.codex/config.toml",
        }
    }

    /// The text to put there.
    pub fn settings(self, entry: &McpServerEntry<'_>) -> String {
        let McpServerEntry { name, url, token } = entry;
        let bearer = format!("Bearer {token}");
        let headers = json!({ "Authorization": bearer });
        let under = |key: &str, server: Value| pretty(&json!({ key: { *name: server } }));
        match self {
            Self::ClaudeCode => under("mcpServers", json!({"type": "http", "url": url, "headers": headers})),
            Self::ClaudeDesktop => under("mcpServers", bridged(url, &bearer)),
            Self::Cursor => under("mcpServers", json!({"url": url, "headers": headers})),
            Self::VsCode => under("servers", json!({"type": "http", "url": url, "headers": headers})),
            Self::Zed => under("context_servers", json!({"url": url, "headers": headers})),
            Self::Windsurf => under("mcpServers", json!({"serverUrl": url, "headers": headers})),
            Self::Gemini => under("mcpServers", json!({"httpUrl": url, "headers": headers})),
            Self::Codex => {
                let quoted = |text: &str| toml::Value::from(text).to_string();
                let header = quoted(&bearer);
                let (name, url) = (quoted(name), quoted(url));
                format!("[mcp_servers.{name}]\nurl = {url}\nhttp_headers = {{ Authorization = {header} }}")
            }
        }
    }
}

/// A client that only starts programs reaches the server through `mcp-remote`. That splits arguments at spaces, so the
/// header comes from the environment.
fn bridged(url: &str, bearer: &str) -> Value {
    let mut args = vec!["-y", "mcp-remote", url, "--header", "Authorization:${AUTHORIZATION}"];
    if url.starts_with("http:") {
        args.push("--allow-http");
    }
    json!({"command": "npx", "args": args, "env": {"AUTHORIZATION": bearer}})
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("a value is JSON")
}

impl FromStr for McpClientApp {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|app| app.as_str() == word);
        found.ok_or_else(|| format!("no client known as `{word}`; there are {}", known()))
    }
}

impl fmt::Display for McpClientApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_every_client_hold_the_address_and_the_token() {
        let entry = McpServerEntry { name: "svc", url: "https://svc.example/mcp", token: "svc_x" };
        for app in McpClientApp::ALL {
            assert_eq!(app.as_str().parse(), Ok(app));
            let text = app.settings(&entry);
            assert!(text.contains("https://svc.example/mcp") && text.contains("Bearer svc_x"), "{app}: {text}");
            assert!(!text.contains("--allow-http"));
            match app {
                McpClientApp::Codex => assert!(text.parse::<toml::Table>().is_ok(), "{text}"),
                _ => assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}"),
            }
        }
        assert!("emacs".parse::<McpClientApp>().unwrap_err().contains("claude-code, claude-desktop, cursor"));
    }

    #[test]
    fn a_server_without_tls_is_allowed_explicitly() {
        let entry = McpServerEntry { name: "svc", url: "http://127.0.0.1:7300/mcp", token: "svc_x" };
        assert!(McpClientApp::ClaudeDesktop.settings(&entry).contains("--allow-http"));
    }
}
