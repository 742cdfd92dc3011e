//! `svc space`: workspaces and their agents. [`settings`] are the flags that spaces and templates share.

pub mod settings;

use crate::{
    cli::{
        arguments::brief,
        client::{Client, QueryString},
        failure::Failure,
        method::refused_line,
        resource::{self, Resource, ResourceKind},
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone, yes_or_no},
    },
    model::{
        api::{
            lenient::Lenient,
            spaces::{IssuedSpace, SpaceView},
        },
        owner::OwnerSpec,
        space_settings::Driver,
        space_state::{SpaceHealth, SpaceState},
    },
};
use serde_json::{Map, Value, json};
use settings::{health_check_line, look_up_script};
use std::path::{Path, PathBuf};

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

settings_command! {
    /// Make a space and print its agent's token, this once: the server keeps only a hash.
    #[argh(
        example = "{command_name} web --port web=8080 --health-http 8080/healthz --custom TEAM=ops\n\
                   {command_name} web --template web-server --host box.example.com\n\
                   {command_name} jobs --driver process --methods-file ./methods.toml\n\
                   SVC_AGENT_TOKEN=$({command_name} web) svc agent start",
        note = "What is given wins over what the template says; custom fields are put over its own."
    )]
    CreateSpace = "create" {
        /// its name, unique among yours
        #[argh(positional)]
        name: String,

        /// the template to make it of (name or id)
        #[argh(option)]
        template: Option<String>,

        /// who runs its agent: external (you do) or process (the server does)
        #[argh(option)]
        driver: Option<Driver>,

        /// where it is reached; part of its URLs (otherwise localhost)
        #[argh(option)]
        host: Option<String>,

        /// for the driver process: the directory on the server that its agent runs in
        #[argh(option, arg_name = "dir")]
        directory: Option<PathBuf>,

        /// for the driver process: the file on the server with the methods that its agent registers
        #[argh(option, arg_name = "file")]
        methods_file: Option<PathBuf>,
    }
}

settings_command! {
    /// Change a space. Settings without a flag stay.
    #[argh(example = "{command_name} web --host box.example.com\n{command_name} web --no-health-check")]
    UpdateSpace = "update" {
        /// the space's name or id
        #[argh(positional)]
        space: String,

        /// where it is reached
        #[argh(option)]
        host: Option<String>,

        /// stop checking its health
        #[argh(switch)]
        no_health_check: bool,

        /// for the driver process: the directory on the server that its agent runs in, from its next start on
        #[argh(option, arg_name = "dir")]
        directory: Option<PathBuf>,

        /// for the driver process: the file on the server with the methods that its agent registers, from its next
        /// start on
        #[argh(option, arg_name = "file")]
        methods_file: Option<PathBuf>,
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
        let linked = linked_cell(&space);
        vec![
            space.name.to_string().into(),
            space.owner.into(),
            state_cell(&space.state),
            health_cell(&space.health),
            linked,
            space.urls.join(" ").into(),
            space.id.to_string().into(),
        ]
    }

    fn remark(space: &Self) -> Option<String> {
        let refused = space.refused_registration.as_ref()?;
        Some(format!("{}: its registration is {}", space.name, refused_line(refused)))
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
        if let Some(refused) = &self.refused_registration {
            table.field("methods", Cell::toned(refused_line(refused), Tone::Bad));
        }
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

/// Whether the agent is linked, and if its registration is refused.
fn linked_cell(space: &SpaceView) -> Cell {
    match space.refused_registration {
        Some(_) => Cell::toned("yes, registration refused", Tone::Bad),
        None => yes_or_no(space.linked),
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

impl CreateSpace {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut body = self.settings()?;
        put(&mut body, "name", Some(self.name.as_str()));
        put(&mut body, "template", self.template.as_deref());
        put(&mut body, "driver", self.driver.map(Driver::as_str));
        put(&mut body, "host", self.host.as_deref());
        put_path(&mut body, "directory", self.directory.as_deref())?;
        put_path(&mut body, "methods_file", self.methods_file.as_deref())?;
        let client = self.client(shell)?;
        look_up_script(&client, OwnerSpec::Me, &mut body)?;
        let answer = client.post(ResourceKind::SPACE.path, &body)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let IssuedSpace { space, agent_token } = client.read(&answer)?;
        let Some(token) = agent_token else {
            shell.out.line(&format!("created space {}  {}", space.name, space.id))?;
            shell.note(&format!("next: run `svc space start {}`, and the server runs its agent", space.name));
            return Ok(());
        };
        // The secret is alone on stdout, so that a script can capture it.
        shell.out.line(&token)?;
        shell.note(&format!("created space `{}`; keep its agent token now, it is not shown again", space.name));
        shell.note(&format!("next: SVC_AGENT_TOKEN=… svc agent start --server {}  (in the space)", client.server()));
        Ok(())
    }
}

impl UpdateSpace {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let mut changes = self.settings()?;
        put(&mut changes, "host", self.host.as_deref());
        put_path(&mut changes, "directory", self.directory.as_deref())?;
        put_path(&mut changes, "methods_file", self.methods_file.as_deref())?;
        if self.no_health_check {
            if changes.contains_key("health_check") {
                return Err(Failure::Usage(
                    "--no-health-check leaves no room for another: use one or the other".to_owned(),
                ));
            }
            changes.insert("health_check".to_owned(), Value::Null);
        }
        if changes.is_empty() {
            return Err(Failure::Usage("nothing to change: see `svc space update --help`".to_owned()));
        }
        let client = self.client(shell)?;
        look_up_script(&client, OwnerSpec::Me, &mut changes)?;
        let answer = client.patch(&ResourceKind::SPACE.path_of(&client, &self.space)?, &changes)?;
        ResourceKind::SPACE.report(shell, "updated", &client, &answer, self.format())
    }
}

fn put(body: &mut Map<String, Value>, field: &str, value: Option<&str>) {
    if let Some(value) = value {
        body.insert(field.to_owned(), value.into());
    }
}

/// Adds an absolute path: the server has another working directory.
fn put_path(body: &mut Map<String, Value>, field: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let whole = std::path::absolute(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
    put(body, field, Some(&whole.to_string_lossy()));
    Ok(())
}
