//! `svc sink apply`: makes the server's sinks equal to files, so that a directory in git is the source of truth.
//!
//! A sink is identified by its owner and name. A field that a file leaves out goes back to its default, with two
//! exceptions that stay as the server has them: the signing secret, which does not belong in git, and `active`, because
//! an operator paused the sink for a reason. Sinks without a file are left alone. A second run changes nothing.

use crate::{
    cli::{
        client::Client,
        definition_files,
        failure::Failure,
        resource::{Named, ResourceKind, find_script},
        shell::{OutputFormat, Shell},
        table::{Tone, printable},
    },
    model::{
        api::sinks::SinkView,
        configured_value::ConfiguredValue,
        outbound_http::check_url,
        owner::OwnerSpec,
        sink_spec::{SinkSpec, WebhookSpec},
    },
};
use serde_json::{Value, json};
use std::path::PathBuf;

client_command! {
    /// Create or update sinks from a TOML file, or from every .toml file of a directory.
    #[argh(
        example = "{command_name} sinks/slack.toml\n{command_name} sinks/ --dry-run",
        note = "A sink is known by its owner and name. A secret or `active` that a file leaves out stays as it is on the \
                server; everything else it leaves out goes back to its default."
    )]
    ApplySinks = "apply" {
        /// a sink's TOML file, or a directory of them
        #[argh(positional)]
        path: PathBuf,

        /// print the changes and make none
        #[argh(switch)]
        dry_run: bool,
    }
}

/// The use of the changes: made, or only printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplyMode {
    Change,
    DryRun,
}

