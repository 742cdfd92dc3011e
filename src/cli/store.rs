//! `svc store`: work on the database of a server that is not running.

use super::{
    failure::Failure,
    progress::{ProgressBar, readable_bytes},
    shell::{OutputFormat, Shell},
};
use crate::platform::store::{Compaction, compact_offline};
use serde_json::json;
use std::path::PathBuf;

command_family! {
    /// Check, salvage or compact the database of a server that is not running.
    #[argh(example = "{command_name} compact --data ./data")]
    StoreCommand(StoreSubcommand) = "store" { CompactStore }
}

local_command! {
    /// Rewrite the database so that it takes only the space it needs.
    #[argh(
        example = "{command_name} --data ./data",
        note = "The server does this by itself at start when the database takes several times what it holds."
    )]
    CompactStore = "compact" {
        /// the data directory
        #[argh(option, arg_name = "dir")]
        data: PathBuf,
    }
}

impl CompactStore {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut bar = ProgressBar::new("compact");
        let compacted = compact_offline(&self.data, &mut |rows| bar.update(shell, 0, 0, rows));
        bar.clear(shell);
        let Compaction { before, after, rows } = compacted.map_err(|error| Failure::Bad(error.to_string()))?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&json!({"before": before, "after": after, "rows": rows}).to_string());
        }
        let (before, after) = (readable_bytes(before), readable_bytes(after));
        shell.out.line(&format!("{}: {before} before, {after} now", self.data.display()))
    }
}
