//! `svc sink list`, `show` and `delete`.

use crate::{
    cli::{
        api,
        client::Query,
        failure::Failure,
        named::Kind,
        shell::{Form, Shell},
        table::{Cell, Fit, Table, Tone, printable},
        time::brief,
        user::yes_or_no,
    },
    model::{body_template::BodyTemplate, owner::OwnerSpec, sink_spec::ScriptSinkSpec},
};

client_command! {
    /// List your sinks, and the global ones if you manage those.
    #[argh(example = "{command_name}\n{command_name} --owner global --json")]
    List = "list" {
        /// only those of this owner: me or global
        #[argh(option, from_str_fn(owner_word))]
        owner: Option<OwnerSpec>,
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

impl List {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = Query::default().with_some("owner", self.owner.map(api::owner));
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
            let [name, events, id] = [sink.name, sink.events, sink.id].map(Cell::from);
            let (owner, kind) = (api::owner(sink.owner).into(), sink.kind.to_string().into());
            let (depth, dead) =
                (Cell::count(sink.queue.depth, Tone::Doubtful), Cell::count(sink.queue.dead, Tone::Bad));
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
        table.field("owner", api::owner(sink.owner));
        table.field("type", sink.kind.to_string());
        table.field("events", sink.events);
        table.field("active", yes_or_no(sink.active));
        table.field("queued", Cell::count(sink.queue.depth, Tone::Doubtful));
        table.field("dead", Cell::count(sink.queue.dead, Tone::Bad));
        table.field("next sequence", sink.queue.next_sequence.to_string());
        let webhook_template = sink.webhook.as_ref().and_then(|webhook| webhook.template.clone());
        if let Some(webhook) = sink.webhook {
            table.field("url", webhook.url);
            table.field("secret", webhook.secret.unwrap_or_default());
            for (name, value) in webhook.headers {
                table.field("header", format!("{name}: {value}"));
            }
            if webhook.skip_tls_verify {
                table.field("certificate", Cell::toned("not verified", Tone::Doubtful));
            }
        }
        if let Some(id) = sink.script.as_ref().and_then(|script| script.script_id) {
            table.field("stored script", Kind::Script.called(&client, &id.to_string()));
        }
        table.field("created", brief(sink.created_at));
        table.field("updated", brief(sink.updated_at));
        shell.out.table(&table)?;
        match (sink.template.or(webhook_template), sink.script) {
            (Some(BodyTemplate::Lua(source)), _) => show_source(shell, "template (lua)", &source),
            (Some(BodyTemplate::Text(source)), _) => show_source(shell, "template (text)", &source),
            (None, Some(ScriptSinkSpec { source: Some(source), .. })) => show_source(shell, "script", &source),
            (None, _) => Ok(()),
        }
    }
}

impl Delete {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Sink.delete(shell, &client, &self.sink, self.form())
    }
}

/// A program under its title. Tabs are its author's business; nothing else that moves the cursor is.
pub fn show_source(shell: &mut Shell<'_>, title: &str, source: &str) -> Result<(), Failure> {
    shell.out.line(&format!("\n{title}:"))?;
    for line in source.lines() {
        shell.out.line(format!("  {}", line.split('\t').map(printable).collect::<Vec<_>>().join("\t")).trim_end())?;
    }
    Ok(())
}

pub fn owner_word(word: &str) -> Result<OwnerSpec, String> {
    [OwnerSpec::Me, OwnerSpec::Global]
        .into_iter()
        .find(|owner| api::owner(*owner) == word)
        .ok_or_else(|| "expected me or global".to_owned())
}
