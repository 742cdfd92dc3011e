//! `svc whoami`: as whom the server sees us, and what that allows.

use super::{
    api::{self, WhoAmI},
    failure::Failure,
    shell::{Form, Shell},
    table::Table,
};

client_command! {
    /// Show who you are to the server, and what you may do there.
    #[argh(example = "{command_name}")]
    Whoami = "whoami" {}
}

impl Whoami {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get("/api/whoami")?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let me: WhoAmI = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("server", client.server().to_string());
        table.field("name", me.name);
        table.field("id", me.id);
        table.field("via", me.via);
        table.field("scopes", me.scopes.join(", "));
        table.field("roles", api::names(&me.roles));
        table.field("groups", api::names(&me.groups));
        table.field("permissions", me.permissions.join(", "));
        shell.out.table(&table)
    }
}
