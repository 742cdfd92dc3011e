//! `svc event TYPE`: raises an event and waits for its deliveries if asked to, or only explains its routes.

use super::AttemptLine;
use crate::{
    cli::{
        access::{Access, AccessFlags},
        arguments::PayloadSource,
        client::{AgentHttp, Client, ResponseText, is_agent_named, to_json},
        failure::Failure,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone, printable},
    },
    model::{
        api::{
            agent::SpoolReceiptView,
            events::{EmitBody, EventView, ExplainBody, Explanation, ReceiptView, SinkRef},
        },
        delivery::Delivery,
        event::EventType,
        id::EventId,
    },
    platform::{backoff::Backoff, config::Span},
};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// The pauses between two polls of an event: short at first, because most deliveries are fast, then doubled up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

client_command! {
    /// Raise an event. Its payload is given as JSON, as @FILE, or on stdin.
    #[argh(
        example = "{command_name} deploy.done '{{\"version\": \"1.2\"}}' --wait\n\
                   echo '{{\"load\": 12.5}}' | {command_name} host.busy\n\
                   {command_name} deploy.done --explain",
        note = "The event goes to the agent of this space where SVC_AGENT_URL is set, and otherwise to the server. Where \
                neither flags nor the environment nor a login name a server or hold a token for one, an agent at \
                http://127.0.0.1:7301 is tried first."
    )]
    EmitEvent = "emit" {
        /// the event's type, such as deploy.done; `custom.` is put in front
        #[argh(positional, arg_name = "type")]
        kind: String,

        /// the payload, a JSON object; @FILE reads a file and - stdin; empty if nothing is piped in
        #[argh(positional, arg_name = "json")]
        payload: Option<String>,

        /// return only when every sink and method that matched has settled, with a line for each; fails if one is dead or dropped
        #[argh(switch)]
        wait: bool,

        /// how long to wait, such as 60s, which is the default
        #[argh(option, arg_name = "span")]
        timeout: Option<Span>,

        /// show which sinks and methods would get the event and why the others would not; send nothing
        #[argh(switch)]
        explain: bool,

        /// the event's id, a UUID: raising the same id again does nothing
        #[argh(option, arg_name = "uuid")]
        id: Option<EventId>,

        /// raise it through the agent of this space, which keeps it until a server has it; the default where
        /// SVC_AGENT_URL is set
        #[argh(switch)]
        agent: bool,
    }
}

/// The action that the flags and the environment ask for.
#[derive(Debug, PartialEq, Eq)]
enum EmitPlan {
    /// Print the routes of the event.
    Explain,
    /// Raise it.
    Raise,
    /// Raise it and wait for its deliveries.
    Wait { at_most: Duration },
    /// Give it to the agent, which spools it.
    Spool,
    /// Give it to an agent if one answers, and else to the default server: no server was named and no token found.
    AgentOrServer,
}

/// The receiver of the event.
#[derive(Debug, PartialEq, Eq)]
enum EmitTarget {
    Server,
    Agent,
}

