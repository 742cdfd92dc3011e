//! `svc space list`, `show` and `delete`.

use crate::{
    cli::{
        api,
        client::Query,
        failure::Failure,
        named::Kind,
        shell::{Form, Shell},
        table::{Cell, Fit, Table, Tone},
        time::brief,
        user::yes_or_no,
    },
    model::space_state::SpaceState,
};

client_command! {
    /// List your spaces, and everybody's if you manage them.
    #[argh(example = "{command_name}\n{command_name} --owner me --state deployed")]
    List = "list" {
        /// only those of this user: me, or a name or id
        #[argh(option)]
        owner: Option<String>,

        /// only those in this state: created, deployed or stopped
        #[argh(option, from_str_fn(state_word))]
        state: Option<SpaceState>,
    }
}

client_command! {
    /// Show one space.
    #[argh(example = "{command_name} web")]
    Show = "show" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

client_command! {
    /// Delete a space. Its agent is told to end, and its token opens nothing any more.
    #[argh(example = "{command_name} web")]
    Delete = "delete" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

impl List {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = Query::default()
            .with_some("owner", self.owner.as_deref())
            .with_some("state", self.state.map(SpaceState::as_str));
        let listing = client.list(Kind::Space.path(), &query, usize::MAX)?;
        if self.form() == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = Table::new(&[
            ("NAME", Fit::Elastic),
            ("OWNER", Fit::Elastic),
            ("STATE", Fit::Rigid),
            ("HEALTH", Fit::Rigid),
            ("LINKED", Fit::Rigid),
            ("URLS", Fit::Elastic),
            ("ID", Fit::Rigid),
        ]);
        for space in listing.read::<api::Space>(&client)? {
            let (state, health) = (state(&space.state), health(&space.health));
            let [name, owner, urls, id] = [space.name, space.owner, space.urls.join(" "), space.id].map(Cell::from);
            table.row([name, owner, state, health, yes_or_no(space.linked), urls, id]);
        }
        shell.out.table(&table)
    }
}

impl Show {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let answer = client.get(&Kind::Space.path_of(&client, &self.space)?)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let space: api::Space = client.read(&answer)?;
        let mut table = Table::of_fields();
        table.field("id", space.id);
        table.field("name", space.name);
        table.field("owner", space.owner);
        table.field("description", space.description);
        table.field("template", space.template_id.unwrap_or_default());
        table.field("driver", space.driver);
        table.field("state", state(&space.state));
        table.field("linked", yes_or_no(space.linked));
        table.field("node", space.node_id.unwrap_or_default());
        if let Some(process) = space.process {
            let running = process.pid.map_or_else(|| "waiting to be run again".to_owned(), |pid| pid.to_string());
            table.field("process", format!("{running}, launched {} times", process.launches));
            table.field("trouble", Cell::toned(process.trouble.unwrap_or_default(), Tone::Bad));
        }
        table.field("health", health(&space.health));
        if let Some(check) = &space.health_check {
            table.field("check", api::check(check));
        }
        if space.consecutive_failures > 0 {
            table.field("failures", Cell::toned(format!("{} in a row", space.consecutive_failures), Tone::Doubtful));
        }
        if let Some(check) = space.last_check {
            let found = check.detail.unwrap_or_else(|| if check.ok { "well" } else { "failed" }.to_owned());
            table.field("last check", format!("{}  {found}", brief(check.checked_at)));
        }
        for url in space.urls {
            table.field("url", url);
        }
        for (name, value) in space.custom {
            table.field("custom", format!("{name}={value}"));
        }
        if let Some(id) = space.startup_script_id {
            table.field("startup script", Kind::Script.called(&client, &id));
        }
        table.field("directory", space.directory.unwrap_or_default());
        table.field("methods file", space.methods_file.unwrap_or_default());
        table.field("created", brief(space.created_at));
        table.field("started", space.started_at.map(brief).unwrap_or_default());
        table.field("stopped", space.stopped_at.map(brief).unwrap_or_default());
        shell.out.table(&table)
    }
}

impl Delete {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Kind::Space.delete(shell, &client, &self.space, self.form())
    }
}

fn state(word: &str) -> Cell {
    let tone = if word == SpaceState::Deployed.as_str() { Tone::Good } else { Tone::Quiet };
    Cell::toned(word, tone)
}

fn health(word: &str) -> Cell {
    let tone = match word {
        "healthy" => Tone::Good,
        "unhealthy" => Tone::Bad,
        _ => Tone::Quiet,
    };
    Cell::toned(word, tone)
}

fn state_word(word: &str) -> Result<SpaceState, String> {
    let known = SpaceState::ALL.into_iter().find(|state| state.as_str() == word);
    known.ok_or_else(|| format!("expected one of {}", SpaceState::ALL.map(SpaceState::as_str).join(", ")))
}
