//! `svc restore`: makes a data directory from a backup.

use super::{
    arguments::brief,
    backup::print_kinds,
    failure::Failure,
    progress::ProgressBar,
    shell::{OutputFormat, Shell},
};
use crate::platform::archive::restore::{ExistingDatabase, RestoreProgress, Restored, restore};
use serde_json::json;
use std::path::PathBuf;

local_command! {
    /// Make a data directory from a backup. No server may be running on it.
    #[argh(
        example = "{command_name} svc.backup --data ./data\n{command_name} svc.backup --data ./data --force --json",
        note = "The database is built aside, and appears in its place when the whole backup was read and found right."
    )]
    RestoreCommand = "restore" {
        /// the backup
        #[argh(positional)]
        file: PathBuf,

        /// the data directory
        #[argh(option, arg_name = "dir")]
        data: PathBuf,

        /// replace the database in the directory, which is kept beside the new one
        #[argh(switch)]
        force: bool,
    }
}

impl RestoreCommand {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let existing = if self.force { ExistingDatabase::Replace } else { ExistingDatabase::Refuse };
        let mut bar = ProgressBar::new("restore");
        let restored = restore(&self.file, &self.data, existing, &mut |RestoreProgress { bytes, of, rows }| {
            bar.update(shell, bytes, of, rows);
        });
        bar.clear(shell);
        let Restored { manifest, end, previous } = restored.map_err(|error| Failure::Bad(error.to_string()))?;
        let data = self.data.display().to_string();
        if self.format() == OutputFormat::Json {
            let report = json!({"data": data, "manifest": manifest, "end": end, "previous": previous});
            return shell.out.json(&report.to_string());
        }
        shell.out.line(&format!(
            "{data}: {} records restored, as of {}; start it with `svc server --data {data}`",
            end.rows,
            brief(manifest.created_at),
        ))?;
        if let Some(previous) = previous {
            shell.out.line(&format!("the database of before is kept as {}", self.data.join(previous).display()))?;
        }
        print_kinds(shell, &end)
    }
}
