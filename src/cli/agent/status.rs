//! `svc agent status`: how the agent of this space is.

use super::find::Near;
use crate::{
    cli::{
        failure::Failure,
        shell::{Form, Shell},
        table::{Cell, Fit, Table, Tone},
        time::brief,
    },
    model::timestamp::Timestamp,
};
use serde::Deserialize;

agent_command! {
    /// Show how the agent of this space is: its servers, its events, its methods.
    #[argh(
        example = "{command_name}\n{command_name} --json",
        note = "The agent is looked for at SVC_AGENT_URL, or at http://127.0.0.1:7301."
    )]
    Status = "status" {}
}

/// What the agent answers, as far as it is shown.
#[derive(Deserialize)]
struct Told {
    version: String,
    space: Option<Space>,
    servers: Vec<Server>,
    spool: Spool,
    registration: Option<Registration>,
}

#[derive(Deserialize)]
struct Space {
    id: String,
    name: String,
    zone: String,
}

#[derive(Deserialize)]
struct Server {
    url: String,
    connected: bool,
    since: Timestamp,
    error: Option<String>,
    published: bool,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Spool {
    depth: usize,
    limit: usize,
}

#[derive(Deserialize)]
struct Registration {
    path: String,
    command: String,
    health: String,
    reason: Option<String>,
    methods: Vec<Method>,
}

#[derive(Deserialize)]
struct Method {
    name: String,
    local_name: String,
}

impl Status {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = Near::find(shell.environment)?;
        let answer = agent.get("/status")?;
        match self.form() {
            Form::Json => shell.out.json(answer.as_str()),
            Form::Text => show(shell, agent.read(&answer)?),
        }
    }
}

fn show(shell: &mut Shell<'_>, told: Told) -> Result<(), Failure> {
    let mut table = Table::of_fields();
    table.field("version", told.version);
    match told.space {
        Some(space) => {
            table.field("space", space.name);
            table.field("id", space.id);
            table.field("zone", space.zone);
        }
        None => table.field("space", Cell::toned("unknown until a server has said so", Tone::Doubtful)),
    }
    table.field("events", format!("{} of {} waiting for a server", told.spool.depth, told.spool.limit));
    if let Some(registration) = &told.registration {
        table.field("methods file", registration.path.as_str());
        let reason = registration.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let tone = if registration.health == "running" { Tone::Good } else { Tone::Bad };
        let health = format!("{} ({}{reason})", registration.command, registration.health);
        table.field("method server", Cell::toned(health, tone));
    }
    shell.out.table(&table)?;
    let mut table = Table::new(&[
        ("SERVER", Fit::Rigid),
        ("LINK", Fit::Rigid),
        ("SINCE", Fit::Rigid),
        ("METHODS", Fit::Rigid),
        ("", Fit::Elastic),
    ]);
    for server in told.servers {
        let link = match server.connected {
            true => Cell::toned("connected", Tone::Good),
            false => Cell::toned("down", Tone::Bad),
        };
        let methods = match (server.published, &server.refusal) {
            (_, Some(_)) => Cell::toned("refused", Tone::Bad),
            (true, None) => Cell::toned("published", Tone::Good),
            (false, None) => Cell::toned("-", Tone::Quiet),
        };
        let why = server.error.or(server.refusal).unwrap_or_default();
        table.row([server.url.into(), link, brief(server.since).into(), methods, why.into()]);
    }
    shell.out.line("")?;
    shell.out.table(&table)?;
    let Some(registration) = told.registration else { return shell.out.line("\nno methods are registered") };
    let mut table = Table::new(&[("METHOD", Fit::Elastic), ("LOCAL NAME", Fit::Elastic)]);
    for method in registration.methods {
        table.row([method.name.into(), method.local_name.into()]);
    }
    shell.out.line("")?;
    shell.out.table(&table)
}
