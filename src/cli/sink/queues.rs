//! Queues of sinks and of subscribed methods: `svc sink dead-letters` and `redeliver`, and `svc subscription`.
//!
//! Subscriptions come and go with registrations of methods. Their dead letters are dealt with as a sink's are.

use crate::{
    cli::{
        arguments::{brief, parse_limit},
        client::{Client, DEFAULT_LIMIT, QueryString},
        failure::Failure,
        resource::ResourceKind,
        shell::{OutputFormat, Shell},
        table::{Cell, Fit, TextTable, Tone},
    },
    model::{
        api::{
            sinks::{RedeliverBody, RedeliverView},
            subscriptions::SubscriptionView,
        },
        delivery::DeadLetter,
        id::EventId,
    },
};
use std::num::NonZeroUsize;

const SUBSCRIPTIONS: &str = "/api/subscriptions";

command_family! {
    /// List the methods of your spaces that are called for events.
    #[argh(
        example = "{command_name} list\nsvc sink dead-letters notes/notes.on_deploy",
        note = "A subscription is named SPACE/METHOD. `svc sink dead-letters` and `svc sink redeliver` take that name, or \
                its id, as they take a sink's."
    )]
    SubscriptionCommand(SubscriptionSubcommand) = "subscription" { ListSubscriptions }
}

client_command! {
    /// List the methods that are called for events, with the length of each queue.
    #[argh(example = "{command_name}\n{command_name} --json")]
    ListSubscriptions = "list" {}
}

client_command! {
    /// List the events that a sink, or a subscribed method, could not be given.
    #[argh(example = "{command_name} slack\n{command_name} notes/notes.on_deploy")]
    ListDeadLetters = "dead-letters" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,

        /// the most to list (default 50)
        #[argh(option, default = "DEFAULT_LIMIT", arg_name = "n", from_str_fn(parse_limit))]
        limit: NonZeroUsize,

        /// go on where an earlier list ended: its `next`
        #[argh(option)]
        cursor: Option<String>,
    }
}

client_command! {
    /// Send dead letters again: these events, or all there are. An event that the sink holds is attempted at once.
    #[argh(example = "{command_name} slack\n{command_name} slack 01976f0e-5f0c-7c3a-9d55-0d7f5c1f2a77")]
    RedeliverDeadLetters = "redeliver" {
        /// the sink's name or id; a method's is SPACE/METHOD, or its subscription's id
        #[argh(positional)]
        sink: String,

        /// ids of events; all dead letters if left out
        #[argh(positional)]
        event: Vec<EventId>,
    }
}

impl ListSubscriptions {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let listing = client.list(SUBSCRIPTIONS, &QueryString::default(), usize::MAX)?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = TextTable::new(&[
            ("NAME", Fit::Elastic),
            ("EVENTS", Fit::Elastic),
            ("FILTER", Fit::Elastic),
            ("FORMATTERS", Fit::Elastic),
            ("SERVED", Fit::Rigid),
            ("QUEUED", Fit::Rigid),
            ("DEAD", Fit::Rigid),
            ("ID", Fit::Rigid),
        ]);
        for subscription in listing.read::<SubscriptionView>(&client)? {
            let served = match subscription.open {
                true => Cell::toned("yes", Tone::Good),
                false => Cell::toned("away", Tone::Doubtful),
            };
            let name = subscription.name().into();
            let formatters = subscription.event_sinks.join(", ").into();
            let queue = subscription.queue;
            let (depth, dead) = (Cell::count(queue.depth, Tone::Doubtful), Cell::count(queue.dead, Tone::Bad));
            let id = subscription.id.to_string().into();
            let filter = match (subscription.filter, subscription.filter_errors) {
                (Some(filter), Some(errors)) => Cell::toned(format!("{filter} ({} errors)", errors.count), Tone::Bad),
                (filter, _) => filter.unwrap_or_default().into(),
            };
            table.row([name, subscription.events.into(), filter, formatters, served, depth, dead, id]);
        }
        shell.out.table(&table)
    }
}

impl ListDeadLetters {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/dead-letters", ResourceKind::SINK.path_of_id(find_queue(&client, &self.sink)?));
        let listing = client.list_from(&path, &QueryString::default(), self.limit.get(), self.cursor.clone())?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(&listing.to_json());
        }
        let letters: Vec<DeadLetter> = listing.read(&client)?;
        let mut table = TextTable::new(&[
            ("EVENT", Fit::Rigid),
            ("TYPE", Fit::Elastic),
            ("SEQUENCE", Fit::Rigid),
            ("DIED", Fit::Rigid),
            ("ATTEMPTS", Fit::Rigid),
            ("WHY", Fit::Elastic),
        ]);
        for letter in letters {
            let [event, sequence, attempts] =
                [letter.event_id.to_string(), letter.sequence.to_string(), letter.attempts.to_string()].map(Cell::from);
            let [kind, why] = [letter.event_type, letter.why].map(Cell::from);
            table.row([event, kind, sequence, brief(letter.died_at).into(), attempts, why]);
        }
        shell.out.table(&table)?;
        shell.note_next_page(listing.next());
        Ok(())
    }
}

impl RedeliverDeadLetters {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let path = format!("{}/redeliver", ResourceKind::SINK.path_of_id(find_queue(&client, &self.sink)?));
        let event_ids = (!self.event.is_empty()).then(|| self.event.clone());
        let answer = client.post(&path, &RedeliverBody { event_ids })?;
        let RedeliverView { redelivered, remaining, damaged, retried } = client.read(&answer)?;
        if self.format() == OutputFormat::Json {
            shell.out.json(answer.as_str())?;
        }
        if !self.event.is_empty() && redelivered == 0 && damaged == 0 && !retried {
            return Err(Failure::Bad(format!(
                "nothing was queued: none of these events is a dead letter of `{sink}`, or its queue is full; \
                 `svc sink dead-letters {sink}` lists them",
                sink = self.sink
            )));
        }
        if self.format() == OutputFormat::Json {
            return Ok(());
        }
        let mut rest = match (remaining.saturating_sub(damaged), self.event.is_empty()) {
            (0, _) => String::new(),
            (left, false) => format!("; {left} others remain dead"),
            (left, true) => format!("; {left} remain dead, as the queue has no room for more now"),
        };
        if damaged > 0 {
            rest += &format!("; {damaged} cannot be sent again, as they are damaged");
        }
        if retried {
            rest += "; the event that waited for its next attempt is attempted now";
        }
        shell.out.line(&format!("queued {redelivered} again{rest}"))
    }
}

/// The id of the queue called `text`: a sink's by its name, a subscription's by SPACE/METHOD, either's by its id.
///
/// # Errors
///
/// Fails if nothing has this name, or if several have.
pub fn find_queue(client: &Client, text: &str) -> Result<String, Failure> {
    // No sink's name has a slash.
    if !text.contains('/') {
        return Ok(ResourceKind::SINK.find(client, text)?.id);
    }
    let listing = client.list(SUBSCRIPTIONS, &QueryString::default(), usize::MAX)?;
    let all: Vec<SubscriptionView> = listing.read(client)?;
    let called = all.into_iter().find(|subscription| subscription.name() == text);
    called.map(|subscription| subscription.id.to_string()).ok_or_else(|| {
        Failure::NoSuch(format!("no method is subscribed as `{text}`: `svc subscription list` shows what there is"))
    })
}
