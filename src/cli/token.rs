//! `svc token`: the caller's own API tokens.

use super::{
    api,
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
    table::{Cell, Fit, Table},
    time::{Moment, brief},
};
use serde_json::json;

command_family! {
    /// Manage your API tokens.
    #[argh(example = "{command_name} create ci --expires 90d\n{command_name} list\n{command_name} delete ci")]
    Token = "token" { List, Create, Show, Delete }
}

client_command! {
    /// List your tokens.
    #[argh(example = "{command_name}")]
    List = "list" {}
}

client_command! {
    /// Make a token and print it, this once: the server keeps only a hash.
    #[argh(example = "{command_name} ci --expires 90d\nTOKEN=$({command_name} metrics-reader --scope methods)")]
    Create = "create" {
        /// a name to know it by
        #[argh(positional)]
        name: String,

        /// what it may reach: methods or mcp; repeat for both; all that you may, if left out
        #[argh(option)]
        scope: Vec<String>,

        /// when it stops working: a time, or a span such as 90d
        #[argh(option, arg_name = "when")]
        expires: Option<Moment>,
    }
}

client_command! {
    /// Show one token's record.
    #[argh(example = "{command_name} ci")]
    Show = "show" {
        /// the token's name or id
        #[argh(positional)]
        token_name: String,
    }
}

client_command! {
    /// Delete a token. Whoever uses it is cut off at once.
    #[argh(example = "{command_name} ci")]
    Delete = "delete" {
        /// the token's name or id
        #[argh(positional)]
        token_name: String,
    }
}

impl List {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let columns = [
            ("NAME", Fit::Elastic),
            ("SCOPES", Fit::Rigid),
            ("CREATED", Fit::Rigid),
            ("LAST USED", Fit::Rigid),
            ("EXPIRES", Fit::Rigid),
            ("ID", Fit::Rigid),
        ];
        Kind::Token.list(shell, &client, self.form(), columns, |token: api::Token| {
            let scopes = scopes(&token);
            [
                Cell::from(token.name),
                scopes.into(),
                brief(token.created_at).into(),
                token.last_used_at.map_or("never".to_owned(), brief).into(),
                token.expires_at.map_or("never".to_owned(), brief).into(),
                token.id.into(),
            ]
        })
    }
}

impl Create {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let mut body = json!({ "name": self.name, "scopes": self.scope });
        if let Some(moment) = self.expires {
            body["expires_at"] = json!(moment.future());
        }
        let answer = client.post(Kind::Token.path(), &body)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let token: api::Token = client.read(&answer)?;
        // The secret alone on stdout, so that a script can catch it.
        shell.out.line(token.token.as_deref().unwrap_or_default())?;
        shell.note(&format!("created token `{}`; keep it now, it is not shown again", token.name));
        Ok(())
    }
}

impl Show {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Token.path_of(&client, &self.token_name)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let token: api::Token = client.read(&answer)?;
        let scopes = scopes(&token);
        let mut table = Table::of_fields();
        table.field("id", token.id);
        table.field("name", token.name);
        table.field("scopes", scopes);
        table.field("created", brief(token.created_at));
        table.field("last used", token.last_used_at.map_or("never".to_owned(), brief));
        table.field("expires", token.expires_at.map_or("never".to_owned(), brief));
        shell.out.table(&table)
    }
}

impl Delete {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Token.delete(shell, &client, &self.token_name, self.form())
    }
}

fn scopes(token: &api::Token) -> String {
    if token.scopes.is_empty() { "all".to_owned() } else { token.scopes.join(", ") }
}
