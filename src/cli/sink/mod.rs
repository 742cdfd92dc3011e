//! `svc sink`: destinations of events. [`apply`] keeps them in step with files, [`create`] makes one from flags,
//! [`test_preview`] tries one out, [`rotate`] gives one a new secret, [`queues`] deals with dead letters and with
//! subscribed methods, [`sequence`] tells what became of numbers, and [`replay`] sends events again.

mod apply;
mod create;
pub mod queues;
mod replay;
mod rotate;
mod sequence;
mod test_preview;

pub use apply::ApplySinks;
pub use create::CreateSink;
pub use queues::{ListDeadLetters, RedeliverDeadLetters};
pub use replay::{CancelReplay, ListReplays, PauseReplay, ReplayEvents, ResumeReplay};
pub use rotate::RotateSecret;
pub use sequence::ShowSequence;
pub use test_preview::{PreviewSink, TestSink};

use crate::{
    cli::{
        activation::Activation,
        arguments::brief,
        client::{Client, QueryString},
        failure::Failure,
        resource::{self, Resource, ResourceKind, print_source},
        shell::Shell,
        table::{Cell, Fit, TextTable, Tone, yes_or_no},
    },
    model::{
        api::sinks::{FilterErrorsView, QuarantineView, SinkFailureView, SinkView},
        batch_spec::BatchSpec,
        body_template::BodyTemplate,
        owner::OwnerSpec,
        sink_spec::{ScriptSinkSpec, SinkSpec},
    },
};

command_family! {
    /// Manage sinks: the webhooks and scripts that events are delivered to.
    #[argh(
        example = "{command_name} create --name slack --events 'custom.deploy.*' --url https://hooks.example.com/T0\n\
                   {command_name} apply sinks/\n\
                   {command_name} test slack '{{\"version\": \"1.2\"}}'"
    )]
    SinkCommand(SinkSubcommand) = "sink" {
        ListSinks, ShowSink, CreateSink, ApplySinks, TestSink, PreviewSink, ActivateSinks, DeactivateSinks, RotateSecret,
        DeleteSink, ListDeadLetters, RedeliverDeadLetters, ShowSequence, ReplayEvents, ListReplays, PauseReplay, ResumeReplay, CancelReplay,
    }
}

client_command! {
    /// Activate sinks, and deliver the events that wait for them.
    #[argh(example = "{command_name} slack\n{command_name} slack ops --json")]
    ActivateSinks = "activate" {
        /// the sinks, by name or id
        #[argh(positional)]
        sinks: Vec<String>,
    }
}

client_command! {
    /// Deactivate sinks. Events are queued for them, as far as their queues reach, and delivered once they are
    /// activated again.
    #[argh(example = "{command_name} slack\n{command_name} slack ops --json")]
    DeactivateSinks = "deactivate" {
        /// the sinks, by name or id
        #[argh(positional)]
        sinks: Vec<String>,
    }
}

client_command! {
    /// List your sinks, and the global ones if you manage those.
    #[argh(example = "{command_name}\n{command_name} --owner global --json")]
    ListSinks = "list" {
        /// only those of this owner: me or global
        #[argh(option)]
        owner: Option<OwnerSpec>,
    }
}

show_and_delete_commands! {
    /// Show one sink, its signing secret included.
    #[argh(example = "{command_name} slack")]
    ShowSink,
    /// Delete a sink and the events that wait for it.
    #[argh(example = "{command_name} slack")]
    DeleteSink
    of SinkView by
    /// the sink's name or id
    sink
}

impl ActivateSinks {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Activation::Activate.apply(shell, &client, ResourceKind::SINK, &self.sinks, self.format())
    }
}

impl DeactivateSinks {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Activation::Deactivate.apply(shell, &client, ResourceKind::SINK, &self.sinks, self.format())
    }
}

impl ListSinks {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default().with_some("owner", self.owner);
        resource::list::<SinkView>(shell, &client, &query, self.format())
    }
}

impl SinkFailureView {
    /// The failure in one line.
    fn told(&self) -> String {
        let mut told = format!("{} since {}: {}", self.state, self.since, self.reason);
        if let Some(attempts) = self.attempts {
            told += &format!("; {attempts} attempts so far");
        }
        if let Some(at) = self.next_attempt_at {
            told += &format!(", the next at {at}");
        }
        told
    }
}

