//! `svc group`: sets of users that a shared method can be limited to.

use super::{
    api::Named,
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
    table::{Cell, Fit, Table},
};
use serde_json::json;

command_family! {
    /// Manage groups of users.
    #[argh(example = "{command_name} create web\nsvc user update ada --group web")]
    Group = "group" { List, Create, Show, Update, Delete }
}

client_command! {
    /// List groups.
    #[argh(example = "{command_name}")]
    List = "list" {}
}

client_command! {
    /// Create a group.
    #[argh(example = "{command_name} web")]
    Create = "create" {
        /// the group's name
        #[argh(positional)]
        name: String,
    }
}

client_command! {
    /// Show one group.
    #[argh(example = "{command_name} web")]
    Show = "show" {
        /// the group's name or id
        #[argh(positional)]
        group: String,
    }
}

client_command! {
    /// Rename a group.
    #[argh(example = "{command_name} web --name frontend")]
    Update = "update" {
        /// the group's name or id
        #[argh(positional)]
        group: String,

        /// the new name
        #[argh(option)]
        name: String,
    }
}

client_command! {
    /// Delete a group.
    #[argh(example = "{command_name} web")]
    Delete = "delete" {
        /// the group's name or id
        #[argh(positional)]
        group: String,
    }
}

impl List {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let columns = [("NAME", Fit::Elastic), ("ID", Fit::Rigid)];
        let row = |group: Named| [group.name, group.id].map(Cell::from);
        Kind::Group.list(shell, &client, self.form(), columns, row)
    }
}

impl Create {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.post(Kind::Group.path(), &json!({ "name": self.name }))?;
        Kind::Group.tell(shell, "created", &client, &answer, self.form())
    }
}

impl Show {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Group.path_of(&client, &self.group)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let group: Named = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", group.id);
        table.field("name", group.name);
        shell.out.table(&table)
    }
}

impl Update {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = Kind::Group.path_of(&client, &self.group)?;
        let answer = client.patch(&path, &json!({ "name": self.name }))?;
        Kind::Group.tell(shell, "updated", &client, &answer, self.form())
    }
}

impl Delete {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Group.delete(shell, &client, &self.group, self.form())
    }
}
