//! `svc user`: the users who may log in, with their roles and groups.

use super::{
    arguments::{PasswordSource, brief},
    client::{Client, QueryString},
    failure::Failure,
    resource::{Resource, ResourceKind, joined},
    shell::Shell,
    table::{Cell, Fit, TextTable, yes_or_no},
};
use crate::model::api::identity::{TokenView, UserView};
use serde_json::{Map, Value, json};

command_family! {
    /// Manage users.
    #[argh(example = "{command_name} create ada --role member\n{command_name} update ada --deactivate")]
    UserCommand(UserSubcommand) = "user" { ListUsers, CreateUser, ShowUser, UpdateUser, DeleteUser }
}

list_command! {
    /// List users.
    #[argh(example = "{command_name}")]
    ListUsers of UserView
}

show_and_delete_commands! {
    /// Show one user.
    #[argh(example = "{command_name} ada")]
    ShowUser,
    /// Delete a user. Their tokens and sessions end at once.
    #[argh(example = "{command_name} ada")]
    DeleteUser
    of UserView by
    /// the user's name or id
    user
}

client_command! {
    /// Create a user. Asks for a password at a terminal.
    #[argh(
        example = "{command_name} ada --role member --group web\n\
                   {command_name} deploy-bot --role member --no-password\n\
                   pass show ada | {command_name} ada --password-stdin"
    )]
    CreateUser = "create" {
        /// the user's name
        #[argh(positional)]
        name: String,

        /// a role to give (name or id), such as member or one that `svc role create` made; repeat for more
        #[argh(option)]
        role: Vec<String>,

        /// a group to join (name or id); repeat for more
        #[argh(option)]
        group: Vec<String>,

        /// read the password from the first line of stdin
        #[argh(switch)]
        password_stdin: bool,

        /// set no password: the user works with tokens only
        #[argh(switch)]
        no_password: bool,
    }
}

client_command! {
    /// Change a user. What is not mentioned stays.
    #[argh(
        example = "{command_name} ada --role member --role admin\n\
                   {command_name} ada --password --revoke-tokens\n\
                   {command_name} ada --deactivate"
    )]
    UpdateUser = "update" {
        /// the user's name or id
        #[argh(positional)]
        user: String,

        /// a new name
        #[argh(option)]
        name: Option<String>,

        /// a role (name or id); repeat for more; these replace the ones there are
        #[argh(option)]
        role: Vec<String>,

        /// a group (name or id); repeat for more; these replace the ones there are
        #[argh(option)]
        group: Vec<String>,

        /// take all roles away
        #[argh(switch)]
        no_roles: bool,

        /// take out of all groups
        #[argh(switch)]
        no_groups: bool,

        /// let the user in again
        #[argh(switch)]
        activate: bool,

        /// shut the user out
        #[argh(switch)]
        deactivate: bool,

        /// ask for a new password
        #[argh(switch)]
        password: bool,

        /// read a new password from the first line of stdin
        #[argh(switch)]
        password_stdin: bool,

        /// revoke the user's API tokens, which a new password leaves valid
        #[argh(switch)]
        revoke_tokens: bool,
    }
}

impl CreateUser {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let source = match (self.password_stdin, self.no_password) {
            (true, true) => {
                return Err(Failure::Usage("--password-stdin and --no-password exclude each other".to_owned()));
            }
            (true, false) => PasswordSource::Stdin,
            (false, true) => PasswordSource::None,
            (false, false) => PasswordSource::Chosen,
        };
        let client = self.client(shell)?;
        let mut body = json!({ "name": self.name, "roles": self.role, "groups": self.group });
        if let Some(password) = source.read(shell, "Password for the new user")? {
            body["password"] = password.into();
        }
        let answer = client.post(ResourceKind::USER.path, &body)?;
        ResourceKind::USER.report(shell, "created", &client, &answer, self.format())
    }
}

