//! `svc source`: addresses at which other services raise events. [`apply`] keeps them in step with files, [`create`]
//! makes one from flags, [`test`] tries one out, and [`letters`] deals with requests that did not become events.

mod apply;
mod create;
mod letters;
mod test;

pub use apply::ApplySources;
pub use create::CreateSource;
pub use letters::{ListSourceLetters, RedeliverSourceLetters};
pub use test::TestSource;

use crate::{
    cli::{
        activation::Activation,
        arguments::brief,
        client::{Client, QueryString},
        failure::Failure,
        resource::{self, Resource, ResourceKind, joined, print_source},
        shell::Shell,
        table::{Cell, Fit, TextTable, Tone, yes_or_no},
    },
    model::{
        api::{
            sinks::QuarantineView,
            sources::{SourceRefusalView, SourceView},
        },
        owner::OwnerSpec,
        source_spec::SourceSpec,
        verifier::VerifierKind,
    },
};

command_family! {
    /// Manage sources: addresses at which other services raise events.
    #[argh(
        example = "{command_name} create --slug github --verify github --transform github.lua\n\
                   {command_name} apply contrib/sources/github.toml\n\
                   {command_name} test github @push.json --header 'X-GitHub-Event: push'"
    )]
    SourceCommand(SourceSubcommand) = "source" {
        ListSources, ShowSource, CreateSource, ApplySources, TestSource, ActivateSources, DeactivateSources, DeleteSource,
        ListSourceLetters, RedeliverSourceLetters,
    }
}

client_command! {
    /// Activate sources, so that their addresses take requests.
    #[argh(example = "{command_name} github\n{command_name} github gitlab --json")]
    ActivateSources = "activate" {
        /// the sources, by slug or id
        #[argh(positional)]
        sources: Vec<String>,
    }
}

client_command! {
    /// Deactivate sources. Their addresses answer 404 until they are activated again.
    #[argh(example = "{command_name} github\n{command_name} github gitlab --json")]
    DeactivateSources = "deactivate" {
        /// the sources, by slug or id
        #[argh(positional)]
        sources: Vec<String>,
    }
}

client_command! {
    /// List your sources, and the global ones if you manage those.
    #[argh(example = "{command_name}\n{command_name} --owner global --json")]
    ListSources = "list" {
        /// only those of this owner: me or global
        #[argh(option)]
        owner: Option<OwnerSpec>,
    }
}

show_and_delete_commands! {
    /// Show one source and what became of its requests. Its secret is never shown.
    #[argh(example = "{command_name} github")]
    ShowSource,
    /// Delete a source and its dead letters. Its address takes no more requests.
    #[argh(example = "{command_name} github")]
    DeleteSource
    of SourceView by
    /// the source's slug or id
    source
}

impl ActivateSources {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Activation::Activate.apply(shell, &client, ResourceKind::SOURCE, &self.sources, self.format())
    }
}

impl DeactivateSources {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        Activation::Deactivate.apply(shell, &client, ResourceKind::SOURCE, &self.sources, self.format())
    }
}

impl ListSources {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let query = QueryString::default().with_some("owner", self.owner);
        resource::list::<SourceView>(shell, &client, &query, self.format())
    }
}

impl Resource for SourceView {
    const KIND: ResourceKind = ResourceKind::SOURCE;
    type Item = Self;
    const COLUMNS: &'static [(&'static str, Fit)] = &[
        ("SLUG", Fit::Elastic),
        ("OWNER", Fit::Rigid),
        ("VERIFY", Fit::Rigid),
        ("ACTIVE", Fit::Rigid),
        ("ACCEPTED", Fit::Rigid),
        ("REFUSED", Fit::Rigid),
        ("DEAD", Fit::Rigid),
        ("ID", Fit::Rigid),
    ];

    fn row(source: Self) -> Vec<Cell> {
        let count = |number: u64, tone| Cell::count(usize::try_from(number).unwrap_or(usize::MAX), tone);
        let SourceSpec { slug, owner, verify, active, .. } = source.spec;
        vec![
            slug.into(),
            owner.as_str().into(),
            match verify.kind {
                VerifierKind::None => Cell::toned("none", Tone::Bad),
                kind => kind.to_string().into(),
            },
            match source.quarantine {
                Some(_) => Cell::toned("quarantined", Tone::Bad),
                None => yes_or_no(active.unwrap_or(true)),
            },
            count(source.activity.accepted, Tone::Good),
            count(source.activity.refused, Tone::Doubtful),
            Cell::count(source.dead_letters, Tone::Bad),
            source.id.to_string().into(),
        ]
    }

    fn add_fields(&self, table: &mut TextTable, client: &Client) {
        let spec = &self.spec;
        table.field("id", self.id.to_string());
        table.field("slug", spec.slug.as_str());
        table.field("url", client.server().url(&self.path));
        table.field("description", spec.description.as_str());
        table.field("owner", spec.owner.as_str());
        table.field("active", yes_or_no(spec.active.unwrap_or(true)));
        table.field("verify", spec.verify.kind.to_string());
        for (name, value) in verify_fields(self) {
            table.field(name, value);
        }
        table.field("rate", format!("{} a second", spec.rate));
        let activity = &self.activity;
        let counts =
            format!("{} accepted, {} refused, {} failed", activity.accepted, activity.refused, activity.failed);
        table.field("since start", counts);
        if let Some(SourceRefusalView { at, reason }) = &activity.last_refusal {
            table.field("last refusal", Cell::toned(format!("{}  {reason}", brief(*at)), Tone::Doubtful));
        }
        if let Some(QuarantineView { until, count, reason }) = &self.quarantine {
            let told = format!("until {until}: its Lua ended its process {count} times in a row: {reason}");
            table.field("quarantine", Cell::toned(told, Tone::Bad));
        }
        table.field("dead letters", Cell::count(self.dead_letters, Tone::Bad));
        table.field("created", brief(self.created_at));
        table.field("updated", brief(self.updated_at));
    }

    fn show_source(&self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        match &self.spec.transform {
            Some(source) => print_source(shell, "transform", source),
            None => Ok(()),
        }
    }
}

/// The settings of the verification that are set.
fn verify_fields(source: &SourceView) -> Vec<(&'static str, String)> {
    let verify = &source.spec.verify;
    let text = |value: &Option<String>| value.clone();
    let mut fields = vec![
        ("header", text(&verify.header)),
        ("query", text(&verify.query)),
        ("prefix", text(&verify.prefix)),
        ("user name", text(&verify.username)),
        ("signed", verify.signed.as_ref().map(joined)),
        ("timestamp", text(&verify.timestamp)),
        ("tolerance", verify.tolerance.map(|span| span.to_string())),
        ("id header", text(&verify.id_header)),
        ("overlap", verify.overlap.map(|span| span.to_string())),
    ];
    let former = source.former_secrets.iter().map(|until| Some(format!("until {}", brief(*until))));
    fields.extend(former.map(|until| ("former secret", until)));
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
