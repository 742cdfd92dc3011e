//! `svc space`: workspaces and their agents. [`create`] makes and changes one; [`settings`] are the flags that spaces and
//! templates share.

mod create;
pub mod settings;

pub use create::{CreateSpace, UpdateSpace};

use crate::{
    cli::{
        arguments::brief,
        client::{Client, QueryString},
        failure::Failure,
        resource::{self, Resource, ResourceKind},
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone, yes_or_no},
    },
    model::{
        api::{
            lenient::Lenient,
            spaces::{IssuedSpace, SpaceView},
        },
        space_state::{SpaceHealth, SpaceState},
    },
};
use serde_json::json;
use settings::health_check_line;

command_family! {
    /// Manage spaces: workspaces that run an agent and publish methods.
    #[argh(
        example = "{command_name} create web --port web=8080 --health-http 8080/healthz\n\
                   {command_name} list\n\
                   {command_name} stop web"
    )]
    SpaceCommand(SpaceSubcommand) = "space" {
        ListSpaces, ShowSpace, CreateSpace, UpdateSpace, StartSpace, StopSpace, IssueAgentToken, DeleteSpace,
    }
}

client_command! {
    /// List your spaces, and everybody's if you manage them.
    #[argh(example = "{command_name}\n{command_name} --owner me --state deployed")]
    ListSpaces = "list" {
        /// only those of this user: me, or a name or id
        #[argh(option)]
        owner: Option<String>,

        /// only those in this state: created, deployed or stopped
        #[argh(option)]
        state: Option<SpaceState>,
    }
}

show_and_delete_commands! {
    /// Show one space.
    #[argh(example = "{command_name} web")]
    ShowSpace,
    /// Delete a space. Its agent is told to end, and its token stops working.
    #[argh(example = "{command_name} web")]
    DeleteSpace
    of SpaceView by
    /// the space's name or id
    space
}

client_command! {
    /// Have the server run the agent of a space of the driver process. Others are started by `svc agent start` in them.
    #[argh(example = "{command_name} jobs")]
    StartSpace = "start" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

client_command! {
    /// Stop a space: its agent is told to end, and the events queued for its methods are dropped.
    #[argh(example = "{command_name} web")]
    StopSpace = "stop" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

client_command! {
    /// Make a new agent token for a space and print it, this once. The old one stops working at once.
    #[argh(example = "{command_name} web\nSVC_AGENT_TOKEN=$({command_name} web) svc agent start")]
    IssueAgentToken = "token" {
        /// the space's name or id
        #[argh(positional)]
        space: String,
    }
}

impl ListSpaces {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default().with_some("owner", self.owner.as_deref()).with_some("state", self.state);
        resource::list::<SpaceView>(shell, &client, &query, self.format())
    }
}

impl StartSpace {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = ResourceKind::SPACE.path_of(&client, &self.space)?;
        let answer = client.post(&format!("{path}/start"), &json!({}))?;
        ResourceKind::SPACE.report(shell, "started", &client, &answer, self.format())
    }
}

impl StopSpace {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = ResourceKind::SPACE.path_of(&client, &self.space)?;
        let answer = client.post(&format!("{path}/stop"), &json!({}))?;
        ResourceKind::SPACE.report(shell, "stopped", &client, &answer, self.format())
    }
}

impl IssueAgentToken {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = ResourceKind::SPACE.path_of(&client, &self.space)?;
        let answer = client.post(&format!("{path}/token"), &json!({}))?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let issued: IssuedSpace = client.read(&answer)?;
        shell.out.line(issued.agent_token.as_deref().unwrap_or_default())?;
        shell.note(&format!("the new agent token of `{}`; keep it now, it is not shown again", issued.space.name));
        Ok(())
    }
}

impl Resource for SpaceView {
    const KIND: ResourceKind = ResourceKind::SPACE;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("OWNER", Fit::Elastic),
        ("STATE", Fit::Rigid),
        ("HEALTH", Fit::Rigid),
        ("LINKED", Fit::Rigid),
        ("URLS", Fit::Elastic),
        ("ID", Fit::Rigid),
    ];

    fn row(space: Self) -> Vec<Cell> {
        vec![
            space.name.to_string().into(),
            space.owner.into(),
            state_cell(&space.state),
            health_cell(&space.health),
            yes_or_no(space.linked),
            space.urls.join(" ").into(),
            space.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, client: &Client) {
        let settings = &self.settings;
        table.field("id", self.id.to_string());
        table.field("name", self.name.to_string());
        table.field("owner", self.owner.as_str());
        table.field("description", settings.description.as_str());
        table.field("template", self.template_id.map(|id| id.to_string()).unwrap_or_default());
        table.field("driver", self.driver.to_string());
        table.field("state", state_cell(&self.state));
        table.field("linked", yes_or_no(self.linked));
        table.field("node", self.node_id.as_deref().unwrap_or_default());
        if let Some(process) = &self.process {
            let running = process.pid.map_or_else(|| "waiting to be run again".to_owned(), |pid| pid.to_string());
            table.field("process", format!("{running}, launched {} times", process.launches));
            table.field("trouble", Cell::toned(process.trouble.as_deref().unwrap_or_default(), Tone::Bad));
        }
        table.field("health", health_cell(&self.health));
        if let Some(check) = &settings.health_check {
            table.field("check", health_check_line(check));
        }
        if self.consecutive_failures > 0 {
            table.field("failures", Cell::toned(format!("{} in a row", self.consecutive_failures), Tone::Doubtful));
        }
        if let Some(check) = &self.last_check {
            let found = check.detail.as_deref().unwrap_or(if check.ok { "well" } else { "failed" });
            table.field("last check", format!("{}  {found}", brief(check.checked_at)));
        }
        for url in &self.urls {
            table.field("url", url.as_str());
        }
        for (name, value) in &settings.custom {
            table.field("custom", format!("{name}={value}"));
        }
        if let Some(id) = settings.startup_script_id {
            table.field("startup script", ResourceKind::SCRIPT.name_and_id(client, id));
        }
        for (name, path) in [("directory", &settings.directory), ("methods file", &settings.methods_file)] {
            table.field(name, path.as_ref().map(|path| path.display().to_string()).unwrap_or_default());
        }
        table.field("created", brief(self.created_at));
        table.field("started", self.started_at.map(brief).unwrap_or_default());
        table.field("stopped", self.stopped_at.map(brief).unwrap_or_default());
    }
}

fn state_cell(state: &Lenient<SpaceState>) -> Cell {
    let tone = if state.known() == Some(&SpaceState::Deployed) { Tone::Good } else { Tone::Quiet };
    Cell::toned(state.to_string(), tone)
}

fn health_cell(health: &Lenient<SpaceHealth>) -> Cell {
    let tone = match health.known() {
        Some(SpaceHealth::Healthy) => Tone::Good,
        Some(SpaceHealth::Unhealthy) => Tone::Bad,
        Some(SpaceHealth::Unknown) | None => Tone::Quiet,
    };
    Cell::toned(health.to_string(), tone)
}
