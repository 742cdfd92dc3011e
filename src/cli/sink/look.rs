//! `svc sink list`, `show` and `delete`.

use crate::cli::{
    api,
    client::Query,
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
    table::{Cell, Fit, Table, Tone, printable},
    time::brief,
    user::yes_or_no,
};
use serde_json::Value;

client_command! {
    /// List your sinks, and the global ones if you manage those.
    #[argh(example = "{command_name}\n{command_name} --owner global --json")]
    List = "list" {
        /// only those of this owner: me or global
        #[argh(option)]
        owner: Option<Owner>,
    }
}

client_command! {
    /// Show one sink, its signing secret included.
    #[argh(example = "{command_name} slack")]
    Show = "show" {
        /// the sink's name or id
        #[argh(positional)]
        sink: String,
    }
}

client_command! {
    /// Delete a sink and the events that wait for it.
    #[argh(example = "{command_name} slack")]
    Delete = "delete" {
        /// the sink's name or id
        #[argh(positional)]
        sink: String,
    }
}

/// Whose sinks are meant.
#[derive(argh::FromArgValue, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Me,
    Global,
}

impl Owner {
    /// The word the API uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Me => "me",
            Self::Global => "global",
        }
    }
}

impl List {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = Query::default().with_some("owner", self.owner.map(Owner::as_str));
        let listing = client.list(Kind::Sink.path(), &query, usize::MAX)?;
        if self.form() == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = Table::new(&[
            ("NAME", Fit::Elastic),
            ("OWNER", Fit::Rigid),
            ("TYPE", Fit::Rigid),
            ("EVENTS", Fit::Elastic),
            ("ACTIVE", Fit::Rigid),
            ("QUEUED", Fit::Rigid),
            ("DEAD", Fit::Rigid),
            ("ID", Fit::Rigid),
        ]);
        for sink in listing.read::<api::Sink>(&client)? {
            let (depth, dead) = sink.queue.map_or((0, 0), |queue| (queue.depth, queue.dead));
            let [name, owner, kind, events, id] =
                [sink.name, sink.owner, sink.kind, sink.events, sink.id].map(Cell::from);
            let (depth, dead) = (count(depth, Tone::Doubtful), count(dead, Tone::Bad));
            table.row([name, owner, kind, events, yes_or_no(sink.active), depth, dead, id]);
        }
        shell.out.table(&table)
    }
}

impl Show {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Sink.path_of(&client, &self.sink)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let sink: api::Sink = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", sink.id);
        table.field("name", sink.name);
        table.field("description", sink.description);
        table.field("owner", sink.owner);
        table.field("type", sink.kind);
        table.field("events", sink.events);
        table.field("active", yes_or_no(sink.active));
        if let Some(queue) = &sink.queue {
            table.field("queued", count(queue.depth, Tone::Doubtful));
            table.field("dead", count(queue.dead, Tone::Bad));
            table.field("next sequence", queue.next_sequence.to_string());
        }
        let webhook = sink.webhook.unwrap_or_default();
        for (title, name) in [("url", "url"), ("secret", "secret"), ("skip TLS verify", "skip_tls_verify")] {
            table.field(title, as_text(&webhook[name]));
        }
        for (name, value) in webhook["headers"].as_object().into_iter().flatten() {
            table.field("header", format!("{name}: {}", as_text(value)));
        }
        table.field("created", sink.created_at.map(brief).unwrap_or_default());
        table.field("updated", sink.updated_at.map(brief).unwrap_or_default());
        shell.out.table(&table)?;
        let template = sink.template.as_ref().unwrap_or(&webhook["template"]);
        show_source(shell, "template", template)?;
        show_source(shell, "script", sink.script.as_ref().unwrap_or(&Value::Null))
    }
}

impl Delete {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Sink.delete(shell, &client, &self.sink, self.form())
    }
}

/// A program under its title: a bare string, or the `source` of an object.
fn show_source(shell: &mut Shell<'_>, title: &str, value: &Value) -> Result<(), Failure> {
    let Some(source) = value.as_str().or_else(|| value["source"].as_str()) else { return Ok(()) };
    let language = value["lang"].as_str().map(|lang| format!(" ({})", printable(lang))).unwrap_or_default();
    shell.out.line(&format!("\n{title}{language}:"))?;
    for line in source.lines() {
        shell.out.line(format!("  {}", line.split('\t').map(printable).collect::<Vec<_>>().join("\t")).trim_end())?;
    }
    Ok(())
}

/// A value as it reads best: strings bare, nothing as nothing.
fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn count(number: u64, tone: Tone) -> Cell {
    Cell::toned(number.to_string(), if number == 0 { Tone::Quiet } else { tone })
}
