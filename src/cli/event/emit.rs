//! `svc event TYPE`: raises an event and waits for its deliveries if asked to, or only explains its routes.
//!
//! Stdin is read only if `-` or `--stdin` asks for it: a hook in the body of `while read` shares the loop's input.

use super::{
    flush::{note_refused, send_kept},
    receiver::{EmitTarget, EventReceiver, OutgoingEvent, target_of},
    spool::{Acquire, EventSpool, FlushEnd, KeptEvent},
    wait::{RaisedEvent, wait_for_deliveries},
};
use crate::{
    cli::{
        access::{Access, AccessFlags, EventDefaults},
        arguments::PayloadSource,
        client::{ANSWER_TIMEOUT, AgentHttp, Client, ResponseText, to_json},
        failure::Failure,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone, printable},
    },
    model::{
        api::{
            agent::SpoolReceiptView,
            events::{ExplainBody, Explanation, ReceiptView, SinkRef},
        },
        event::EventType,
        id::EventId,
        timestamp::Timestamp,
    },
    platform::config::Span,
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::time::{Duration, Instant};

/// The timeout of a request with `--spool`. The event is on disk already, and a hook is not to be held up.
const SPOOL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a command with `--spool` sends no further event: those of other commands stay in the spool.
const SPOOL_TIME: Duration = Duration::from_secs(20);

client_command! {
    /// Raise an event. Its payload is given as JSON or as @FILE, or read from stdin if that is asked for.
    #[argh(
        example = "{command_name} deploy.done '{{\"version\": \"1.2\"}}' --wait\n\
                   echo '{{\"load\": 12.5}}' | {command_name} host.busy -\n\
                   {command_name} backup.done --spool\n\
                   {command_name} deploy.done '{{\"version\": \"1.2\"}}' --explain",
        note = "The event goes to the agent of this space where SVC_AGENT_URL is set, and otherwise to the server. Where \
                neither flags nor the environment nor a login name a server or hold a token for one, an agent at \
                http://127.0.0.1:7301 is tried first. Events that --spool kept are sent first, in their order."
    )]
    EmitEvent = "emit" {
        /// the event's type, such as deploy.done; `custom.` is put in front
        #[argh(positional, arg_name = "type")]
        kind: String,

        /// the payload, a JSON object; @FILE reads a file and - stdin; without one it is empty
        #[argh(positional, arg_name = "json")]
        payload: Option<String>,

        /// read the payload from stdin, as - does
        #[argh(switch)]
        stdin: bool,

        /// return only when every sink and method that matched has settled, with a line for each; fails if one is dead
        /// or dropped
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

        /// keep the event on this machine if the server cannot be reached, for the next `svc event` or
        /// `svc event flush`; the default with `spool = true` under `[event]` in client.toml, except with --wait
        #[argh(switch)]
        spool: bool,
    }
}

/// The action that the flags and the environment ask for.
#[derive(Debug, PartialEq, Eq)]
enum EmitPlan {
    /// Print the routes of the event.
    Explain,
    /// Raise it, and wait for its deliveries if there is a time for that.
    Raise { to: EmitTarget, wait: Option<Duration> },
}

/// The treatment of an event that cannot be sent for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsent {
    Fails,
    IsKept,
}

/// The state of an event to which this command has no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unanswered {
    Kept,
    SentByAnother,
}

/// The output of `--json` for such an event.
#[derive(Serialize)]
struct KeptView<'a> {
    event_id: EventId,
    event_type: &'a str,
    kept: bool,
    reason: &'a str,
}

