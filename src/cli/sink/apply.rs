//! `svc sink apply`: makes the server's sinks what the files say, so that a directory in git is the source
//! of truth.
//!
//! A sink is known by its owner and name. What a file leaves out goes back to its default, with two exceptions
//! that stay as the server has them: the signing secret, which a file in git had better not have, and `active`,
//! as an operator who paused a sink has a reason. Sinks without a file are left alone. Applying twice changes
//! nothing the second time.

use super::create::stored_script;
use crate::{
    cli::{
        api::{self, Named},
        client::{Client, Query},
        failure::Failure,
        named::Kind,
        shell::{Form, Shell},
        sink_file,
        table::{Tone, printable},
    },
    model::{
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
    Apply = "apply" {
        /// a sink's TOML file, or a directory of them
        #[argh(positional)]
        path: PathBuf,

        /// tell what would change; change nothing
        #[argh(switch)]
        dry_run: bool,
    }
}

/// Whether changes are made or only told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Change,
    Tell,
}

/// What has to happen to one sink.
#[derive(Debug, PartialEq)]
enum Step {
    Create,
    Update { id: String, changed: Vec<&'static str> },
    Leave { id: String },
}

impl Apply {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        // All files are read before anything is changed: a typo in the last must not leave half applied.
        let files = sink_file::find(&self.path)?;
        if files.is_empty() {
            return Err(Failure::Bad(format!("{}: no .toml file in this directory", self.path.display())));
        }
        let drafts = sink_file::read_all(&files, shell.environment)?;
        let client = self.client(shell)?;
        let mode = if self.dry_run { Mode::Tell } else { Mode::Change };
        let (mut done, mut failed) = (Vec::new(), 0);
        let of = drafts.len();
        for draft in drafts {
            let name = draft.name().to_owned();
            let mut record = json!({ "name": name });
            let spec = draft.resolve(|owner, script| stored_script(&client, owner, script));
            let applied = spec.and_then(|spec| {
                record["owner"] = json!(spec.owner);
                let step = plan(&client, &spec).and_then(|step| take(&client, &spec, step, mode))?;
                Ok((spec, step))
            });
            match applied {
                Ok((spec, step)) => {
                    if self.form() == Form::Text {
                        tell(shell, &spec, &step, mode)?;
                    }
                    describe(&mut record, step);
                }
                // Only what is wrong with this one sink leaves the others worth trying.
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
        if self.form() == Form::Json {
            shell.out.json(&json!({ "items": done, "next": null }).to_string())?;
        }
        match failed {
            0 => Ok(()),
            _ => Err(Failure::Bad(format!("{failed} of {of} sinks were not applied: correct them and repeat"))),
        }
    }
}

/// Compares the file with what the server has under its owner and name.
fn plan(client: &Client, spec: &SinkSpec) -> Result<Step, Failure> {
    let query = Query::default().with("name", &spec.name).with("owner", api::owner(spec.owner));
    let found: Vec<Named> = client.list(Kind::Sink.path(), &query, usize::MAX)?.read(client)?;
    let Some(Named { id, .. }) = found.into_iter().find(|sink| sink.name == spec.name) else {
        return Ok(Step::Create);
    };
    // The list masks secrets; the sink itself does not.
    let there: api::Sink = client.read(&client.get(&format!("{}/{id}", Kind::Sink.path()))?)?;
    let changed = differences(spec, &there);
    Ok(if changed.is_empty() { Step::Leave { id } } else { Step::Update { id, changed } })
}

/// The fields in which the file and the server differ.
fn differences(spec: &SinkSpec, there: &api::Sink) -> Vec<&'static str> {
    let mut differing = vec![
        ("description", spec.description != there.description),
        ("events", spec.events != there.events),
        ("type", spec.kind != there.kind),
        ("active", spec.active.is_some_and(|active| active != there.active)),
        ("script", spec.script != there.script),
        ("template", spec.template != there.template),
    ];
    match (&spec.webhook, &there.webhook) {
        (Some(webhook), Some(there)) => differing.extend(webhook_differences(webhook, there)),
        (webhook, there) => differing.push(("webhook", webhook.is_some() != there.is_some())),
    }
    differing.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

fn webhook_differences(spec: &WebhookSpec, there: &WebhookSpec) -> [(&'static str, bool); 5] {
    // The server keeps an address in its normal form.
    let url = check_url(&spec.url).map_or_else(|_| spec.url.clone(), |url| url.to_string());
    [
        ("webhook.url", url != there.url),
        ("webhook.secret", spec.secret.is_some() && spec.secret != there.secret),
        ("webhook.headers", spec.headers != there.headers),
        ("webhook.template", spec.template != there.template),
        ("webhook.skip_tls_verify", spec.skip_tls_verify != there.skip_tls_verify),
    ]
}

/// Takes the step, unless it is only to be told, and gives it back.
fn take(client: &Client, spec: &SinkSpec, step: Step, mode: Mode) -> Result<Step, Failure> {
    if mode == Mode::Tell {
        return Ok(step);
    }
    let body = serde_json::to_value(spec).expect("a spec is JSON");
    match &step {
        Step::Create => drop(client.post(Kind::Sink.path(), &body)?),
        Step::Update { id, .. } => drop(client.put(&format!("{}/{id}", Kind::Sink.path()), &body)?),
        Step::Leave { .. } => {}
    }
    Ok(step)
}

fn describe(record: &mut Value, step: Step) {
    let (result, id, changed) = match step {
        Step::Create => ("created", None, Vec::new()),
        Step::Update { id, changed } => ("updated", Some(id), changed),
        Step::Leave { id } => ("unchanged", Some(id), Vec::new()),
    };
    record["result"] = result.into();
    record["id"] = id.into();
    record["changed"] = changed.into();
}

fn tell(shell: &mut Shell<'_>, spec: &SinkSpec, step: &Step, mode: Mode) -> Result<(), Failure> {
    let (word, tone) = match (step, mode) {
        (Step::Create, Mode::Change) => ("created", Tone::Good),
        (Step::Create, Mode::Tell) => ("would create", Tone::Good),
        (Step::Update { .. }, Mode::Change) => ("updated", Tone::Doubtful),
        (Step::Update { .. }, Mode::Tell) => ("would update", Tone::Doubtful),
        (Step::Leave { .. }, _) => ("unchanged", Tone::Quiet),
    };
    let width = match mode {
        Mode::Change => "unchanged".len(),
        Mode::Tell => "would create".len(),
    };
    let changed = match step {
        Step::Update { changed, .. } => format!("  ({})", changed.join(", ")),
        Step::Create | Step::Leave { .. } => String::new(),
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
            "id": "1", "name": "slack", "owner": "me", "description": "", "events": "custom.a, custom.b",
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
        differences(&spec, &serde_json::from_value(on_server()).unwrap())
    }

    #[test]
    fn the_same_in_another_spelling_is_no_change_and_neither_is_a_secret_left_out() {
        assert_eq!(changed(in_file()), [""; 0]);
    }

    #[test]
    fn a_paused_sink_stays_paused_unless_its_file_says_otherwise() {
        let mut there = on_server();
        there["active"] = false.into();
        let there = serde_json::from_value(there).unwrap();
        let mut file = in_file();
        assert_eq!(differences(&serde_json::from_value(file.clone()).unwrap(), &there), [""; 0]);
        file["active"] = true.into();
        assert_eq!(differences(&serde_json::from_value(file).unwrap(), &there), ["active"]);
    }

    #[test]
    fn what_a_file_changes_or_leaves_out_is_named() {
        let mut file = in_file();
        file["events"] = "custom.c".into();
        file["active"] = false.into();
        file["webhook"] = json!({ "url": "https://x.example", "secret": "whsec_new" });
        assert_eq!(changed(file), ["events", "active", "webhook.secret", "webhook.headers", "webhook.template"]);
    }

    #[test]
    fn a_sink_may_become_another_type() {
        let file = json!({
            "name": "slack", "events": "custom.a, custom.b", "type": "script", "script": { "source": "return" }
        });
        assert_eq!(changed(file), ["type", "script", "webhook"]);
    }
}
