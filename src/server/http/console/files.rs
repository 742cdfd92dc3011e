//! The files of the console, embedded into the program.

use std::path::{Component, Path};

/// A file under `web/`.
pub struct ConsoleFile {
    pub path: &'static str,
    pub bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal)*) => {
        &[$(ConsoleFile { path: $path, bytes: include_bytes!(concat!("web/", $path)) }),*]
    };
}

/// Every file of the console. A test compares the list with the directory.
pub const FILES: &[ConsoleFile] = files! {
    "core/api.js"
    "core/format.js"
    "core/html.js"
    "core/json.js"
    "core/keyboard.js"
    "core/live.js"
    "core/load.js"
    "core/lua_check.js"
    "core/lua_scope.js"
    "core/resource.js"
    "core/router.js"
    "core/routes.js"
    "core/session.js"
    "core/sink_draft.js"
    "core/theme.js"
    "core/toml.js"
    "core/typed.js"
    "icon.svg"
    "index.html"
    "main.js"
    "parts/agent_token.js"
    "parts/attempt.js"
    "parts/basics.js"
    "parts/charts.js"
    "parts/dead_letters.js"
    "parts/dialogs.js"
    "parts/editor.js"
    "parts/emit_dialog.js"
    "parts/forms.js"
    "parts/icons.js"
    "parts/layout.js"
    "parts/leaving.js"
    "parts/managed_queues.js"
    "parts/picker.js"
    "parts/preview.js"
    "parts/replay.js"
    "parts/rotate_secret.js"
    "parts/sample.js"
    "parts/schema_form.js"
    "parts/sequence.js"
    "parts/sink_state.js"
    "parts/sink_test.js"
    "parts/source_letters.js"
    "parts/subscription_table.js"
    "parts/table.js"
    "parts/tail.js"
    "parts/template_editor.js"
    "parts/use_as_sample.js"
    "style/base.css"
    "style/layout.css"
    "style/parts.css"
    "style/views.css"
    "vendor/LICENCES.txt"
    "vendor/editor.js"
    "vendor/manifest.json"
    "vendor/preact.js"
    "vendor/uplot.css"
    "vendor/uplot.js"
    "views/account.js"
    "views/audit.js"
    "views/event.js"
    "views/events.js"
    "views/groups.js"
    "views/login.js"
    "views/mcp.js"
    "views/method.js"
    "views/methods.js"
    "views/overview.js"
    "views/panels.js"
    "views/roles.js"
    "views/script.js"
    "views/scripts.js"
    "views/sink.js"
    "views/sink_form.js"
    "views/sinks.js"
    "views/source.js"
    "views/source_form.js"
    "views/sources.js"
    "views/space.js"
    "views/spaces.js"
    "views/subscription.js"
    "views/subscriptions.js"
    "views/tokens.js"
    "views/user.js"
    "views/users.js"
};

pub fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

/// The bytes of a file in the directory that `CONSOLE_FILES` names, for work on the console without a build. Only debug builds
/// read it.
pub async fn from_disk(path: &str) -> Option<Vec<u8>> {
    if !cfg!(debug_assertions) || !is_plain(path) {
        return None;
    }
    let directory = std::env::var_os("CONSOLE_FILES")?;
    tokio::fs::read(Path::new(&directory).join(path)).await.ok()
}

/// Tells if a path stays below the directory it is joined to.
pub fn is_plain(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
