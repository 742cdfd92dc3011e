//! `svc subscription`: the methods of one's spaces that are called for events. They come and go with registrations;
//! their dead letters are dealt with by `svc sink`, as a sink's are.

use super::{
    api,
    client::{Client, Query},
    failure::Failure,
    named::Kind,
    shell::{Form, Shell},
    table::{Cell, Fit, Table, Tone},
};

const PATH: &str = "/api/subscriptions";

command_family! {
    /// Look at the methods of your spaces that are called for events.
    #[argh(
        example = "{command_name} list\nsvc sink dead-letters notes/notes.on_deploy",
        note = "A subscription is named SPACE/METHOD. `svc sink dead-letters` and `svc sink redeliver` take that name, or \
                its id, as they take a sink's."
    )]
    Subscription = "subscription" { List }
}

client_command! {
    /// List the methods that are called for events, with what waits for each.
    #[argh(example = "{command_name}\n{command_name} --json")]
    List = "list" {}
}

impl List {
    fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let listing = client.list(PATH, &Query::default(), usize::MAX)?;
        if self.form() == Form::Json {
            return shell.out.json(&listing.to_json());
        }
        let mut table = Table::new(&[
            ("NAME", Fit::Elastic),
            ("EVENTS", Fit::Elastic),
            ("FORMATTERS", Fit::Elastic),
            ("SERVED", Fit::Rigid),
            ("QUEUED", Fit::Rigid),
            ("DEAD", Fit::Rigid),
            ("ID", Fit::Rigid),
        ]);
        for subscription in listing.read::<api::Subscription>(&client)? {
            let served = match subscription.open {
                true => Cell::toned("yes", Tone::Good),
                false => Cell::toned("away", Tone::Doubtful),
            };
            let name = subscription.name().into();
            let formatters = subscription.event_sinks.join(", ").into();
            let queue = subscription.queue;
            let (depth, dead) = (Cell::count(queue.depth, Tone::Doubtful), Cell::count(queue.dead, Tone::Bad));
            table.row([name, subscription.events.into(), formatters, served, depth, dead, subscription.id.into()]);
        }
        shell.out.table(&table)
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
        return Ok(Kind::Sink.find(client, text)?.id);
    }
    let all: Vec<api::Subscription> = client.list(PATH, &Query::default(), usize::MAX)?.read(client)?;
    let called = all.into_iter().find(|subscription| subscription.name() == text);
    called.map(|subscription| subscription.id).ok_or_else(|| {
        Failure::NoSuch(format!("no method is subscribed as `{text}`: `svc subscription list` shows what there is"))
    })
}