impl EmitEvent {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let plan = self.plan(shell.environment)?;
        // Checked here too, so that a typo costs no round trip and does not wait for stdin.
        EventType::custom(&self.kind).map_err(|error| Failure::Usage(format!("`{}`: {error}", self.kind)))?;
        match plan {
            EmitPlan::Explain => explain(shell, &self.client(shell)?, &self.kind, self.format()),
            EmitPlan::Raise => {
                let client = self.client(shell)?;
                let body = self.body(shell)?;
                self.raise(shell, &client, body)
            }
            EmitPlan::Spool => {
                let body = self.body(shell)?;
                self.spool(shell, body)
            }
            EmitPlan::AgentOrServer => {
                let body = self.body(shell)?;
                match self.spool(shell, body.clone()) {
                    Err(Failure::NoAgent { .. }) => self.raise(shell, &self.client(shell)?, body),
                    spooled => spooled,
                }
            }
            EmitPlan::Wait { at_most } => {
                let client = self.client(shell)?;
                let body = self.body(shell)?;
                let emitted = send(&client, body)?;
                wait_for_deliveries(shell, &client, &client.read(&emitted)?, self.format(), at_most)
            }
        }
    }

    fn plan(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<EmitPlan, Failure> {
        match self.target(environment)? {
            EmitTarget::Server => match self.plan_for_server()? {
                EmitPlan::Raise if self.id.is_none() && self.server.is_none() => {
                    let access = Access::find(&AccessFlags { server: None, token: self.token.clone() }, environment)?;
                    Ok(if access.is_default(environment) { EmitPlan::AgentOrServer } else { EmitPlan::Raise })
                }
                plan => Ok(plan),
            },
            EmitTarget::Agent => Ok(EmitPlan::Spool),
        }
    }

    /// The receiver of the event. A server or a token among the flags means the server.
    fn target(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<EmitTarget, Failure> {
        let named = self.server.is_some() || self.token.is_some();
        match (self.agent, named) {
            (true, true) => {
                Err(Failure::Usage("--agent asks no server: leave it, or --server and --token, out".to_owned()))
            }
            (false, true) => Ok(EmitTarget::Server),
            (false, false) if !is_agent_named(environment) => Ok(EmitTarget::Server),
            (_, false) => {
                let asked = [
                    ("--wait", self.wait),
                    ("--explain", self.explain),
                    ("--id", self.id.is_some()),
                    ("--timeout", self.timeout.is_some()),
                ];
                match asked.into_iter().find(|(_, given)| *given) {
                    Some((flag, _)) => Err(Failure::Usage(format!(
                        "{flag} is for a server, and here events go through the agent: leave it out, or name a server \
                         with --server"
                    ))),
                    None => Ok(EmitTarget::Agent),
                }
            }
        }
    }

    fn plan_for_server(&self) -> Result<EmitPlan, Failure> {
        match (self.explain, self.wait, self.timeout) {
            (true, true, _) => Err(Failure::Usage("--explain sends nothing to --wait for: leave one out".to_owned())),
            (true, false, _) if self.payload.is_some() || self.id.is_some() => {
                Err(Failure::Usage("--explain needs only the type: leave the payload and --id out".to_owned()))
            }
            (_, false, Some(_)) => Err(Failure::Usage("--timeout is for --wait: add that".to_owned())),
            (true, false, None) => Ok(EmitPlan::Explain),
            (false, false, None) => Ok(EmitPlan::Raise),
            (false, true, span) => {
                Ok(EmitPlan::Wait { at_most: span.map_or(Duration::from_secs(60), |Span(length)| length) })
            }
        }
    }

    /// The body for a server. Without an id it is also that for an agent.
    fn body(&self, shell: &mut Shell<'_>) -> Result<String, Failure> {
        let payload = PayloadSource::of_argument(self.payload.as_deref()).read(shell)?;
        Ok(to_json(&EmitBody { kind: self.kind.clone(), payload: Some(payload), id: self.id }))
    }

    fn spool(&self, shell: &mut Shell<'_>, body: String) -> Result<(), Failure> {
        let agent = AgentHttp::find(shell.environment)?;
        let answer = agent.post_raw("/event", body)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let spooled: SpoolReceiptView = agent.read(&answer)?;
        shell.out.line(&format!("{}  {}", spooled.event_id, spooled.event_type))
    }

    fn raise(&self, shell: &mut Shell<'_>, client: &Client, body: String) -> Result<(), Failure> {
        let answer = send(client, body)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let emitted: ReceiptView = client.read(&answer)?;
        let queued = counted(&emitted.matched);
        shell.out.line(&format!("{}  {}  {queued}", emitted.event_id, emitted.event_type))?;
        for lost in &emitted.dropped {
            let look = match lost.is_method() {
                true => "svc subscription list".to_owned(),
                false => format!("svc sink show {}", lost.name),
            };
            shell.note(&format!("dropped for `{}`: its queue is full (see `{look}`)", lost.name));
        }
        Ok(())
    }
}

fn send(client: &Client, body: String) -> Result<ResponseText, Failure> {
    client.post_raw("/api/events/emit", body)
}

/// The number of sinks and methods that an event matched.
fn counted(matched: &[SinkRef]) -> String {
    let methods = matched.iter().filter(|target| target.is_method()).count();
    let some = |count: usize, noun: &str| match count {
        0 => None,
        1 => Some(format!("1 {noun}")),
        many => Some(format!("{many} {noun}s")),
    };
    match (some(matched.len() - methods, "sink"), some(methods, "method")) {
        (None, None) => "no sink matches".to_owned(),
        (Some(sinks), Some(methods)) => format!("{sinks}, {methods}"),
        (Some(one), None) | (None, Some(one)) => one,
    }
}

fn explain(shell: &mut Shell<'_>, client: &Client, kind: &str, format: OutputFormat) -> Result<(), Failure> {
    let answer = client.post("/api/events/explain", &ExplainBody { kind: kind.to_owned() })?;
    if format == OutputFormat::Json {
        return shell.out.json(answer.as_str());
    }
    let explained: Explanation = client.read(&answer)?;
    if explained.sinks.is_empty() {
        return shell.out.line(&format!("{}: there are no sinks it could go to", printable(&explained.event_type)));
    }
    let matching = explained.sinks.iter().filter(|sink| sink.matches).count();
    let methods = explained.sinks.iter().any(|sink| sink.kind == "method");
    let what = if methods { "sinks and methods" } else { "sinks" };
    let line = format!("{} would go to {matching} of {} {what}", explained.event_type, explained.sinks.len());
    shell.out.line(&printable(&line))?;
    let mut table = TextTable::new(&[
        ("SINK", Fit::Elastic),
        ("OWNER", Fit::Rigid),
        ("TYPE", Fit::Rigid),
        ("EVENTS", Fit::Elastic),
        ("MATCH", Fit::Rigid),
        ("WHY", Fit::Elastic),
    ]);
    for sink in explained.sinks {
        let matches = match sink.matches {
            true => Cell::toned("yes", Tone::Good),
            false => Cell::toned("no", Tone::Quiet),
        };
        let [name, kind, events, why] = [sink.name, sink.kind, sink.events, sink.reason].map(Cell::from);
        table.row([name, sink.owner.as_str().into(), kind, events, matches, why]);
    }
    shell.out.table(&table)
}

/// Polls the event until all its deliveries have settled, and prints a line for each.
fn wait_for_deliveries(
    shell: &mut Shell<'_>,
    client: &Client,
    emitted: &ReceiptView,
    format: OutputFormat,
    at_most: Duration,
) -> Result<(), Failure> {
    let began = Instant::now();
    let path = format!("/api/events/{}", emitted.event_id);
    let mut settled = HashSet::new();
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    if format == OutputFormat::Text {
        shell.out.line(&format!("{}  {}", emitted.event_id, emitted.event_type))?;
    }
    let (answer, event) = loop {
        let answer = client.get(&path)?;
        let event: EventView = client.read(&answer)?;
        for delivery in event.deliveries.iter().filter(|delivery| delivery.state.is_settled()) {
            if settled.insert(delivery.sink_id) && format == OutputFormat::Text {
                print_delivery(shell, delivery)?;
            }
        }
        if settled.len() == event.deliveries.len() {
            break (answer, event);
        }
        let Some(left) = at_most.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
            return Err(timed_out(&event, at_most));
        };
        std::thread::sleep(backoff.next_wait().min(left));
    };
    match format {
        OutputFormat::Json => shell.out.json(answer.as_str())?,
        OutputFormat::Text if event.deliveries.is_empty() => shell.out.line("no sink matches")?,
        OutputFormat::Text => {}
    }
    let lost = event.deliveries.iter().filter(|delivery| delivery.state.is_lost()).count();
    match lost {
        0 => Ok(()),
        _ => Err(Failure::Bad(format!(
            "{lost} of {} deliveries failed: `svc event show {}` tells what happened",
            event.deliveries.len(),
            event.id
        ))),
    }
}

