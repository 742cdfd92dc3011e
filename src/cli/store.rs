//! `svc store`: work on the database of a server that is not running.

use super::{
    backup::print_kinds,
    failure::Failure,
    partial_file::{Overwrite, PartialFile},
    progress::{ProgressBar, readable_bytes},
    shell::{OutputFormat, Shell},
};
use crate::platform::{
    archive::salvage::{SalvageError, salvage, verify},
    store::{Compaction, Inspection, LostRows, StoreOpenError, compact_offline},
};
use serde_json::json;
use std::path::{Path, PathBuf};

command_family! {
    /// Check, salvage or compact the database of a server that is not running.
    #[argh(
        example = "{command_name} verify --data ./data\n{command_name} salvage saved.backup --data ./data\n\
                   {command_name} compact --data ./data"
    )]
    StoreCommand(StoreSubcommand) = "store" { VerifyStore, SalvageStore, CompactStore }
}

local_command! {
    /// Read the whole database and check it. Nothing in the directory is changed.
    #[argh(example = "{command_name} --data ./data\n{command_name} --data ./data --json")]
    VerifyStore = "verify" {
        /// the data directory
        #[argh(option, arg_name = "dir")]
        data: PathBuf,
    }
}

local_command! {
    /// Save everything that is readable in a database as a backup, for one that the server refuses to open.
    #[argh(
        example = "{command_name} saved.backup --data ./data\nsvc restore saved.backup --data ./data2",
        note = "Nothing in the directory is changed."
    )]
    SalvageStore = "salvage" {
        /// the file to write
        #[argh(positional)]
        file: PathBuf,

        /// the data directory
        #[argh(option, arg_name = "dir")]
        data: PathBuf,

        /// replace the file if it exists
        #[argh(switch)]
        force: bool,
    }
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

impl VerifyStore {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut bar = ProgressBar::new("verify");
        let verified = verify(&self.data, &mut |rows| bar.update(shell, 0, 0, rows));
        bar.clear(shell);
        let found = verified.map_err(offline_failure)?;
        let data = self.data.display();
        if self.format() == OutputFormat::Json {
            shell.out.json(&report(&self.data, &found).to_string())?;
        } else if found.is_sound() {
            let (live, size) = (readable_bytes(found.live), readable_bytes(found.size));
            shell.out.line(&format!(
                "{data} is sound: {} records, {live} in use of {size} on disk, format {}",
                found.rows, found.format
            ))?;
        } else {
            for damage in &found.damages {
                shell.out.line(damage)?;
            }
        }
        match found.is_sound() {
            true => Ok(()),
            false => Err(Failure::Bad(format!(
                "the database in {data} has {} damages: restore a backup, or save what is readable with \
                 `svc store salvage FILE --data {data}`",
                found.damage_count
            ))),
        }
    }
}

impl SalvageStore {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let overwrite = if self.force { Overwrite::Replace } else { Overwrite::Refuse };
        let partial = PartialFile::create(&self.file, overwrite)?;
        let written = |source| Failure::File { path: self.file.clone(), source };
        let out = partial.file.try_clone().map_err(written)?;
        let mut bar = ProgressBar::new("salvage");
        let salvaged = salvage(&self.data, out, &mut |rows| bar.update(shell, 0, 0, rows));
        bar.clear(shell);
        let (_, end, found) = salvaged.map_err(|error| match error {
            SalvageError::Store(error) => offline_failure(error),
            SalvageError::Write(source) => written(source),
        })?;
        let size = partial.finish()?;
        let file = self.file.display().to_string();
        if self.format() == OutputFormat::Json {
            let report = json!({"file": file, "size": size, "end": end, "store": report(&self.data, &found)});
            return shell.out.json(&report.to_string());
        }
        let lost = match found.lost {
            LostRows::Exactly(_) => format!("{} lost", end.lost),
            LostRows::AtLeast(_) => format!("at least {} lost", end.lost),
            LostRows::Unknown => "an unknown number lost".to_owned(),
        };
        shell.out.line(&format!(
            "{file}: {} records kept, {lost}; `svc restore {file} --data DIR` makes a data directory from it",
            end.rows
        ))?;
        match found.lost_writes {
            Some(0) => {}
            Some(writes) => shell.note(&format!(
                "the last {writes} writes are missing whole: the events, users and settings that they stored are lost"
            )),
            None => shell.note("nothing tells how many writes are missing"),
        }
        if found.stale_pages > 0 {
            let pages = found.stale_pages;
            shell.note(&format!("{pages} pages of the database could be read only as they once were"));
        }
        // With an exact number, each record is as it was last written.
        if !matches!(found.lost, LostRows::Exactly(_)) {
            shell.note(
                "records that were deleted or changed last may be back as they were: after the restore, check users and \
                 tokens, and revoke those that should be gone",
            );
        }
        print_kinds(shell, &end)
    }
}

fn report(data: &Path, found: &Inspection) -> serde_json::Value {
    let (loss, lost_rows) = match found.lost {
        LostRows::Exactly(0) => ("none", Some(0)),
        LostRows::Exactly(lost) => ("exact", Some(lost)),
        LostRows::AtLeast(lost) => ("at_least", Some(lost)),
        LostRows::Unknown => ("unknown", None),
    };
    json!({
        "data": data, "sound": found.is_sound(), "format": found.format, "rows": found.rows,
        "live_bytes": found.live, "disk_bytes": found.size, "damages": found.damages,
        "damage_count": found.damage_count, "loss": loss, "lost_rows": lost_rows, "lost_pages": found.lost_pages,
        "lost_writes": found.lost_writes, "stale_pages": found.stale_pages,
    })
}

/// The failure of a command on a directory that it cannot work on.
fn offline_failure(error: StoreOpenError) -> Failure {
    Failure::Bad(error.to_string())
}

impl CompactStore {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut bar = ProgressBar::new("compact");
        let compacted = compact_offline(&self.data, &mut |rows| bar.update(shell, 0, 0, rows));
        bar.clear(shell);
        let Compaction { before, after, rows } = compacted.map_err(offline_failure)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&json!({"before": before, "after": after, "rows": rows}).to_string());
        }
        let (before, after) = (readable_bytes(before), readable_bytes(after));
        shell.out.line(&format!("{}: {before} before, {after} now", self.data.display()))
    }
}
