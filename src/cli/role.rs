//! `svc role`: named sets of permissions.

use super::{
    api,
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
    table::{Cell, Fit, Table},
};
use crate::model::permission::Permission;
use serde_json::{Value, json};

command_family! {
    /// Manage roles. A role is a named set of permissions that users are given.
    #[argh(
        example = "{command_name} list\n{command_name} create emitter --permission use_spaces",
        note = "Permissions: use_spaces manage_spaces use_methods use_mcp_server manage_own_event_sinks \
                manage_global_event_sinks manage_own_scripts manage_global_scripts manage_users manage_groups \
                manage_roles view_audit_log"
    )]
    Role = "role" { List, Create, Show, Update, Delete }
}

client_command! {
    /// List roles.
    #[argh(example = "{command_name}")]
    List = "list" {}
}

client_command! {
    /// Create a role.
    #[argh(example = "{command_name} operator --permission use_spaces --permission manage_own_event_sinks")]
    Create = "create" {
        /// the role's name
        #[argh(positional)]
        name: String,

        /// a permission it gives; repeat for more
        #[argh(option, from_str_fn(permission))]
        permission: Vec<Permission>,
    }
}

client_command! {
    /// Show one role.
    #[argh(example = "{command_name} operator")]
    Show = "show" {
        /// the role's name or id
        #[argh(positional)]
        role: String,
    }
}

client_command! {
    /// Change a role. What is not mentioned stays.
    #[argh(example = "{command_name} operator --permission use_spaces --permission view_audit_log")]
    Update = "update" {
        /// the role's name or id
        #[argh(positional)]
        role: String,

        /// a new name
        #[argh(option)]
        name: Option<String>,

        /// a permission; repeat for more; these replace the ones there are
        #[argh(option, from_str_fn(permission))]
        permission: Vec<Permission>,
    }
}

client_command! {
    /// Delete a role. Its users lose what it gave them.
    #[argh(example = "{command_name} operator")]
    Delete = "delete" {
        /// the role's name or id
        #[argh(positional)]
        role: String,
    }
}

impl List {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let columns = [("NAME", Fit::Elastic), ("ID", Fit::Rigid), ("PERMISSIONS", Fit::Elastic)];
        let row = |role: api::Role| [role.name, role.id, role.permissions.join(", ")].map(Cell::from);
        Kind::Role.list(shell, &client, self.form(), columns, row)
    }
}

impl Create {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let body = json!({ "name": self.name, "permissions": self.permission });
        let answer = client.post(Kind::Role.path(), &body)?;
        Kind::Role.tell(shell, "created", &client, &answer, self.form())
    }
}

impl Show {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Role.path_of(&client, &self.role)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let role: api::Role = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", role.id);
        table.field("name", role.name);
        for (index, permission) in role.permissions.into_iter().enumerate() {
            table.row([if index == 0 { "permissions" } else { "" }.into(), permission.into()]);
        }
        shell.out.table(&table)
    }
}

impl Update {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut changes = json!({});
        if let Some(name) = &self.name {
            changes["name"] = name.as_str().into();
        }
        if !self.permission.is_empty() {
            changes["permissions"] = json!(self.permission);
        }
        if changes.as_object().is_none_or(serde_json::Map::is_empty) {
            return Err(Failure::Usage("nothing to change: give --name or --permission".to_owned()));
        }
        let client = self.client(shell)?;
        let answer = client.patch(&Kind::Role.path_of(&client, &self.role)?, &changes)?;
        Kind::Role.tell(shell, "updated", &client, &answer, self.form())
    }
}

impl Delete {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Role.delete(shell, &client, &self.role, self.form())
    }
}

fn permission(word: &str) -> Result<Permission, String> {
    serde_json::from_value(Value::from(word)).map_err(|_| {
        let known = Permission::ALL.iter().map(|permission| permission.as_str()).collect::<Vec<_>>().join(", ");
        format!("expected one of {known}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    #[test]
    fn a_permission_that_does_not_exist_is_refused_with_those_that_do() {
        let error = Create::from_args(&["create"], &["x", "--permission", "fly"]).unwrap_err();
        assert!(error.output.contains("view_audit_log"), "{}", error.output);
    }

    #[test]
    fn the_help_names_every_permission() {
        let help = Role::from_args(&["role"], &["--help"]).unwrap_err().output;
        let help = help.split_whitespace().collect::<Vec<_>>();
        for permission in Permission::ALL {
            assert!(help.contains(&permission.as_str()), "{permission}");
        }
    }
}