/// Prints one settled delivery in one line.
fn print_delivery(shell: &mut Shell<'_>, delivery: &Delivery) -> Result<(), Failure> {
    let attempts = match delivery.attempts.len() {
        0 => String::new(),
        1 => "  1 attempt".to_owned(),
        many => format!("  {many} attempts"),
    };
    let last =
        delivery.attempts.last().map(|attempt| AttemptLine::from(attempt).status_and_error()).unwrap_or_default();
    let said = if last.is_empty() { last } else { format!("  {}", printable(&last)) };
    let state = Tone::from(delivery.state).paint(&format!("{:<9}", delivery.state.as_str()), shell.out.paint());
    shell.out.line(format!("{state}  {}{attempts}{said}", printable(&delivery.name)).trim_end())
}

fn timed_out(event: &EventView, at_most: Duration) -> Failure {
    let waiting = event.deliveries.iter().filter(|delivery| !delivery.state.is_settled());
    let names = waiting.map(|delivery| &*delivery.name).collect::<Vec<_>>().join(", ");
    Failure::Bad(format!(
        "still queued for {names} after {}: `svc event show {}` tells how it goes on",
        Span(at_most),
        event.id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use argh::FromArgs as _;

    fn plan(words: &[&str]) -> Result<EmitPlan, Failure> {
        plan_where(words, &|name| (name == "SVC_TOKEN").then(|| "svc_test".to_owned()))
    }

    fn plan_where(words: &[&str], environment: &dyn Fn(&str) -> Option<String>) -> Result<EmitPlan, Failure> {
        EmitEvent::from_args(&["svc", "event", "emit"], words).unwrap().plan(environment)
    }

    #[test]
    fn the_flags_become_one_plan() {
        assert_eq!(plan(&["t"]).unwrap(), EmitPlan::Raise);
        assert_eq!(plan(&["t", "--explain"]).unwrap(), EmitPlan::Explain);
        assert_eq!(plan(&["t", "--wait"]).unwrap(), EmitPlan::Wait { at_most: Duration::from_secs(60) });
        let two = EmitPlan::Wait { at_most: Duration::from_secs(2) };
        assert_eq!(plan(&["--wait", "t", "--timeout", "2s"]).unwrap(), two);
    }

    #[test]
    fn flags_that_contradict_each_other_are_bad_usage() {
        for words in [&["t", "--wait", "--explain"][..], &["t", "--timeout", "2s"], &["t", "{}", "--explain"]] {
            assert_eq!(plan(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn with_no_server_named_and_no_token_an_agent_is_tried() {
        assert_eq!(plan_where(&["t"], &|_| None).unwrap(), EmitPlan::AgentOrServer);
        let named = |name: &str| (name == "SVC_SERVER").then(|| "http://127.0.0.1:7300".to_owned());
        assert_eq!(plan_where(&["t"], &named).unwrap(), EmitPlan::Raise);
        for (words, plan) in [
            (&["t", "--server", "http://127.0.0.1:7300"][..], EmitPlan::Raise),
            (&["t", "--token", "svc_test"], EmitPlan::Raise),
            (&["t", "--id", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"], EmitPlan::Raise),
            (&["t", "--explain"], EmitPlan::Explain),
        ] {
            assert_eq!(plan_where(words, &|_| None).unwrap(), plan, "{words:?}");
        }
    }

    #[test]
    fn inside_a_space_events_go_through_the_agent_unless_a_server_is_named() {
        let inside = |name: &str| (name == "SVC_AGENT_URL").then(|| "http://127.0.0.1:7301".to_owned());
        assert_eq!(plan_where(&["t"], &inside).unwrap(), EmitPlan::Spool);
        assert_eq!(plan(&["t", "--agent"]).unwrap(), EmitPlan::Spool);
        assert_eq!(plan_where(&["t", "--server", "http://x"], &inside).unwrap(), EmitPlan::Raise);
        assert_eq!(plan_where(&["t", "--token", "x", "--explain"], &inside).unwrap(), EmitPlan::Explain);
        for words in [
            &["t", "--wait"][..],
            &["t", "--explain"],
            &["t", "--timeout", "5s"],
            &["t", "--agent", "--server", "http://x"],
        ] {
            let failure = plan_where(words, &inside).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{words:?}");
            assert!(failure.to_string().contains("--server"), "{words:?}: {failure}");
        }
    }
}