impl UpdateUser {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut changes = self.changes()?;
        let source = match (self.password, self.password_stdin) {
            (true, true) => {
                return Err(Failure::Usage("--password and --password-stdin exclude each other".to_owned()));
            }
            (true, false) => PasswordSource::Chosen,
            (false, true) => PasswordSource::Stdin,
            (false, false) => PasswordSource::None,
        };
        if changes.is_empty() && source == PasswordSource::None {
            return Err(Failure::Usage("nothing to change: see `svc user update --help`".to_owned()));
        }
        let client = self.client(shell)?;
        let path = ResourceKind::USER.path_of(&client, &self.user)?;
        if let Some(password) = source.read(shell, "New password")? {
            changes.insert("password".to_owned(), password.into());
        }
        let resets_password = source != PasswordSource::None;
        let answer = client.patch(&path, &Value::Object(changes))?;
        ResourceKind::USER.report(shell, "updated", &client, &answer, self.format())?;
        if resets_password && !self.revoke_tokens {
            // The password is set. If the tokens cannot be counted, the advice is left out.
            let tokens = client.list(&format!("{path}/tokens"), &QueryString::default(), usize::MAX);
            let count = tokens.and_then(|tokens| tokens.read::<TokenView>(&client)).map_or(0, |tokens| tokens.len());
            if count > 0 {
                let user = &self.user;
                shell.note(&format!(
                    "{count} API tokens of `{user}` stay valid: `svc token list --user {user}` shows them, and \
                     `svc user update {user} --revoke-tokens` revokes them"
                ));
            }
        }
        Ok(())
    }

    /// The fields that change; nothing else is sent.
    fn changes(&self) -> Result<Map<String, Value>, Failure> {
        let mut changes = Map::new();
        if let Some(name) = &self.name {
            changes.insert("name".to_owned(), name.as_str().into());
        }
        for (field, list, none) in [("roles", &self.role, self.no_roles), ("groups", &self.group, self.no_groups)] {
            match (list.is_empty(), none) {
                (false, true) => {
                    return Err(Failure::Usage(format!(
                        "--no-{field} leaves no room for others: use one or the other"
                    )));
                }
                (true, false) => {}
                (false, false) | (true, true) => {
                    changes.insert(field.to_owned(), list.clone().into());
                }
            }
        }
        if self.revoke_tokens {
            changes.insert("revoke_tokens".to_owned(), true.into());
        }
        match (self.activate, self.deactivate) {
            (true, true) => Err(Failure::Usage("--activate and --deactivate exclude each other".to_owned())),
            (false, false) => Ok(changes),
            (active, _) => {
                changes.insert("active".to_owned(), active.into());
                Ok(changes)
            }
        }
    }
}

impl Resource for UserView {
    const KIND: ResourceKind = ResourceKind::USER;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("ACTIVE", Fit::Rigid),
        ("ROLES", Fit::Elastic),
        ("GROUPS", Fit::Elastic),
        ("ID", Fit::Rigid),
    ];

    fn row(user: Self) -> Vec<Cell> {
        vec![
            user.name.to_string().into(),
            yes_or_no(user.active),
            joined(user.roles.iter().map(|role| &role.name)).into(),
            joined(user.groups.iter().map(|group| &group.name)).into(),
            user.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, _: &Client) {
        table.field("id", self.id.to_string());
        table.field("name", self.name.as_str());
        table.field("active", yes_or_no(self.active));
        table.field("roles", joined(self.roles.iter().map(|role| &role.name)));
        table.field("groups", joined(self.groups.iter().map(|group| &group.name)));
        table.field("created", brief(self.created_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn changes(words: &[&str]) -> Result<Value, Failure> {
        UpdateUser::from_args(&["svc", "user", "update"], words).unwrap().changes().map(Value::Object)
    }

    #[test]
    fn only_what_is_mentioned_changes() {
        assert_eq!(changes(&["ada"]).unwrap(), json!({}));
        assert_eq!(changes(&["ada", "--deactivate"]).unwrap(), json!({ "active": false }));
        let all = changes(&["ada", "--name", "eve", "--role", "a", "--role", "b", "--no-groups"]).unwrap();
        assert_eq!(all, json!({ "name": "eve", "roles": ["a", "b"], "groups": [] }));
    }

    #[test]
    fn contradictions_are_bad_usage() {
        for words in [&["ada", "--activate", "--deactivate"][..], &["ada", "--role", "a", "--no-roles"]] {
            assert_eq!(changes(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
