//! `svc role`, `svc group` and `svc token`: permissions, sets of users, and API tokens. Users are in
//! [`super::user`].

use super::{
    arguments::{Moment, brief},
    client::{Client, QueryString},
    failure::Failure,
    resource::{self, Resource, ResourceKind, joined},
    shell::{OutputFormat, Shell},
    table::{Cell, Fit, TextTable},
};
use crate::model::{
    api::identity::{GroupView, IssuedToken, RoleView, TokenView},
    permission::{Permission, TokenScope},
};
use serde_json::{Value, json};

command_family! {
    /// Manage roles: named sets of permissions that users are given.
    #[argh(
        example = "{command_name} list\n{command_name} create emitter --permission use_spaces",
        note = "Permissions: use_spaces manage_spaces use_methods use_mcp_server manage_own_event_sinks \
                manage_global_event_sinks manage_own_scripts manage_global_scripts manage_users manage_groups \
                manage_roles view_audit_log"
    )]
    RoleCommand(RoleSubcommand) = "role" { ListRoles, CreateRole, ShowRole, UpdateRole, DeleteRole }
}

command_family! {
    /// Manage groups of users.
    #[argh(example = "{command_name} create web\nsvc user update ada --group web")]
    GroupCommand(GroupSubcommand) = "group" { ListGroups, CreateGroup, ShowGroup, UpdateGroup, DeleteGroup }
}

command_family! {
    /// Manage API tokens: your own, and those of others if you manage users.
    #[argh(example = "{command_name} create ci --expires 90d\n{command_name} list\n{command_name} delete ci")]
    TokenCommand(TokenSubcommand) = "token" { ListTokens, CreateToken, ShowToken, DeleteToken }
}

list_command! {
    /// List roles.
    #[argh(example = "{command_name}")]
    ListRoles of RoleView
}

show_and_delete_commands! {
    /// Show one role.
    #[argh(example = "{command_name} operator")]
    ShowRole,
    /// Delete a role. Its users lose the permissions it gave them.
    #[argh(example = "{command_name} operator")]
    DeleteRole
    of RoleView by
    /// the role's name or id
    role
}

client_command! {
    /// Create a role.
    #[argh(example = "{command_name} operator --permission use_spaces --permission manage_own_event_sinks")]
    CreateRole = "create" {
        /// the role's name
        #[argh(positional)]
        name: String,

        /// a permission it gives; repeat for more
        #[argh(option, from_str_fn(parse_permission))]
        permission: Vec<Permission>,
    }
}

client_command! {
    /// Change a role. What is not mentioned stays.
    #[argh(example = "{command_name} operator --permission use_spaces --permission view_audit_log")]
    UpdateRole = "update" {
        /// the role's name or id
        #[argh(positional)]
        role: String,

        /// a new name
        #[argh(option)]
        name: Option<String>,

        /// a permission; repeat for more; these replace the ones there are
        #[argh(option, from_str_fn(parse_permission))]
        permission: Vec<Permission>,
    }
}

list_command! {
    /// List groups.
    #[argh(example = "{command_name}")]
    ListGroups of GroupView
}

client_command! {
    /// Show one group.
    #[argh(example = "{command_name} web")]
    ShowGroup = "show" {
        /// the group's name or id
        #[argh(positional)]
        group: String,
    }
}

client_command! {
    /// Delete a group. One that methods are limited to is kept, unless it is deleted by force.
    #[argh(example = "{command_name} web\n{command_name} web --force")]
    DeleteGroup = "delete" {
        /// the group's name or id
        #[argh(positional)]
        group: String,

        /// delete it even if methods are limited to it: its members do not see them any more
        #[argh(switch)]
        force: bool,
    }
}

client_command! {
    /// Create a group.
    #[argh(example = "{command_name} web")]
    CreateGroup = "create" {
        /// the group's name
        #[argh(positional)]
        name: String,
    }
}

client_command! {
    /// Rename a group.
    #[argh(example = "{command_name} web --name frontend")]
    UpdateGroup = "update" {
        /// the group's name or id
        #[argh(positional)]
        group: String,

        /// the new name
        #[argh(option)]
        name: String,
    }
}

