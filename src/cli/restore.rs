//! `svc restore`: makes a data directory from a backup.

use super::{
    arguments::brief,
    backup::print_kinds,
    failure::Failure,
    progress::ProgressBar,
    shell::{OutputFormat, Shell},
};
use crate::platform::archive::restore::{ExistingDatabase, RestoreStep, Restored, restore};
use serde_json::json;
use std::path::PathBuf;

local_command! {
    /// Make a data directory from a backup. No server may be running on it.
    #[argh(
        example = "{command_name} svc.backup --data ./data\n{command_name} svc.backup --data ./data --force --json",
        note = "The whole backup is checked before anything is written, and the database appears in its place when it is \
                whole."
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
        let (mut checking, mut writing) = (ProgressBar::new("check"), ProgressBar::new("restore"));
        let restored = restore(&self.file, &self.data, existing, &mut |step| match step {
            RestoreStep::Checking { bytes, of, rows } => checking.update(shell, bytes, of, rows),
            RestoreStep::Writing { bytes, of, rows } => writing.update(shell, bytes, of, rows),
        });
        writing.clear(shell);
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
