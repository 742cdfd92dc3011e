//! `svc backup verify`: reads a whole archive and checks it.

use super::print_kinds;
use crate::{
    cli::{
        arguments::brief,
        failure::Failure,
        progress::{ProgressBar, readable_bytes},
        shell::{OutputFormat, Shell},
    },
    platform::archive::{ArchiveError, ArchiveReader},
};
use serde_json::json;
use std::{fs::File, path::PathBuf};

local_command! {
    /// Check that a backup is whole and readable.
    #[argh(example = "{command_name} svc.backup\n{command_name} svc.backup --json")]
    VerifyBackup = "verify" {
        /// the backup
        #[argh(positional)]
        file: PathBuf,
    }
}

impl VerifyBackup {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let shown = self.file.display().to_string();
        let broken = |error: ArchiveError| Failure::Bad(format!("{shown}: {error}"));
        let file = File::open(&self.file).map_err(|source| Failure::File { path: self.file.clone(), source })?;
        let mut archive = ArchiveReader::new(file).map_err(broken)?;
        let mut bar = ProgressBar::new("verify");
        let total = archive.manifest().bytes_estimate;
        loop {
            let found = archive.next_record().map(|record| record.is_some());
            let (bytes, rows) = (archive.bytes(), archive.rows());
            match found {
                Ok(true) => bar.update(shell, bytes, total, rows),
                ended => {
                    bar.clear(shell);
                    ended.map_err(broken)?;
                    break;
                }
            }
        }
        let (manifest, bytes) = (archive.manifest(), archive.bytes());
        let end = archive.end().ok_or_else(|| broken(ArchiveError::Incomplete { rows: archive.rows() }))?;
        if self.format() == OutputFormat::Json {
            let report = json!({"file": shown, "whole": true, "bytes": bytes, "manifest": manifest, "end": end});
            return shell.out.json(&report.to_string());
        }
        let salvaged = if manifest.salvaged { ", salvaged" } else { "" };
        shell.out.line(&format!(
            "{shown} is whole: {} records, {} uncompressed, made {} by svc {}{salvaged}",
            end.rows,
            readable_bytes(bytes),
            brief(manifest.created_at),
            manifest.version,
        ))?;
        print_kinds(shell, end)
    }
}
