//! `svc backup create`: takes a backup from a running server, and checks it while it is written.

use super::print_kinds;
use crate::{
    cli::{
        failure::Failure,
        partial_file::{Overwrite, PartialFile},
        progress::{ProgressBar, readable_bytes},
        shell::{OutputFormat, Shell},
    },
    platform::archive::{ArchiveEnd, ArchiveError, ArchiveReader, Manifest},
};
use serde_json::json;
use std::{
    fs::File,
    io::{self, Read, Write as _},
    path::PathBuf,
};

client_command! {
    /// Make a backup of a running server, which goes on accepting events.
    #[argh(
        example = "{command_name} svc.backup\n\
                   {command_name} /backups/svc-monday.backup --server http://10.0.0.5:7300 --json",
        note = "It needs a user with all permissions. The file holds every secret of the server, and only its owner can \
                read it. It appears under its name when it is whole and on disk."
    )]
    CreateBackup = "create" {
        /// the file to write
        #[argh(positional)]
        file: PathBuf,

        /// replace the file if it exists
        #[argh(switch)]
        force: bool,
    }
}

/// The body of a response that is written to a file as it is read.
struct Copied<'f, R> {
    body: R,
    file: &'f mut File,
    /// The error of the file, which would otherwise pass for one of the body.
    file_error: &'f mut Option<io::Error>,
}

impl CreateBackup {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let overwrite = if self.force { Overwrite::Replace } else { Overwrite::Refuse };
        let mut partial = PartialFile::create(&self.file, overwrite)?;
        let body = client.download("/api/backup")?.into_body();
        let mut bar = ProgressBar::new("backup");
        let mut file_error = None;
        let copied = Copied { body, file: &mut partial.file, file_error: &mut file_error };
        let read = read_all(shell, copied, &mut bar);
        bar.clear(shell);
        if let Some(source) = file_error {
            return Err(Failure::File { path: self.file, source });
        }
        let (manifest, end, bytes) = read.map_err(|error| {
            let why = match error {
                ArchiveError::Unreadable(error) => format!("the connection broke: {error}"),
                error => error.to_string(),
            };
            Failure::Bad(format!("no backup was made, {why}: the server was stopped, or its log says more"))
        })?;
        let size = partial.finish()?;
        let shown = self.file.display().to_string();
        if self.format() == OutputFormat::Json {
            let took = bar.elapsed().as_millis() as u64;
            let report = json!({
                "file": shown, "size": size, "bytes": bytes, "took_ms": took, "manifest": manifest, "end": end,
            });
            return shell.out.json(&report.to_string());
        }
        shell.out.line(&format!(
            "{shown}: {} records, {} ({} uncompressed) in {:.1} s",
            end.rows,
            readable_bytes(size),
            readable_bytes(bytes),
            bar.elapsed().as_secs_f64()
        ))?;
        print_kinds(shell, &end)
    }
}

/// Reads an archive to its end, and returns the bytes of its lines too.
fn read_all<R: Read>(
    shell: &mut Shell<'_>,
    input: R,
    bar: &mut ProgressBar,
) -> Result<(Manifest, ArchiveEnd, u64), ArchiveError> {
    let archive = ArchiveReader::new(input)?;
    let (total, mut bytes) = (archive.manifest().bytes_estimate, 0);
    let (manifest, end) = archive.check_hash(|read, rows| {
        bytes = read;
        bar.update(shell, bytes, total, rows);
    })?;
    Ok((manifest, end, bytes))
}

impl<R: Read> Read for Copied<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(buffer)?;
        if let Err(error) = self.file.write_all(&buffer[..count]) {
            *self.file_error = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        Ok(count)
    }
}
