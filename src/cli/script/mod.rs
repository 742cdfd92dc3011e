//! `svc script`: programs stored on the server by name. [`apply`] stores a file and [`run`] runs one.

mod apply;
mod run;

pub use apply::ApplyScript;
pub use run::RunScript;

use crate::{
    cli::{
        arguments::brief,
        client::{Client, QueryString},
        failure::Failure,
        resource::{self, Resource, ResourceKind, print_source},
        shell::Shell,
        table::{Cell, Fit, TextTable, yes_or_no},
    },
    model::{
        api::scripts::{ScriptSummary, ScriptView},
        owner::OwnerSpec,
        script_spec::ScriptKind,
    },
};

command_family! {
    /// Manage stored scripts: the Lua that sinks and spaces run, libraries, and tools.
    #[argh(
        example = "{command_name} apply shout.lua\n\
                   {command_name} apply acme.text.lua --kind library --global\n\
                   {command_name} run add '{{\"a\": 1, \"b\": 2}}'"
    )]
    ScriptCommand(ScriptSubcommand) = "script" { ListScripts, ShowScript, ApplyScript, RunScript, DeleteScript }
}

client_command! {
    /// List your stored scripts and the global ones.
    #[argh(example = "{command_name}\n{command_name} --kind library --owner global")]
    ListScripts = "list" {
        /// only those of this kind: script, library or tool
        #[argh(option)]
        kind: Option<ScriptKind>,

        /// only those of this owner: me or global
        #[argh(option)]
        owner: Option<OwnerSpec>,
    }
}

show_and_delete_commands! {
    /// Show one stored script and its source.
    #[argh(example = "{command_name} shout")]
    ShowScript,
    /// Delete a stored script that no sink, space or template names.
    #[argh(example = "{command_name} shout")]
    DeleteScript
    of ScriptView by
    /// the script's name or id; of two of one name, yours
    script
}

impl ListScripts {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default().with_some("kind", self.kind).with_some("owner", self.owner);
        resource::list::<ScriptView>(shell, &client, &query, self.format())
    }
}

impl Resource for ScriptView {
    const KIND: ResourceKind = ResourceKind::SCRIPT;
    type Item = ScriptSummary;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("KIND", Fit::Rigid),
        ("LANGUAGE", Fit::Rigid),
        ("OWNER", Fit::Rigid),
        ("ACTIVE", Fit::Rigid),
        ("DESCRIPTION", Fit::Elastic),
        ("ID", Fit::Rigid),
    ];

    fn row(script: ScriptSummary) -> Vec<Cell> {
        vec![
            script.name.into(),
            script.kind.as_str().into(),
            script.language.as_str().into(),
            script.owner.as_str().into(),
            yes_or_no(script.active),
            script.description.into(),
            script.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, _: &Client) {
        let script = &self.summary;
        table.field("id", script.id.to_string());
        table.field("name", script.name.as_str());
        table.field("description", script.description.as_str());
        table.field("kind", script.kind.as_str());
        table.field("language", script.language.as_str());
        table.field("owner", script.owner.as_str());
        table.field("active", yes_or_no(script.active));
        if let Some(schema) = &self.params_schema {
            table.field("params schema", schema.to_string());
        }
        table.field("created", brief(script.created_at));
        table.field("updated", brief(script.updated_at));
    }

    fn show_source(&self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        print_source(shell, "content", &self.content)
    }
}