impl Resource for SinkView {
    const KIND: ResourceKind = ResourceKind::SINK;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("NAME", Fit::Elastic),
        ("OWNER", Fit::Rigid),
        ("TYPE", Fit::Rigid),
        ("EVENTS", Fit::Elastic),
        ("ACTIVE", Fit::Rigid),
        ("QUEUED", Fit::Rigid),
        ("DEAD", Fit::Rigid),
        ("ID", Fit::Rigid),
    ];

    fn row(sink: Self) -> Vec<Cell> {
        let SinkSpec { name, events, kind, owner, active, .. } = sink.spec;
        vec![
            name.into(),
            owner.as_str().into(),
            kind.to_string().into(),
            events.into(),
            match (sink.quarantine, sink.failure) {
                (Some(_), _) => Cell::toned("quarantined", Tone::Bad),
                (None, Some(failure)) => Cell::toned(failure.state, Tone::Bad),
                (None, None) => yes_or_no(active.unwrap_or(true)),
            },
            Cell::count(sink.queue.depth, Tone::Doubtful),
            Cell::count(sink.queue.dead, Tone::Bad),
            sink.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, client: &Client) {
        let spec = &self.spec;
        table.field("id", self.id.to_string());
        table.field("name", spec.name.as_str());
        table.field("description", spec.description.as_str());
        table.field("owner", spec.owner.as_str());
        table.field("type", spec.kind.to_string());
        table.field("events", spec.events.as_str());
        if let Some(filter) = &spec.filter {
            table.field("filter", filter.as_str());
        }
        if let Some(FilterErrorsView { count, last, last_at }) = &self.filter_errors {
            let told = format!("{count}, each counted as a match; the last at {last_at}: {last}");
            table.field("filter errors", Cell::toned(told, Tone::Bad));
        }
        table.field("active", yes_or_no(spec.active.unwrap_or(true)));
        if let Some(failure) = &self.failure {
            table.field("failure", Cell::toned(failure.told(), Tone::Bad));
        }
        if spec.internal {
            table.field("internal", "yes");
        }
        if !spec.on_failure.is_default() {
            table.field("on failure", spec.on_failure.to_string());
        }
        table.field("queued", Cell::count(self.queue.depth, Tone::Doubtful));
        table.field("dead", Cell::count(self.queue.dead, Tone::Bad));
        table.field("next sequence", self.queue.next_sequence.to_string());
        if let Some(QuarantineView { until, count, reason }) = &self.quarantine {
            let told = format!("until {until}: its Lua ended its process {count} times in a row: {reason}");
            table.field("quarantine", Cell::toned(told, Tone::Bad));
        }
        if let Some(webhook) = &spec.webhook {
            table.field("url", webhook.url.to_string());
            table.field("secret", webhook.secret.as_ref().map(ToString::to_string).unwrap_or_default());
            if let Some(until) = self.previous_secret_until {
                table.field("previous secret", format!("until {until}"));
            }
            if webhook.ed25519 {
                table.field("ed25519", "yes");
            }
            for (name, value) in &webhook.headers {
                table.field("header", format!("{name}: {value}"));
            }
            if let Some(body) = webhook.body {
                table.field("body", body.to_string());
            }
            if let Some(BatchSpec { max, wait }) = webhook.batch {
                table.field("batch", format!("up to {max} events, after {wait} at the latest"));
            }
            if !webhook.gone.is_default() {
                table.field("gone", webhook.gone.to_string());
            }
            if webhook.skip_tls_verify {
                table.field("certificate", Cell::toned("not verified", Tone::Doubtful));
            }
        }
        if let Some(id) = spec.script.as_ref().and_then(|script| script.script_id) {
            table.field("stored script", ResourceKind::SCRIPT.name_and_id(client, id));
        }
        table.field("created", brief(self.created_at));
        table.field("updated", brief(self.updated_at));
    }

    fn show_source(&self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let webhook_template = self.spec.webhook.as_ref().and_then(|webhook| webhook.template.as_ref());
        match (self.spec.template.as_ref().or(webhook_template), &self.spec.script) {
            (Some(BodyTemplate::Lua(source)), _) => print_source(shell, "template (lua)", source),
            (Some(BodyTemplate::Text(source)), _) => print_source(shell, "template (text)", source),
            (None, Some(ScriptSinkSpec { source: Some(source), .. })) => print_source(shell, "script", source),
            (None, _) => Ok(()),
        }
    }
}
