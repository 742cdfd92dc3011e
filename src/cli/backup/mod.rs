//! `svc backup`: makes a backup of a running server ([`create`]), and checks one ([`verify`]).

mod create;
mod verify;

pub use create::CreateBackup;
pub use verify::VerifyBackup;

use crate::{
    cli::{
        failure::Failure,
        shell::Shell,
        table::{Fit, TextTable},
    },
    platform::archive::ArchiveEnd,
};

command_family! {
    /// Make a backup of a running server, or check one. `svc backup FILE` is short for `svc backup create FILE`.
    #[argh(
        example = "{command_name} svc.backup\n{command_name} verify svc.backup",
        note = "A backup holds every secret of the server. `svc restore FILE --data DIR` makes a data directory from it."
    )]
    BackupCommand(BackupSubcommand) = "backup" { CreateBackup, VerifyBackup }
}

/// Prints the numbers of records by kind, and of those that were lost.
pub(super) fn print_kinds(shell: &mut Shell<'_>, end: &ArchiveEnd) -> Result<(), Failure> {
    let mut table = TextTable::new(&[("KIND", Fit::Rigid), ("RECORDS", Fit::Rigid)]);
    for (kind, count) in &end.by_kind {
        table.row([kind.as_str().into(), count.to_string().into()]);
    }
    shell.out.table(&table)?;
    if end.lost_pages > 0 {
        let pages = end.lost_pages;
        shell.note(&format!("{pages} pages of the database could not be read when it was made"));
    }
    if end.lost_unknown {
        shell.note("an unknown number of records was lost before it was made, and is not in it");
    } else if end.lost > 0 {
        let bound = if end.damaged { "at least " } else { "" };
        shell.note(&format!("{bound}{} records were lost before it was made, and are not in it", end.lost));
    }
    Ok(())
}
