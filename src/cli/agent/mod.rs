//! `svc agent`: runs the agent of a space ([`start`]) and shows its status.

mod start;

pub use start::StartAgent;

use crate::{
    cli::{
        arguments::brief,
        client::AgentHttp,
        failure::Failure,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone},
    },
    model::api::agent::AgentStatusView,
};

command_family! {
    /// Run the agent of a space, or show its status.
    #[argh(
        example = "SVC_AGENT_TOKEN=sva_… {command_name} start --server https://svc.example\n{command_name} status",
        note = "An agent runs inside a space: it publishes the methods there and takes the events raised there."
    )]
    AgentCommand(AgentSubcommand) = "agent" { StartAgent, ShowAgentStatus }
}

local_command! {
    /// Show the status of the agent of this space: its servers, its events, its methods.
    #[argh(
        example = "{command_name}\n{command_name} --json",
        note = "The agent is looked for at SVC_AGENT_URL, or at http://127.0.0.1:7301."
    )]
    ShowAgentStatus = "status" {}
}

impl ShowAgentStatus {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = AgentHttp::find(shell.environment)?;
        let answer = agent.get("/status")?;
        match self.format() {
            OutputFormat::Json => shell.out.json(answer.as_str()),
            OutputFormat::Text => show(shell, agent.read(&answer)?),
        }
    }
}

fn show(shell: &mut Shell<'_>, status: AgentStatusView) -> Result<(), Failure> {
    let mut table = TextTable::of_fields();
    table.field("version", status.version);
    match status.space {
        Some(space) => {
            table.field("space", space.name);
            table.field("id", space.id.to_string());
            table.field("zone", space.zone);
        }
        None => table.field("space", Cell::toned("unknown until a server has said so", Tone::Doubtful)),
    }
    table.field("events", format!("{} of {} waiting for a server", status.spool.depth, status.spool.limit));
    if let Some(registration) = &status.registration {
        table.field("methods file", registration.path.display().to_string());
        let reason = registration.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let health = format!("{} ({}{reason})", registration.command, registration.health);
        table.field("method server", Cell::toned(health, Tone::from(&registration.health)));
    }
    shell.out.table(&table)?;
    let mut table = TextTable::new(&[
        ("SERVER", Fit::Rigid),
        ("LINK", Fit::Rigid),
        ("SINCE", Fit::Rigid),
        ("METHODS", Fit::Rigid),
        ("", Fit::Elastic),
    ]);
    for server in status.servers {
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
    let Some(registration) = status.registration else { return shell.out.line("\nno methods are registered") };
    let mut table = TextTable::new(&[("METHOD", Fit::Elastic), ("LOCAL NAME", Fit::Elastic)]);
    for method in registration.methods {
        table.row([method.name.into(), method.local_name.into()]);
    }
    shell.out.line("")?;
    shell.out.table(&table)
}
