//! How each of the common MCP clients wants to be told of a server: where, and in which words.

use serde_json::{Value, json};
use std::{fmt, str::FromStr};

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    VsCode,
    Zed,
    Windsurf,
    Gemini,
    Codex,
}

/// What goes into a client's settings.
pub struct Entry<'a> {
    /// What the client calls the server.
    pub name: &'a str,
    pub url: &'a str,
    pub token: &'a str,
}

impl Target {
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

    /// The word for it on the command line.
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

    /// Where its settings are.
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

    /// What to put there.
    pub fn settings(self, entry: &Entry<'_>) -> String {
        let Entry { name, url, token } = entry;
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

/// It starts programs only, so that one stands in between. That cuts arguments at spaces, and takes the header from the
/// environment therefore.
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

impl FromStr for Target {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|target| target.as_str() == word);
        found.ok_or_else(|| format!("no client known as `{word}`; there are {}", known()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_told_the_address_and_the_token() {
        let entry = Entry { name: "svc", url: "https://svc.example/mcp", token: "svc_x" };
        for target in Target::ALL {
            assert_eq!(target.as_str().parse(), Ok(target));
            let text = target.settings(&entry);
            assert!(text.contains("https://svc.example/mcp") && text.contains("Bearer svc_x"), "{target}: {text}");
            assert!(!text.contains("--allow-http"));
            match target {
                Target::Codex => assert!(text.parse::<toml::Table>().is_ok(), "{text}"),
                _ => assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}"),
            }
        }
        assert!("emacs".parse::<Target>().unwrap_err().contains("claude-code, claude-desktop, cursor"));
    }

    #[test]
    fn the_program_in_between_is_allowed_to_go_without_encryption_where_there_is_none() {
        let entry = Entry { name: "svc", url: "http://127.0.0.1:7300/mcp", token: "svc_x" };
        assert!(Target::ClaudeDesktop.settings(&entry).contains("--allow-http"));
    }
}
