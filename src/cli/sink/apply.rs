//! `svc sink apply`: makes the server's sinks what the files say, so that a directory in git is the source
//! of truth.
//!
//! A sink is known by its owner and name. What a file leaves out goes back to its default, with two
//! exceptions that belong to operation and not to definition: the signing secret, and whether the sink is
//! active. Sinks without a file are left alone. Applying twice changes nothing the second time.

use crate::{
    cli::{
        api::Named,
        client::{Client, Query},
        failure::Failure,
        named::Kind,
        shell::{Form, Shell},
        table::{Tone, printable},
    },
    sink::file,
};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

client_command! {
    /// Create or update sinks from a TOML file, or from every .toml file of a directory.
    #[argh(
        example = "{command_name} sinks/slack.toml\n{command_name} sinks/ --dry-run",
        note = "A sink is known by its owner and name. A secret or `active` that a file leaves out stays as it is \
                on the server; everything else it leaves out goes back to its default."
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
    Create(Value),
    Update { id: String, body: Value, changed: Vec<&'static str> },
    Leave { id: String },
}

/// A part of a sink that a file can set.
struct Field {
    /// Where it is, as a JSON pointer.
    at: &'static str,
    unset: Unset,
}

/// What it means that a file does not set it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unset {
    /// The default of the API, which is the same as the absence of the field.
    Default,
    /// Whatever the server has.
    Keep,
}

const FIELDS: [Field; 11] = [
    Field { at: "/description", unset: Unset::Default },
    Field { at: "/events", unset: Unset::Default },
    Field { at: "/type", unset: Unset::Default },
    Field { at: "/active", unset: Unset::Keep },
    Field { at: "/webhook/url", unset: Unset::Default },
    Field { at: "/webhook/secret", unset: Unset::Keep },
    Field { at: "/webhook/headers", unset: Unset::Default },
    Field { at: "/webhook/template", unset: Unset::Default },
    Field { at: "/webhook/skip_tls_verify", unset: Unset::Default },
    Field { at: "/script/source", unset: Unset::Default },
    Field { at: "/template", unset: Unset::Default },
];

impl Apply {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        // All files are read before anything is changed: a typo in the last must not leave half applied.
        let mut specs = Vec::new();
        for path in file::find(&self.path)? {
            let spec = file::read(&path, shell.environment)?;
            specs.push(serde_json::to_value(spec).expect("a spec is plain data with string keys"));
        }
        if specs.is_empty() {
            return Err(Failure::Bad(format!("{}: no .toml file in this directory", self.path.display())));
        }
        let client = self.client(shell)?;
        let mode = if self.dry_run { Mode::Tell } else { Mode::Change };
        let (mut done, mut failed) = (Vec::new(), 0);
        for spec in &specs {
            let (name, owner) = identity(spec);
            let outcome = plan(&client, spec).and_then(|step| take(&client, step, mode));
            match outcome {
                Ok(result) => {
                    if self.form() == Form::Text {
                        tell(shell, name, owner, &result, mode)?;
                    }
                    let mut record = json!({ "name": name, "owner": owner });
                    record.as_object_mut().expect("made as an object").extend(result);
                    done.push(record);
                }
                // Only what is wrong with this one sink leaves the others worth trying.
                Err(failure @ Failure::Rejected { status: ..500, .. }) => {
                    failed += 1;
                    shell.note(&format!("svc: {name}: {failure}"));
                    done.push(
                        json!({ "name": name, "owner": owner, "result": "failed", "error": failure.to_string() }),
                    );
                }
                Err(failure) => return Err(failure),
            }
        }
        if self.form() == Form::Json {
            shell.out.json(&json!({ "items": done, "next": null }).to_string())?;
        }
        match failed {
            0 => Ok(()),
            _ => Err(Failure::Bad(format!(
                "{failed} of {} sinks were not applied: correct them and repeat",
                specs.len()
            ))),
        }
    }
}

/// By what the server knows the sink.
fn identity(spec: &Value) -> (&str, &str) {
    (spec["name"].as_str().unwrap_or_default(), spec["owner"].as_str().unwrap_or("me"))
}

fn plan(client: &Client, spec: &Value) -> Result<Step, Failure> {
    let (name, owner) = identity(spec);
    let query = Query::default().with("name", name).with("owner", owner);
    let found: Vec<Named> = client.list(Kind::Sink.path(), &query, usize::MAX)?.read(client)?;
    match found.into_iter().find(|sink| sink.name == name) {
        None => Ok(Step::Create(spec.clone())),
        Some(sink) => {
            // The list masks secrets; the sink itself does not.
            let current = client.read(&client.get(&format!("{}/{}", Kind::Sink.path(), sink.id))?)?;
            Ok(compare(spec, &current, sink.id))
        }
    }
}

/// What it takes to get from what the server has to what the file says.
fn compare(spec: &Value, current: &Value, id: String) -> Step {
    let mut body = spec.clone();
    let mut changed = Vec::new();
    for field in FIELDS {
        let wanted = spec.pointer(field.at).filter(|value| !value.is_null());
        let there = current.pointer(field.at).filter(|value| !value.is_null());
        match (wanted, field.unset) {
            (None, Unset::Keep) => keep(&mut body, field.at, there),
            _ if canonical(field.at, wanted) == canonical(field.at, there) => {}
            _ => changed.push(field.at),
        }
    }
    match changed.is_empty() {
        true => Step::Leave { id },
        false => Step::Update { id, body, changed },
    }
}