/// The change that one sink needs.
#[derive(Debug, PartialEq)]
enum SinkChange {
    Create,
    Update { id: String, changed: Vec<&'static str> },
    Leave { id: String },
}

impl ApplySinks {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        // All files are read before anything is changed, so that a typo in the last leaves nothing half applied.
        let files = definition_files::find(&self.path)?;
        if files.is_empty() {
            return Err(Failure::Bad(format!("{}: no .toml file in this directory", self.path.display())));
        }
        let drafts = definition_files::read_sinks(&files, shell.environment)?;
        let client = self.client(shell)?;
        let mode = if self.dry_run { ApplyMode::DryRun } else { ApplyMode::Change };
        let (mut done, mut failed) = (Vec::new(), 0);
        let of = drafts.len();
        for draft in drafts {
            let name = draft.name().to_owned();
            let mut record = json!({ "name": name });
            let spec = draft.resolve(|owner, script| find_script(&client, owner, script));
            let applied = spec.and_then(|spec| {
                record["owner"] = json!(spec.owner);
                let change = plan(&client, &spec).and_then(|change| make(&client, &spec, change, mode))?;
                Ok((spec, change))
            });
            match applied {
                Ok((spec, change)) => {
                    if self.format() == OutputFormat::Text {
                        print_change(shell, &spec, &change, mode)?;
                    }
                    describe(&mut record, change);
                }
                // An error of this one sink leaves the others worth trying.
                Err(failure @ (Failure::Rejected { status: ..500, .. } | Failure::NoSuch(_))) => {
                    failed += 1;
                    shell.note(&format!("svc: {}: {failure}", printable(&name)));
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
            _ => Err(Failure::Bad(format!("{failed} of {of} sinks were not applied: correct them and repeat"))),
        }
    }
}

/// Compares the file with the server's sink of the same owner and name.
fn plan(client: &Client, spec: &SinkSpec) -> Result<SinkChange, Failure> {
    let Some(Named { id, .. }) = ResourceKind::SINK.named(client, &spec.name, spec.owner)? else {
        return Ok(SinkChange::Create);
    };
    // The list masks secrets; the sink itself does not.
    let existing: SinkView = client.read(&client.get(&ResourceKind::SINK.path_of_id(&id))?)?;
    let changed = differences(spec, &existing.spec);
    Ok(if changed.is_empty() { SinkChange::Leave { id } } else { SinkChange::Update { id, changed } })
}

/// The fields in which the file and the server differ.
fn differences(spec: &SinkSpec, there: &SinkSpec) -> Vec<&'static str> {
    let mut differing = vec![
        ("description", spec.description != there.description),
        ("events", spec.events != there.events),
        ("filter", spec.filter != there.filter),
        ("type", spec.kind != there.kind),
        ("internal", spec.internal != there.internal),
        ("on_failure", spec.on_failure != there.on_failure),
        ("active", spec.active.is_some() && spec.active != there.active),
        ("script", spec.script != there.script),
        ("template", spec.template != there.template),
    ];
    match (&spec.webhook, &there.webhook) {
        (Some(webhook), Some(there)) => differing.extend(webhook_differences(webhook, there)),
        (webhook, there) => differing.push(("webhook", webhook.is_some() != there.is_some())),
    }
    differing.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

fn webhook_differences(spec: &WebhookSpec, there: &WebhookSpec) -> [(&'static str, bool); 9] {
    // The server keeps an address in its normal form.
    let normal = spec.url.text().and_then(|url| check_url(url).ok());
    let url = normal.map_or_else(|| spec.url.clone(), |url| ConfiguredValue::Text(url.into()));
    [
        ("webhook.url", url != there.url),
        ("webhook.secret", spec.secret.is_some() && spec.secret != there.secret),
        ("webhook.headers", spec.headers != there.headers),
        ("webhook.template", spec.template != there.template),
        ("webhook.ed25519", spec.ed25519 != there.ed25519),
        ("webhook.body", spec.body != there.body),
        ("webhook.batch", spec.batch != there.batch),
        ("webhook.gone", spec.gone != there.gone),
        ("webhook.skip_tls_verify", spec.skip_tls_verify != there.skip_tls_verify),
    ]
}

/// Makes the change, unless it is a dry run, and returns it.
fn make(client: &Client, spec: &SinkSpec, change: SinkChange, mode: ApplyMode) -> Result<SinkChange, Failure> {
    if mode == ApplyMode::DryRun {
        return Ok(change);
    }
    match &change {
        SinkChange::Create => drop(client.post(ResourceKind::SINK.path, spec)?),
        SinkChange::Update { id, .. } => drop(client.put(&ResourceKind::SINK.path_of_id(id), spec)?),
        SinkChange::Leave { .. } => {}
    }
    Ok(change)
}

fn describe(record: &mut Value, change: SinkChange) {
    let (result, id, changed) = match change {
        SinkChange::Create => ("created", None, Vec::new()),
        SinkChange::Update { id, changed } => ("updated", Some(id), changed),
        SinkChange::Leave { id } => ("unchanged", Some(id), Vec::new()),
    };
    record["result"] = result.into();
    record["id"] = id.into();
    record["changed"] = changed.into();
}

fn print_change(shell: &mut Shell<'_>, spec: &SinkSpec, change: &SinkChange, mode: ApplyMode) -> Result<(), Failure> {
    let (word, tone) = match (change, mode) {
        (SinkChange::Create, ApplyMode::Change) => ("created", Tone::Good),
        (SinkChange::Create, ApplyMode::DryRun) => ("would create", Tone::Good),
        (SinkChange::Update { .. }, ApplyMode::Change) => ("updated", Tone::Doubtful),
        (SinkChange::Update { .. }, ApplyMode::DryRun) => ("would update", Tone::Doubtful),
        (SinkChange::Leave { .. }, _) => ("unchanged", Tone::Quiet),
    };
    let width = match mode {
        ApplyMode::Change => "unchanged".len(),
        ApplyMode::DryRun => "would create".len(),
    };
    let changed = match change {
        SinkChange::Update { changed, .. } => format!("  ({})", changed.join(", ")),
        SinkChange::Create | SinkChange::Leave { .. } => String::new(),
    };
    let global = match spec.owner {
        OwnerSpec::Global => "  [global]",
        OwnerSpec::Me => "",
    };
    let word = tone.paint(&format!("{word:width$}"), shell.out.paint());
    shell.out.line(&format!("{word}  {}{global}{changed}", printable(&spec.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_server() -> Value {
        json!({
            "id": "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a78", "name": "slack", "owner": "me", "description": "", "events": "custom.a, custom.b",
            "type": "webhook", "active": true, "queue": { "depth": 3, "next_sequence": 9, "dead": 0 },
            "created_at": "2026-01-31T12:00:00.000000Z", "updated_at": "2026-01-31T12:00:00.000000Z",
            "webhook": {
                "url": "https://x.example/", "secret": "whsec_abc", "headers": { "X-Team": "web" },
                "template": { "lang": "lua", "source": "return {}" }, "skip_tls_verify": false
            },
        })
    }

    fn in_file() -> Value {
        json!({
            "name": "slack", "events": "custom.a, custom.b", "type": "webhook",
            "webhook": { "url": "https://x.example", "headers": { "X-Team": "web" }, "template": "return {}" },
        })
    }

    fn changed(file: Value) -> Vec<&'static str> {
        let spec = serde_json::from_value(file).unwrap();
        differences(&spec, &serde_json::from_value::<SinkView>(on_server()).unwrap().spec)
    }

    #[test]
    fn the_same_in_another_spelling_is_no_change_and_neither_is_a_secret_left_out() {
        assert_eq!(changed(in_file()), [""; 0]);
    }

    #[test]
    fn a_paused_sink_stays_paused_unless_its_file_says_otherwise() {
        let mut there = on_server();
        there["active"] = false.into();
        let there = serde_json::from_value::<SinkView>(there).unwrap().spec;
        let mut file = in_file();
        assert_eq!(differences(&serde_json::from_value(file.clone()).unwrap(), &there), [""; 0]);
        file["active"] = true.into();
        assert_eq!(differences(&serde_json::from_value(file).unwrap(), &there), ["active"]);
    }

    #[test]
    fn every_field_that_a_file_changes_or_leaves_out_is_named() {
        let mut file = in_file();
        file["events"] = "custom.c".into();
        file["active"] = false.into();
        file["webhook"] = json!({ "url": "https://x.example", "secret": "whsec_new" });
        assert_eq!(changed(file), ["events", "active", "webhook.secret", "webhook.headers", "webhook.template"]);
        let mut file = in_file();
        file["filter"] = "event.data.n > 1".into();
        file["on_failure"] = "hold".into();
        file["internal"] = true.into();
        file["webhook"] =
            json!({ "url": "https://x.example", "headers": { "X-Team": "web" }, "body": "full", "gone": "pause" });
        assert_eq!(
            changed(file),
            ["filter", "internal", "on_failure", "webhook.template", "webhook.body", "webhook.gone"]
        );
    }

    #[test]
    fn a_sink_may_become_another_type() {
        let file = json!({
            "name": "slack", "events": "custom.a, custom.b", "type": "script", "script": { "source": "return" }
        });
        assert_eq!(changed(file), ["type", "script", "webhook"]);
    }
}
