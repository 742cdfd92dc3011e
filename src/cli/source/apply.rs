//! `svc source apply`: makes the server's sources equal to files, so that a directory in git is the source of truth.
//!
//! A source is identified by its slug. A field that a file leaves out goes back to its default, with two exceptions
//! that stay as the server has them: the secret and `active`. A secret in a file is always sent, since the server shows
//! none to compare with; the server changes nothing if it is the current one. Sources without a file are left alone.

use crate::{
    cli::{
        client::Client,
        definition_files,
        failure::Failure,
        resource::{Named, ResourceKind},
        shell::{OutputFormat, Shell},
        table::{Tone, printable},
    },
    model::{api::sources::SourceView, source_spec::SourceSpec},
};
use serde_json::{Value, json};
use std::path::PathBuf;

client_command! {
    /// Create or update sources from a TOML file, or from every .toml file of a directory.
    #[argh(
        example = "{command_name} contrib/sources/github.toml\n{command_name} sources/ --dry-run",
        note = "A source is known by its slug. A secret or `active` that a file leaves out stays as it is on the server; \
                everything else it leaves out goes back to its default. A secret that differs from the current one replaces it \
                with overlap."
    )]
    ApplySources = "apply" {
        /// a source's TOML file, or a directory of them
        #[argh(positional)]
        path: PathBuf,

        /// print the changes and make none
        #[argh(switch)]
        dry_run: bool,
    }
}

/// The change that one source needs.
#[derive(Debug, PartialEq)]
enum SourceChange {
    Create,
    Update { id: String, changed: Vec<&'static str> },
    Leave { id: String },
}

impl ApplySources {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        // All files are read before anything is changed, so that a typo in the last leaves nothing half applied.
        let files = definition_files::find(&self.path)?;
        if files.is_empty() {
            return Err(Failure::Bad(format!("{}: no .toml file in this directory", self.path.display())));
        }
        let specs = definition_files::read_sources(&files, shell.environment)?;
        let client = self.client(shell)?;
        let (mut done, mut failed) = (Vec::new(), 0);
        let of = specs.len();
        for spec in specs {
            let mut record = json!({ "slug": spec.slug, "owner": spec.owner });
            match plan(&client, &spec).and_then(|change| self.make(&client, &spec, change)) {
                Ok(change) => {
                    if self.format() == OutputFormat::Text {
                        self.print_change(shell, &spec, &change)?;
                    }
                    describe(&mut record, change);
                }
                // An error of this one source leaves the others worth trying.
                Err(failure @ (Failure::Rejected { status: ..500, .. } | Failure::NoSuch(_))) => {
                    failed += 1;
                    shell.note(&format!("svc: {}: {failure}", printable(&spec.slug)));
                    record["result"] = "failed".into();
                    record["error"] = failure.to_string().into();
                }
                Err(failure) => return Err(failure),
            }
            done.push(record);
        }
        if self.format() == OutputFormat::Json {
            shell.out.json(&json!({ "items": done, "next": null }).to_string())?;
        }
        match failed {
            0 => Ok(()),
            _ => Err(Failure::Bad(format!("{failed} of {of} sources were not applied: correct them and repeat"))),
        }
    }

    /// Makes the change, unless it is a dry run, and returns it as it turned out.
    fn make(&self, client: &Client, spec: &SourceSpec, change: SourceChange) -> Result<SourceChange, Failure> {
        if self.dry_run {
            return Ok(change);
        }
        match change {
            SourceChange::Create => {
                client.post(ResourceKind::SOURCE.path, spec)?;
                Ok(SourceChange::Create)
            }
            SourceChange::Update { id, changed } => {
                let path = ResourceKind::SOURCE.path_of_id(&id);
                let before: SourceView = client.read(&client.get(&path)?)?;
                let after: SourceView = client.read(&client.put(&path, spec)?)?;
                match before.updated_at == after.updated_at {
                    true => Ok(SourceChange::Leave { id }),
                    false => Ok(SourceChange::Update { id, changed }),
                }
            }
            leave @ SourceChange::Leave { .. } => Ok(leave),
        }
    }

    fn print_change(&self, shell: &mut Shell<'_>, spec: &SourceSpec, change: &SourceChange) -> Result<(), Failure> {
        let (word, tone) = match (change, self.dry_run) {
            (SourceChange::Create, false) => ("created", Tone::Good),
            (SourceChange::Create, true) => ("would create", Tone::Good),
            (SourceChange::Update { .. }, false) => ("updated", Tone::Doubtful),
            (SourceChange::Update { .. }, true) => ("would update", Tone::Doubtful),
            (SourceChange::Leave { .. }, _) => ("unchanged", Tone::Quiet),
        };
        let changed = match change {
            SourceChange::Update { changed, .. } => format!("  ({})", changed.join(", ")),
            SourceChange::Create | SourceChange::Leave { .. } => String::new(),
        };
        let word = tone.paint(&format!("{word:12}"), shell.out.paint());
        shell.out.line(&format!("{word}  {}{changed}", printable(&spec.slug)))
    }
}

/// Compares the file with the server's source of the same slug.
fn plan(client: &Client, spec: &SourceSpec) -> Result<SourceChange, Failure> {
    let Some(Named { id, .. }) = ResourceKind::SOURCE.named(client, &spec.slug, spec.owner)? else {
        return Ok(SourceChange::Create);
    };
    let existing: SourceView = client.read(&client.get(&ResourceKind::SOURCE.path_of_id(&id))?)?;
    let changed = differences(spec, &existing.spec);
    Ok(if changed.is_empty() { SourceChange::Leave { id } } else { SourceChange::Update { id, changed } })
}

/// The fields in which the file and the server differ or may differ.
fn differences(spec: &SourceSpec, there: &SourceSpec) -> Vec<&'static str> {
    let with_defaults = |spec: &SourceSpec| spec.clone().check().map(|checked| (checked.verifier, checked.overlap));
    let differing = [
        ("description", spec.description != there.description),
        ("active", spec.active.is_some() && spec.active != there.active),
        ("verify", with_defaults(spec) != with_defaults(there)),
        ("verify.secret", spec.verify.secret.is_some()),
        ("transform", spec.transform != there.transform),
        ("rate", spec.rate != there.rate),
    ];
    differing.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

fn describe(record: &mut Value, change: SourceChange) {
    let (result, id, changed) = match change {
        SourceChange::Create => ("created", None, Vec::new()),
        SourceChange::Update { id, changed } => ("updated", Some(id), changed),
        SourceChange::Leave { id } => ("unchanged", Some(id), Vec::new()),
    };
    record["result"] = result.into();
    record["id"] = id.into();
    record["changed"] = changed.into();
}