/// Puts what the server has into the body, which would otherwise replace it. A kind of sink that the file
/// no longer has keeps nothing.
fn keep(body: &mut Value, at: &str, there: Option<&Value>) {
    let (parent, name) = at.rsplit_once('/').unwrap_or(("", at));
    if let (Some(Value::Object(parent)), Some(value)) = (body.pointer_mut(parent), there) {
        parent.insert(name.to_owned(), value.clone());
    }
}

/// A value in the one form that all its spellings share. Absent and default are the same.
fn canonical(at: &str, value: Option<&Value>) -> Value {
    let Some(value) = value else { return Value::Null };
    match (at, value) {
        ("/events", Value::String(list)) => list.split(',').map(str::trim).collect::<Vec<_>>().into(),
        // A bare string is Lua.
        ("/webhook/template" | "/template", Value::String(source)) => json!({ "lang": "lua", "source": source }),
        ("/webhook/headers", Value::Object(headers)) if headers.is_empty() => Value::Null,
        ("/webhook/headers", Value::Object(headers)) => {
            headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect::<Map<_, _>>().into()
        }
        ("/description", Value::String(text)) if text.is_empty() => Value::Null,
        ("/webhook/skip_tls_verify", Value::Bool(false)) => Value::Null,
        (_, value) => value.clone(),
    }
}

/// Takes the step, unless it is only to be told. What comes back says what was done.
fn take(client: &Client, step: Step, mode: Mode) -> Result<Map<String, Value>, Failure> {
    let (result, id, changed) = match step {
        Step::Leave { id } => ("unchanged", Some(id), Vec::new()),
        Step::Create(body) => {
            let id = match mode {
                Mode::Tell => None,
                Mode::Change => Some(client.read::<Named>(&client.post(Kind::Sink.path(), &body)?)?.id),
            };
            ("created", id, Vec::new())
        }
        Step::Update { id, body, changed } => {
            if mode == Mode::Change {
                client.put(&format!("{}/{id}", Kind::Sink.path()), &body)?;
            }
            ("updated", Some(id), changed)
        }
    };
    let changed: Vec<String> = changed.into_iter().map(|at| at.trim_start_matches('/').replace('/', ".")).collect();
    Ok(Map::from_iter([
        ("result".to_owned(), result.into()),
        ("id".to_owned(), id.into()),
        ("changed".to_owned(), changed.into()),
    ]))
}

fn tell(
    shell: &mut Shell<'_>,
    name: &str,
    owner: &str,
    result: &Map<String, Value>,
    mode: Mode,
) -> Result<(), Failure> {
    let result_word = result["result"].as_str().unwrap_or_default();
    let (word, tone) = match (mode, result_word) {
        (Mode::Change, "created") => ("created", Tone::Good),
        (Mode::Change, "updated") => ("updated", Tone::Doubtful),
        (Mode::Tell, "created") => ("would create", Tone::Good),
        (Mode::Tell, "updated") => ("would update", Tone::Doubtful),
        _ => ("unchanged", Tone::Quiet),
    };
    let width = if mode == Mode::Tell { 12 } else { 9 };
    let changed: Vec<&str> = result["changed"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let changed = if changed.is_empty() { String::new() } else { format!("  ({})", changed.join(", ")) };
    let global = if owner == "global" { "  [global]" } else { "" };
    let word = tone.paint(&format!("{word:width$}"), shell.out.paint());
    shell.out.line(&format!("{word}  {}{global}{changed}", printable(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_server() -> Value {
        json!({
            "id": "1", "name": "slack", "owner": "me", "description": "", "events": "custom.a, custom.b",
            "type": "webhook", "active": false, "created_at": "x", "queue": { "depth": 3 },
            "webhook": {
                "url": "https://x.example", "secret": "whsec_abc", "headers": { "x-team": "web" },
                "template": { "lang": "lua", "source": "return {}" }, "skip_tls_verify": false
            },
        })
    }

    fn in_file() -> Value {
        json!({
            "name": "slack", "events": "custom.a,custom.b", "type": "webhook",
            "webhook": { "url": "https://x.example", "headers": { "X-Team": "web" }, "template": "return {}" },
        })
    }

    #[test]
    fn another_spelling_of_the_same_is_no_change() {
        assert_eq!(compare(&in_file(), &on_server(), "1".into()), Step::Leave { id: "1".into() });
    }

    #[test]
    fn what_changed_is_named_and_the_secret_and_the_pause_are_kept() {
        let mut file = in_file();
        file["events"] = "custom.c".into();
        file["webhook"]["headers"] = json!({});
        let Step::Update { body, changed, .. } = compare(&file, &on_server(), "1".into()) else { panic!("no update") };
        assert_eq!(changed, ["/events", "/webhook/headers"]);
        assert_eq!((&body["webhook"]["secret"], &body["active"]), (&json!("whsec_abc"), &json!(false)));
    }

    #[test]
    fn a_secret_in_the_file_wins() {
        let mut file = in_file();
        file["webhook"]["secret"] = "whsec_new".into();
        file["active"] = true.into();
        let Step::Update { body, changed, .. } = compare(&file, &on_server(), "1".into()) else { panic!("no update") };
        assert_eq!(changed, ["/active", "/webhook/secret"]);
        assert_eq!(body, file);
    }

    #[test]
    fn a_sink_that_becomes_a_script_keeps_no_secret() {
        let file = json!({ "name": "slack", "events": "*", "type": "script", "script": { "source": "return" } });
        let Step::Update { body, changed, .. } = compare(&file, &on_server(), "1".into()) else { panic!("no update") };
        assert_eq!(body["webhook"], Value::Null);
        assert!(changed.contains(&"/type") && changed.contains(&"/script/source"), "{changed:?}");
    }
}
