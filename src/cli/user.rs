//! `svc user`: who may log in, with which roles and groups.

use super::{
    api,
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
    table::{Cell, Fit, Table, Tone},
    time::brief,
};
use serde_json::{Map, Value, json};

command_family! {
    /// Manage users.
    #[argh(example = "{command_name} create ada --role operator\n{command_name} update ada --deactivate")]
    User = "user" { List, Create, Show, Update, Delete }
}

client_command! {
    /// List users.
    #[argh(example = "{command_name}")]
    List = "list" {}
}

client_command! {
    /// Create a user. Asks for a password at a terminal.
    #[argh(
        example = "{command_name} ada --role operator --group web\n\
                   {command_name} deploy-bot --role emitter --no-password\n\
                   pass show ada | {command_name} ada --password-stdin"
    )]
    Create = "create" {
        /// the user's name
        #[argh(positional)]
        name: String,

        /// a role to give (name or id); repeat for more
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
    /// Show one user.
    #[argh(example = "{command_name} ada")]
    Show = "show" {
        /// the user's name or id
        #[argh(positional)]
        user: String,
    }
}

client_command! {
    /// Change a user. What is not mentioned stays.
    #[argh(
        example = "{command_name} ada --role operator --role auditor\n\
                   {command_name} ada --password\n\
                   {command_name} ada --deactivate"
    )]
    Update = "update" {
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
    }
}

client_command! {
    /// Delete a user. Their tokens and sessions end at once.
    #[argh(example = "{command_name} ada")]
    Delete = "delete" {
        /// the user's name or id
        #[argh(positional)]
        user: String,
    }
}

/// Where a password comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Password {
    Asked,
    /// Asked twice: a new one with a typo would lock its user out.
    Chosen,
    Stdin,
    None,
}

impl List {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let columns = [
            ("NAME", Fit::Elastic),
            ("ACTIVE", Fit::Rigid),
            ("ROLES", Fit::Elastic),
            ("GROUPS", Fit::Elastic),
            ("ID", Fit::Rigid),
        ];
        Kind::User.list(shell, &client, self.form(), columns, |user: api::User| {
            let (roles, groups) = (api::names(&user.roles), api::names(&user.groups));
            [user.name.into(), yes_or_no(user.active), roles.into(), groups.into(), user.id.into()]
        })
    }
}

impl Create {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let source = match (self.password_stdin, self.no_password) {
            (true, true) => {
                return Err(Failure::Usage("--password-stdin and --no-password exclude each other".to_owned()));
            }
            (true, false) => Password::Stdin,
            (false, true) => Password::None,
            (false, false) => Password::Chosen,
        };
        let client = self.client(shell)?;
        let mut body = json!({ "name": self.name, "roles": self.role, "groups": self.group });
        if let Some(password) = source.read(shell, "Password for the new user")? {
            body["password"] = password.into();
        }
        let answer = client.post(Kind::User.path(), &body)?;
        Kind::User.tell(shell, "created", &client, &answer, self.form())
    }
}

impl Show {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::User.path_of(&client, &self.user)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let user: api::User = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", user.id);
        table.field("name", user.name);
        table.field("active", yes_or_no(user.active));
        table.field("roles", api::names(&user.roles));
        table.field("groups", api::names(&user.groups));
        table.field("created", user.created_at.map(brief).unwrap_or_default());
        shell.out.table(&table)
    }
}

impl Update {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut changes = self.changes()?;
        let source = match (self.password, self.password_stdin) {
            (true, true) => {
                return Err(Failure::Usage("--password and --password-stdin exclude each other".to_owned()));
            }
            (true, false) => Password::Chosen,
            (false, true) => Password::Stdin,
            (false, false) => Password::None,
        };
        if changes.is_empty() && source == Password::None {
            return Err(Failure::Usage("nothing to change: see `svc user update --help`".to_owned()));
        }
        let client = self.client(shell)?;
        let path = Kind::User.path_of(&client, &self.user)?;
        if let Some(password) = source.read(shell, "New password")? {
            changes.insert("password".to_owned(), password.into());
        }
        let answer = client.patch(&path, &Value::Object(changes))?;
        Kind::User.tell(shell, "updated", &client, &answer, self.form())
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

impl Delete {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::User.delete(shell, &client, &self.user, self.form())
    }
}

impl Password {
    /// The password, if there is to be one.
    ///
    /// # Errors
    ///
    /// Fails if there is nobody to ask, or stdin has none.
    pub fn read(self, shell: &mut Shell<'_>, question: &str) -> Result<Option<String>, Failure> {
        let mut ask =
            |question: &str| shell.ask_secret(question, "no terminal to ask for a password at: use --password-stdin");
        let password = match self {
            Self::None => return Ok(None),
            Self::Asked => ask(question)?,
            Self::Chosen => {
                let password = ask(question)?;
                if ask("The same again")? != password {
                    return Err(Failure::Usage("the two passwords differ: nothing was sent".to_owned()));
                }
                password
            }
            Self::Stdin => shell.read_input()?.lines().next().unwrap_or_default().to_owned(),
        };
        match password.is_empty() {
            true => Err(Failure::Usage("the password is empty: nothing was sent".to_owned())),
            false => Ok(Some(password)),
        }
    }
}

/// A switch's state in a table.
pub fn yes_or_no(on: bool) -> Cell {
    if on { "yes".into() } else { Cell::toned("no", Tone::Quiet) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn changes(words: &[&str]) -> Result<Value, Failure> {
        Update::from_args(&["svc", "user", "update"], words).unwrap().changes().map(Value::Object)
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
