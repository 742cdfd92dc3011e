//! `svc event TYPE`: raises an event; waits for its deliveries if asked to; or only explains where it would go.

use crate::{
    cli::{
        access::{Access, Flags},
        agent::find::{self, Near},
        api::{Delivery, Emitted, Event, Explained, SinkRef, Spooled},
        client::{Answer, Client},
        failure::Failure,
        payload::Source,
        shell::{Form, Shell},
        table::{Cell, Fit, Table, Tone, printable},
    },
    model::event::EventType,
    platform::config::Span,
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// The first look after an emit comes soon, as most deliveries are done by then; later ones less often.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(500);

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
    Emit = "emit" {
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

        /// tell which sinks and methods would get the event and why the others would not; send nothing
        #[argh(switch)]
        explain: bool,

        /// the event's id, a UUID: raising the same id again does nothing
        #[argh(option, arg_name = "uuid")]
        id: Option<uuid::Uuid>,

        /// raise it through the agent of this space, which keeps it until a server has it; the default where
        /// SVC_AGENT_URL is set
        #[argh(switch)]
        agent: bool,
    }
}

/// What the words mean.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// Tell where it would go.
    Explain,
    /// Raise it and be done.
    Raise,
    /// Raise it and see it through.
    Follow { at_most: Duration },
    /// Hand it to the agent.
    Spool,
    /// Hand it to an agent if there is one: it asks for no token, and there is none to show to a server.
    Guess,
}

/// Whom the event is given to.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Server,
    Agent,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<uuid::Uuid>,
}