impl EmitEvent {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let plan = self.plan(shell.environment)?;
        // Checked here too, so that a typo costs no round trip and does not wait for stdin.
        EventType::custom(&self.kind).map_err(|error| Failure::Usage(format!("`{}`: {error}", self.kind)))?;
        let (to, wait) = match plan {
            EmitPlan::Explain => {
                let client = self.client(shell)?;
                let OutgoingEvent { kind, payload, .. } = self.event(shell, Unsent::Fails)?;
                return explain(shell, &client, kind, payload, self.format());
            }
            EmitPlan::Raise { to, wait } => (to, wait),
        };
        let unsent = match self.spool || (wait.is_none() && EventDefaults::find(shell.environment)?.spool) {
            true => Unsent::IsKept,
            false => Unsent::Fails,
        };
        let event = self.event(shell, unsent)?;
        let agent = || AgentHttp::find(shell.environment).map(EventReceiver::Agent);
        let server = || self.client(shell).map(EventReceiver::Server);
        match to {
            EmitTarget::Server => {
                let server = server()?;
                self.raise(shell, &server, &event, unsent, wait)
            }
            EmitTarget::Agent => {
                let agent = agent()?;
                self.raise(shell, &agent, &event, unsent, wait)
            }
            EmitTarget::AgentOrServer => {
                let (agent, server) = (AgentHttp::find(shell.environment)?, server()?);
                // The receiver is part of what the spool keeps, so it is chosen before anything is sent.
                let receiver = if agent.is_listening() { EventReceiver::Agent(agent) } else { server };
                self.raise(shell, &receiver, &event, unsent, wait)
            }
        }
    }

    fn plan(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<EmitPlan, Failure> {
        if self.stdin && self.payload.is_some() {
            return Err(Failure::Usage("--stdin and a payload: leave one out".to_owned()));
        }
        if self.spool && (self.wait || self.explain) {
            let other = if self.wait { "--wait" } else { "--explain" };
            return Err(Failure::Usage(format!(
                "{other} needs the server now, and --spool does without: leave one out"
            )));
        }
        match self.target(environment)? {
            EmitTarget::Server => match self.plan_for(EmitTarget::Server)? {
                EmitPlan::Raise { wait, .. } if self.id.is_none() && self.server.is_none() => {
                    let access = Access::find(&AccessFlags { server: None, token: self.token.clone() }, environment)?;
                    let is_default = access.is_default(environment);
                    let to = if is_default { EmitTarget::AgentOrServer } else { EmitTarget::Server };
                    Ok(EmitPlan::Raise { to, wait })
                }
                plan => Ok(plan),
            },
            target => self.plan_for(target),
        }
    }

    /// The receiver of the event. A server or a token among the flags means the server.
    fn target(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<EmitTarget, Failure> {
        let named = self.server.is_some() || self.token.is_some();
        if self.agent && named {
            return Err(Failure::Usage("--agent asks no server: leave it, or --server and --token, out".to_owned()));
        }
        match if self.agent { EmitTarget::Agent } else { target_of(named, environment) } {
            EmitTarget::Agent if self.explain => Err(Failure::Usage(
                "--explain is for a server, and here events go through the agent: leave it out, or name a server with \
                 --server"
                    .to_owned(),
            )),
            target => Ok(target),
        }
    }

    fn plan_for(&self, to: EmitTarget) -> Result<EmitPlan, Failure> {
        match (self.explain, self.wait, self.timeout) {
            (true, true, _) => Err(Failure::Usage("--explain sends nothing to --wait for: leave one out".to_owned())),
            (true, false, _) if self.id.is_some() => {
                Err(Failure::Usage("--explain sends nothing that has an id: leave --id out".to_owned()))
            }
            (_, false, Some(_)) => Err(Failure::Usage("--timeout is for --wait: add that".to_owned())),
            (true, false, None) => Ok(EmitPlan::Explain),
            (false, false, None) => Ok(EmitPlan::Raise { to, wait: None }),
            (false, true, span) => {
                let wait = span.map_or(Duration::from_secs(60), |Span(length)| length);
                Ok(EmitPlan::Raise { to, wait: Some(wait) })
            }
        }
    }

    /// The event to send. One that may be sent again has an id.
    fn event(&self, shell: &mut Shell<'_>, unsent: Unsent) -> Result<OutgoingEvent, Failure> {
        let payload = match (&self.payload, self.stdin) {
            (None, false) => PayloadSource::Given("{}".to_owned()),
            (None, true) => PayloadSource::Stdin,
            (Some(argument), _) => PayloadSource::of_argument(Some(argument)),
        };
        let id = match unsent {
            Unsent::IsKept => Some(self.id.unwrap_or_else(EventId::new)),
            Unsent::Fails => self.id,
        };
        Ok(OutgoingEvent { kind: self.kind.clone(), payload: payload.read(shell)?, id })
    }

    /// Sends the event behind those that are kept for the same receiver.
    fn raise(
        &self,
        shell: &mut Shell<'_>,
        receiver: &EventReceiver,
        event: &OutgoingEvent,
        unsent: Unsent,
        wait: Option<Duration>,
    ) -> Result<(), Failure> {
        if unsent == Unsent::IsKept {
            return self.raise_spooled(shell, receiver, event);
        }
        // Nothing of this user is kept without a home directory, or in a directory that this user cannot read.
        if let Ok(spool) = EventSpool::find(shell.environment)
            && spool.count(&receiver.spool_key()).unwrap_or(0) > 0
        {
            let sent = send_kept(&spool, receiver, Acquire::Patiently, ANSWER_TIMEOUT, FlushEnd::default(), |_, _| {})?
                .ok_or_else(|| {
                    Failure::Bad("another command is sending the events before this one: try again later".to_owned())
                })?;
            note_refused(shell, &sent.refused);
            if let Some(stopped) = sent.stopped {
                return Err(receiver.failure(stopped.failure));
            }
        }
        let answer = receiver.send(event, ANSWER_TIMEOUT).map_err(|failure| receiver.failure(failure))?;
        self.report(shell, receiver, &answer, wait)
    }

    /// Writes the event to the spool, behind those that are kept for the same receiver, and sends all of them unless
    /// another command is at it. The event is on disk before it is sent, so that it survives the end of this process;
    /// one that the receiver refuses is not kept.
    fn raise_spooled(
        &self,
        shell: &mut Shell<'_>,
        receiver: &EventReceiver,
        event: &OutgoingEvent,
    ) -> Result<(), Failure> {
        let spool = EventSpool::find(shell.environment)?;
        let key = receiver.spool_key();
        let kept = kept(receiver, event);
        let file = match spool.append(&key, &kept) {
            Ok(file) => file,
            // A spool that takes nothing is no obstacle while the receiver is there, and no event is before this one.
            Err(failure) if spool.count(&key).is_ok_and(|waiting| waiting == 0) => {
                return match receiver.send(event, SPOOL_TIMEOUT) {
                    Ok(answer) => self.report(shell, receiver, &answer, None),
                    Err(unsent) if unsent.keeps_event() => Err(failure),
                    Err(refused) => Err(receiver.failure(refused)),
                };
            }
            Err(failure) => return Err(failure),
        };
        let mut own: Option<ResponseText> = None;
        let end = FlushEnd { own: Some(kept.id), until: Some(Instant::now() + SPOOL_TIME) };
        let flushed = send_kept(&spool, receiver, Acquire::AtOnce, SPOOL_TIMEOUT, end, |sent, answer| {
            if sent.id == kept.id {
                own = Some(answer);
            }
        })?;
        let Some(mut flushed) = flushed else {
            return self.report_kept(shell, &kept, "another command is sending the events before it");
        };
        let own_refusal = flushed.refused.extract_if(.., |refused| refused.id == Some(kept.id)).next();
        note_refused(shell, &flushed.refused);
        match (own, own_refusal, flushed.stopped) {
            (Some(answer), ..) => self.report(shell, receiver, &answer, None),
            (None, Some(refused), _) => {
                spool.discard_refused(&refused)?;
                Err(Failure::Bad(refused.reason))
            }
            (None, None, Some(stopped)) if stopped.failure.keeps_event() => {
                self.report_kept(shell, &kept, &receiver.failure(stopped.failure).to_string())
            }
            (None, None, Some(stopped)) => {
                if stopped.id != Some(kept.id) {
                    shell.note("the event is kept behind others, which were refused for now");
                }
                Err(receiver.failure(stopped.failure))
            }
            (None, None, None) if file.exists() => {
                self.report_kept(shell, &kept, "the events before it take long to send")
            }
            (None, None, None) => match spool.set_aside_as(&file) {
                Some(refused) => Err(Failure::Bad(format!(
                    "another command sent the event, and it was refused; it is set aside as {}",
                    refused.display()
                ))),
                None => self.report_sent_by_another(shell, &kept),
            },
        }
    }

    /// Prints the answer to the event, or waits for its deliveries and prints those.
    fn report(
        &self,
        shell: &mut Shell<'_>,
        receiver: &EventReceiver,
        answer: &ResponseText,
        wait: Option<Duration>,
    ) -> Result<(), Failure> {
        if wait.is_none() && self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let (raised, receipt) = match receiver {
            EventReceiver::Server(client) => {
                let receipt: ReceiptView = client.read(answer)?;
                (RaisedEvent { id: receipt.event_id, event_type: receipt.event_type.clone() }, Some(receipt))
            }
            EventReceiver::Agent(agent) => {
                let SpoolReceiptView { event_id, event_type, .. } = agent.read(answer)?;
                (RaisedEvent { id: event_id, event_type: event_type.to_string() }, None)
            }
        };
        match (wait, receipt) {
            (Some(at_most), _) => wait_for_deliveries(shell, receiver, &raised, self.format(), at_most),
            (None, Some(receipt)) => print_receipt(shell, &receipt),
            (None, None) => shell.out.line(&format!("{}  {}", raised.id, raised.event_type)),
        }
    }

    /// Another command took the event along with its own.
    fn report_sent_by_another(&self, shell: &mut Shell<'_>, event: &KeptEvent) -> Result<(), Failure> {
        self.report_unanswered(shell, event, Unanswered::SentByAnother, "another command has sent it meanwhile")
    }

    fn report_kept(&self, shell: &mut Shell<'_>, event: &KeptEvent, reason: &str) -> Result<(), Failure> {
        self.report_unanswered(shell, event, Unanswered::Kept, reason)
    }

    /// Prints what became of an event to which this command has no answer.
    fn report_unanswered(
        &self,
        shell: &mut Shell<'_>,
        event: &KeptEvent,
        state: Unanswered,
        reason: &str,
    ) -> Result<(), Failure> {
        let (event_type, kept) = (event.event_type(), state == Unanswered::Kept);
        match self.format() {
            OutputFormat::Json => {
                shell.out.json(&to_json(&KeptView { event_id: event.id, event_type: &event_type, kept, reason }))
            }
            OutputFormat::Text => {
                let kept = if kept { "kept: " } else { "" };
                shell.out.line(&format!("{}  {event_type}  {kept}{}", event.id, printable(reason)))
            }
        }
    }
}

fn kept(receiver: &EventReceiver, event: &OutgoingEvent) -> KeptEvent {
    KeptEvent {
        to: receiver.address(),
        id: event.id.unwrap_or_else(EventId::new),
        kind: event.kind.clone(),
        payload: event.payload.clone(),
        raised_at: Timestamp::now(),
    }
}

fn print_receipt(shell: &mut Shell<'_>, receipt: &ReceiptView) -> Result<(), Failure> {
    let queued = counted(&receipt.matched);
    shell.out.line(&format!("{}  {}  {queued}", receipt.event_id, receipt.event_type))?;
    for lost in &receipt.dropped {
        let look = match lost.is_method() {
            true => "svc subscription list".to_owned(),
            false => format!("svc sink show {}", lost.name),
        };
        shell.note(&format!("dropped for `{}`: its queue is full (see `{look}`)", lost.name));
    }
    Ok(())
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

fn explain(
    shell: &mut Shell<'_>,
    client: &Client,
    kind: String,
    payload: Box<RawValue>,
    format: OutputFormat,
) -> Result<(), Failure> {
    let answer = client
        .post("/api/events/explain", &ExplainBody { kind: Some(kind), payload: Some(payload), event_id: None })?;
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

    fn raise(to: EmitTarget) -> EmitPlan {
        EmitPlan::Raise { to, wait: None }
    }

    fn raise_and_wait(to: EmitTarget, seconds: u64) -> EmitPlan {
        EmitPlan::Raise { to, wait: Some(Duration::from_secs(seconds)) }
    }

    #[test]
    fn the_flags_become_one_plan() {
        assert_eq!(plan(&["t"]).unwrap(), raise(EmitTarget::Server));
        assert_eq!(plan(&["t", "--explain"]).unwrap(), EmitPlan::Explain);
        assert_eq!(plan(&["t", "--wait"]).unwrap(), raise_and_wait(EmitTarget::Server, 60));
        assert_eq!(plan(&["--wait", "t", "--timeout", "2s"]).unwrap(), raise_and_wait(EmitTarget::Server, 2));
        assert_eq!(plan(&["--spool", "t", "--stdin"]).unwrap(), raise(EmitTarget::Server));
    }

    #[test]
    fn flags_that_contradict_each_other_are_bad_usage() {
        for words in [
            &["t", "--wait", "--explain"][..],
            &["t", "--timeout", "2s"],
            &["t", "--explain", "--id", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"],
            &["t", "{}", "--stdin"],
            &["t", "--wait", "--spool"],
            &["t", "--explain", "--spool"],
        ] {
            assert_eq!(plan(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }

    #[test]
    fn with_no_server_named_and_no_token_an_agent_is_tried() {
        assert_eq!(plan_where(&["t"], &|_| None).unwrap(), raise(EmitTarget::AgentOrServer));
        assert_eq!(plan_where(&["t", "--wait"], &|_| None).unwrap(), raise_and_wait(EmitTarget::AgentOrServer, 60));
        let named = |name: &str| (name == "SVC_SERVER").then(|| "http://127.0.0.1:7300".to_owned());
        assert_eq!(plan_where(&["t"], &named).unwrap(), raise(EmitTarget::Server));
        for (words, plan) in [
            (&["t", "--server", "http://127.0.0.1:7300"][..], raise(EmitTarget::Server)),
            (&["t", "--token", "svc_test"], raise(EmitTarget::Server)),
            (&["t", "--id", "01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77"], raise(EmitTarget::Server)),
            (&["t", "--explain"], EmitPlan::Explain),
            (&["t", "{}", "--explain"], EmitPlan::Explain),
        ] {
            assert_eq!(plan_where(words, &|_| None).unwrap(), plan, "{words:?}");
        }
    }

    #[test]
    fn inside_a_space_events_go_through_the_agent_unless_a_server_is_named() {
        let inside = |name: &str| (name == "SVC_AGENT_URL").then(|| "http://127.0.0.1:7301".to_owned());
        assert_eq!(plan_where(&["t"], &inside).unwrap(), raise(EmitTarget::Agent));
        assert_eq!(plan(&["t", "--agent"]).unwrap(), raise(EmitTarget::Agent));
        assert_eq!(plan_where(&["t", "--server", "http://x"], &inside).unwrap(), raise(EmitTarget::Server));
        assert_eq!(plan_where(&["t", "--token", "x", "--explain"], &inside).unwrap(), EmitPlan::Explain);
        assert_eq!(plan_where(&["t", "--wait"], &inside).unwrap(), raise_and_wait(EmitTarget::Agent, 60));
        for words in [&["t", "--explain"][..], &["t", "--agent", "--server", "http://x"]] {
            let failure = plan_where(words, &inside).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{words:?}");
            assert!(failure.to_string().contains("--server"), "{words:?}: {failure}");
        }
    }
}
