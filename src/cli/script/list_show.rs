//! `svc script list`, `show` and `delete`.

use crate::{
    cli::{
        api,
        client::Query,
        failure::Failure,
        named::Kind,
        shell::{Form, Shell},
        sink::{owner_word, show_source},
        table::{Fit, Table},
        time::brief,
        user::yes_or_no,
    },
    model::{owner::OwnerSpec, script_spec::ScriptKind},
};

client_command! {
    /// List your stored scripts and the global ones.
    #[argh(example = "{command_name}\n{command_name} --kind library --owner global")]
    List = "list" {
        /// only those of this kind: script, library or tool
        #[argh(option, from_str_fn(kind_word))]
        kind: Option<ScriptKind>,

        /// only those of this owner: me or global
        #[argh(option, from_str_fn(owner_word))]
        owner: Option<OwnerSpec>,
    }
}

client_command! {
    /// Show one stored script and its source.
    #[argh(example = "{command_name} shout")]
    Show = "show" {
        /// the script's name or id; of two of one name, yours
        #[argh(positional)]
        script: String,
    }
}

client_command! {
    /// Delete a stored script that no sink, space or template names.
    #[argh(example = "{command_name} shout")]
    Delete = "delete" {
        /// the script's name or id; of two of one name, yours
        #[argh(positional)]
        script: String,
    }
}

impl List {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = Query::default()
            .with_some("kind", self.kind.map(ScriptKind::as_str))
            .with_some("owner", self.owner.map(api::owner));
        let listing = client.list(Kind::Script.path(), &query, usize::MAX)?;
        if self.form() == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = Table::new(&[
            ("NAME", Fit::Elastic),
            ("KIND", Fit::Rigid),
            ("LANGUAGE", Fit::Rigid),
            ("OWNER", Fit::Rigid),
            ("ACTIVE", Fit::Rigid),
            ("DESCRIPTION", Fit::Elastic),
            ("ID", Fit::Rigid),
        ]);
        for script in listing.read::<api::Script>(&client)? {
            let (kind, language) = (script.kind.as_str().into(), script.language.as_str().into());
            let (owner, active) = (api::owner(script.owner).into(), yes_or_no(script.active));
            table.row([script.name.into(), kind, language, owner, active, script.description.into(), script.id.into()]);
        }
        shell.out.table(&table)
    }
}

impl Show {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Script.path_of(&client, &self.script)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let script: api::Script = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", script.id);
        table.field("name", script.name);
        table.field("description", script.description);
        table.field("kind", script.kind.as_str());
        table.field("language", script.language.as_str());
        table.field("owner", api::owner(script.owner));
        table.field("active", yes_or_no(script.active));
        if let Some(schema) = script.params_schema {
            table.field("params schema", schema.to_string());
        }
        table.field("created", brief(script.created_at));
        table.field("updated", brief(script.updated_at));
        shell.out.table(&table)?;
        show_source(shell, "content", &script.content)
    }
}

impl Delete {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Script.delete(shell, &client, &self.script, self.form())
    }
}

pub(super) fn kind_word(word: &str) -> Result<ScriptKind, String> {
    let known = ScriptKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    known.ok_or_else(|| "expected script, library or tool".to_owned())
}