impl Emit {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let plan = self.plan(shell.environment)?;
        // Checked here too: a typo should not cost a round trip, nor wait for stdin.
        EventType::custom(&self.kind).map_err(|error| Failure::Usage(format!("`{}`: {error}", self.kind)))?;
        match plan {
            Plan::Explain => explain(shell, &self.client(shell)?, &self.kind, self.form()),
            Plan::Raise => {
                let client = self.client(shell)?;
                let body = self.body(shell)?;
                self.raise(shell, &client, body)
            }
            Plan::Spool => {
                let body = self.body(shell)?;
                self.spool(shell, body)
            }
            Plan::Guess => {
                let body = self.body(shell)?;
                match self.spool(shell, body.clone()) {
                    Err(Failure::NoAgent { .. }) => self.raise(shell, &self.client(shell)?, body),
                    spooled => spooled,
                }
            }
            Plan::Follow { at_most } => {
                let client = self.client(shell)?;
                let body = self.body(shell)?;
                let emitted = send(&client, body)?;
                follow(shell, &client, &client.read(&emitted)?, self.form(), at_most)
            }
        }
    }

    fn plan(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Plan, Failure> {
        match self.way(environment)? {
            Way::Server => match self.plan_for_server()? {
                Plan::Raise if self.id.is_none() && self.server.is_none() => {
                    let access = Access::find(&Flags { server: None, token: self.token.clone() }, environment)?;
                    Ok(if access.is_a_guess(environment) { Plan::Guess } else { Plan::Raise })
                }
                plan => Ok(plan),
            },
            Way::Agent => Ok(Plan::Spool),
        }
    }

    /// Whom the event is given to. Who names a server, or a token to show to one, means that.
    fn way(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Way, Failure> {
        let named = self.server.is_some() || self.token.is_some();
        match (self.agent, named) {
            (true, true) => {
                Err(Failure::Usage("--agent asks no server: leave it, or --server and --token, out".to_owned()))
            }
            (false, true) => Ok(Way::Server),
            (false, false) if !find::is_named(environment) => Ok(Way::Server),
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
                    None => Ok(Way::Agent),
                }
            }
        }
    }

    fn plan_for_server(&self) -> Result<Plan, Failure> {
        match (self.explain, self.wait, self.timeout) {
            (true, true, _) => Err(Failure::Usage("--explain sends nothing to --wait for: leave one out".to_owned())),
            (true, false, _) if self.payload.is_some() || self.id.is_some() => {
                Err(Failure::Usage("--explain needs only the type: leave the payload and --id out".to_owned()))
            }
            (_, false, Some(_)) => Err(Failure::Usage("--timeout is for --wait: add that".to_owned())),
            (true, false, None) => Ok(Plan::Explain),
            (false, false, None) => Ok(Plan::Raise),
            (false, true, span) => {
                Ok(Plan::Follow { at_most: span.map_or(Duration::from_secs(60), |Span(length)| length) })
            }
        }
    }

    fn body(&self, shell: &mut Shell<'_>) -> Result<String, Failure> {
        let payload = Source::of_argument(self.payload.as_deref()).read(shell)?;
        let body = Body { kind: &self.kind, payload: &payload, id: self.id };
        Ok(serde_json::to_string(&body).expect("strings and JSON are JSON"))
    }

    fn spool(&self, shell: &mut Shell<'_>, body: String) -> Result<(), Failure> {
        let agent = Near::find(shell.environment)?;
        let answer = agent.post_raw("/event", body)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let spooled: Spooled = agent.read(&answer)?;
        shell.out.line(&format!("{}  {}", printable(&spooled.event_id), printable(&spooled.event_type)))
    }

    fn raise(&self, shell: &mut Shell<'_>, client: &Client, body: String) -> Result<(), Failure> {
        let answer = send(client, body)?;
        if self.form() == Form::Json {
            return shell.out.json(answer.as_str());
        }
        let emitted: Emitted = client.read(&answer)?;
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

fn send(client: &Client, body: String) -> Result<Answer, Failure> {
    client.post_raw("/api/events/emit", body)
}

/// How many sinks and methods an event goes to.
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

fn explain(shell: &mut Shell<'_>, client: &Client, kind: &str, form: Form) -> Result<(), Failure> {
    let answer = client.post("/api/events/explain", &serde_json::json!({ "type": kind }))?;
    if form == Form::Json {
        return shell.out.json(answer.as_str());
    }
    let explained: Explained = client.read(&answer)?;
    if explained.sinks.is_empty() {
        return shell.out.line(&format!("{}: there are no sinks it could go to", printable(&explained.event_type)));
    }
    let matching = explained.sinks.iter().filter(|sink| sink.matches).count();
    let methods = explained.sinks.iter().any(|sink| sink.kind == "method");
    let what = if methods { "sinks and methods" } else { "sinks" };
    let line = format!("{} would go to {matching} of {} {what}", explained.event_type, explained.sinks.len());
    shell.out.line(&printable(&line))?;
    let mut table = Table::new(&[
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
        let [name, owner, kind, events, why] =
            [sink.name, sink.owner, sink.kind, sink.events, sink.reason].map(Cell::from);
        table.row([name, owner, kind, events, matches, why]);
    }
    shell.out.table(&table)
}

/// Looks at the event until all its deliveries have settled, and prints a line for each as it does.
fn follow(
    shell: &mut Shell<'_>,
    client: &Client,
    emitted: &Emitted,
    form: Form,
    at_most: Duration,
) -> Result<(), Failure> {
    let began = Instant::now();
    let path = format!("/api/events/{}", emitted.event_id);
    let mut told = HashSet::new();
    let mut pause = FIRST_LOOK;
    if form == Form::Text {
        shell.out.line(&format!("{}  {}", emitted.event_id, emitted.event_type))?;
    }
    let (answer, event) = loop {
        let answer = client.get(&path)?;
        let event: Event = client.read(&answer)?;
        for delivery in event.deliveries.iter().filter(|delivery| delivery.state.is_settled()) {
            if told.insert(delivery.sink_id.clone()) && form == Form::Text {
                tell(shell, delivery)?;
            }
        }
        if told.len() == event.deliveries.len() {
            break (answer, event);
        }
        let Some(left) = at_most.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
            return Err(gave_up(&event, at_most));
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(LAST_LOOK);
    };
    match form {
        Form::Json => shell.out.json(answer.as_str())?,
        Form::Text if event.deliveries.is_empty() => shell.out.line("no sink matches")?,
        Form::Text => {}
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

/// One settled delivery, in one line.
fn tell(shell: &mut Shell<'_>, delivery: &Delivery) -> Result<(), Failure> {
    let state = delivery.state.as_str();
    let attempts = match delivery.attempts.len() {
        0 => String::new(),
        1 => "  1 attempt".to_owned(),
        many => format!("  {many} attempts"),
    };
    let said = delivery.last_word();
    let said = if said.is_empty() { said } else { format!("  {}", printable(&said)) };
    let state = Tone::of_state(state).paint(&format!("{state:<9}"), shell.out.paint());
    shell.out.line(format!("{state}  {}{attempts}{said}", printable(&delivery.name)).trim_end())
}

fn gave_up(event: &Event, at_most: Duration) -> Failure {
    let waiting = event.deliveries.iter().filter(|delivery| !delivery.state.is_settled());
    let names = waiting.map(|delivery| delivery.name.as_str()).collect::<Vec<_>>().join(", ");
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

    fn plan(words: &[&str]) -> Result<Plan, Failure> {
        plan_where(words, &|name| (name == "SVC_TOKEN").then(|| "svc_test".to_owned()))
    }

    fn plan_where(words: &[&str], environment: &dyn Fn(&str) -> Option<String>) -> Result<Plan, Failure> {
        Emit::from_args(&["svc", "event", "emit"], words).unwrap().plan(environment)
    }

    #[test]
    fn the_switches_become_one_plan() {
        assert_eq!(plan(&["t"]).unwrap(), Plan::Raise);
        assert_eq!(plan(&["t", "--explain"]).unwrap(), Plan::Explain);
        assert_eq!(plan(&["t", "--wait"]).unwrap(), Plan::Follow { at_most: Duration::from_secs(60) });
        let two = Plan::Follow { at_most: Duration::from_secs(2) };
        assert_eq!(plan(&["--wait", "t", "--timeout", "2s"]).unwrap(), two);
    }

    #[test]
    fn switches_that_contradict_each_other_are_bad_usage() {
        for words in [&["t", "--wait", "--explain"][..], &["t", "--timeout", "2s"], &["t", "{}", "--explain"]] {
            assert_eq!(plan(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn with_no_server_named_and_no_token_an_agent_is_tried() {
        assert_eq!(plan_where(&["t"], &|_| None).unwrap(), Plan::Guess);
        let named = |name: &str| (name == "SVC_SERVER").then(|| "http://127.0.0.1:7300".to_owned());
        assert_eq!(plan_where(&["t"], &named).unwrap(), Plan::Raise);
        for (words, plan) in [
            (&["t", "--server", "http://127.0.0.1:7300"][..], Plan::Raise),
            (&["t", "--token", "svc_test"], Plan::Raise),
            (&["t", "--id", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"], Plan::Raise),
            (&["t", "--explain"], Plan::Explain),
        ] {
            assert_eq!(plan_where(words, &|_| None).unwrap(), plan, "{words:?}");
        }
    }

    #[test]
    fn inside_a_space_events_go_through_the_agent_unless_a_server_is_named() {
        let inside = |name: &str| (name == "SVC_AGENT_URL").then(|| "http://127.0.0.1:7301".to_owned());
        assert_eq!(plan_where(&["t"], &inside).unwrap(), Plan::Spool);
        assert_eq!(plan(&["t", "--agent"]).unwrap(), Plan::Spool);
        assert_eq!(plan_where(&["t", "--server", "http://x"], &inside).unwrap(), Plan::Raise);
        assert_eq!(plan_where(&["t", "--token", "x", "--explain"], &inside).unwrap(), Plan::Explain);
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