client_command! {
    /// List your tokens, or those of another user if you manage users.
    #[argh(example = "{command_name}\n{command_name} --user ada")]
    ListTokens = "list" {
        /// the user's name or id
        #[argh(option)]
        user: Option<String>,
    }
}

client_command! {
    /// Show one token's record.
    #[argh(example = "{command_name} ci")]
    ShowToken = "show" {
        /// the token's name or id
        #[argh(positional)]
        token_name: String,
    }
}

client_command! {
    /// Delete a token, or one of another user if you manage users. Programs that use it are cut off at once.
    #[argh(
        example = "{command_name} ci\n{command_name} ci --user ada",
        note = "`svc user update ada --revoke-tokens` deletes all tokens of a user."
    )]
    DeleteToken = "delete" {
        /// the token's name or id
        #[argh(positional)]
        token_name: String,

        /// the user's name or id
        #[argh(option)]
        user: Option<String>,
    }
}

client_command! {
    /// Make a token and print it, this once: the server keeps only a hash.
    #[argh(
        example = "{command_name} ci --expires 90d\nTOKEN=$({command_name} metrics-reader --scope methods)\n{command_name} deploy --user deploy-bot"
    )]
    CreateToken = "create" {
        /// a name to know it by
        #[argh(positional)]
        name: String,

        /// limit it to methods or mcp; repeat for both; without, it has all permissions of its user
        #[argh(option, from_str_fn(parse_scope))]
        scope: Vec<TokenScope>,

        /// the name or id of another user, whom you may change: the token is for that user
        #[argh(option)]
        user: Option<String>,

        /// when it stops working: a time, or a span such as 90d
        #[argh(option, arg_name = "when")]
        expires: Option<Moment>,
    }
}

impl CreateRole {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let body = json!({ "name": self.name, "permissions": self.permission });
        let answer = client.post(ResourceKind::ROLE.path, &body)?;
        ResourceKind::ROLE.report(shell, "created", &client, &answer, self.format())
    }
}

impl UpdateRole {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
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
        let answer = client.patch(&ResourceKind::ROLE.path_of(&client, &self.role)?, &changes)?;
        ResourceKind::ROLE.report(shell, "updated", &client, &answer, self.format())
    }
}

impl ShowGroup {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        resource::show::<GroupView>(shell, &client, &self.group, self.format())
    }
}

impl DeleteGroup {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default().with_some("force", self.force.then_some("true"));
        ResourceKind::GROUP.delete_with(shell, &client, &self.group, &query, self.format())
    }
}

impl CreateGroup {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.post(ResourceKind::GROUP.path, &json!({ "name": self.name }))?;
        ResourceKind::GROUP.report(shell, "created", &client, &answer, self.format())
    }
}

impl UpdateGroup {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = ResourceKind::GROUP.path_of(&client, &self.group)?;
        let answer = client.patch(&path, &json!({ "name": self.name }))?;
        ResourceKind::GROUP.report(shell, "updated", &client, &answer, self.format())
    }
}

impl ListTokens {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = match &self.user {
            Some(user) => tokens_of(&client, user)?,
            None => ResourceKind::TOKEN.path.to_owned(),
        };
        resource::list_at::<TokenView>(shell, &client, &path, &QueryString::default(), self.format())
    }
}

impl ShowToken {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        resource::show::<TokenView>(shell, &client, &self.token_name, self.format())
    }
}

impl DeleteToken {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let found = match &self.user {
            Some(user) => ResourceKind::TOKEN.find_at(&client, &tokens_of(&client, user)?, &self.token_name)?,
            None => ResourceKind::TOKEN.find(&client, &self.token_name)?,
        };
        ResourceKind::TOKEN.delete_found(shell, &client, &found, &QueryString::default(), self.format())
    }
}

/// The path of the tokens of the user with this name or id.
fn tokens_of(client: &Client, user: &str) -> Result<String, Failure> {
    Ok(format!("{}/tokens", ResourceKind::USER.path_of(client, user)?))
}

impl CreateToken {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let mut body = json!({ "name": self.name, "scopes": self.scope });
        if let Some(moment) = self.expires {
            body["expires_at"] = json!(moment.future());
        }
        let path = match &self.user {
            Some(user) => tokens_of(&client, user)?,
            None => ResourceKind::TOKEN.path.to_owned(),
        };
        let answer = client.post(&path, &body)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let issued: IssuedToken = client.read(&answer)?;
        // The secret is alone on stdout, so that a script can capture it.
        shell.out.line(&issued.token)?;
        shell.note(&format!("created token `{}`; keep it now, it is not shown again", issued.record.name));
        Ok(())
    }
}

impl Resource for RoleView {
    const KIND: ResourceKind = ResourceKind::ROLE;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] =
        &[("NAME", Fit::Elastic), ("ID", Fit::Rigid), ("PERMISSIONS", Fit::Elastic)];

    fn row(role: Self) -> Vec<Cell> {
        vec![role.name.to_string().into(), role.id.to_string().into(), joined(role.permissions).into()]
    }

    fn add_fields(&self, table: &mut TextTable, _: &Client) {
        table.field("id", self.id.to_string());
        table.field("name", self.name.as_str());
        for (index, permission) in self.permissions.iter().enumerate() {
            table.row([if index == 0 { "permissions" } else { "" }.into(), permission.to_string().into()]);
        }
    }
}

impl Resource for GroupView {
    const KIND: ResourceKind = ResourceKind::GROUP;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[("NAME", Fit::Elastic), ("ID", Fit::Rigid)];

    fn row(group: Self) -> Vec<Cell> {
        vec![group.name.to_string().into(), group.id.to_string().into()]
    }

    fn add_fields(&self, table: &mut TextTable, _: &Client) {
        table.field("id", self.id.to_string());
        table.field("name", self.name.as_str());
    }
}

impl Resource for TokenView {
    const KIND: ResourceKind = ResourceKind::TOKEN;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("SCOPES", Fit::Rigid),
        ("CREATED", Fit::Rigid),
        ("LAST USED", Fit::Rigid),
        ("EXPIRES", Fit::Rigid),
        ("ID", Fit::Rigid),
    ];

    fn row(token: Self) -> Vec<Cell> {
        vec![
            token.name.as_str().into(),
            scopes(&token).into(),
            brief(token.created_at).into(),
            token.last_used_at.map_or("never".to_owned(), brief).into(),
            token.expires_at.map_or("never".to_owned(), brief).into(),
            token.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, _: &Client) {
        table.field("id", self.id.to_string());
        table.field("name", self.name.as_str());
        table.field("scopes", scopes(self));
        table.field("created", brief(self.created_at));
        table.field("last used", self.last_used_at.map_or("never".to_owned(), brief));
        table.field("expires", self.expires_at.map_or("never".to_owned(), brief));
    }
}

fn scopes(token: &TokenView) -> String {
    if token.scopes.is_empty() { "all".to_owned() } else { joined(&token.scopes) }
}

fn parse_permission(word: &str) -> Result<Permission, String> {
    serde_json::from_value(Value::from(word)).map_err(|_| format!("expected one of {}", joined(Permission::ALL)))
}

fn parse_scope(word: &str) -> Result<TokenScope, String> {
    serde_json::from_value(Value::from(word)).map_err(|_| format!("expected one of {}", joined(TokenScope::ALL)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    #[test]
    fn a_permission_that_does_not_exist_is_refused_with_those_that_do() {
        let error = CreateRole::from_args(&["create"], &["x", "--permission", "fly"]).unwrap_err();
        assert!(error.output.contains("view_audit_log"), "{}", error.output);
    }

    #[test]
    fn the_help_names_every_permission() {
        let help = RoleCommand::from_args(&["role"], &["--help"]).unwrap_err().output;
        let help = help.split_whitespace().collect::<Vec<_>>();
        for permission in Permission::ALL {
            assert!(help.contains(&permission.as_str()), "{permission}");
        }
    }
}
